// to = a·x + b·y; `to` may be x or y.
extern "C" __global__ void combine(double a, const T *x, double b, const T *y, T *to, i64 n) {
    C ca = (C)a, cb = (C)b;
    combine_each(x, y, to, n, [=](C x, C y) { return ca * x + cb * y; });
}
