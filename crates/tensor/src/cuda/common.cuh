// What kernels share; this text stands before every source.
//
// A source is compiled once for each type of stored elements: T is that type, C the type it is computed in, as on the CPU.
// Sums have a fixed order and nothing is added atomically: the same bits every time.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct bf16 {
    u16 bits;
};

// ---- Numbers: loaded into the type they are computed in, stored by rounding to nearest even.

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

// ---- Sums over neighbouring lanes (a power of two of them), the same result in each.

template <int COUNT, class X> __device__ __forceinline__ X lane_sum(X x) {
#pragma unroll
    for (int step = COUNT / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

template <int COUNT, class X> __device__ __forceinline__ X lane_max(X x) {
#pragma unroll
    for (int step = COUNT / 2; step > 0; step /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

// ---- Dropout: the numbers of random.rs, from the same counters.

struct Dropout {
    u32 key0, key1, stream;
    // Elements whose 16-bit number is below this are dropped; 0 if nothing is dropped.
    u32 threshold;
    float scale;
    // Head 0 of an edge is this one of all.
    u32 first_head;
    // Original ids of rows, null where row k is node k.
    const u64 *ids;
    // Where the key is, of a recorded step: it is another one in every epoch. Null where key0 and key1 are it.
    const uint2 *key;
};

__device__ __forceinline__ uint2 key_of(const Dropout &d) { return d.key ? __ldg(d.key) : make_uint2(d.key0, d.key1); }

__device__ __forceinline__ uint4 philox(uint4 c, uint2 key) {
#pragma unroll
    for (int round = 0; round < 7; round++) {
        u32 a_high = __umulhi(0xd2511f53u, c.x), a_low = 0xd2511f53u * c.x;
        u32 b_high = __umulhi(0xcd9e8d57u, c.z), b_low = 0xcd9e8d57u * c.z;
        c = make_uint4(b_high ^ c.y ^ key.x, b_low, a_high ^ c.w ^ key.y, a_low);
        key.x += 0x9e3779b9u;
        key.y += 0xbb67ae85u;
    }
    return c;
}

// The k-th of the eight 16-bit numbers of a call, as a factor: 0 or 1/keep.
__device__ __forceinline__ float dropout_factor(const Dropout &d, uint4 words, int k) {
    u32 word = k < 4 ? (k < 2 ? words.x : words.y) : (k < 6 ? words.z : words.w);
    u32 number = (k & 1) ? word >> 16 : word & 0xffffu;
    return number < d.threshold ? 0.0f : d.scale;
}

__device__ __forceinline__ uint4 row_numbers(const Dropout &d, u64 node, u32 group) {
    return philox(make_uint4((u32)node, (u32)(node >> 32), group, d.stream << 1), key_of(d));
}

// Those of heads 8·group to 8·group + 7 of an edge.
__device__ __forceinline__ uint4 edge_numbers(const Dropout &d, u64 source, u64 destination, u32 group) {
    u32 from = (u32)(source >> 32), to = (u32)(destination >> 32);
    u32 high = from ^ (to << 16 | to >> 16);
    u32 last = ((d.stream << 8 | group) << 1) | 1;
    return philox(make_uint4((u32)source, (u32)destination, high, last), key_of(d));
}

__device__ __forceinline__ u64 original_id(const Dropout &d, i64 row) { return d.ids ? d.ids[row] : (u64)row; }

// x ∘ mask for N columns of a row from `column` on, a multiple of N; N divides or is a multiple of 8, or is 1.
template <int N, class X> __device__ __forceinline__ void drop(const Dropout &d, u64 node, int column, X (&x)[N]) {
    if (d.threshold == 0) return;
    uint4 words;
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (k % 8 == 0) words = row_numbers(d, node, (u32)(column + k) / 8);
        x[k] *= (X)dropout_factor(d, words, N >= 8 ? k % 8 : column % 8 + k);
    }
}

// ---- Activations, numbered as in cuda/elementwise.rs.

enum { NONE, RELU, LEAKY_RELU, ELU, GELU, SIGMOID };

// The density φ(x) of the normal distribution, and from it Φ(x): in f32 by the rational approximation 26.2.17 of Abramowitz and
// Stegun (error below 7.5e-8), as on the CPU; erfcf would take longer than the memory.
__device__ __forceinline__ float density(float x) { return __expf(-0.5f * x * x) * 0.39894228040143268f; }
__device__ __forceinline__ double density(double x) { return exp(-0.5 * x * x) * 0.39894228040143267794; }
__device__ __forceinline__ float normal(float x, float density) {
    float t = __fdividef(1.0f, 0.2316419f * fabsf(x) + 1.0f);
    float p = (((1.3302744f * t - 1.821256f) * t + 1.7814779f) * t - 0.35656378f) * t + 0.31938154f;
    float tail = density * t * p;
    return x >= 0.0f ? 1.0f - tail : tail;
}
__device__ __forceinline__ double normal(double x, double) { return 0.5 * erfc(-x * 0.70710678118654752440); }
__device__ __forceinline__ float exponential_minus_one(float x) { return expm1f(x); }
__device__ __forceinline__ double exponential_minus_one(double x) { return expm1(x); }

// `slope` is that of a leaky ReLU below zero.
template <class X> __device__ __forceinline__ X activate(int activation, X slope, X x) {
    switch (activation) {
        case RELU: return x <= (X)0 ? (X)0 : x;
        case LEAKY_RELU: return x <= (X)0 ? x * slope : x;
        case ELU: return x <= (X)0 ? exponential_minus_one(x) : x;
        case GELU: return x * normal(x, density(x));
        case SIGMOID: {
            X e = exponential(x > (X)0 ? -x : x);
            return (x > (X)0 ? (X)1 : e) / ((X)1 + e);
        }
        default: return x;
    }
}

// The derivative, from the output or, for GELU, the input.
template <class X> __device__ __forceinline__ X derivative(int activation, X slope, X saved) {
    switch (activation) {
        case RELU: return saved > (X)0 ? (X)1 : (X)0;
        case LEAKY_RELU: return saved > (X)0 ? (X)1 : slope;
        case ELU: return saved > (X)0 ? (X)1 : saved + (X)1;
        case GELU: {
            X phi = density(saved);
            return normal(saved, phi) + saved * phi;
        }
        case SIGMOID: return saved * ((X)1 - saved);
        default: return (X)1;
    }
}

// ---- Where a thread stands.

__device__ __forceinline__ i64 thread_number() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// ---- Rows, each in the hands of LANES neighbouring threads that take VEC columns at a time, TURNS times (cuda/shape.rs chooses).
// The threads of a warp stay together, since they add up by shuffles: those without a row go along and touch nothing.

#ifdef LANES
#define THREADS 256
#define GROUPS (THREADS / LANES)
#define UNROLL (TURNS <= 16 ? TURNS : 1)

__device__ __forceinline__ int lane() { return threadIdx.x % LANES; }
__device__ __forceinline__ int group() { return threadIdx.x / LANES; }
__device__ __forceinline__ i64 own_row() { return (i64)blockIdx.x * GROUPS + group(); }
// First column of a turn.
__device__ __forceinline__ int own_column(int turn) { return (turn * LANES + lane()) * VEC; }

// Adds up what the groups of a block have for the columns of a turn, in the order of the groups, into to[0..cols].
template <class X> __device__ __forceinline__ void sum_groups(X (&shared)[THREADS * VEC], const X (&x)[VEC], int turn, X *to, int cols) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < VEC; k++) shared[threadIdx.x * VEC + k] = x[k];
    __syncthreads();
    for (int at = threadIdx.x; at < LANES * VEC; at += THREADS) {
        int column = turn * LANES * VEC + at;
        X sum = (X)0;
        for (int g = 0; g < GROUPS; g++) sum += shared[g * LANES * VEC + at];
        if (column < cols) to[column] = sum;
    }
}
#endif

// ---- What changes from step to step of an optimizer, as in optim.rs. Steps that are recorded are told it before every run.

struct Told {
    double go, scale, keep, rate, root_scale;
};
