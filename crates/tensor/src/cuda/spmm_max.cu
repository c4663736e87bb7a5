// The maximum over neighbours, with the original id of the source that has it. Among equals the smallest id wins, and
// NaN stays.

constexpr u32 NOBODY = 0xffffffffu;

// Whether `x` of `id` takes the place of `best` of `holder`.
__device__ __forceinline__ bool wins(C x, u32 id, C best, u32 holder) {
    bool above = !(x <= best) && best == best;
    return above || (x == best && id < holder);
}

struct Best {
    C value[CHUNKS][VEC];
    u32 id[CHUNKS][VEC];

    __device__ __forceinline__ Best() {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int k = 0; k < VEC; k++) value[c][k] = NEGATIVE_INFINITY, id[c][k] = NOBODY;
    }

    __device__ __forceinline__ void offer(int c, int k, C x, u32 from) {
        if (wins(x, from, value[c][k], id[c][k])) value[c][k] = x, id[c][k] = from;
    }

    // The best of all teams, in the first one.
    __device__ __forceinline__ void merge_teams() {
#pragma unroll
        for (int o = TEAM; o < 32; o *= 2)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int k = 0; k < VEC; k++) {
                    C x = __shfl_xor_sync(ALL, value[c][k], o);
                    u32 from = __shfl_xor_sync(ALL, id[c][k], o);
                    offer(c, k, x, from);
                }
    }
};

struct Target {
    OUT *out;
    u32 *arg;
    C *values; // of pieces
    u32 *ids;
    int add; // go on from what out and arg hold
    u32 unused;
};

__device__ __forceinline__ void write_piece(const Lane &lane, const Best &best, const Target &to, u32 piece) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int k = 0; k < VEC; k++)
            if (lane.team == 0 && lane.has(c)) {
                u64 place = (u64)piece * COLUMNS + lane.column(c) + k;
                to.values[place] = best.value[c][k], to.ids[place] = best.id[c][k];
            }
}

__device__ __forceinline__ void write_row(const Lane &lane, Best &best, const Target &to, u32 row) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (lane.team != 0 || !lane.has(c)) continue;
        u64 place = (u64)row * COLUMNS + lane.column(c);
        C found[VEC];
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            if (to.add && to.arg[place + k] != NOBODY) {
                // What earlier blocks found was there first.
                C x = best.value[c][k];
                u32 from = best.id[c][k];
                Packed<OUT, 1> before;
                before.load_written(to.out + place + k);
                best.value[c][k] = before.get(0), best.id[c][k] = to.arg[place + k];
                best.offer(c, k, x, from);
            }
            found[k] = best.id[c][k] == NOBODY ? (C)0 : best.value[c][k];
            to.arg[place + k] = best.id[c][k];
        }
        put(to.out + place, found, 0);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    max_forward(const Graph graph, const u64 *ids, const X *x, const Target to) {
    u32 at = warp_id();
    if (at >= graph.count) return;
    Item item = item_at(graph.items, at);
    Lane lane;
    Best best;
    for (u32 from = 0; from < item.count; from += 32) {
        u32 count = min(32u, item.count - from), mine = 0, own = 0;
        if (lane_id() < count) {
            mine = __ldg(graph.indices + item.begin + from + lane_id());
            own = original(ids, mine);
        }
        for (u32 first = 0; first < count; first += TEAMS * UNROLL) {
            Far<X> far[UNROLL];
            u32 id[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                // A team without an edge left sees the last one again, which changes nothing.
                u32 at = min(first + u * TEAMS + lane.team, count - 1);
                id[u] = __shfl_sync(ALL, own, at);
                far[u].load(lane, x, __shfl_sync(ALL, mine, at));
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                    for (int k = 0; k < VEC; k++) best.offer(c, k, far[u].x[c].get(k), id[u]);
        }
    }
    best.merge_teams();
    if (at < graph.pieces)
        write_piece(lane, best, to, at);
    else
        write_row(lane, best, to, item.row);
}

extern "C" __global__ void __launch_bounds__(THREADS) max_merge(const Merge *merges, u32 count, const Target to) {
    u32 at = warp_id();
    if (at >= count) return;
    Merge merge = merge_at(merges, at);
    Lane lane;
    Best best;
    for (u32 p = lane.team; p < merge.count; p += TEAMS)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int k = 0; k < VEC; k++)
                if (lane.has(c)) {
                    u64 place = (u64)(merge.first + p * merge.stride) * COLUMNS + lane.column(c) + k;
                    best.offer(c, k, to.values[place], to.ids[place]);
                }
    best.merge_teams();
    if (merge.row == NO_ROW)
        write_piece(lane, best, to, merge.first);
    else
        write_row(lane, best, to, merge.row);
}
