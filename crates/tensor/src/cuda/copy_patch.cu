// Columns of one matrix to columns of another, copied or added.
extern "C" __global__ void copy_patch(const T *from, T *to, i64 rows, int cols, int from_width, i64 from_first, int to_width,
                                      i64 to_first, int add) {
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC], w[VEC];
        T *at = to + row * to_width + to_first + c;
        load_many(from + row * from_width + from_first + c, v);
        if (add) {
            load_many(at, w);
#pragma unroll
            for (int k = 0; k < VEC; k++) v[k] += w[k];
        }
        store_many(at, v);
    });
}
