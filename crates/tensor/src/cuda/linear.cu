// What stands around the products of a linear layer.

// The end of a product, for columns from `first` on of rows of `width`: x + bias in `pre`, its activation in `y`. x may
// be y.
extern "C" __global__ void finish(const T *x, const C *bias, T *y, T *pre, i64 rows, int cols, int width, int first,
                                  int activation, double slope) {
    C s = (C)slope;
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC], w[VEC];
        i64 at = row * width + first + c;
        load_many(x + at, v);
        if (bias) {
            load_many(bias + c, w);
#pragma unroll
            for (int k = 0; k < VEC; k++) v[k] += w[k];
        }
        if (pre) store_many(pre + at, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[k] = activate(activation, s, v[k]);
        store_many(y + at, v);
    });
}

// Σ x, of columns from `start` on of rows of `width`.
extern "C" __global__ void column_sums(const T *x, S *partial, i64 rows, int cols, i64 per, int width, int start) {
    sum_columns<1>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[1][VEC]) {
        C v[VEC];
        load_many(x + row * width + start + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) to[0][k] = (S)v[k];
    });
}
