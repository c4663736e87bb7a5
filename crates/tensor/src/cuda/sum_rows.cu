// The sum of up to 256 rows, a block for 32 columns: eight threads for a column, each over every eighth row, then those
// in order. Of more rows, every 256 give a row of sums; the host calls again until one is left.

extern "C" __global__ void __launch_bounds__(256) sum_rows(const T *from, C *to, u64 rows, u64 columns) {
    __shared__ C sums[8][33];
    u32 x = threadIdx.x % 32, y = threadIdx.x / 32;
    u64 column = (u64)blockIdx.y * 32 + x, first = (u64)blockIdx.x * 256;
    C sum = 0;
    if (column < columns)
#pragma unroll 8
        for (u32 k = y; k < 256; k += 8)
            if (first + k < rows) sum += load(from[(first + k) * columns + column]);
    sums[y][x] = sum;
    __syncthreads();
    if (y != 0 || column >= columns) return;
#pragma unroll
    for (int k = 1; k < 8; k++) sum += sums[k][x];
    to[blockIdx.x * columns + column] = sum;
}
