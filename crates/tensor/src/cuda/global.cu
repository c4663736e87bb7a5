// Linear attention of all nodes: what stands around the products, which cuBLASLt does in the compute type.
//
// Rows are laid out per head beside one more column, d + 1 in all: v ‖ 1, gn ‖ gd; m is the width of a head of q and k.

// v ‖ 1.
extern "C" __global__ void lay_out_values(const T *v, C *to, i64 count, int d) {
    i64 at = thread_number();
    if (at >= count) return;
    i64 head = at / (d + 1);
    int k = at % (d + 1);
    to[at] = k < d ? load(v[head * d + k]) : (C)1;
}

// gn ‖ gd with gn = g/den and gd = −g·out/den: a thread per row and head.
extern "C" __global__ void lay_out_gradients(const T *g, const T *out, const C *den, C *to, i64 count, int d) {
    i64 head = thread_number();
    if (head >= count) return;
    C inverse = (C)1 / den[head], product = (C)0;
    C *row = to + head * (d + 1);
    for (int k = 0; k < d; k++) {
        C x = load(g[head * d + k]);
        product += x * load(out[head * d + k]);
        row[k] = x * inverse;
    }
    row[d] = -product * inverse;
}

// 1/(‖q‖·‖k‖), or 1.
__device__ __forceinline__ C beta_of(const C *norms) { return norms ? (C)1 / (root(norms[0]) * root(norms[1])) : (C)1; }

// From q·(S ‖ z): the denominators and the output.
extern "C" __global__ void finish(const C *product, const T *v, const C *norms, T *out, C *den, i64 count, int d, double own,
                                  double alone) {
    i64 head = thread_number();
    if (head >= count) return;
    C beta = beta_of(norms);
    const C *row = product + head * (d + 1);
    C below = (C)alone + beta * row[d];
    den[head] = below;
    for (int k = 0; k < d; k++) out[head * d + k] = store<T>(((C)own * load(v[head * d + k]) + beta * row[k]) / below);
}

// ⟨S, T⟩ + ⟨z, t⟩, in f64: one block.
extern "C" __global__ void inner_product(const C *a, const C *b, double *to, i64 count) {
    __shared__ double shared[256];
    double sum = 0.0;
    for (i64 k = threadIdx.x; k < count; k += 256) sum += (double)a[k] * (double)b[k];
    shared[threadIdx.x] = sum;
    for (int width = 128; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) shared[threadIdx.x] += shared[threadIdx.x + width];
    }
    if (threadIdx.x == 0) *to = shared[0];
}

// β·product − dβ·β/‖x‖²·x for every element; `which` says whose norm.
extern "C" __global__ void scale_rows(const C *product, const T *x, const C *norms, const double *inner, int which, T *to, i64 count) {
    i64 at = thread_number();
    if (at >= count) return;
    C beta = beta_of(norms);
    C taken = norms ? (C)*inner * beta / norms[which] : (C)0;
    to[at] = store<T>(beta * product[at] - taken * load(x[at]));
}

// dv = c·gn + β·k·T; `incoming` is gn ‖ gd.
extern "C" __global__ void value_gradients(const C *product, const C *incoming, const C *norms, T *dv, i64 count, int d, double own) {
    i64 at = thread_number();
    if (at >= count) return;
    dv[at] = store<T>((C)own * incoming[at / d * (d + 1) + at % d] + beta_of(norms) * product[at]);
}
