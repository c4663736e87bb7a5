// Rows of attention with tails for features of edges. A row has `heads` heads of `width` columns, a widened one `tail`
// numbers more behind each; `weight` is a row of `features` numbers per column.

// Each head's columns, then W_hᵀ x_h, then zeros: a thread per number.
extern "C" __global__ void widen(const T *x, const C *weight, T *wide, i64 count, int heads, int width, int tail, int features) {
    i64 at = thread_number();
    if (at >= count) return;
    int all = width + tail, c = at % all, feature = c - width;
    i64 head = at / all;
    const T *own = x + head * width;
    C sum = (C)0;
    if (feature < 0) {
        sum = load(own[c]);
    } else if (feature < features) {
        const C *w = weight + head % heads * width * features + feature;
        for (int k = 0; k < width; k++) sum += load(own[k]) * w[(i64)k * features];
    }
    wide[at] = store<T>(sum);
}

// Each head's columns plus W_h times what stands behind them: a thread per number.
extern "C" __global__ void absorb(const T *wide, const C *weight, T *x, i64 count, int heads, int width, int tail, int features) {
    i64 at = thread_number();
    if (at >= count) return;
    int c = at % width;
    i64 head = at / width;
    const T *own = wide + head * (width + tail);
    const C *w = weight + (head % heads * width + c) * features;
    C sum = load(own[c]);
    for (int k = 0; k < features; k++) sum += load(own[width + k]) * w[k];
    x[at] = store<T>(sum);
}

// Sums over a block's rows of x_h times the tails: a thread has MANY of them at a time, which are added in the order of
// the rows.
#define MANY 8
extern "C" __global__ void tail_products(const T *x, const T *wide, C *partial, i64 rows, i64 per, int heads, int width, int tail,
                                         int features) {
    int d = heads * width, cols = heads * (width + tail), count = d * features;
    i64 first = blockIdx.x * per, end = first + per < rows ? first + per : rows;
    for (int from = threadIdx.x; from < count; from += MANY * blockDim.x) {
        C sums[MANY] = {};
        int column[MANY], behind[MANY];
#pragma unroll
        for (int k = 0; k < MANY; k++) {
            int at = min(from + k * (int)blockDim.x, count - 1);
            column[k] = at / features;
            behind[k] = column[k] / width * (width + tail) + width + at % features;
        }
        for (i64 row = first; row < end; row++)
#pragma unroll
            for (int k = 0; k < MANY; k++) sums[k] += load(x[row * d + column[k]]) * load(wide[row * cols + behind[k]]);
#pragma unroll
        for (int k = 0; k < MANY; k++) {
            int at = from + k * (int)blockDim.x;
            if (at < count) partial[(i64)blockIdx.x * count + at] = sums[k];
        }
    }
}
