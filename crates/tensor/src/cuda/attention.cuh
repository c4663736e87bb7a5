// Sparse attention: how lanes share a row, and how an edge gets its score.
//
// Compiled for one shape and one kind of attention. Given by defines:
//   SCORE                   DOT, GAT or GATV2 (ops/attention.rs, gat.rs, gatv2.rs)
//   HEADS, WIDTH            heads and their width
//   OUT_TYPE, VALUE_TYPE, DST_TYPE, SRC_TYPE    of the output, the values, the operands of destinations and of sources
//   OWN_VALUES              GATV2: values are not the sources' operand
//   BIAS                    NO_BIAS, PER_EDGE or FEATURES; FEATURE_COUNT
//   TAIL                    numbers behind each head of destinations' operands and outputs (ops/edge_values.rs)
//   EDGES                   whether edges have features for them: EDGE_NUMBERS, then EDGE_CATEGORIES ids
//   TERM                    GAT, GATV2: how many features these stand for inside of the LeakyReLU; 0 without any
//   DROPOUT                 whether weights are dropped
//   VEC, PARTS, CHUNKS      a lane has VEC columns at a time; PARTS lanes share a head, with CHUNKS such vectors each
//   SIDE, SLOTS             heads side by side in a team of lanes, heads one after another in a lane
//   UNROLL, MIN_BLOCKS      edges in flight, and blocks that shall find room on a multiprocessor
// A team of PARTS·SIDE lanes serves one edge, and a warp as many edges at a time as it has teams. Heads that do not fit
// into a team are served by other blocks (y).

#define DOT 0
#define GAT 1
#define GATV2 2
#define NO_BIAS 0
#define PER_EDGE 1
#define FEATURES 2

typedef Type<OUT_TYPE>::Stored OUT;
typedef Type<VALUE_TYPE>::Stored VALUE;
typedef Type<DST_TYPE>::Stored DST;
typedef Type<SRC_TYPE>::Stored SRC;

constexpr int D = HEADS * WIDTH;
constexpr int PER_HEAD = WIDTH / VEC; // vectors
constexpr int TEAM = PARTS * SIDE;
constexpr int TEAMS = 32 / TEAM;
constexpr int TILE = SIDE * SLOTS; // heads of a block
constexpr int HEAD_STRIDE = WIDTH + TAIL, WIDE = HEADS * HEAD_STRIDE;
constexpr int LANE_TAIL = (TAIL + PARTS - 1) / PARTS; // numbers of a tail that a lane has, side by side
constexpr int EDGE_STORED = EDGE_NUMBERS + EDGE_CATEGORIES;
// Of a tail, and of an edge's features, so many numbers are loaded at a time: rows are aligned to VEC of theirs, and
// those of features begin at 16 bytes.
__device__ constexpr int halved_until(int n, int all) { return all % n == 0 ? n : halved_until(n / 2, all); }
constexpr int TAIL_VEC = halved_until(VEC, LANE_TAIL);
constexpr int EDGE_VEC = halved_until(halved_until(halved_until(16 / sizeof(C), LANE_TAIL), EDGE_NUMBERS), EDGE_STORED);
constexpr bool EDGE_VALUES = BIAS != NO_BIAS || EDGES || TERM > 0;
// GAT: every PARTS-th feature is a lane's. GATV2: weights are near, a row per feature, where there is room.
constexpr int LANE_TERM = SCORE == GAT && TERM > 0 ? (TERM + PARTS - 1) / PARTS : 1;
constexpr bool NEAR_TERMS = SCORE == GATV2 && TERM > 0 && TERM * D * sizeof(C) <= 32768;
constexpr int SRC_STRIDE = SCORE == DOT ? 2 * D : SCORE == GAT ? HEADS : D;
constexpr int DST_STRIDE = SCORE == GAT ? HEADS : WIDE;
constexpr int VALUE_STRIDE = SCORE == DOT ? 2 * D : D;
constexpr bool ALL_HEADS = HEADS % TILE == 0, WHOLE_HEADS = PER_HEAD == PARTS * CHUNKS;
constexpr C LOG2_E = 1.4426950408889634074, LN_2 = 0.69314718055994530942;

struct Operands {
    const Item *items;
    const u32 *indices;
    const u64 *map; // from positions in the transpose to edges
    const DST *dst;
    const SRC *src;
    const VALUE *value;
    const C *a;
    const C *bias;
    const C *feat;
    const C *weight;
    const C *features;    // of edges, for tails and for what stands inside of a LeakyReLU
    const C *edge_weight; // of the latter: GAT HEADS × TERM, GATV2 D × TERM
    const u64 *src_ids;
    const u64 *dst_ids;
    Dropout dropout;
    u32 count, pieces; // items, and how many of them are pieces
    double slope;      // of the LeakyReLU where it is flat
    double scale;      // of dot products
    u32 first[16], categories[16]; // of each column of ids: its place in a tail, and how many there are
};

__device__ __forceinline__ float exp_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ double exp_2(double x) { return exp2(x); }

// What this lane has of a row.
struct Lane {
    int team, part, head;

    __device__ __forceinline__ Lane() {
        int lane = lane_id();
        team = lane / TEAM;
        part = lane % PARTS;
        head = blockIdx.y * TILE + lane % TEAM / PARTS;
    }

    __device__ __forceinline__ int head_of(int s) const { return head + s * SIDE; }
    __device__ __forceinline__ bool has(int s) const { return ALL_HEADS || head_of(s) < HEADS; }
    __device__ __forceinline__ bool has(int s, int c) const {
        return has(s) && (WHOLE_HEADS || c * PARTS + part < PER_HEAD);
    }
    // In a row whose heads lie so far apart.
    template <int STRIDE> __device__ __forceinline__ int column(int s, int c) const {
        return head_of(s) * STRIDE + (c * PARTS + part) * VEC;
    }
    __device__ __forceinline__ bool has_tail(int s, int k) const { return has(s) && part * LANE_TAIL + k < TAIL; }
    __device__ __forceinline__ int tail(int s, int k) const {
        return head_of(s) * HEAD_STRIDE + WIDTH + part * LANE_TAIL + k;
    }
};

typedef C Part[SLOTS][CHUNKS][VEC];

// What a lane has of tails. Without tails everything below is nothing.
struct Tails {
    C x[SLOTS][TAIL ? LANE_TAIL : 1];

    template <typename F> __device__ __forceinline__ void each(F f) {
        if constexpr (TAIL > 0)
#pragma unroll
            for (int s = 0; s < SLOTS; s++)
#pragma unroll
                for (int k = 0; k < LANE_TAIL; k++) f(s, k, x[s][k]);
    }

    __device__ __forceinline__ void clear() {
        each([](int, int, C &x) { x = 0; });
    }

    template <typename T> __device__ __forceinline__ void load(const Lane &lane, const T *row, C factor) {
        each([&](int s, int k, C &x) { x = lane.has_tail(s, k) ? ::load(row[lane.tail(s, k)]) * factor : (C)0; });
    }

    // The same of a row of an operand, which is aligned: TAIL_VEC divides TAIL too, so such numbers are all there or
    // none is.
    template <typename T> __device__ __forceinline__ void load_row(const Lane &lane, const T *row, C factor) {
        if constexpr (TAIL > 0)
#pragma unroll
            for (int s = 0; s < SLOTS; s++)
#pragma unroll
                for (int k = 0; k < LANE_TAIL; k += TAIL_VEC) {
                    Packed<T, TAIL_VEC> pack;
                    pack.clear();
                    if (lane.has_tail(s, k)) pack.load(row + lane.tail(s, k));
#pragma unroll
                    for (int n = 0; n < TAIL_VEC; n++) x[s][k + n] = pack.get(n) * factor;
                }
    }

    template <typename T> __device__ __forceinline__ void put(const Lane &lane, T *row, C factor, int add) {
        each([&](int s, int k, C &x) {
            if (lane.team != 0 || !lane.has_tail(s, k)) return;
            T *to = row + lane.tail(s, k);
            *to = ::store<T>((add ? ::load(*to) : (C)0) + x * factor);
        });
    }
};

__device__ __forceinline__ const C *features_of(const Operands &o, u64 edge) {
    return o.features + edge * EDGE_STORED;
}

// The feature that an id in a row of features stands for. An id is a number from a file, and is kept inside whatever it
// is.
__device__ __forceinline__ int place_of(const Operands &o, const C *row, int c) {
    return (int)o.first[c] + max(0, min((int)o.categories[c] - 1, (int)__ldg(row + EDGE_NUMBERS + c)));
}

// The features of an edge that this lane's numbers of a tail stand for.
struct EdgeFeatures {
    C x[TAIL ? LANE_TAIL : 1];

    __device__ __forceinline__ void load(const Operands &o, const Lane &lane, u64 edge) {
        if constexpr (EDGES) {
            const C *row = features_of(o, edge);
#pragma unroll
            for (int k = 0; k < LANE_TAIL; k += EDGE_VEC) {
                int feature = lane.part * LANE_TAIL + k;
                Packed<C, EDGE_VEC> pack;
                pack.clear();
                if (feature < EDGE_NUMBERS) pack.load(row + feature);
#pragma unroll
                for (int n = 0; n < EDGE_VEC; n++) x[k + n] = pack.get(n);
            }
#pragma unroll
            for (int c = 0; c < EDGE_CATEGORIES; c++) {
                int place = place_of(o, row, c) - lane.part * LANE_TAIL;
#pragma unroll
                for (int k = 0; k < LANE_TAIL; k++)
                    if (place == k) x[k] = 1;
            }
        }
    }

    // This lane's share of a head's tail times the features.
    __device__ __forceinline__ C dot(const Tails &tails, int s) const {
        C sum = 0;
        if constexpr (EDGES)
#pragma unroll
            for (int k = 0; k < LANE_TAIL; k++) sum += tails.x[s][k] * x[k];
        return sum;
    }

    __device__ __forceinline__ void add(Tails &to, int s, C weight) const {
        if constexpr (EDGES)
#pragma unroll
            for (int k = 0; k < LANE_TAIL; k++) to.x[s][k] += weight * x[k];
    }
};

// GAT: weights of this lane's features for its heads, or their gradients.
struct HeadTerms {
    C x[SLOTS][LANE_TERM];

    __device__ __forceinline__ void load(const Operands &o, const Lane &lane) {
#pragma unroll
        for (int s = 0; s < SLOTS; s++)
#pragma unroll
            for (int k = 0; k < LANE_TERM; k++) {
                int feature = k * PARTS + lane.part;
                x[s][k] = lane.has(s) && feature < TERM ? __ldg(o.edge_weight + lane.head_of(s) * TERM + feature) : (C)0;
            }
    }
};

// GAT: this lane's features of an edge.
struct TermFeatures {
    C x[LANE_TERM];

    __device__ __forceinline__ void load(const Operands &o, const Lane &lane, u64 edge) {
        if constexpr (SCORE == GAT && TERM > 0) {
            const C *row = features_of(o, edge);
#pragma unroll
            for (int k = 0; k < LANE_TERM; k++) {
                int feature = k * PARTS + lane.part;
                x[k] = feature < EDGE_NUMBERS ? __ldg(row + feature) : (C)0;
            }
#pragma unroll
            for (int c = 0; c < EDGE_CATEGORIES; c++) {
                int place = place_of(o, row, c);
#pragma unroll
                for (int k = 0; k < LANE_TERM; k++)
                    if (k * PARTS + lane.part == place) x[k] = 1;
            }
        }
    }

    // What the edge adds to a head's sum.
    __device__ __forceinline__ C sum(const HeadTerms &weights, int s) const {
        C sum = 0;
        if constexpr (SCORE == GAT && TERM > 0) {
#pragma unroll
            for (int k = 0; k < LANE_TERM; k++) sum += weights.x[s][k] * x[k];
            sum = lane_sum<PARTS>(sum);
        }
        return sum;
    }

    __device__ __forceinline__ void add(HeadTerms &to, int s, C weight) const {
        if constexpr (SCORE == GAT && TERM > 0)
#pragma unroll
            for (int k = 0; k < LANE_TERM; k++) to.x[s][k] += weight * x[k];
    }
};

// GATV2: the weights of features, for all threads of the block.
__device__ __forceinline__ const C *near_terms(const Operands &o) {
    constexpr int TERMS = TERM > 0 ? TERM : 1;
    __shared__ C weights[NEAR_TERMS ? TERM * D : 1];
    if constexpr (NEAR_TERMS) {
        for (int k = threadIdx.x; k < TERM * D; k += blockDim.x)
            weights[k % TERMS * D + k / TERMS] = __ldg(o.edge_weight + k);
        __syncthreads();
    }
    return weights;
}

__device__ __forceinline__ void copy(const Part &from, Part &to) {
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int k = 0; k < VEC; k++) to[s][c][k] = from[s][c][k];
}

// GATV2: adds what features of an edge come to in this lane's columns.
__device__ __forceinline__ void add_terms(const Operands &o, const C *weights, const Lane &lane, u64 edge, Part &x) {
    if constexpr (SCORE == GATV2 && TERM > 0) {
        const C *row = features_of(o, edge);
        auto add = [&](int feature, C value) {
#pragma unroll
            for (int s = 0; s < SLOTS; s++)
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
                    if (lane.has(s, c)) {
                        int column = lane.column<WIDTH>(s, c);
#pragma unroll
                        for (int k = 0; k < VEC; k++)
                            x[s][c][k] += value * (NEAR_TERMS ? weights[feature * D + column + k]
                                                              : __ldg(o.edge_weight + (column + k) * TERM + feature));
                    }
        };
#pragma unroll 4
        for (int f = 0; f < EDGE_NUMBERS; f++) add(f, __ldg(row + f));
#pragma unroll
        for (int c = 0; c < EDGE_CATEGORIES; c++) add(place_of(o, row, c), 1);
    }
}

// A row's columns that are this lane's, times `factor`.
template <int STRIDE, typename T> __device__ __forceinline__ void load_part(const Lane &lane, const T *row, C factor, Part &to) {
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            Packed<T, VEC> x;
            x.clear();
            if (lane.has(s, c)) x.load(row + lane.column<STRIDE>(s, c));
#pragma unroll
            for (int k = 0; k < VEC; k++) to[s][c][k] = x.get(k) * factor;
        }
}

template <typename T> struct Far {
    Packed<T, VEC> x[SLOTS][CHUNKS];

    template <int STRIDE> __device__ __forceinline__ void load(const Lane &lane, const T *row) {
#pragma unroll
        for (int s = 0; s < SLOTS; s++)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                x[s][c].clear();
                if (lane.has(s, c)) x[s][c].load(row + lane.column<STRIDE>(s, c));
            }
    }
};

__device__ __forceinline__ C leaky(C x, C slope) { return x > 0 ? x : x * slope; }

// This lane's share of x·y for a head.
template <typename T>
__device__ __forceinline__ C dot_part(const C (&x)[CHUNKS][VEC], const Packed<T, VEC> (&y)[CHUNKS]) {
    C sum = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int k = 0; k < VEC; k++) sum += x[c][k] * y[c].get(k);
    return sum;
}

// This lane's share of a head's score between the row's operand and the far one's. Dot products and sums are symmetric:
// the same serves both passes of backward.
template <typename T>
__device__ __forceinline__ C score_part(const C (&near)[CHUNKS][VEC], const Packed<T, VEC> (&far)[CHUNKS],
                                           const C (&a)[CHUNKS][VEC], C slope) {
    if (SCORE == DOT) return dot_part(near, far);
    C sum = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int k = 0; k < VEC; k++) sum += a[c][k] * leaky(near[c][k] + far[c].get(k), slope);
    return sum;
}

// What lane l knows of edge l among the next 32.
struct Batch {
    u32 node;
    u64 edge;
    u32 kept; // by head of the block, from the multiple of 8 below its first

    template <bool BY_SRC> __device__ __forceinline__ void load(const Operands &o, const Item &item, u32 from) {
        u32 at = from + lane_id();
        node = 0, edge = 0, kept = 0;
        if (at >= item.count) return;
        u64 position = item.begin + at;
        node = __ldg(o.indices + position);
        if (EDGE_VALUES) edge = BY_SRC ? __ldg(o.map + position) : position;
        if (DROPOUT) {
            u32 src = BY_SRC ? item.row : node, dst = BY_SRC ? node : item.row;
            u64 source = original(o.src_ids, src), destination = original(o.dst_ids, dst);
            u32 group = blockIdx.y * TILE / 8;
#pragma unroll
            for (int g = 0; g < (TILE + 7) / 8; g++)
                kept |= kept_heads(o.dropout, source, destination, group + g) << (8 * g);
        }
    }
};

// One edge as its team sees it. A team without an edge left loads what the last one names, so that loads need no
// conditions and go out together; its weight is 0.
struct Edge {
    u32 node;
    u64 edge;
    u32 kept;
    bool exists;

    __device__ __forceinline__ Edge() {}
    __device__ __forceinline__ void take(const Batch &batch, u32 at, u32 count) {
        exists = at < count;
        u32 from = min(at, count - 1);
        node = __shfl_sync(ALL, batch.node, from);
        if (EDGE_VALUES) edge = __shfl_sync(ALL, batch.edge, from);
        if (DROPOUT) kept = __shfl_sync(ALL, batch.kept, from);
    }

    // The dropout factor of a head.
    __device__ __forceinline__ C factor(const Operands &o, int head) const {
        if (!DROPOUT) return 1;
        return kept >> (head - (blockIdx.y * TILE & ~7u)) & 1 ? (C)o.dropout.scale : (C)0;
    }

    // This lane's share of a head's bias.
    __device__ __forceinline__ C bias_part(const Operands &o, const Lane &lane, int s) const {
        C sum = 0;
        if (BIAS == NO_BIAS || !lane.has(s)) return sum;
        int head = lane.head_of(s);
        if (BIAS == PER_EDGE) return lane.part == 0 ? __ldg(o.bias + edge * HEADS + head) : sum;
#pragma unroll
        for (int f = 0; f < FEATURE_COUNT; f += PARTS)
            if (f + lane.part < FEATURE_COUNT)
                sum += __ldg(o.feat + edge * FEATURE_COUNT + f + lane.part) *
                       __ldg(o.weight + head * FEATURE_COUNT + f + lane.part);
        return sum;
    }
};

// GAT's operands are a number per head.
template <typename T> __device__ __forceinline__ C head_number(const T *row, const Lane &lane, int s) {
    return lane.has(s) ? (C)__ldg((const C *)row + lane.head_of(s)) : (C)0;
}

// What teams have of the far ends of UNROLL edges each: loads of all of them go out together. FAR is the type of the
// operand of the score, PRODUCT that of the other operand, both with heads STRIDE apart; with ONE_LOAD they are the
// same rows.
template <bool ONE_LOAD, int STRIDE, typename FAR, typename PRODUCT> struct Ends {
    Edge edges[UNROLL];
    EdgeFeatures features[UNROLL];
    TermFeatures terms[UNROLL];
    Far<FAR> far[SCORE == GAT ? 1 : UNROLL];
    Far<PRODUCT> products[UNROLL];
    C numbers[UNROLL][SLOTS]; // GAT's operands

    __device__ __forceinline__ void load(const Lane &lane, int u, const FAR *far_rows, int far_stride,
                                         const PRODUCT *product_rows, int product_stride) {
        const FAR *row = far_rows + (u64)edges[u].node * far_stride;
        if constexpr (SCORE == GAT) {
#pragma unroll
            for (int s = 0; s < SLOTS; s++) numbers[u][s] = head_number(row, lane, s);
        } else {
            far[u].template load<STRIDE>(lane, row);
        }
        if constexpr (ONE_LOAD)
            products[u] = far[u];
        else
            products[u].template load<STRIDE>(lane, product_rows + (u64)edges[u].node * product_stride);
    }
};
