// Adds rows of partial sums in order: to[k] = Σ over parts of partial[part·stride + first + k]. A block has 32 columns;
// each of its 32 rows of threads has every 32nd part.

extern "C" __global__ void add_parts(const T *partial, int parts, int stride, int first, int count, T *to) {
    __shared__ C shared[32][32];
    int x = threadIdx.x % 32, y = threadIdx.x / 32, column = blockIdx.x * 32 + x;
    C sum = (C)0;
    if (column < count) {
        const T *at = partial + first + column;
#pragma unroll 4
        for (int p = y; p < parts; p += 32) sum += load(at[(i64)p * stride]);
    }
    shared[y][x] = sum;
    __syncthreads();
    if (y > 0 || column >= count) return;
#pragma unroll
    for (int k = 1; k < 32; k++) sum += shared[k][x];
    to[column] = store<T>(sum);
}
