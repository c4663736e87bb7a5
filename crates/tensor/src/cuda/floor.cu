// The traffic floor: loads, for every edge, the rows that it names in up to four tables of BYTES_0 … BYTES_3 bytes a
// row, by the same items as the operations over edges, and keeps what all loads come to.

template <int BYTES> __device__ __forceinline__ u32 touch_rows(const char *table, u32 mine, u32 count) {
    constexpr int UNIT = BYTES % 16 == 0 ? 16 : BYTES % 4 == 0 ? 4 : 2;
    constexpr u32 UNITS = BYTES == 0 ? 1 : BYTES / UNIT;
    u32 found = 0;
    if (BYTES == 0) return found;
#pragma unroll 8
    for (u32 from = 0; from < count * UNITS; from += 32) {
        u32 at = from + lane_id(), node = __shfl_sync(ALL, mine, at / UNITS & 31);
        if (at >= count * UNITS) continue;
        const char *p = table + (u64)node * BYTES + at % UNITS * UNIT;
        if (UNIT == 16) {
            uint4 x = __ldg((const uint4 *)p);
            found ^= x.x ^ x.y ^ x.z ^ x.w;
        } else {
            found ^= UNIT == 4 ? __ldg((const u32 *)p) : __ldg((const u16 *)p);
        }
    }
    return found;
}

extern "C" __global__ void __launch_bounds__(THREADS) touch(const Item *items, u32 count, const u32 *indices,
                                                             const char *a, const char *b, const char *c, const char *d,
                                                             u32 *to) {
    u32 at = warp_id();
    if (at >= count) return;
    Item item = item_at(items, at);
    u32 found = 0;
    for (u32 from = 0; from < item.count; from += 32) {
        u32 mine = 0, edges = min(32u, item.count - from);
        if (lane_id() < edges) mine = __ldg(indices + item.begin + from + lane_id());
        found ^= touch_rows<BYTES_0>(a, mine, edges) ^ touch_rows<BYTES_1>(b, mine, edges);
        found ^= touch_rows<BYTES_2>(c, mine, edges) ^ touch_rows<BYTES_3>(d, mine, edges);
    }
    found = __reduce_xor_sync(ALL, found);
    if (lane_id() == 0) to[at] = found;
}
