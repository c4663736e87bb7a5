// Dropout: the numbers of random.rs, from the same counters.

struct Dropout {
    u32 key0, key1, stream;
    // Elements whose 16-bit number is below this are dropped; 0 if nothing is dropped.
    u32 threshold;
    float scale;
    // Head 0 of an edge is this one of all.
    u32 first_head;
    // Original ids of rows, null where row k is node k.
    const u64 *ids;
    // Where the key is, of a recorded step: it is another one in every epoch. Null where key0 and key1 are it.
    const uint2 *key;
};

__device__ __forceinline__ uint2 key_of(const Dropout &d) { return d.key ? __ldg(d.key) : make_uint2(d.key0, d.key1); }

__device__ __forceinline__ uint4 philox(uint4 c, uint2 key) {
#pragma unroll
    for (int round = 0; round < 7; round++) {
        u32 a_high = __umulhi(0xd2511f53u, c.x), a_low = 0xd2511f53u * c.x;
        u32 b_high = __umulhi(0xcd9e8d57u, c.z), b_low = 0xcd9e8d57u * c.z;
        c = make_uint4(b_high ^ c.y ^ key.x, b_low, a_high ^ c.w ^ key.y, a_low);
        key.x += 0x9e3779b9u;
        key.y += 0xbb67ae85u;
    }
    return c;
}

// The k-th of the eight 16-bit numbers of a call, as a factor: 0 or 1/keep.
__device__ __forceinline__ float dropout_factor(const Dropout &d, uint4 words, int k) {
    u32 word = k < 4 ? (k < 2 ? words.x : words.y) : (k < 6 ? words.z : words.w);
    u32 number = (k & 1) ? word >> 16 : word & 0xffffu;
    return number < d.threshold ? 0.0f : d.scale;
}

__device__ __forceinline__ uint4 row_numbers(const Dropout &d, u64 node, u32 group) {
    return philox(make_uint4((u32)node, (u32)(node >> 32), group, d.stream << 1), key_of(d));
}

// Those of heads 8·group to 8·group + 7 of an edge.
__device__ __forceinline__ uint4 edge_numbers(const Dropout &d, u64 source, u64 destination, u32 group) {
    u32 from = (u32)(source >> 32), to = (u32)(destination >> 32);
    u32 high = from ^ (to << 16 | to >> 16);
    u32 last = ((d.stream << 8 | group) << 1) | 1;
    return philox(make_uint4((u32)source, (u32)destination, high, last), key_of(d));
}

__device__ __forceinline__ u64 original_id(const Dropout &d, i64 row) { return d.ids ? d.ids[row] : (u64)row; }

// x ∘ mask for N columns of a row from `column` on, a multiple of N; N divides or is a multiple of 8, or is 1.
template <int N, class X> __device__ __forceinline__ void drop(const Dropout &d, u64 node, int column, X (&x)[N]) {
    if (d.threshold == 0) return;
    uint4 words;
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (k % 8 == 0) words = row_numbers(d, node, (u32)(column + k) / 8);
        x[k] *= (X)dropout_factor(d, words, N >= 8 ? k % 8 : column % 8 + k);
    }
}
