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

// Of a recorded step: adds up the parts of every matrix, in their order, then the matrices. Gradients that are longer
// than `clip` are shortened; where something is not finite, nothing is to be moved. One block.
extern "C" __global__ void settle(const u32 *starts, const double *parts, int matrices, const double *loss, double clip, Told *told,
                                  double *found) {
    double *sums = found + 1;
    for (int k = threadIdx.x; k < matrices; k += blockDim.x) {
        double sum = 0.0;
        for (u32 at = starts[k]; at < starts[k + 1]; at++) sum += parts[at];
        sums[k] = sum;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    double total = 0.0;
    bool finite = isfinite(*loss);
    for (int k = 0; k < matrices; k++) {
        total += sums[k];
        finite = finite && isfinite(sums[k]);
    }
    found[0] = *loss;
    told->scale = clip > 0.0 ? fmin(clip / (sqrt(total) + 1e-6), 1.0) : 1.0;
    told->go = finite ? 1.0 : 0.0;
}
