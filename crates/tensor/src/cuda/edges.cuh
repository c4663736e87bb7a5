// What the kernels over edges share.
//
// Work comes as items, at most PIECE edges of one row each, made once per graph (graph.rs); a warp takes one item. Rows
// with more edges are cut: their pieces stand first in the list, and piece p leaves its partial result in row p of a
// workspace, to be merged in the order of the edges. Nothing is added atomically, so the same operands give the same
// bits.
//
// Types of operands are given by number, as STORAGE.

template <int NUMBER> struct Type;
template <> struct Type<0> {
    typedef float Stored;
};
template <> struct Type<1> {
    typedef double Stored;
};
template <> struct Type<2> {
    typedef bf16 Stored;
};

constexpr u32 ALL = 0xffffffffu;
// The row of a merge whose result stays in the workspace.
constexpr u32 NO_ROW = 0xffffffffu;

// At most PIECE edges of one row.
struct Item {
    u32 row, count;
    u64 begin;
};

// Pieces `first`, `first + stride`, … of one row.
struct Merge {
    u32 row, first, count, stride;
};

__device__ __forceinline__ Item item_at(const Item *items, u32 at) {
    uint4 x = __ldg((const uint4 *)items + at);
    return {x.x, x.y, (u64)x.w << 32 | x.z};
}

__device__ __forceinline__ Merge merge_at(const Merge *merges, u32 at) {
    uint4 x = __ldg((const uint4 *)merges + at);
    return {x.x, x.y, x.z, x.w};
}

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

// Number of this warp in the grid, of the blocks side by side.
__device__ __forceinline__ u32 warp_id() { return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }

__device__ __forceinline__ C element(const u32 *w, int k, bf16) {
    return __uint_as_float(k & 1 ? w[k / 2] & 0xffff0000u : w[k / 2] << 16);
}
__device__ __forceinline__ C element(const u32 *w, int k, float) { return __uint_as_float(w[k]); }
__device__ __forceinline__ C element(const u32 *w, int k, double) { return __hiloint2double(w[2 * k + 1], w[2 * k]); }

__device__ __forceinline__ void set_elements(u32 *w, int k, C x, C y, bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[k / 2]) : "f"((float)y), "f"((float)x));
}
__device__ __forceinline__ void set_elements(u32 *w, int k, C x, C y, float) {
    w[k] = __float_as_uint((float)x);
    w[k + 1] = __float_as_uint((float)y);
}
__device__ __forceinline__ void set_elements(u32 *w, int k, C x, C y, double) {
    double both[2] = {(double)x, (double)y};
    for (int t = 0; t < 2; t++) {
        w[2 * (k + t)] = __double2loint(both[t]);
        w[2 * (k + t) + 1] = __double2hiint(both[t]);
    }
}

// N neighbouring elements as they lie in memory: loads are as wide as they can be and stay packed until they are used.
template <typename T, int N> struct Packed {
    static constexpr int BYTES = sizeof(T) * N;
    u32 w[(BYTES + 3) / 4];

    __device__ __forceinline__ void clear() {
        for (u32 &x : w) x = 0;
    }

    __device__ __forceinline__ void load(const T *p) {
        if constexpr (BYTES == 2) w[0] = __ldg((const u16 *)p);
        if constexpr (BYTES == 4) w[0] = __ldg((const u32 *)p);
        if constexpr (BYTES == 8) {
            uint2 x = __ldg((const uint2 *)p);
            w[0] = x.x, w[1] = x.y;
        }
        if constexpr (BYTES >= 16) {
#pragma unroll
            for (int t = 0; t < BYTES / 16; t++) {
                uint4 x = __ldg((const uint4 *)p + t);
                w[4 * t] = x.x, w[4 * t + 1] = x.y, w[4 * t + 2] = x.z, w[4 * t + 3] = x.w;
            }
        }
    }

    // The same of memory that this kernel or one beside it writes.
    __device__ __forceinline__ void load_written(const T *p) {
        if constexpr (BYTES == 2) w[0] = *(const u16 *)p;
        if constexpr (BYTES == 4) w[0] = *(const u32 *)p;
        if constexpr (BYTES == 8) {
            uint2 x = *(const uint2 *)p;
            w[0] = x.x, w[1] = x.y;
        }
        if constexpr (BYTES >= 16) {
#pragma unroll
            for (int t = 0; t < BYTES / 16; t++) {
                uint4 x = ((const uint4 *)p)[t];
                w[4 * t] = x.x, w[4 * t + 1] = x.y, w[4 * t + 2] = x.z, w[4 * t + 3] = x.w;
            }
        }
    }

    __device__ __forceinline__ void store(T *p) const {
        if constexpr (BYTES == 2) *(u16 *)p = w[0];
        if constexpr (BYTES == 4) *(u32 *)p = w[0];
        if constexpr (BYTES == 8) *(uint2 *)p = make_uint2(w[0], w[1]);
        if constexpr (BYTES >= 16) {
#pragma unroll
            for (int t = 0; t < BYTES / 16; t++)
                ((uint4 *)p)[t] = make_uint4(w[4 * t], w[4 * t + 1], w[4 * t + 2], w[4 * t + 3]);
        }
    }

    __device__ __forceinline__ C get(int k) const { return element(w, k, T()); }

    __device__ __forceinline__ void set(const C (&x)[N]) {
        if constexpr (N == 1) {
            u32 two[4];
            set_elements(two, 0, x[0], 0, T());
            w[0] = sizeof(T) == 2 ? two[0] & 0xffffu : two[0];
            if constexpr (sizeof(T) == 8) w[1] = two[1];
        } else {
#pragma unroll
            for (int k = 0; k < N; k += 2) set_elements(w, k, x[k], x[k + 1], T());
        }
    }
};

// `to = x`, or `to += x`.
template <typename T, int N> __device__ __forceinline__ void put(T *to, const C (&x)[N], int add) {
    Packed<T, N> pack;
    if (add) {
        C sum[N];
        pack.load_written(to);
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] = pack.get(k) + x[k];
        pack.set(sum);
    } else {
        pack.set(x);
    }
    pack.store(to);
}

// Bit k says whether number k of eight is kept.
__device__ __forceinline__ u32 kept_bits(const Dropout &d, uint4 numbers) {
    u32 bits = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) bits |= (u32)(dropout_factor(d, numbers, k) != 0.0f) << k;
    return bits;
}

// The same for heads 8·group to 8·group + 7 of an edge, counted from the first head that is here.
__device__ __forceinline__ u32 kept_heads(const Dropout &d, u64 source, u64 destination, u32 group) {
    u32 first = group + d.first_head / 8, skipped = d.first_head % 8;
    u32 bits = kept_bits(d, edge_numbers(d, source, destination, first));
    if (skipped == 0) return bits;
    u32 next = kept_bits(d, edge_numbers(d, source, destination, first + 1));
    return (bits | next << 8) >> skipped & 0xffu;
}

__device__ __forceinline__ u64 original(const u64 *ids, u32 row) { return ids ? __ldg(ids + row) : row; }
