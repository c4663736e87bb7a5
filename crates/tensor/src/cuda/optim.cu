// Optimizer steps: all parameters in one launch. A block has a chunk of one parameter. `told` is null where nothing is
// recorded.

struct Entry {
    C *value;
    const C *gradient;
    C *first, *second;
    i64 len;
    double decays;  // 1, or 0 where weight decay does not act on it.
};

// An entry of `chunks` is (parameter, number of the chunk of it); CHUNK elements each.
#define EACH_ELEMENT(entries, chunks)                                        \
    Entry p = entries[chunks[blockIdx.x].x];                                  \
    i64 start = (i64)chunks[blockIdx.x].y * CHUNK;                            \
    i64 end = start + CHUNK < p.len ? start + CHUNK : p.len;                  \
    for (i64 k = start + threadIdx.x; k < end; k += blockDim.x)

extern "C" __global__ void adam(const Entry *entries, const uint2 *chunks, const Told *told, Told now, double penalty, double beta1,
                                double beta2, double epsilon) {
    if (told) now = *told;
    if (now.go == 0.0) return;
    C scale = (C)now.scale, keep = (C)now.keep, rate = (C)now.rate, root_scale = (C)now.root_scale;
    C b1 = (C)beta1, b2 = (C)beta2, c1 = (C)(1.0 - beta1), c2 = (C)(1.0 - beta2);
    EACH_ELEMENT(entries, chunks) {
        C value = p.value[k];
        C g = p.gradient[k] * scale + (C)(penalty * p.decays) * value;
        C m = b1 * p.first[k] + c1 * g;
        C v = b2 * p.second[k] + c2 * g * g;
        p.first[k] = m;
        p.second[k] = v;
        p.value[k] = (p.decays != 0.0 ? keep : (C)1) * value - rate * m / (root(v) * root_scale + (C)epsilon);
    }
}

// Without momentum there is no buffer.
extern "C" __global__ void sgd(const Entry *entries, const uint2 *chunks, const Told *told, Told now, double penalty, double momentum) {
    if (told) now = *told;
    if (now.go == 0.0) return;
    C scale = (C)now.scale, rate = (C)now.rate;
    EACH_ELEMENT(entries, chunks) {
        C value = p.value[k];
        C step = p.gradient[k] * scale + (C)(penalty * p.decays) * value;
        if (p.first) {
            step = (C)momentum * p.first[k] + step;
            p.first[k] = step;
        }
        p.value[k] = value - rate * step;
    }
}
