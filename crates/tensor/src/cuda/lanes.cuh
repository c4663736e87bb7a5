// Where a thread stands, and what neighbouring lanes of a warp come to.

__device__ __forceinline__ i64 thread_number() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// Sums and maxima over a power of two of neighbouring lanes, the same result in each.
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
