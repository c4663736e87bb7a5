// Rows of attention with tails for features of edges. A row has `heads` heads of `width` columns, a widened one `tail`
// numbers more behind each; `weight` is a row of `features` numbers per column.

// Rows that a thread goes through together: a number of the weight is loaded once for all of them.
#define ROWS 8

// Each head's columns, then W_hᵀ x_h, then zeros: a thread per number of some rows.
extern "C" __global__ void widen(const T *x, const C *weight, T *wide, i64 rows, int heads, int width, int tail, int features) {
    int all = width + tail, d = heads * width, cols = heads * all;
    i64 first = thread_number() / cols * ROWS;
    if (first >= rows) return;
    int column = thread_number() % cols, head = column / all, c = column % all, feature = c - width;
    // Rows behind the last are the last: they are summed, not written.
    int last = (int)min((i64)ROWS, rows - first) - 1;
    const T *own = x + first * d + head * width;
    C sums[ROWS] = {};
    if (feature < 0) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r] = load(own[min(r, last) * d + c]);
    } else if (feature < features) {
        const C *w = weight + (i64)head * width * features + feature;
        for (int k = 0; k < width; k++) {
            C y = w[(i64)k * features];
#pragma unroll
            for (int r = 0; r < ROWS; r++) sums[r] += load(own[min(r, last) * d + k]) * y;
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r <= last) wide[(first + r) * cols + column] = store<T>(sums[r]);
}

// Each head's columns plus W_h times what stands behind them: a thread per number of some rows.
extern "C" __global__ void absorb(const T *wide, const C *weight, T *x, i64 rows, int heads, int width, int tail, int features) {
    int all = width + tail, d = heads * width, cols = heads * all;
    i64 first = thread_number() / d * ROWS;
    if (first >= rows) return;
    int column = thread_number() % d, c = column % width;
    // As above.
    int last = (int)min((i64)ROWS, rows - first) - 1;
    const T *own = wide + first * cols + column / width * all;
    const C *w = weight + (i64)column * features;
    C sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) sums[r] = load(own[min(r, last) * cols + c]);
    for (int k = 0; k < features; k++) {
        C y = w[k];
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r] += load(own[min(r, last) * cols + width + k]) * y;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r <= last) x[(first + r) * d + column] = store<T>(sums[r]);
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
