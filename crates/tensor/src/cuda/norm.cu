// Layer norm, with the residual connection before it where there is one. A row stays in registers.

// y = LN(x), or LN(s) of s = x + z ∘ mask, which is written too; `stats` get μ and 1/σ.
extern "C" __global__ void layer_norm(const T *x, const T *z, T *sum, const C *w, const C *b, T *y, C *stats, i64 rows, int cols,
                                      double epsilon, Dropout d) {
    i64 row = own_row();
    bool inside = row < rows;
    C v[TURNS][VEC], total = (C)0, squares = (C)0;
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        int c = own_column(t);
        i64 at = row * cols + c;
        if (!inside || c >= cols) continue;
        load_many(x + at, v[t]);
        if (z) {
            C other[VEC];
            load_many(z + at, other);
            drop(d, original_id(d, row), c, other);
#pragma unroll
            for (int k = 0; k < VEC; k++) v[t][k] = load(store<T>(v[t][k] + other[k]));
            store_many(sum + at, v[t]);
        }
#pragma unroll
        for (int k = 0; k < VEC; k++) total += v[t][k];
    }
    C mean = lane_sum<LANES>(total) / (C)cols;
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        if (!inside || own_column(t) >= cols) continue;
#pragma unroll
        for (int k = 0; k < VEC; k++) squares += (v[t][k] - mean) * (v[t][k] - mean);
    }
    C scale = (C)1 / root(lane_sum<LANES>(squares) / (C)cols + (C)epsilon);
    if (!inside) return;
    if (lane() == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = scale;
    }
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        int c = own_column(t);
        if (c >= cols) continue;
        C weight[VEC], bias[VEC];
        load_many(w + c, weight);
        load_many(b + c, bias);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[t][k] = (v[t][k] - mean) * scale * weight[k] + bias[k];
        store_many(y + row * cols + c, v[t]);
    }
}

// From dy in g: dx plus `plus`, in place; `dropped` gets it after dropout. A block has `per` rows, and the sums over
// them of dy ∘ x̂ and dy go to its row of `partial`.
extern "C" __global__ void layer_norm_backward(const T *x, const C *stats, const C *w, T *g, const T *plus, T *dropped, C *partial,
                                               i64 rows, int cols, i64 per, Dropout d) {
    __shared__ C shared[THREADS * VEC];
    C dw[TURNS][VEC] = {}, db[TURNS][VEC] = {};
    i64 first = blockIdx.x * per, end = first + per < rows ? first + per : rows;
    for (i64 base = first; base < end; base += GROUPS) {
        i64 row = base + group();
        bool inside = row < end;
        C normal[TURNS][VEC], h[TURNS][VEC], a = (C)0, b = (C)0;
        C mean = inside ? stats[2 * row] : (C)0, scale = inside ? stats[2 * row + 1] : (C)0;
#pragma unroll UNROLL
        for (int t = 0; t < TURNS; t++) {
            int c = own_column(t);
            i64 at = row * cols + c;
            if (!inside || c >= cols) continue;
            C dy[VEC], weight[VEC];
            load_many(x + at, normal[t]);
            load_many(g + at, dy);
            load_many(w + c, weight);
#pragma unroll
            for (int k = 0; k < VEC; k++) {
                normal[t][k] = (normal[t][k] - mean) * scale;
                h[t][k] = dy[k] * weight[k];
                dw[t][k] += dy[k] * normal[t][k];
                db[t][k] += dy[k];
                a += h[t][k];
                b += h[t][k] * normal[t][k];
            }
        }
        a = lane_sum<LANES>(a) / (C)cols;
        b = lane_sum<LANES>(b) / (C)cols;
#pragma unroll UNROLL
        for (int t = 0; t < TURNS; t++) {
            int c = own_column(t);
            i64 at = row * cols + c;
            if (!inside || c >= cols) continue;
            C dx[VEC], p[VEC] = {};
            if (plus) load_many(plus + at, p);
#pragma unroll
            for (int k = 0; k < VEC; k++) dx[k] = (h[t][k] - a - normal[t][k] * b) * scale + p[k];
            store_many(g + at, dx);
            if (dropped) {
#pragma unroll
                for (int k = 0; k < VEC; k++) dx[k] = load(store<T>(dx[k]));
                drop(d, original_id(d, row), c, dx);
                store_many(dropped + at, dx);
            }
        }
    }
    C *to = partial + (i64)blockIdx.x * 2 * cols;
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        sum_groups(shared, dw[t], t, to, cols);
        sum_groups(shared, db[t], t, to + cols, cols);
    }
}
