// Batch norm: sums over rows in f64, then every row by itself.

// Σ (x − shift) and Σ (x − shift)².
extern "C" __global__ void moment_sums(const T *x, const C *shift, S *partial, i64 rows, int cols, i64 per) {
    sum_columns<2>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[2][VEC]) {
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

// y = (x − μ)·scale ∘ w + b with numbers per column.
extern "C" __global__ void normalise(const T *x, const C *mean, const C *scale, const C *w, const C *b, T *y, i64 rows, int cols) {
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC];
        load_many(x + row * cols + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[k] = (v[k] - mean[c + k]) * scale[c + k] * w[c + k] + b[c + k];
        store_many(y + row * cols + c, v);
    });
}

// Σ dy and Σ dy ∘ x̂.
extern "C" __global__ void batch_norm_sums(const T *x, const C *mean, const C *scale, const T *dy, S *partial, i64 rows, int cols,
                                           i64 per) {
    sum_columns<2>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[2][VEC]) {
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

// The gradient of a batch norm's input; `means` are those of dy, then those of dy ∘ x̂.
extern "C" __global__ void batch_norm_dx(const T *x, const C *mean, const C *scale, const C *w, const C *means, T *g,
                                         const T *plus, i64 rows, int cols) {
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC], dy[VEC], p[VEC];
        i64 at = row * cols + c;
        load_many(x + at, v);
        load_many(g + at, dy);
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            C normal = (v[k] - mean[c + k]) * scale[c + k];
            v[k] = (dy[k] - means[c + k] - normal * means[cols + c + k]) * scale[c + k] * w[c + k];
        }
        if (plus) {
            load_many(plus + at, p);
#pragma unroll
            for (int k = 0; k < VEC; k++) v[k] = load(store<T>(v[k])) + p[k];
        }
        store_many(g + at, v);
    });
}
