// Products of heads with one vector or two, and their gradients.

// l_ih = z_ih·a_h and, where there is a second vector, r_ih = z_ih·b_h: a thread per row and head.
extern "C" __global__ void head_dot(const T *z, const C *a, const C *b, C *l, C *r, i64 count, int heads, int width) {
    i64 at = thread_number();
    if (at >= count) return;
    const T *row = z + at * width;
    const C *ah = a + at % heads * width, *bh = b ? b + at % heads * width : ah;
    C left = (C)0, right = (C)0;
    for (int k = 0; k < width; k++) {
        C x = load(row[k]);
        left += x * ah[k];
        right += x * bh[k];
    }
    l[at] = left;
    if (b) r[at] = right;
}

// dz = dl_h·a + dr_h·b, set or added, and Σ dl_h·z and Σ dr_h·z; `width` columns a head. b and dr may be null.
extern "C" __global__ void head_dot_backward(const T *z, const C *a, const C *b, const C *dl, const C *dr, T *dz, S *partial,
                                             i64 rows, int cols, i64 per, int heads, int width, int add) {
    sum_columns<2>(rows, cols, per, partial, [&](i64 row, int c, S(&to)[2][VEC]) {
        C v[VEC], old[VEC] = {};
        i64 at = row * cols + c;
        load_many(z + at, v);
        if (add) load_many(dz + at, old);
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            int h = (c + k) / width;
            C l = dl[row * heads + h], r = dr ? dr[row * heads + h] : (C)0;
            to[0][k] = (S)(l * v[k]);
            to[1][k] = (S)(r * v[k]);
            old[k] = old[k] + l * a[c + k] + (b ? r * b[c + k] : (C)0);
        }
        store_many(dz + at, old);
    });
}
