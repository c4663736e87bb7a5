// Operations on rows that have nothing to do with each other, and do not add anything up along a row.

#if WIDE
typedef C Y;
#else
typedef T Y;
#endif

// Runs `body(row, column)` for every VEC columns of every row.
template <class F> __device__ __forceinline__ void each(i64 rows, int cols, F body) {
    i64 row = own_row();
    if (row >= rows) return;
#pragma unroll UNROLL
    for (int t = 0; t < TURNS; t++) {
        int c = own_column(t);
        if (c < cols) body(row, c);
    }
}

// y = x ∘ mask; y may be x.
extern "C" __global__ void dropout(const T *x, T *y, i64 rows, int cols, Dropout d) {
    each(rows, cols, [&](i64 row, int c) {
        C v[VEC];
        load_many(x + row * cols + c, v);
        drop(d, original_id(d, row), c, v);
        store_many(y + row * cols + c, v);
    });
}

// sum = x + z ∘ mask.
extern "C" __global__ void residual(const T *x, const T *z, T *sum, i64 rows, int cols, Dropout d) {
    each(rows, cols, [&](i64 row, int c) {
        C v[VEC], w[VEC];
        load_many(x + row * cols + c, v);
        load_many(z + row * cols + c, w);
        drop(d, original_id(d, row), c, w);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[k] += w[k];
        store_many(sum + row * cols + c, v);
    });
}

// Columns of one matrix to columns of another, copied or added.
extern "C" __global__ void copy_patch(const T *from, T *to, i64 rows, int cols, int from_width, i64 from_first, int to_width,
                                      i64 to_first, int add) {
    each(rows, cols, [&](i64 row, int c) {
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

// y = dropout(act(mean over groups of x + plus + bias)); `pre` gets what the activation is applied to.
extern "C" __global__ void epilogue(const T *x, const T *plus, const C *bias, Y *y, Y *pre, i64 rows, int cols, int groups,
                                    int activation, double slope, Dropout d) {
    C share = (C)(1.0 / groups), s = (C)slope;
    each(rows, cols, [&](i64 row, int c) {
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
    each(rows, cols, [&](i64 row, int c) {
        C v[VEC];
        load_many(dy + row * cols + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[k] *= share;
        for (int g = 0; g < groups; g++) store_many(dx + (row * groups + g) * cols + c, v);
    });
}

// The end of a product, for columns from `first` on of rows of `width`: x + bias in `pre`, its activation in `y`. x may be y.
extern "C" __global__ void finish(const T *x, const C *bias, T *y, T *pre, i64 rows, int cols, int width, int first,
                                  int activation, double slope) {
    C s = (C)slope;
    each(rows, cols, [&](i64 row, int c) {
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

// y = (x − μ)·scale ∘ w + b with numbers per column.
extern "C" __global__ void normalise(const T *x, const C *mean, const C *scale, const C *w, const C *b, T *y, i64 rows, int cols) {
    each(rows, cols, [&](i64 row, int c) {
        C v[VEC];
        load_many(x + row * cols + c, v);
#pragma unroll
        for (int k = 0; k < VEC; k++) v[k] = (v[k] - mean[c + k]) * scale[c + k] * w[c + k] + b[c + k];
        store_many(y + row * cols + c, v);
    });
}

// The gradient of a batch norm's input; `means` are those of dy, then those of dy ∘ x̂.
extern "C" __global__ void batch_norm_dx(const T *x, const C *mean, const C *scale, const C *w, const C *means, T *g,
                                         const T *plus, i64 rows, int cols) {
    each(rows, cols, [&](i64 row, int c) {
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

// y[k] = x[index[k]].
extern "C" __global__ void gather_rows(const T *x, const u32 *index, T *y, i64 rows, int cols) {
    each(rows, cols, [&](i64 row, int c) {
        C v[VEC];
        load_many(x + (i64)index[row] * cols + c, v);
        store_many(y + row * cols + c, v);
    });
}

// Where many matrices are.
struct Places {
    u64 at[64];
};

// y[k] is a row of one of many matrices. An entry is (number of the matrix, row).
extern "C" __global__ void gather_many(Places places, const uint2 *entries, T *y, i64 rows, int cols) {
    each(rows, cols, [&](i64 row, int c) {
        uint2 entry = entries[row];
        C v[VEC];
        load_many((const T *)places.at[entry.x] + (i64)entry.y * cols + c, v);
        store_many(y + row * cols + c, v);
    });
}

// Row k of x is added to a row of one of many matrices, which no other entry names; to none where there is no matrix.
extern "C" __global__ void scatter_many(Places places, const uint2 *entries, const T *x, i64 rows, int cols) {
    each(rows, cols, [&](i64 row, int c) {
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

// Sums of the rows x[positions[..]] of a piece: to its row of y, on top of what that holds, or, where a row has several pieces, to
// the piece's own row of `partial`. A piece is (row of y, first position, end, row of partial or 2³² − 1).
extern "C" __global__ void scatter_pieces(const T *x, const uint4 *pieces, const u32 *positions, T *y, C *partial, i64 rows, int cols) {
    each(rows, cols, [&](i64 number, int c) {
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
    each(rows, cols, [&](i64 number, int c) {
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
