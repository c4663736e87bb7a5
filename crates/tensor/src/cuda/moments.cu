// What becomes of the sums of a batch norm: a thread for each column, in f64 as on the CPU. Sums are those of every
// column around a shift, then those of squares, and the number of rows at the end; moments are means, then variances.

// Says how many rows the sums are of.
extern "C" __global__ void count_rows(double *sums, i64 at, double rows) { sums[at] = rows; }

// Rows as a denominator.
__device__ __forceinline__ double rows_of(const double *sums, i64 at) { return sums[at] > 1.0 ? sums[at] : 1.0; }

extern "C" __global__ void settle_moments(const double *sums, const C *shift, double *moments, int cols) {
    i64 k = thread_number();
    if (k >= cols) return;
    double rows = rows_of(sums, 2 * (i64)cols), off = sums[k] / rows;
    double variance = sums[cols + k] / rows - off * off;
    moments[k] = (double)shift[k] + off;
    moments[cols + k] = variance > 0.0 ? variance : 0.0;
}

// Running moments go a part of the way to those of a batch, whose variances have n − 1 in the denominator then.
extern "C" __global__ void follow_moments(const double *sums, const double *moments, double momentum, double *running, int cols) {
    i64 k = thread_number();
    double rows = sums[2 * (i64)cols];
    if (k >= 2 * (i64)cols || !(rows > 0.0)) return;
    double factor = k < cols ? 1.0 : rows / (rows > 2.0 ? rows - 1.0 : 1.0);
    running[k] += momentum * (moments[k] * factor - running[k]);
}

extern "C" __global__ void normaliser(const double *moments, double epsilon, C *mean, C *scale, int cols) {
    i64 k = thread_number();
    if (k >= cols) return;
    mean[k] = (C)moments[k];
    scale[k] = (C)(1.0 / sqrt(moments[cols + k] + epsilon));
}

// Some of the sums, over the number of rows where that is somewhere.
extern "C" __global__ void shares(const double *sums, i64 first, const double *counted, i64 last, C *to, int count) {
    i64 k = thread_number();
    if (k < count) to[k] = (C)(sums[first + k] / (counted ? rows_of(counted, last) : 1.0));
}
