// Sums over rows. A block has `per` rows and adds them up in its row of `partial`; `add_parts` then adds these rows in order.

#if SUMS == 1
typedef double S;
#else
typedef C S;
#endif

// Adds `term(row, column, sums...)` over the rows of a block; K sums per column, side by side in a row of `partial`.
template <int K, class F> __device__ __forceinline__ void each(i64 rows, int cols, i64 per, S *partial, F term) {
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

// Σ x, of columns from `start` on of rows of `width`.
extern "C" __global__ void column_sums(const T *x, S *partial, i64 rows, int cols, i64 per, int width, int start) {
    each<1>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[1][VEC]) {
        C v[VEC];
        load_many(x + row * width + start + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) to[0][k] = (S)v[k];
    });
}

// Σ (x − shift) and Σ (x − shift)².
extern "C" __global__ void moment_sums(const T *x, const C *shift, S *partial, i64 rows, int cols, i64 per) {
    each<2>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[2][VEC]) {
        C v[VEC];
        load_many(x + row * cols + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            S off = (S)v[k] - (S)shift[c + k];
            to[0][k] = off;
            to[1][k] = off * off;
        }
    });
}

// Σ dy and Σ dy ∘ x̂.
extern "C" __global__ void batch_norm_sums(const T *x, const C *mean, const C *scale, const T *dy, S *partial, i64 rows, int cols,
                                           i64 per) {
    each<2>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[2][VEC]) {
        C v[VEC], g[VEC];
        load_many(x + row * cols + c, v);
        load_many(dy + row * cols + c, g);
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            to[0][k] = (S)g[k];
            to[1][k] = (S)g[k] * (S)((v[k] - mean[c + k]) * scale[c + k]);
        }
    });
}

// From the gradient of an epilogue's output in g: that of the sum inside, in place, and its sum over rows.
extern "C" __global__ void epilogue_backward(const T *saved, T *g, S *partial, i64 rows, int cols, i64 per, int activation,
                                             double slope, double unscale, Dropout d) {
    each<1>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[1][VEC]) {
        C v[VEC], x[VEC];
        i64 at = row * cols + c;
        load_many(g + at, v);
        drop(d, original_id(d, row), c, v);
        if (saved) {
            load_many(saved + at, x);
#pragma unroll
            for (int k = 0; k < VEC; k++) v[k] *= derivative(activation, (C)slope, x[k] * (C)unscale);
        }
#pragma unroll
        for (int k = 0; k < VEC; k++) to[0][k] = (S)v[k];
        store_many(g + at, v);
    });
}

// dz = dl_h·a + dr_h·b, set or added, and Σ dl_h·z and Σ dr_h·z; `width` columns a head. b and dr may be null.
extern "C" __global__ void head_dot_backward(const T *z, const C *a, const C *b, const C *dl, const C *dr, T *dz, S *partial,
                                             i64 rows, int cols, i64 per, int heads, int width, int add) {
    each<2>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[2][VEC]) {
        C v[VEC], old[VEC] = {};
        i64 at = row * cols + c;
        load_many(z + at, v);
        if (add) load_many(dz + at, old);
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            int h = (c + k) / width;
            C l = dl[row * heads + h], r = dr ? dr[row * heads + h] : (C)0;
            to[0][k] = (S)(l * v[k]);
            to[1][k] = (S)(r * v[k]);
            old[k] = old[k] + l * a[c + k] + (b ? r * b[c + k] : (C)0);
        }
        store_many(dz + at, old);
    });
}
