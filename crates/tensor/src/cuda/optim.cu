// Optimizer steps: all parameters in one launch. A block has a chunk of one parameter.

struct Entry {
    C *value;
    const C *gradient;
    C *first, *second;
    i64 len;
};

// `which` is (parameter, number of the chunk); CHUNK elements each.
#define EACH_ELEMENT(entries, chunks)                                        \
    Entry p = entries[chunks[blockIdx.x].x];                                  \
    i64 start = (i64)chunks[blockIdx.x].y * CHUNK;                            \
    i64 end = start + CHUNK < p.len ? start + CHUNK : p.len;                  \
    for (i64 k = start + threadIdx.x; k < end; k += blockDim.x)

extern "C" __global__ void adam(const Entry *entries, const uint2 *chunks, double scale, double keep, double penalty, double beta1,
                                double beta2, double rate, double root_scale, double epsilon) {
    C b1 = (C)beta1, b2 = (C)beta2, c1 = (C)(1.0 - beta1), c2 = (C)(1.0 - beta2);
    EACH_ELEMENT(entries, chunks) {
        C value = p.value[k];
        C g = p.gradient[k] * (C)scale + (C)penalty * value;
        C m = b1 * p.first[k] + c1 * g;
        C v = b2 * p.second[k] + c2 * g * g;
        p.first[k] = m;
        p.second[k] = v;
        p.value[k] = (C)keep * value - (C)rate * m / (root(v) * (C)root_scale + (C)epsilon);
    }
}

// Without momentum there is no buffer.
extern "C" __global__ void sgd(const Entry *entries, const uint2 *chunks, double scale, double penalty, double momentum, double lr) {
    EACH_ELEMENT(entries, chunks) {
        C value = p.value[k];
        C step = p.gradient[k] * (C)scale + (C)penalty * value;
        if (p.first) {
            step = (C)momentum * p.first[k] + step;
            p.first[k] = step;
        }
        p.value[k] = value - (C)lr * step;
    }
}
