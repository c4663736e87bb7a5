// What the linear layer over sparse features needs beside aggregation.

// to = fromᵀ, in squares of 32: both sides are read and written in whole lines.
extern "C" __global__ void __launch_bounds__(256) transpose(const T *from, T *to, u64 rows, u64 columns) {
    __shared__ T square[32][33];
    u32 x = threadIdx.x % 32, y = threadIdx.x / 32;
    u64 row = (u64)blockIdx.x * 32, column = (u64)blockIdx.y * 32;
#pragma unroll
    for (u32 k = y; k < 32; k += 8)
        if (row + k < rows && column + x < columns) square[k][x] = from[(row + k) * columns + column + x];
    __syncthreads();
#pragma unroll
    for (u32 k = y; k < 32; k += 8)
        if (column + k < columns && row + x < rows) to[(column + k) * rows + row + x] = square[x][k];
}

// Every row of `to` becomes `row`.
extern "C" __global__ void spread_row(const C *row, T *to, u64 elements, u64 columns) {
    u64 at = thread_number();
    if (at < elements) to[at] = store<T>(row[at % columns]);
}

// Entries of sparse rows (1 where there are none) after dropout, a warp per item.
extern "C" __global__ void __launch_bounds__(256)
    drop_entries(const Item *items, u32 count, const u32 *indices, const C *entries, const Dropout dropout, C *to) {
    u32 at = warp_id();
    if (at >= count) return;
    Item item = item_at(items, at);
    u64 node = original_id(dropout, item.row);
    for (u32 k = lane_id(); k < item.count; k += 32) {
        u64 position = item.begin + k;
        u32 column = __ldg(indices + position);
        C entry = entries ? __ldg(entries + position) : (C)1;
        to[position] = entry * (C)dropout_factor(dropout, row_numbers(dropout, node, column / 8), column % 8);
    }
}
