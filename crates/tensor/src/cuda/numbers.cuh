// Numbers as kernels see them. A source is compiled once for each type of stored elements: T is that type, C the type
// it is computed in, as on the CPU. Sums have a fixed order and nothing is added atomically: the same bits every time.

typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

struct bf16 {
    u16 bits;
};

// ---- Stored and computed: loaded into the type they are computed in, stored by rounding to nearest even.

template <class S> struct Number;
template <> struct Number<float> {
    typedef float Compute;
    static __device__ __forceinline__ float load(float x) { return x; }
    static __device__ __forceinline__ float store(float x) { return x; }
    static __device__ __forceinline__ float narrow(double x) { return (float)x; }
};
template <> struct Number<double> {
    typedef double Compute;
    static __device__ __forceinline__ double load(double x) { return x; }
    static __device__ __forceinline__ double store(double x) { return x; }
    static __device__ __forceinline__ double narrow(double x) { return x; }
};
template <> struct Number<bf16> {
    typedef float Compute;
    static __device__ __forceinline__ float load(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
    static __device__ __forceinline__ bf16 store(float x) {
        bf16 to;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
        return to;
    }
    static __device__ __forceinline__ bf16 narrow(double x) { return store((float)x); }
};

template <class S> using Compute = typename Number<S>::Compute;
template <class S> __device__ __forceinline__ Compute<S> load(S x) { return Number<S>::load(x); }
template <class S> __device__ __forceinline__ S store(Compute<S> x) { return Number<S>::store(x); }

#if STORAGE == 1
typedef double T;
#elif STORAGE == 2
typedef bf16 T;
#else
typedef float T;
#endif
typedef Compute<T> C;

// ---- Several elements at once, in accesses of up to 16 bytes. `p` is aligned to the size of what is moved.

template <class S, int N> struct alignas(N * sizeof(S)) Pack {
    S x[N];
};
template <class S, int N> struct Piece {
    static const int count = N * (int)sizeof(S) <= 16 ? N : 16 / (int)sizeof(S);
};

template <int N, class S> __device__ __forceinline__ void load_many(const S *p, Compute<S> (&to)[N]) {
    const int M = Piece<S, N>::count;
#pragma unroll
    for (int i = 0; i < N; i += M) {
        Pack<S, M> piece = *reinterpret_cast<const Pack<S, M> *>(p + i);
#pragma unroll
        for (int k = 0; k < M; k++) to[i + k] = load(piece.x[k]);
    }
}

template <int N, class S> __device__ __forceinline__ void store_many(S *p, const Compute<S> (&from)[N]) {
    const int M = Piece<S, N>::count;
#pragma unroll
    for (int i = 0; i < N; i += M) {
        Pack<S, M> piece;
#pragma unroll
        for (int k = 0; k < M; k++) piece.x[k] = store<S>(from[i + k]);
        *reinterpret_cast<Pack<S, M> *>(p + i) = piece;
    }
}

// ---- Functions of the type that they are called with.

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ float larger(float x, float y) { return y > x ? y : x; }
__device__ __forceinline__ double larger(double x, double y) { return y > x ? y : x; }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }

#define NEGATIVE_INFINITY ((C)__longlong_as_double(0xfff0000000000000ll))
