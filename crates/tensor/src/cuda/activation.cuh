// Activations, numbered as in activation.rs.

enum { NONE, RELU, LEAKY_RELU, ELU, GELU, SIGMOID, TANH, INVERSE_ROOT };

// The density φ(x) of the normal distribution, and from it Φ(x): in f32 by the rational approximation 26.2.17 of
// Abramowitz and Stegun (error below 7.5e-8), as on the CPU; erfcf would take longer than the memory.
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

// `slope` is that of a leaky ReLU below zero, or what is added under a root.
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
        case TANH: {
            X less = exponential_minus_one((X)-2 * (x > (X)0 ? x : -x));
            X y = less / (less + (X)2);
            return x > (X)0 ? -y : y;
        }
        case INVERSE_ROOT: return (X)1 / root(x + slope);
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
        case TANH: return ((X)1 - saved) * ((X)1 + saved);
        case INVERSE_ROOT: return (X)-0.5 * saved * saved * saved;
        default: return (X)1;
    }
}
