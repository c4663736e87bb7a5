// y = x / max(‖x‖, ε).
extern "C" __global__ void l2_norm(const T *x, T *y, C *norms, i64 rows, int cols, double epsilon) {
    i64 row = own_row();
    bool inside = row < rows;
    C v[TURNS][VEC], squares = (C)0;
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        int c = own_column(t);
        if (!inside || c >= cols) continue;
        load_many(x + row * cols + c, v[t]);
#pragma unroll
        for (int k = 0; k < VEC; k++) squares += v[t][k] * v[t][k];
    }
    C norm = root(lane_sum<LANES>(squares));
    if (!inside) return;
    if (lane() == 0) norms[row] = norm;
    C length = larger(norm, (C)epsilon);
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        int c = own_column(t);
        if (c >= cols) continue;
#pragma unroll
        for (int k = 0; k < VEC; k++) v[t][k] /= length;
        store_many(y + row * cols + c, v[t]);
    }
}

// dx = (dy − y (y·dy))/‖x‖, or dy/ε where the row is shorter than ε.
extern "C" __global__ void l2_norm_backward(const T *y, const C *norms, T *g, i64 rows, int cols, double epsilon) {
    i64 row = own_row();
    bool inside = row < rows;
    C v[TURNS][VEC], dy[TURNS][VEC], along = (C)0;
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        int c = own_column(t);
        if (!inside || c >= cols) continue;
        load_many(y + row * cols + c, v[t]);
        load_many(g + row * cols + c, dy[t]);
#pragma unroll
        for (int k = 0; k < VEC; k++) along += v[t][k] * dy[t][k];
    }
    along = lane_sum<LANES>(along);
    if (!inside) return;
    C norm = norms[row], length = larger(norm, (C)epsilon);
    if (!(norm > (C)epsilon)) along = (C)0;
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        int c = own_column(t);
        if (c >= cols) continue;
#pragma unroll
        for (int k = 0; k < VEC; k++) dy[t][k] = (dy[t][k] - v[t][k] * along) / length;
        store_many(g + row * cols + c, dy[t]);
    }
}
