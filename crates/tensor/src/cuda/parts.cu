// Adds rows of partial sums in order: to[k] = Σ over parts of partial[part·stride + first + k]. A block has 32 columns; each of its
// 8 rows of threads has every 8th part.

extern "C" __global__ void add_parts(const T *partial, int parts, int stride, int first, int count, T *to) {
    __shared__ C shared[8][32];
    int x = threadIdx.x % 32, y = threadIdx.x / 32, column = blockIdx.x * 32 + x;
    C sum = (C)0;
    if (column < count) {
        const T *at = partial + first + column;
#pragma unroll 4
        for (int p = y; p < parts; p += 8) sum += load(at[(i64)p * stride]);
    }
    shared[y][x] = sum;
    __syncthreads();
    if (y > 0 || column >= count) return;
#pragma unroll
    for (int k = 1; k < 8; k++) sum += shared[k][x];
    to[column] = store<T>(sum);
}
