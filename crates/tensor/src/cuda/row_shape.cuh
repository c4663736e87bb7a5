// Rows, each in the hands of LANES neighbouring threads that take VEC columns at a time, TURNS times (shape.rs
// chooses). The threads of a warp stay together, since they add up by shuffles: those without a row go along and touch
// nothing.

#define THREADS 256
#define GROUPS (THREADS / LANES)
#define UNROLL (TURNS <= 16 ? TURNS : 1)

__device__ __forceinline__ int lane() { return threadIdx.x % LANES; }
__device__ __forceinline__ int group() { return threadIdx.x / LANES; }
__device__ __forceinline__ i64 own_row() { return (i64)blockIdx.x * GROUPS + group(); }
// First column of a turn.
__device__ __forceinline__ int own_column(int turn) { return (turn * LANES + lane()) * VEC; }

// Runs `body(row, column)` for every VEC columns of every row.
template <class F> __device__ __forceinline__ void each_vector(i64 rows, int cols, F body) {
    i64 row = own_row();
    if (row >= rows) return;
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        int c = own_column(t);
        if (c < cols) body(row, c);
    }
}

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
