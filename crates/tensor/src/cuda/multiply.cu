// to = a·b, added to what `to` holds if `add`, with strides of rows and columns of a and b: for shapes and types that
// cuBLASLt does not take. A block has a tile of 64 × 64, a thread 4 × 4 of it.

#if WIDE
typedef C To;
#else
typedef T To;
#endif
#define TILE 64
#define DEPTH 16

extern "C" __global__ void multiply(const T *a, i64 a_row, i64 a_col, const T *b, i64 b_row, i64 b_col, To *to, i64 to_row, i64 m,
                                    i64 n, i64 k, int add) {
    __shared__ C as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
    i64 row0 = (i64)blockIdx.x * TILE, col0 = (i64)blockIdx.y * TILE;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    C sum[4][4] = {};
    for (i64 k0 = 0; k0 < k; k0 += DEPTH) {
        for (int at = threadIdx.x; at < TILE * DEPTH; at += 256) {
            int i = at / DEPTH, t = at % DEPTH;
            bool inside = k0 + t < k;
            as[t][i] = inside && row0 + i < m ? load(a[(row0 + i) * a_row + (k0 + t) * a_col]) : (C)0;
            bs[t][i] = inside && col0 + i < n ? load(b[(k0 + t) * b_row + (col0 + i) * b_col]) : (C)0;
        }
        __syncthreads();
        for (int t = 0; t < DEPTH; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += as[t][ty * 4 + i] * bs[t][tx * 4 + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            i64 row = row0 + ty * 4 + i, col = col0 + tx * 4 + j;
            if (row >= m || col >= n) continue;
            To *at = to + row * to_row + col;
            *at = store<To>(add ? load(*at) + sum[i][j] : sum[i][j]);
        }
}
