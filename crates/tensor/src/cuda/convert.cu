// Elements of one type from those of another.

#if TARGET == 1
typedef double To;
#elif TARGET == 2
typedef bf16 To;
#else
typedef float To;
#endif

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
