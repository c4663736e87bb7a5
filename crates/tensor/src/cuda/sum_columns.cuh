// Sums over rows. A block has `per` rows and adds them up in its row of `partial`; `add_parts` then adds these rows in
// order.

#if SUMS == 1
typedef double S;
#else
typedef C S;
#endif

// Adds `term(row, column, sums...)` over the rows of a block; K sums per column, side by side in a row of `partial`.
template <int K, class F> __device__ __forceinline__ void sum_columns(i64 rows, int cols, i64 per, S *partial, F term) {
    __shared__ S shared[THREADS * VEC];
    S sums[K][TURNS][VEC] = {};
    i64 first = blockIdx.x * per, end = first + per < rows ? first + per : rows;
    for (i64 row = first + group(); row < end; row += GROUPS) {
#pragma unroll UNROLL
        for (int t = 0; t < TURNS; t++) {
            int c = own_column(t);
            if (c >= cols) continue;
            S terms[K][VEC];
            term(row, c, terms);
#pragma unroll
            for (int j = 0; j < K; j++)
#pragma unroll
                for (int k = 0; k < VEC; k++) sums[j][t][k] += terms[j][k];
        }
    }
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++)
#pragma unroll
        for (int j = 0; j < K; j++) sum_groups(shared, sums[j][t], t, partial + ((i64)blockIdx.x * K + j) * cols, cols);
}
