// Σ x² of chunks of matrices, in f64.

struct Entry {
    const T *x;
    i64 len;
};

extern "C" __global__ void square_sums(const Entry *entries, const uint2 *chunks, double *to) {
    __shared__ double shared[8];
    Entry e = entries[chunks[blockIdx.x].x];
    i64 start = (i64)chunks[blockIdx.x].y * CHUNK, end = start + CHUNK < e.len ? start + CHUNK : e.len;
    double sum = 0.0;
    for (i64 k = start + threadIdx.x; k < end; k += 256) {
        double x = (double)load(e.x[k]);
        sum += x * x;
    }
    sum = lane_sum<32>(sum);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int k = 1; k < 8; k++) sum += shared[k];
    to[blockIdx.x] = sum;
}
