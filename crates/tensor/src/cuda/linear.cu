// y[:, first..] = act(x·Wᵀ + b): x is rows × k, W is out × k, both row by row; y has rows of `width`.
// One block computes 64 × 64 outputs; each of its 256 threads 4 × 4 of them, from tiles of x and W in shared memory.

#define TILE 64
#define DEPTH 16

extern "C" __global__ void linear_f32(const float *x, const float *w, const float *bias, float *y, float *pre, int rows,
                                      int k, int out, int width, int first, int activation) {
    __shared__ float xs[DEPTH][TILE + 1], ws[DEPTH][TILE + 1];
    int row0 = blockIdx.x * TILE, col0 = blockIdx.y * TILE;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        for (int at = threadIdx.x; at < TILE * DEPTH; at += 256) {
            int i = at / DEPTH, t = at % DEPTH;
            bool inside = k0 + t < k;
            xs[t][i] = inside && row0 + i < rows ? x[(long long)(row0 + i) * k + k0 + t] : 0.0f;
            ws[t][i] = inside && col0 + i < out ? w[(long long)(col0 + i) * k + k0 + t] : 0.0f;
        }
        __syncthreads();
        for (int t = 0; t < DEPTH; t++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += xs[t][ty * 4 + i] * ws[t][tx * 4 + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int row = row0 + ty * 4 + i, col = col0 + tx * 4 + j;
            if (row >= rows || col >= out) continue;
            float v = sum[i][j] + (bias ? bias[col] : 0.0f);
            long long at = (long long)row * width + first + col;
            if (pre) pre[at] = v;
            y[at] = activate(activation, 0.0f, v);
        }
}
