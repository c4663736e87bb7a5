// e^min(x, most), and dy·e^x below the limit.

extern "C" __global__ void exponential_up_to(const T *x, i64, i32, T *to, i64 rows, i32 cols, double most) {
    i64 at = thread_number();
    if (at < rows * cols) to[at] = Number<T>::narrow(exp(fmin((double)load(x[at]), most)));
}

extern "C" __global__ void exponential_up_to_backward(const T *x, i64, i32, const T *y, i64, i32, const T *dy, i64, i32,
                                                      T *to, i64 rows, i32 cols, double most) {
    i64 at = thread_number();
    if (at >= rows * cols) return;
    to[at] = store<T>((double)load(x[at]) <= most ? load(y[at]) * load(dy[at]) : (C)0);
}
