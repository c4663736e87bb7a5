// Scores that are distances, and their slopes; computed in f64, as on the host.

extern "C" __global__ void distance(const T *x, i64, i32, T *to, i64 rows, i32 cols, double margin, double tiny) {
    i64 at = thread_number();
    if (at < rows * cols) to[at] = Number<T>::narrow(margin - sqrt((double)load(x[at]) + tiny));
}

extern "C" __global__ void distance_backward(const T *x, i64, i32, const T *dy, i64, i32, T *to, i64 rows, i32 cols,
                                             double tiny) {
    i64 at = thread_number();
    if (at < rows * cols) to[at] = Number<T>::narrow(-0.5 * (double)load(dy[at]) / sqrt((double)load(x[at]) + tiny));
}
