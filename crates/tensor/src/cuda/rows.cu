// Rows picked and added up by index.

// y[k] = x[index[k]].
extern "C" __global__ void gather_rows(const T *x, const u32 *index, T *y, i64 rows, int cols) {
    each_vector(rows, cols, [&](i64 row, int c) {
        C v[VEC];
        load_many(x + (i64)index[row] * cols + c, v);
        store_many(y + row * cols + c, v);
    });
}

// Sums of the rows x[positions[..]] of a piece: to its row of y, on top of what that holds, or, where a row has several
// pieces, to the piece's own row of `partial`. A piece is (row of y, first position, end, row of partial or 2³² − 1).
extern "C" __global__ void scatter_pieces(const T *x, const uint4 *pieces, const u32 *positions, T *y, C *partial, i64 rows, int cols) {
    each_vector(rows, cols, [&](i64 number, int c) {
        uint4 piece = pieces[number];
        bool whole = piece.w == 0xffffffffu;
        C sum[VEC] = {}, v[VEC];
        T *at = y + (i64)piece.x * cols + c;
        if (whole) load_many(at, sum);
        for (u32 p = piece.y; p < piece.z; p++) {
            load_many(x + (i64)positions[p] * cols + c, v);
#pragma unroll
            for (int k = 0; k < VEC; k++) sum[k] += v[k];
        }
        if (whole) {
            store_many(at, sum);
        } else {
            store_many(partial + (i64)piece.w * cols + c, sum);
        }
    });
}

// Adds the pieces of a row in order. A hub is (row of y, first row of partial, end).
extern "C" __global__ void scatter_hubs(const uint4 *hubs, const C *partial, T *y, i64 rows, int cols) {
    each_vector(rows, cols, [&](i64 number, int c) {
        uint4 hub = hubs[number];
        C sum[VEC], v[VEC];
        T *at = y + (i64)hub.x * cols + c;
        load_many(at, sum);
        for (u32 p = hub.y; p < hub.z; p++) {
            load_many(partial + (i64)p * cols + c, v);
#pragma unroll
            for (int k = 0; k < VEC; k++) sum[k] += v[k];
        }
        store_many(at, sum);
    });
}
