// Rows of many matrices at once.

// Where many matrices are.
struct Places {
    u64 at[64];
};

// y[k] is a row of one of many matrices. An entry is (number of the matrix, row).
extern "C" __global__ void gather_many(Places places, const uint2 *entries, T *y, i64 rows, int cols) {
    each_vector(rows, cols, [&](i64 row, int c) {
        uint2 entry = entries[row];
        C v[VEC];
        load_many((const T *)places.at[entry.x] + (i64)entry.y * cols + c, v);
        store_many(y + row * cols + c, v);
    });
}

// Row k of x is added to a row of one of many matrices, which no other entry names; to none where there is no matrix.
extern "C" __global__ void scatter_many(Places places, const uint2 *entries, const T *x, i64 rows, int cols) {
    each_vector(rows, cols, [&](i64 row, int c) {
        uint2 entry = entries[row];
        T *at = (T *)places.at[entry.x];
        if (!at) return;
        at += (i64)entry.y * cols + c;
        C sum[VEC], v[VEC];
        load_many(at, sum);
        load_many(x + row * cols + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) sum[k] += v[k];
        store_many(at, sum);
    });
}
