// The end of a layer: mean over groups, sums, activation, dropout.

#if WIDE
typedef C Y;
#else
typedef T Y;
#endif

// y = dropout(act(mean over groups of x + plus + bias)); `pre` gets what the activation is applied to.
extern "C" __global__ void epilogue(const T *x, const T *plus, const C *bias, Y *y, Y *pre, i64 rows, int cols, int groups,
                                    int activation, double slope, Dropout d) {
    C share = (C)(1.0 / groups), s = (C)slope;
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC], w[VEC];
        load_many(x + row * groups * cols + c, v);
        for (int g = 1; g < groups; g++) {
            load_many(x + (row * groups + g) * cols + c, w);
#pragma unroll
            for (int k = 0; k < VEC; k++) v[k] += w[k];
        }
        if (groups > 1) {
#pragma unroll
            for (int k = 0; k < VEC; k++) v[k] *= share;
        }
        if (plus) {
            load_many(plus + row * cols + c, w);
#pragma unroll
            for (int k = 0; k < VEC; k++) v[k] += w[k];
        }
        if (bias) {
            load_many(bias + c, w);
#pragma unroll
            for (int k = 0; k < VEC; k++) v[k] += w[k];
        }
        if (pre) store_many(pre + row * cols + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[k] = activate(activation, s, v[k]);
        drop(d, original_id(d, row), c, v);
        store_many(y + row * cols + c, v);
    });
}

// dx: in each of its groups, dy / groups.
extern "C" __global__ void spread_groups(const T *dy, T *dx, i64 rows, int cols, int groups) {
    C share = (C)(1.0 / groups);
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC];
        load_many(dy + row * cols + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[k] *= share;
        for (int g = 0; g < groups; g++) store_many(dx + (row * groups + g) * cols + c, v);
    });
}

// From the gradient of an epilogue's output in g: that of the sum inside, in place, and its sum over rows.
extern "C" __global__ void epilogue_backward(const T *saved, T *g, S *partial, i64 rows, int cols, i64 per, int activation,
                                             double slope, double unscale, Dropout d) {
    sum_columns<1>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[1][VEC]) {
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
