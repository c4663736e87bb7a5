extern "C" __global__ void activate_each(int activation, double slope, const T *x, T *to, i64 n) {
    C s = (C)slope;
    combine_each(x, nullptr, to, n, [=](C x, C) { return activate(activation, s, x); });
}

// dy = dy ∘ act'.
extern "C" __global__ void activation_backward(int activation, double slope, const T *saved, T *dy, i64 n) {
    C s = (C)slope;
    combine_each(saved, dy, dy, n, [=](C saved, C dy) { return dy * derivative(activation, s, saved); });
}
