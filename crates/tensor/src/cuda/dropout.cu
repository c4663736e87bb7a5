// y = x ∘ mask; y may be x.
extern "C" __global__ void dropout(const T *x, T *y, i64 rows, int cols, Dropout d) {
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC];
        load_many(x + row * cols + c, v);
        drop(d, original_id(d, row), c, v);
        store_many(y + row * cols + c, v);
    });
}
