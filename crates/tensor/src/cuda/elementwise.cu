// Whole-matrix operations that touch each element once, 16 bytes a thread.

#define V (16 / (int)sizeof(T))

#if TARGET == 1
typedef double To;
#elif TARGET == 2
typedef bf16 To;
#else
typedef float To;
#endif

// Runs `body` with `at`, the first of V elements; for the last few elements with V = 1.
template <class Many, class One> __device__ __forceinline__ void each(i64 n, Many many, One one) {
    i64 at = thread_number() * V;
    if (at + V <= n) {
        many(at);
    } else {
        for (; at < n; at++) one(at);
    }
}

extern "C" __global__ void convert(const T *from, To *to, i64 n) {
    auto narrow = [](C x) { return Number<To>::load(Number<To>::narrow((double)x)); };
    each(
        n,
        [&](i64 at) {
            C x[V];
            Compute<To> y[V];
            load_many(from + at, x);
#pragma unroll
            for (int k = 0; k < V; k++) y[k] = narrow(x[k]);
            store_many(to + at, y);
        },
        [&](i64 at) { to[at] = Number<To>::narrow((double)load(from[at])); });
}

// to = f(x, y), where y may be null.
template <class F> __device__ __forceinline__ void combine_each(const T *x, const T *y, T *to, i64 n, F f) {
    each(
        n,
        [&](i64 at) {
            C a[V], b[V] = {};
            load_many(x + at, a);
            if (y) load_many(y + at, b);
#pragma unroll
            for (int k = 0; k < V; k++) a[k] = f(a[k], b[k]);
            store_many(to + at, a);
        },
        [&](i64 at) { to[at] = store<T>(f(load(x[at]), y ? load(y[at]) : (C)0)); });
}

// to = a·x + b·y; `to` may be x or y.
extern "C" __global__ void combine(double a, const T *x, double b, const T *y, T *to, i64 n) {
    C ca = (C)a, cb = (C)b;
    combine_each(x, y, to, n, [=](C x, C y) { return ca * x + cb * y; });
}

// to = (a + shift) ∘ b.
extern "C" __global__ void product(const T *a, double shift, const T *b, T *to, i64 n) {
    C s = (C)shift;
    combine_each(a, b, to, n, [=](C a, C b) { return (a + s) * b; });
}

extern "C" __global__ void activate_each(int activation, double slope, const T *x, T *to, i64 n) {
    C s = (C)slope;
    combine_each(x, nullptr, to, n, [=](C x, C) { return activate(activation, s, x); });
}

// dy = dy ∘ act'.
extern "C" __global__ void activation_backward(int activation, double slope, const T *saved, T *dy, i64 n) {
    C s = (C)slope;
    combine_each(saved, dy, dy, n, [=](C saved, C dy) { return dy * derivative(activation, s, saved); });
}
