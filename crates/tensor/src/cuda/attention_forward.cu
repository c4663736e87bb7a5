// Attention forward: one pass over the in-edges of each row with an online softmax. The state of a row is m (the
// largest score, in units of log₂), s = Σ 2^(score − m) and acc = Σ 2^(score − m)·v; states over disjoint sets of edges
// merge exactly.

// Of a piece: m, s, then acc from a multiple of 8 on.
constexpr int PIECE_HEAD = (2 * HEADS + 7) / 8 * 8, PIECE_SIZE = PIECE_HEAD + (WIDE + 7) / 8 * 8;

struct Target {
    OUT *out;
    C *lse;
    C *state; // instead of these: rows m ‖ s ‖ acc, which are also where rows begin
    C *pieces;
};

struct State {
    C m[SLOTS], s[SLOTS];
    Part acc;
    Tails tails;

    __device__ __forceinline__ State() {
        tails.clear();
#pragma unroll
        for (int t = 0; t < SLOTS; t++) {
            m[t] = NEGATIVE_INFINITY, s[t] = 0;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int k = 0; k < VEC; k++) acc[t][c][k] = 0;
        }
    }

    // From a row of m, s and acc. ALIGNED: acc begins at a multiple of 8.
    template <bool ALIGNED> __device__ __forceinline__ void load(const Lane &lane, const C *heads, const C *columns) {
        constexpr int N = ALIGNED ? VEC : 1;
        tails.load(lane, columns, 1);
#pragma unroll
        for (int t = 0; t < SLOTS; t++) {
            if (!lane.has(t)) continue;
            m[t] = heads[lane.head_of(t)], s[t] = heads[HEADS + lane.head_of(t)];
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                if (!lane.has(t, c)) continue;
#pragma unroll
                for (int k = 0; k < VEC; k += N) {
                    Packed<C, N> x;
                    x.load_written(columns + lane.column<HEAD_STRIDE>(t, c) + k);
#pragma unroll
                    for (int n = 0; n < N; n++) acc[t][c][k + n] = x.get(n);
                }
            }
        }
    }

    template <bool ALIGNED> __device__ __forceinline__ void store(const Lane &lane, C *heads, C *columns) {
        constexpr int N = ALIGNED ? VEC : 1;
        if (lane.team != 0) return;
        tails.put(lane, columns, 1, 0);
#pragma unroll
        for (int t = 0; t < SLOTS; t++) {
            if (!lane.has(t)) continue;
            if (lane.part == 0) heads[lane.head_of(t)] = m[t], heads[HEADS + lane.head_of(t)] = s[t];
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                if (!lane.has(t, c)) continue;
#pragma unroll
                for (int k = 0; k < VEC; k += N) {
                    C x[N];
#pragma unroll
                    for (int n = 0; n < N; n++) x[n] = acc[t][c][k + n];
                    put(columns + lane.column<HEAD_STRIDE>(t, c) + k, x, 0);
                }
            }
        }
    }

    __device__ __forceinline__ void merge(const State &other) {
#pragma unroll
        for (int t = 0; t < SLOTS; t++) {
            C larger = m[t] > other.m[t] ? m[t] : other.m[t];
            // Both empty: −∞ − (−∞) would be NaN.
            C base = larger == NEGATIVE_INFINITY ? (C)0 : larger;
            C a = exp_2(m[t] - base), b = exp_2(other.m[t] - base);
            m[t] = larger;
            s[t] = s[t] * a + other.s[t] * b;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int k = 0; k < VEC; k++) acc[t][c][k] = acc[t][c][k] * a + other.acc[t][c][k] * b;
            if constexpr (TAIL > 0)
#pragma unroll
                for (int k = 0; k < LANE_TAIL; k++) tails.x[t][k] = tails.x[t][k] * a + other.tails.x[t][k] * b;
        }
    }

    // What all teams have, in the first one.
    __device__ __forceinline__ void merge_teams() {
#pragma unroll
        for (int o = TEAM; o < 32; o *= 2) {
            State other;
#pragma unroll
            for (int t = 0; t < SLOTS; t++) {
                other.m[t] = __shfl_xor_sync(ALL, m[t], o);
                other.s[t] = __shfl_xor_sync(ALL, s[t], o);
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                    for (int k = 0; k < VEC; k++) other.acc[t][c][k] = __shfl_xor_sync(ALL, acc[t][c][k], o);
                if constexpr (TAIL > 0)
#pragma unroll
                    for (int k = 0; k < LANE_TAIL; k++) other.tails.x[t][k] = __shfl_xor_sync(ALL, tails.x[t][k], o);
            }
            merge(other);
        }
    }

    __device__ __forceinline__ void finish(const Lane &lane, OUT *out, C *lse) const {
        if (lane.team != 0) return;
#pragma unroll
        for (int t = 0; t < SLOTS; t++) {
            if (!lane.has(t)) continue;
            C inverse = s[t] == 0 ? (C)0 : 1 / s[t];
            if (lane.part == 0) lse[lane.head_of(t)] = m[t] * LN_2 + log(s[t]);
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                if (!lane.has(t, c)) continue;
                C x[VEC];
#pragma unroll
                for (int k = 0; k < VEC; k++) x[k] = acc[t][c][k] * inverse;
                put(out + lane.column<HEAD_STRIDE>(t, c), x, 0);
            }
            if constexpr (TAIL > 0)
#pragma unroll
                for (int k = 0; k < LANE_TAIL; k++)
                    if (lane.has_tail(t, k)) out[lane.tail(t, k)] = ::store<OUT>(tails.x[t][k] * inverse);
        }
    }

    // A row's result is complete.
    __device__ __forceinline__ void write(const Lane &lane, const Target &to, u32 row) {
        if (to.state) {
            C *carried = to.state + (u64)row * (2 * HEADS + WIDE);
            State before;
            before.load<false>(lane, carried, carried + 2 * HEADS);
            before.merge(*this);
            before.store<false>(lane, carried, carried + 2 * HEADS);
        } else {
            finish(lane, to.out + (u64)row * WIDE, to.lse + (u64)row * HEADS);
        }
    }
};

__device__ __forceinline__ C *piece_at(const Target &to, u32 piece) { return to.pieces + (u64)piece * PIECE_SIZE; }

// Takes the edges of a team into its state. `scores` are −∞ where there is no edge.
template <bool ONE_LOAD, typename S, typename V>
__device__ __forceinline__ void take_edges(State &state, const Operands &o, const Lane &lane,
                                           const Ends<ONE_LOAD, WIDTH, S, V> &ends,
                                           const C (&scores)[UNROLL][SLOTS]) {
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        C larger = state.m[s];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) larger = scores[u][s] > larger ? scores[u][s] : larger;
        C base = larger == NEGATIVE_INFINITY ? (C)0 : larger, shrink = exp_2(state.m[s] - base);
        state.m[s] = larger;
        state.s[s] *= shrink;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int k = 0; k < VEC; k++) state.acc[s][c][k] *= shrink;
        if constexpr (TAIL > 0)
#pragma unroll
            for (int k = 0; k < LANE_TAIL; k++) state.tails.x[s][k] *= shrink;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            C p = exp_2(scores[u][s] - base), weight = p * ends.edges[u].factor(o, lane.head_of(s));
            state.s[s] += p;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int k = 0; k < VEC; k++) state.acc[s][c][k] += weight * ends.products[u].x[s][c].get(k);
            ends.features[u].add(state.tails, s, weight);
        }
    }
}

// S and V are SRC and VALUE: what does not fit together for another score is left out only from a template.
template <typename S, typename V> __device__ __forceinline__ void forward(const Operands &o, const Target &to) {
    const C *weights = near_terms(o);
    u32 at = warp_id();
    if (at >= o.count) return;
    Item item = item_at(o.items, at);
    Lane lane;
    Part near, a;
    Tails tails;
    HeadTerms terms;
    if constexpr (SCORE == GAT && TERM > 0) terms.load(o, lane);
    C number[SLOTS], slope = o.slope;
    if constexpr (SCORE == GAT) {
#pragma unroll
        for (int s = 0; s < SLOTS; s++) number[s] = head_number(o.dst + (u64)item.row * DST_STRIDE, lane, s);
    } else {
        load_part<HEAD_STRIDE>(lane, o.dst + (u64)item.row * DST_STRIDE, SCORE == DOT ? (C)o.scale * LOG2_E : (C)1, near);
        tails.load_row(lane, o.dst + (u64)item.row * DST_STRIDE, (C)o.scale * LOG2_E);
    }
    if constexpr (SCORE == GATV2) load_part<WIDTH>(lane, o.a, LOG2_E, a);
    State state;
    for (u32 from = 0; from < item.count; from += 32) {
        Batch batch;
        batch.load<false>(o, item, from);
        u32 count = min(32u, item.count - from);
        for (u32 first = 0; first < count; first += TEAMS * UNROLL) {
            Ends<SCORE == GATV2 && !OWN_VALUES, WIDTH, S, V> ends;
            C scores[UNROLL][SLOTS];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                ends.edges[u].take(batch, first + u * TEAMS + lane.team, count);
                ends.load(lane, u, o.src, SRC_STRIDE, o.value, VALUE_STRIDE);
                ends.features[u].load(o, lane, ends.edges[u].edge);
                ends.terms[u].load(o, lane, ends.edges[u].edge);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                Part sums;
                if constexpr (SCORE != GAT) copy(near, sums);
                add_terms(o, weights, lane, ends.edges[u].edge, sums);
#pragma unroll
                for (int s = 0; s < SLOTS; s++) {
                    C bias = ends.edges[u].bias_part(o, lane, s) * LOG2_E + ends.features[u].dot(tails, s), score;
                    if constexpr (SCORE == GAT) {
                        score = leaky(number[s] + ends.numbers[u][s] + ends.terms[u].sum(terms, s), slope) * LOG2_E;
                        if (BIAS != NO_BIAS) score += lane_sum<PARTS>(bias);
                    } else {
                        score = lane_sum<PARTS>(score_part(sums[s], ends.far[u].x[s], a[s], slope) + bias);
                    }
                    scores[u][s] = ends.edges[u].exists ? score : NEGATIVE_INFINITY;
                }
            }
            take_edges(state, o, lane, ends, scores);
        }
    }
    state.merge_teams();
    if (at < o.pieces) {
        C *piece = piece_at(to, at);
        state.store<true>(lane, piece, piece + PIECE_HEAD);
    } else {
        state.write(lane, to, item.row);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention_forward(const Operands o, const Target to) {
    forward<SRC, VALUE>(o, to);
}

// Merges the states of pieces, a warp per row.
extern "C" __global__ void __launch_bounds__(THREADS) attention_merge(const Merge *merges, u32 count, const Target to) {
    u32 at = warp_id();
    if (at >= count) return;
    Merge merge = merge_at(merges, at);
    Lane lane;
    State state;
#pragma unroll 2
    for (u32 k = lane.team; k < merge.count; k += TEAMS) {
        const C *piece = piece_at(to, merge.first + k * merge.stride);
        State other;
        other.load<true>(lane, piece, piece + PIECE_HEAD);
        state.merge(other);
    }
    state.merge_teams();
    if (merge.row == NO_ROW) {
        C *piece = piece_at(to, merge.first);
        state.store<true>(lane, piece, piece + PIECE_HEAD);
    } else {
        state.write(lane, to, merge.row);
    }
}

// Outputs of carried states, a team per row.
extern "C" __global__ void __launch_bounds__(THREADS) attention_finish(const C *carried, u32 rows, const Target to) {
    u32 row = warp_id() * TEAMS + lane_id() / TEAM;
    if (row >= rows) return;
    Lane lane;
    lane.team = 0;
    State state;
    const C *from = carried + (u64)row * (2 * HEADS + WIDE);
    state.load<false>(lane, from, from + 2 * HEADS);
    state.finish(lane, to.out + (u64)row * WIDE, to.lse + (u64)row * HEADS);
}
