// sum = x + z ∘ mask.
extern "C" __global__ void residual(const T *x, const T *z, T *sum, i64 rows, int cols, Dropout d) {
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC], w[VEC];
        load_many(x + row * cols + c, v);
        load_many(z + row * cols + c, w);
        drop(d, original_id(d, row), c, w);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[k] += w[k];
        store_many(sum + row * cols + c, v);
    });
}
