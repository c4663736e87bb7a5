// Whole-matrix operations that touch each element once, 16 bytes a thread.

#define V (16 / (int)sizeof(T))

// Runs `body` with `at`, the first of V elements; for the last few elements with V = 1.
template <class Many, class One> __device__ __forceinline__ void each(i64 n, Many many, One one) {
    i64 at = thread_number() * V;
    if (at + V <= n) {
        many(at);
    } else {
        for (; at < n; at++) one(at);
    }
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
