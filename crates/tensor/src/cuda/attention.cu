// Dot-product attention over the in-edges of each destination, with an online softmax: the output and the log-sum-exp.
// One block per destination, one thread per column; the columns of a head agree on their score through shared memory.

extern "C" __global__ void dot_attention_f32(const unsigned long long *indptr, const unsigned int *indices, const float *q,
                                             const float *kv, float *out, float *lse, int heads, int d, float scale) {
    extern __shared__ float products[];
    int row = blockIdx.x, c = threadIdx.x, w = d / heads, h = c / w;
    float mine = q[(long long)row * d + c];
    float m = NEGATIVE_INFINITY, s = 0.0f, acc = 0.0f;
    for (unsigned long long at = indptr[row]; at < indptr[row + 1]; at++) {
        const float *k = kv + (long long)indices[at] * 2 * d;
        products[c] = mine * k[c];
        __syncthreads();
        float score = 0.0f;
        for (int t = h * w; t < (h + 1) * w; t++) score += products[t];
        __syncthreads();
        score *= scale;
        float larger = fmaxf(m, score);
        float shrink = expf(m - larger), p = expf(score - larger);
        s = s * shrink + p;
        acc = acc * shrink + p * k[d + c];
        m = larger;
    }
    out[(long long)row * d + c] = s > 0.0f ? acc / s : 0.0f;
    if (c % w == 0) lse[(long long)row * heads + h] = m + logf(s);
}
