// How many rows score higher than what is right, and how many the same; see ops/ranks.rs. Sums are those of the host:
// column by column, each product rounded.

#define PIECE 32
#define GROUP 32
#define AT_ONCE 8
#define EQUAL 64

extern "C" __global__ void ranks(const T *rows, i64 count, i32 columns, const T *queries, i64, i32, const T *right, i64, i32,
                                 T *to, i64 pieces, i32 all) {
    i64 at = thread_number();
    if (at >= pieces * all) return;
    i64 first = at / all * PIECE, k = at % all;
    const T *query = queries + k / GROUP * columns * GROUP + k % GROUP;
    double most = (double)load(right[k]);
    int found = 0;
    for (i64 row = first; row < first + PIECE && row < count; row += AT_ONCE) {
        double sums[AT_ONCE] = {};
        const T *own[AT_ONCE];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) own[r] = rows + (row + r < count ? row + r : count - 1) * columns;
        for (i32 c = 0; c < columns; c++) {
            double q = (double)load(query[(i64)c * GROUP]);
#pragma unroll
            for (int r = 0; r < AT_ONCE; r++) sums[r] = __dadd_rn(sums[r], __dmul_rn(q, (double)load(own[r][c])));
        }
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            if (row + r < count) found += (sums[r] > most) + EQUAL * (sums[r] == most);
        }
    }
    to[at] = Number<T>::narrow((double)found);
}
