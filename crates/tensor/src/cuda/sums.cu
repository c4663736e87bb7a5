// Adds up what the pieces of a row came to, in their order, and writes it: columns 0 to `a_width` to one matrix, the
// next `b_width` to another. A warp per row and 128 columns; pieces lie as rows of `size` numbers, a multiple of 8.

typedef Type<A_TYPE>::Stored A;
typedef Type<B_TYPE>::Stored B;

struct Sums {
    const Merge *merges;
    C *pieces;
    const C *factors; // of rows
    A *a;
    B *b;
    u32 count, size, a_width, b_width;
    int add; // to a
    u32 unused;
};

extern "C" __global__ void __launch_bounds__(THREADS) sum_pieces(const Sums o) {
    u32 at = warp_id(), column = blockIdx.y * 128 + lane_id() * 4;
    if (at >= o.count || column >= o.size) return;
    Merge merge = merge_at(o.merges, at);
    C sum[4] = {0, 0, 0, 0};
#pragma unroll 8
    for (u32 k = 0; k < merge.count; k++) {
        Packed<C, 4> x;
        x.load_written(o.pieces + (u64)(merge.first + k * merge.stride) * o.size + column);
#pragma unroll
        for (int c = 0; c < 4; c++) sum[c] += x.get(c);
    }
    if (merge.row == NO_ROW) {
        put(o.pieces + (u64)merge.first * o.size + column, sum, 0);
        return;
    }
    C factor = o.factors ? o.factors[merge.row] : (C)1;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        u32 at = column + c;
        C x[1] = {sum[c] * factor};
        if (at < o.a_width)
            put(o.a + (u64)merge.row * o.a_width + at, x, o.add);
        else if (at < o.a_width + o.b_width)
            put(o.b + (u64)merge.row * o.b_width + (at - o.a_width), x, 0);
    }
}
