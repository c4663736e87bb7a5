// Attention backward. With the log-sum-exp of forward and D_i = g_i·out_i known, an edge's weight is α = exp(e − lse_i) and the
// gradient of its score α·(g_i·v_j − D_i). The pass by destination adds up what that means for the destinations' operand, the pass by
// source, over the transpose, for the sources' operand and the values. Both are one kernel: the row at hand has an operand of the
// score and an operand of the product g·v, and so has the far end of each edge.

struct Gradients {
    const OUT *g;
    const C *lse;
    const C *big_d;
    const C *known; // by source: both side by side, for destinations and heads
    void *row;      // of the row's operand
    void *value;    // by source: of the values
    C *shared;   // by destination: for each warp, of GATv2's a
    C *bias;     // by destination: of the bias
    C *weight;   // by destination: for each warp, of the edge weight
    C *pieces;
    u32 piece_size; // columns of a piece's row
    u32 warps;      // of the grid
    int add;        // whether the row's gradient is added to
    u32 unused;
};

// How much of a gradient the score's factors hold back.
constexpr C REST = SCORE == GATV2 ? LN_2 : (C)1;
constexpr int FEATURE_PARTS = BIAS == FEATURES ? (FEATURE_COUNT + PARTS - 1) / PARTS : 1;

template <typename T> __device__ __forceinline__ void zero(T &all) {
    C *x = (C *)&all;
#pragma unroll
    for (int k = 0; k < sizeof(T) / sizeof(C); k++) x[k] = 0;
}

// The sum over all teams, in each of them.
__device__ __forceinline__ C sum_teams(C x) {
#pragma unroll
    for (int o = TEAM; o < 32; o *= 2) x += __shfl_xor_sync(ALL, x, o);
    return x;
}

__device__ __forceinline__ void sum_teams(Part &x) {
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int k = 0; k < VEC; k++) x[s][c][k] = sum_teams(x[s][c][k]);
}

template <typename T> __device__ __forceinline__ void put_part(const Lane &lane, T *row, const Part &x, int add) {
    if (lane.team != 0) return;
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (lane.has(s, c)) put(row + lane.column(s, c), x[s][c], add);
}

// NEAR and OTHER are the types of the row's operands, FAR and PRODUCT those of the far ends'.
template <bool BY_SRC, typename NEAR, typename OTHER, typename FAR, typename PRODUCT>
__device__ __forceinline__ void backward(const Operands &o, const Gradients &to, const NEAR *near_rows, int near_stride,
                                         const OTHER *other_rows, int other_stride, const FAR *far_rows, int far_stride,
                                         const PRODUCT *product_rows, int product_stride) {
    // By destination, GATv2's values may be the far operand itself; by source they may be the row's.
    constexpr bool ONE_LOAD = !BY_SRC && SCORE == GATV2 && !OWN_VALUES;
    constexpr bool ONE_ROW = BY_SRC && SCORE == GATV2 && !OWN_VALUES;
    Lane lane;
    Part a, da;
    C slope = o.slope, dweight[SLOTS][FEATURE_PARTS];
    if constexpr (SCORE == GATV2) load_part(lane, o.a, LOG2_E, a);
    zero(da), zero(dweight);
    u32 warp = warp_id();
    for (u32 at = warp; at < o.count; at += to.warps) {
        Item item = item_at(o.items, at);
        Part near, other, drow, dvalue;
        C number[SLOTS], dnumber[SLOTS], lse[SLOTS], big_d[SLOTS];
        zero(drow), zero(dvalue), zero(dnumber);
        if constexpr (SCORE == GAT) {
#pragma unroll
            for (int s = 0; s < SLOTS; s++)
                number[s] = head_number(near_rows + (u64)item.row * near_stride, lane, s);
        } else {
            load_part(lane, near_rows + (u64)item.row * near_stride,
                      SCORE == DOT ? (C)o.scale * LOG2_E : (C)1, near);
        }
        load_part(lane, other_rows + (u64)item.row * other_stride, 1, other);
        if (!BY_SRC)
#pragma unroll
            for (int s = 0; s < SLOTS; s++) {
                u64 place = (u64)item.row * HEADS + lane.head_of(s);
                lse[s] = lane.has(s) ? __ldg(to.lse + place) * LOG2_E : (C)0;
                big_d[s] = lane.has(s) ? __ldg(to.big_d + place) : (C)0;
            }
        for (u32 from = 0; from < item.count; from += 32) {
            Batch batch;
            batch.load<BY_SRC>(o, item, from);
            u32 count = min(32u, item.count - from);
            for (u32 first = 0; first < count; first += TEAMS * UNROLL) {
                Edge edges[UNROLL];
                Far<FAR> far[SCORE == GAT ? 1 : UNROLL];
                Far<PRODUCT> products[UNROLL];
                C numbers[UNROLL][SLOTS];
                Packed<C, 2> known[UNROLL][SLOTS];
#pragma unroll
                for (int u = 0; u < UNROLL; u++) {
                    edges[u].take(batch, first + u * TEAMS + lane.team, count);
                    const FAR *row = far_rows + (u64)edges[u].node * far_stride;
                    if constexpr (SCORE == GAT) {
#pragma unroll
                        for (int s = 0; s < SLOTS; s++) numbers[u][s] = head_number(row, lane, s);
                    } else {
                        far[u].load(lane, row);
                    }
                    if constexpr (ONE_LOAD)
                        products[u] = far[u];
                    else
                        products[u].load(lane, product_rows + (u64)edges[u].node * product_stride);
                    if (BY_SRC)
#pragma unroll
                        for (int s = 0; s < SLOTS; s++) {
                            u64 place = (u64)edges[u].node * HEADS + lane.head_of(s);
                            known[u][s].clear();
                            if (lane.has(s)) known[u][s].load(to.known + 2 * place);
                        }
                }
#pragma unroll
                for (int u = 0; u < UNROLL; u++)
#pragma unroll
                    for (int s = 0; s < SLOTS; s++) {
                        C bias = edges[u].bias_part(o, lane, s) * LOG2_E, score, flat = 1;
                        if constexpr (SCORE == GAT) {
                            C x = number[s] + numbers[u][s];
                            flat = x > 0 ? (C)1 : slope;
                            score = x * flat * LOG2_E;
                            if (BIAS != NO_BIAS) score += lane_sum<PARTS>(bias);
                        } else {
                            score = lane_sum<PARTS>(score_part(near[s], far[u].x[s], a[s], slope) + bias);
                        }
                        C product = lane_sum<PARTS>(dot_part(other[s], products[u].x[s]));
                        C top = BY_SRC ? known[u][s].get(0) : lse[s], mean = BY_SRC ? known[u][s].get(1) : big_d[s];
                        C alpha = edges[u].exists && lane.has(s) ? exp_2(score - top) : (C)0;
                        C factor = edges[u].factor(o, lane.head_of(s));
                        C de = alpha * (product * factor - mean), direct = alpha * factor;
                        dnumber[s] += de * flat;
#pragma unroll
                        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                            for (int k = 0; k < VEC; k++) {
                                if constexpr (SCORE == DOT) drow[s][c][k] += de * far[u].x[s][c].get(k);
                                if constexpr (SCORE == GATV2) {
                                    C x = near[s][c][k] + far[u].x[s][c].get(k), steep = x > 0 ? de : de * slope;
                                    drow[s][c][k] += a[s][c][k] * steep;
                                    if (!BY_SRC) da[s][c][k] += steep * x;
                                }
                                if (BY_SRC) dvalue[s][c][k] += direct * products[u].x[s][c].get(k);
                            }
                        if (BIAS != NO_BIAS && !BY_SRC && edges[u].exists && lane.has(s)) {
                            if (BIAS == PER_EDGE && to.bias && lane.part == 0)
                                to.bias[edges[u].edge * HEADS + lane.head_of(s)] = de;
                            if (BIAS == FEATURES)
#pragma unroll
                                for (int f = 0; f < FEATURE_PARTS; f++) {
                                    int feature = f * PARTS + lane.part;
                                    if (feature < FEATURE_COUNT)
                                        dweight[s][f] += de * __ldg(o.feat + edges[u].edge * FEATURE_COUNT + feature);
                                }
                        }
                    }
            }
        }
        C rest = SCORE == DOT ? (C)o.scale : REST;
        sum_teams(drow);
        if (BY_SRC) sum_teams(dvalue);
#pragma unroll
        for (int s = 0; s < SLOTS; s++) {
            dnumber[s] = sum_teams(dnumber[s]);
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int k = 0; k < VEC; k++) {
                    drow[s][c][k] *= rest;
                    if (ONE_ROW) drow[s][c][k] += dvalue[s][c][k];
                }
        }
        // A piece's row: what is as wide as the values comes first.
        bool whole = at >= o.pieces;
        C *piece = to.pieces + (u64)at * to.piece_size;
        if constexpr (SCORE == GAT) {
            if (lane.team == 0 && lane.part == 0)
#pragma unroll
                for (int s = 0; s < SLOTS; s++) {
                    if (!lane.has(s)) continue;
                    C *row = whole ? (C *)to.row + (u64)item.row * HEADS : piece + (BY_SRC ? D : 0);
                    C before = whole && to.add ? row[lane.head_of(s)] : (C)0;
                    row[lane.head_of(s)] = before + dnumber[s];
                }
        } else if (whole) {
            put_part(lane, (NEAR *)to.row + (u64)item.row * near_stride, drow, to.add);
        } else {
            put_part(lane, piece, drow, 0);
        }
        if (BY_SRC && !ONE_ROW) {
            if (whole)
                put_part(lane, (OTHER *)to.value + (u64)item.row * other_stride, dvalue, 0);
            else
                put_part(lane, piece + (SCORE == GAT ? 0 : D), dvalue, 0);
        }
    }
    if (SCORE == GATV2 && !BY_SRC && to.shared) {
        sum_teams(da);
        put_part(lane, to.shared + (u64)warp * D, da, 0);
    }
    if (BIAS == FEATURES && !BY_SRC && to.weight)
#pragma unroll
        for (int s = 0; s < SLOTS; s++)
#pragma unroll
            for (int f = 0; f < FEATURE_PARTS; f++) {
                C sum = sum_teams(dweight[s][f]);
                int feature = f * PARTS + lane.part;
                if (lane.team == 0 && lane.has(s) && feature < FEATURE_COUNT)
                    to.weight[((u64)warp * HEADS + lane.head_of(s)) * FEATURE_COUNT + feature] = sum;
            }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention_dst(const Operands o, const Gradients to) {
    backward<false>(o, to, o.dst, DST_STRIDE, to.g, D, o.src, SRC_STRIDE, o.value, VALUE_STRIDE);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention_src(const Operands o, const Gradients to) {
    backward<true>(o, to, o.src, SRC_STRIDE, o.value, VALUE_STRIDE, o.dst, DST_STRIDE, to.g, D);
}

// The log-sum-exp, in units of log₂, and D side by side: a gather of both then touches one place.
extern "C" __global__ void attention_known(const C *lse, const C *big_d, C *to, u64 count) {
    u64 at = thread_number();
    if (at >= count) return;
    C pair[2] = {lse[at] * LOG2_E, big_d[at]};
    put(to + 2 * at, pair, 0);
}

// D_i = g_i·out_i, a team per row.
extern "C" __global__ void __launch_bounds__(THREADS)
    attention_d(const OUT *g, const OUT *out, C *to, u32 rows) {
    u32 row = warp_id() * TEAMS + lane_id() / TEAM;
    Lane lane;
    Part x;
    Far<OUT> y;
    u64 begin = (u64)min(row, rows - 1) * D;
    load_part(lane, g + begin, 1, x);
    y.load(lane, out + begin);
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        C sum = lane_sum<PARTS>(dot_part(x[s], y.x[s]));
        if (row < rows && lane.part == 0 && lane.has(s)) to[(u64)row * HEADS + lane.head_of(s)] = sum;
    }
}
