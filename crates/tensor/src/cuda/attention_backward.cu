// Attention backward. With the log-sum-exp of forward and D_i = g_i·out_i known, an edge's weight is α = exp(e − lse_i)
// and the gradient of its score α·(g_i·v_j − D_i). The pass by destination adds up what that means for the
// destinations' operand, the pass by source, over the transpose, for the sources' operand and the values. Both are one
// kernel: the row at hand has an operand of the score and an operand of the product g·v, and so has the far end of each
// edge.

struct Gradients {
    const OUT *g;
    const C *lse;
    const C *big_d;
    const C *known; // by source: both side by side, for destinations and heads
    void *row;      // of the row's operand
    void *value;    // by source: of the values
    C *shared;   // by destination: for each warp, of GATv2's a
    C *bias;     // by destination: of the bias
    C *weight;   // by destination: for each warp, of the bias's weight
    C *terms;    // by destination: for each warp, of the weight inside of the LeakyReLU
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

template <int STRIDE, typename T> __device__ __forceinline__ void put_part(const Lane &lane, T *row, const Part &x, int add) {
    if (lane.team != 0) return;
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (lane.has(s, c)) put(row + lane.column<STRIDE>(s, c), x[s][c], add);
}

// What a warp has of the parameters that all edges share, and the gradients that it adds up over all of its items.
struct Parameters {
    Part a, da;
    C dweight[SLOTS][FEATURE_PARTS];
    HeadTerms terms, dterms;                                              // GAT's
    Part dnumbers[SCORE == GATV2 && TERM > 0 && EDGE_NUMBERS > 0 ? EDGE_NUMBERS : 1]; // GATV2's, of numbers

    __device__ __forceinline__ void load(const Operands &o, const Lane &lane) {
        if constexpr (SCORE == GATV2) load_part<WIDTH>(lane, o.a, LOG2_E, a);
        if constexpr (SCORE == GAT && TERM > 0) terms.load(o, lane);
        zero(da), zero(dweight), zero(dterms), zero(dnumbers);
    }

    // GATV2: where this warp's gradient of a weight is.
    static __device__ __forceinline__ C *place(const Gradients &to, u32 warp, int column, int feature) {
        return to.terms + ((u64)warp * D + column) * TERM + feature;
    }

    // GATV2: those of categories are added up in memory, from zeros.
    __device__ __forceinline__ void clear_categories(const Lane &lane, const Gradients &to, u32 warp) {
        if constexpr (SCORE == GATV2 && TERM > EDGE_NUMBERS) {
            if (!to.terms) return;
            if (lane.team == 0) each_column(lane, [&](int, int, int, int column) {
                for (int f = EDGE_NUMBERS; f < TERM; f++) *place(to, warp, column, f) = 0;
            });
            __syncwarp();
        }
    }

    template <typename F> static __device__ __forceinline__ void each_column(const Lane &lane, F f) {
#pragma unroll
        for (int s = 0; s < SLOTS; s++)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                if (lane.has(s, c))
#pragma unroll
                    for (int k = 0; k < VEC; k++) f(s, c, k, lane.column<WIDTH>(s, c) + k);
    }

    // GATV2: adds what the gradients `dx` of an edge's sums mean for the weight. One team after another, since several
    // may have the same category.
    __device__ __forceinline__ void add_terms(const Operands &o, const Lane &lane, const Gradients &to, u32 warp,
                                              const Edge &edge, const Part &dx) {
        if constexpr (SCORE == GATV2 && TERM > 0) {
            if (!to.terms) return;
            const C *row = features_of(o, edge.edge);
#pragma unroll
            for (int f = 0; f < EDGE_NUMBERS; f++) {
                C x = __ldg(row + f);
                each_column(lane, [&](int s, int c, int k, int) { dnumbers[f][s][c][k] += x * dx[s][c][k]; });
            }
#pragma unroll
            for (int category = 0; category < EDGE_CATEGORIES; category++) {
                int feature = place_of(o, row, category);
                for (int team = 0; team < TEAMS; team++) {
                    if (lane.team == team && edge.exists)
                        each_column(lane, [&](int s, int c, int k, int column) {
                            *place(to, warp, column, feature) += REST * dx[s][c][k];
                        });
                    __syncwarp();
                }
            }
        }
    }

    __device__ __forceinline__ void write_terms(const Lane &lane, const Gradients &to, u32 warp) {
        if constexpr (TERM > 0) {
            if (!to.terms) return;
            if constexpr (SCORE == GAT)
#pragma unroll
                for (int s = 0; s < SLOTS; s++)
#pragma unroll
                    for (int k = 0; k < LANE_TERM; k++) {
                        C sum = sum_teams(dterms.x[s][k]);
                        int feature = k * PARTS + lane.part;
                        if (lane.team == 0 && lane.has(s) && feature < TERM)
                            to.terms[((u64)warp * HEADS + lane.head_of(s)) * TERM + feature] = sum;
                    }
            if constexpr (SCORE == GATV2)
#pragma unroll
                for (int f = 0; f < EDGE_NUMBERS; f++) {
                    sum_teams(dnumbers[f]);
                    if (lane.team == 0) each_column(lane, [&](int s, int c, int k, int column) {
                        *place(to, warp, column, f) = REST * dnumbers[f][s][c][k];
                    });
                }
        }
    }

    __device__ __forceinline__ void write(const Lane &lane, const Gradients &to, u32 warp) {
        write_terms(lane, to, warp);
        if (SCORE == GATV2 && to.shared) {
            sum_teams(da);
            put_part<WIDTH>(lane, to.shared + (u64)warp * D, da, 0);
        }
        if (BIAS == FEATURES && to.weight)
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
};

// The row at hand: its operands, and what its gradients have come to. NEAR and OTHER are the types of its operands.
template <bool BY_SRC, typename NEAR, typename OTHER> struct Row {
    // By source, GATv2's values may be the row's operand itself.
    static constexpr bool ONE_ROW = BY_SRC && SCORE == GATV2 && !OWN_VALUES;
    // Destinations' rows have tails.
    static constexpr int STRIDE = BY_SRC ? WIDTH : HEAD_STRIDE;
    Tails near_tails, other_tails, dtails;
    Part near, other, drow, dvalue;
    C number[SLOTS], dnumber[SLOTS], lse[SLOTS], big_d[SLOTS];

    __device__ __forceinline__ void load(const Operands &o, const Gradients &to, const Lane &lane, u32 row, const NEAR *near_row,
                                         const OTHER *other_row) {
        zero(drow), zero(dvalue), zero(dnumber);
        dtails.clear();
        if constexpr (SCORE == GAT) {
#pragma unroll
            for (int s = 0; s < SLOTS; s++) number[s] = head_number(near_row, lane, s);
        } else {
            load_part<STRIDE>(lane, near_row, SCORE == DOT ? (C)o.scale * LOG2_E : (C)1, near);
        }
        load_part<STRIDE>(lane, other_row, 1, other);
        if constexpr (!BY_SRC && TAIL > 0) {
            near_tails.load_row(lane, near_row, (C)o.scale * LOG2_E);
            other_tails.load_row(lane, other_row, 1);
        }
        if (!BY_SRC)
#pragma unroll
            for (int s = 0; s < SLOTS; s++) {
                u64 place = (u64)row * HEADS + lane.head_of(s);
                lse[s] = lane.has(s) ? __ldg(to.lse + place) * LOG2_E : (C)0;
                big_d[s] = lane.has(s) ? __ldg(to.big_d + place) : (C)0;
            }
    }

    // Adds what the gradient `de` of an edge's score, and its weight `direct`, mean for the row and for the shared
    // parameter. `sums` is GATV2's near end with what features of the edge add, and becomes the gradient of the sums.
    template <typename FAR, typename PRODUCT>
    __device__ __forceinline__ void add(Parameters &p, int s, C (&sums)[CHUNKS][VEC], const Packed<FAR, VEC> (&far)[CHUNKS],
                                        const Packed<PRODUCT, VEC> (&product)[CHUNKS], C de, C direct, C slope) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int k = 0; k < VEC; k++) {
                if constexpr (SCORE == DOT) drow[s][c][k] += de * far[c].get(k);
                if constexpr (SCORE == GATV2) {
                    C x = sums[c][k] + far[c].get(k), steep = x > 0 ? de : de * slope;
                    sums[c][k] = p.a[s][c][k] * steep;
                    drow[s][c][k] += sums[c][k];
                    if (!BY_SRC) p.da[s][c][k] += steep * x;
                }
                if (BY_SRC) dvalue[s][c][k] += direct * product[c].get(k);
            }
    }

    // Writes the gradients of the row that item `at` belongs to, or of its piece.
    __device__ __forceinline__ void write(const Operands &o, const Gradients &to, const Lane &lane, u32 at, u32 row, int near_stride,
                                          int other_stride) {
        C rest = SCORE == DOT ? (C)o.scale : REST;
        sum_teams(drow);
        if (BY_SRC) sum_teams(dvalue);
        if (!BY_SRC) dtails.each([](int, int, C &x) { x = sum_teams(x); });
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
                    C *numbers = whole ? (C *)to.row + (u64)row * HEADS : piece + (BY_SRC ? D : 0);
                    C before = whole && to.add ? numbers[lane.head_of(s)] : (C)0;
                    numbers[lane.head_of(s)] = before + dnumber[s];
                }
        } else if (whole) {
            put_part<STRIDE>(lane, (NEAR *)to.row + (u64)row * near_stride, drow, to.add);
            if (!BY_SRC) dtails.put(lane, (NEAR *)to.row + (u64)row * near_stride, rest, to.add);
        } else {
            put_part<STRIDE>(lane, piece, drow, 0);
            if (!BY_SRC) dtails.put(lane, piece, rest, 0);
        }
        if (BY_SRC && !ONE_ROW) {
            if (whole)
                put_part<WIDTH>(lane, (OTHER *)to.value + (u64)row * other_stride, dvalue, 0);
            else
                put_part<WIDTH>(lane, piece + (SCORE == GAT ? 0 : D), dvalue, 0);
        }
    }
};

// Writes or adds up the gradient of an edge's bias.
__device__ __forceinline__ void add_bias(const Operands &o, const Gradients &to, const Lane &lane, const Edge &edge, int s, C de,
                                         Parameters &p) {
    if (BIAS == PER_EDGE && to.bias && lane.part == 0) to.bias[edge.edge * HEADS + lane.head_of(s)] = de;
    if (BIAS == FEATURES)
#pragma unroll
        for (int f = 0; f < FEATURE_PARTS; f++) {
            int feature = f * PARTS + lane.part;
            if (feature < FEATURE_COUNT) p.dweight[s][f] += de * __ldg(o.feat + edge.edge * FEATURE_COUNT + feature);
        }
}

// NEAR and OTHER are the types of the row's operands, FAR and PRODUCT those of the far ends'.
template <bool BY_SRC, typename NEAR, typename OTHER, typename FAR, typename PRODUCT>
__device__ __forceinline__ void backward(const Operands &o, const Gradients &to, const NEAR *near_rows, int near_stride,
                                         const OTHER *other_rows, int other_stride, const FAR *far_rows, int far_stride,
                                         const PRODUCT *product_rows, int product_stride) {
    const C *weights = near_terms(o);
    Lane lane;
    Parameters p;
    C slope = o.slope;
    p.load(o, lane);
    u32 warp = warp_id();
    if (!BY_SRC) p.clear_categories(lane, to, warp);
    for (u32 at = warp; at < o.count; at += to.warps) {
        Item item = item_at(o.items, at);
        Row<BY_SRC, NEAR, OTHER> row;
        row.load(o, to, lane, item.row, near_rows + (u64)item.row * near_stride, other_rows + (u64)item.row * other_stride);
        for (u32 from = 0; from < item.count; from += 32) {
            Batch batch;
            batch.load<BY_SRC>(o, item, from);
            u32 count = min(32u, item.count - from);
            for (u32 first = 0; first < count; first += TEAMS * UNROLL) {
                // By destination, GATv2's values may be the far operand itself.
                Ends<!BY_SRC && SCORE == GATV2 && !OWN_VALUES, BY_SRC ? HEAD_STRIDE : WIDTH, FAR, PRODUCT> ends;
                Packed<C, 2> known[UNROLL][SLOTS];
                // By source, the tails are at the far ends.
                Tails far_tails[UNROLL], product_tails[UNROLL];
#pragma unroll
                for (int u = 0; u < UNROLL; u++) {
                    ends.edges[u].take(batch, first + u * TEAMS + lane.team, count);
                    ends.load(lane, u, far_rows, far_stride, product_rows, product_stride);
                    ends.features[u].load(o, lane, ends.edges[u].edge);
                    ends.terms[u].load(o, lane, ends.edges[u].edge);
                    if constexpr (BY_SRC && EDGES) {
                        far_tails[u].load_row(lane, far_rows + (u64)ends.edges[u].node * far_stride, (C)o.scale * LOG2_E);
                        product_tails[u].load_row(lane, product_rows + (u64)ends.edges[u].node * product_stride, 1);
                    }
                    if (BY_SRC)
#pragma unroll
                        for (int s = 0; s < SLOTS; s++) {
                            u64 place = (u64)ends.edges[u].node * HEADS + lane.head_of(s);
                            known[u][s].clear();
                            if (lane.has(s)) known[u][s].load(to.known + 2 * place);
                        }
                }
#pragma unroll
                for (int u = 0; u < UNROLL; u++) {
                    const Edge &edge = ends.edges[u];
                    Part sums;
                    if constexpr (SCORE != GAT) copy(row.near, sums);
                    add_terms(o, weights, lane, edge.edge, sums);
#pragma unroll
                    for (int s = 0; s < SLOTS; s++) {
                        const EdgeFeatures &features = ends.features[u];
                        C bias = edge.bias_part(o, lane, s) * LOG2_E, score, flat = 1;
                        bias += features.dot(BY_SRC ? far_tails[u] : row.near_tails, s);
                        if constexpr (SCORE == GAT) {
                            C x = row.number[s] + ends.numbers[u][s] + ends.terms[u].sum(p.terms, s);
                            flat = x > 0 ? (C)1 : slope;
                            score = x * flat * LOG2_E;
                            if (BIAS != NO_BIAS) score += lane_sum<PARTS>(bias);
                        } else {
                            score = lane_sum<PARTS>(score_part(sums[s], ends.far[u].x[s], p.a[s], slope) + bias);
                        }
                        C product = lane_sum<PARTS>(dot_part(row.other[s], ends.products[u].x[s]) +
                                                    features.dot(BY_SRC ? product_tails[u] : row.other_tails, s));
                        C top = BY_SRC ? known[u][s].get(0) : row.lse[s], mean = BY_SRC ? known[u][s].get(1) : row.big_d[s];
                        C alpha = edge.exists && lane.has(s) ? exp_2(score - top) : (C)0;
                        C factor = edge.factor(o, lane.head_of(s));
                        C de = alpha * (product * factor - mean), direct = alpha * factor;
                        row.dnumber[s] += de * flat;
                        if (!BY_SRC) features.add(row.dtails, s, de), ends.terms[u].add(p.dterms, s, de * flat);
                        row.add(p, s, sums[s], ends.far[SCORE == GAT ? 0 : u].x[s], ends.products[u].x[s], de, direct, slope);
                        if (BIAS != NO_BIAS && !BY_SRC && edge.exists && lane.has(s)) add_bias(o, to, lane, edge, s, de, p);
                    }
                    if (!BY_SRC) p.add_terms(o, lane, to, warp, edge, sums);
                }
            }
        }
        row.write(o, to, lane, at, item.row, near_stride, other_stride);
    }
    if (!BY_SRC) p.write(lane, to, warp);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention_dst(const Operands o, const Gradients to) {
    backward<false>(o, to, o.dst, DST_STRIDE, to.g, WIDE, o.src, SRC_STRIDE, o.value, VALUE_STRIDE);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention_src(const Operands o, const Gradients to) {
    backward<true>(o, to, o.src, SRC_STRIDE, o.value, VALUE_STRIDE, o.dst, DST_STRIDE, to.g, WIDE);
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
    load_part<WIDTH>(lane, g + begin, 1, x);
    y.template load<WIDTH>(lane, out + begin);
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        C sum = lane_sum<PARTS>(dot_part(x[s], y.x[s]));
        if (row < rows && lane.part == 0 && lane.has(s)) to[(u64)row * HEADS + lane.head_of(s)] = sum;
    }
}
