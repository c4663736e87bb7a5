// Rows of attention with tails for features of edges. A row has `heads` heads of `width` columns, a widened one `tail`
// numbers more behind each; `weight` is a row of `features` numbers per column.

// Rows that a thread goes through together: a number of the weight is loaded once for all of them.
#define ROWS 8
// Elements that are loaded at once, where all rows and heads begin at such places.
#define V (16 / (int)sizeof(T))

// Adds x_r · y to the sum of each row, over `count` numbers: row r of x begins `pitch` behind the one before, numbers
// of y lie `step` apart. Rows behind the last are the last: they are summed, not written.
__device__ __forceinline__ void add_products(const T *x, i64 pitch, int last, const C *y, int step, int count, bool wide,
                                             C (&sums)[ROWS]) {
    int k = 0;
    if (wide)
        for (; k + V <= count; k += V) {
            C by[V];
#pragma unroll
            for (int n = 0; n < V; n++) by[n] = y[(k + n) * step];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                C row[V];
                load_many(x + min(r, last) * pitch + k, row);
#pragma unroll
                for (int n = 0; n < V; n++) sums[r] += row[n] * by[n];
            }
        }
    for (; k < count; k++) {
        C by = y[k * step];
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r] += load(x[min(r, last) * pitch + k]) * by;
    }
}

// Each head's columns, then W_hᵀ x_h, then zeros: a thread per number of some rows.
extern "C" __global__ void widen(const T *x, const C *weight, T *wide, i64 rows, int heads, int width, int tail, int features) {
    int all = width + tail, d = heads * width, cols = heads * all;
    i64 first = thread_number() / cols * ROWS;
    if (first >= rows) return;
    int column = thread_number() % cols, head = column / all, c = column % all, feature = c - width;
    int last = (int)min((i64)ROWS, rows - first) - 1;
    const T *own = x + first * d + head * width;
    C sums[ROWS] = {};
    if (feature < 0) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r] = load(own[min(r, last) * d + c]);
    } else if (feature < features) {
        add_products(own, d, last, weight + (i64)head * width * features + feature, features, width, width % V == 0, sums);
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
    int last = (int)min((i64)ROWS, rows - first) - 1;
    const T *own = wide + first * cols + column / width * all;
    const C *w = weight + (i64)column * features;
    C sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) sums[r] = load(own[min(r, last) * cols + c]);
    add_products(own + width, cols, last, w, 1, features, width % V == 0 && tail % V == 0, sums);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r <= last) x[(first + r) * d + column] = store<T>(sums[r]);
}

// Sums over a block's rows of x_h times the tails, of one head (y): a thread has FEW of them, side by side, which are
// added in the order of the rows. `staged` rows are near at a time.
#define FEW 4
extern "C" __global__ void tail_products(const T *x, const T *wide, C *partial, i64 rows, i64 per, int heads, int width, int tail,
                                         int features, int staged) {
    extern __shared__ double shared[];
    C *near = reinterpret_cast<C *>(shared);
    int d = heads * width, all = width + tail, head = blockIdx.y;
    int few = (features + FEW - 1) / FEW, begin = (width + FEW - 1) / FEW * FEW, pitch = begin + few * FEW;
    i64 first = blockIdx.x * per, end = first + per < rows ? first + per : rows;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    // All threads take every turn: they wait for one another.
    for (int from = 0; from < width * few; from += blockDim.x) {
        int item = from + threadIdx.x, column = item / few, feature = item % few * FEW;
        bool exists = column < width;
        C sums[FEW] = {};
        for (i64 row = first; row < end; row += staged) {
            int count = (int)min((i64)staged, end - row);
            __syncthreads();
            for (int r = warp; r < count; r += warps) {
                const T *own = x + (row + r) * d + head * width, *behind = wide + ((row + r) * heads + head) * all + width;
                for (int k = lane; k < pitch; k += 32) {
                    C number = 0;
                    if (k < width) number = load(own[k]);
                    if (k >= begin && k - begin < features) number = load(behind[k - begin]);
                    near[r * pitch + k] = number;
                }
            }
            __syncthreads();
            if (exists)
                for (int r = 0; r < count; r++) {
                    C number = near[r * pitch + column];
#pragma unroll
                    for (int n = 0; n < FEW; n++) sums[n] += number * near[r * pitch + begin + feature + n];
                }
        }
        C *to = partial + (blockIdx.x * (i64)d + head * width + column) * features + feature;
#pragma unroll
        for (int n = 0; n < FEW; n++)
            if (exists && feature + n < features) to[n] = sums[n];
    }
}
