// Messages of edges, ReLU(x_j + W·e_ij + b): their sums, and the gradients. Given by defines, beside those of spmm.cuh:
//   EDGE_NUMBERS, EDGE_CATEGORIES   columns of an edge's features: numbers, then ids

constexpr int STORED = EDGE_NUMBERS + EDGE_CATEGORIES;

struct Terms {
    const C *edges;
    const C *table; // a row of all columns per feature, then one of b
    const u64 *map; // from positions to edges; null where they are the same
    u32 constant;   // the row of b
    u32 first[16], categories[16]; // of each column of ids: the row of its first category, and how many there are
    u32 unused;

    __device__ __forceinline__ const C *edge(u64 position) const {
        return edges + (map ? __ldg(map + position) : position) * STORED;
    }

    // The row of an edge's category.
    __device__ __forceinline__ u32 row(const C *edge, int k) const {
        return first[k] + min((u32)__ldg(edge + EDGE_NUMBERS + k), categories[k] - 1);
    }
};

typedef C Columns[CHUNKS][VEC];

__device__ __forceinline__ void add_row(const Lane &lane, const Terms &terms, u32 row, C factor, Columns &to) {
    Far<C> w;
    w.load(lane, terms.table, row);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int k = 0; k < VEC; k++) to[c][k] += factor * w.x[c].get(k);
}

// to += W·e of the edge at a position.
__device__ __forceinline__ void add_edge(const Lane &lane, const Terms &terms, u64 position, Columns &to) {
    const C *edge = terms.edge(position);
#pragma unroll 4
    for (int k = 0; k < EDGE_NUMBERS; k++) add_row(lane, terms, k, __ldg(edge + k), to);
#pragma unroll
    for (int k = 0; k < EDGE_CATEGORIES; k++) add_row(lane, terms, terms.row(edge, k), (C)1, to);
}

template <typename S> __device__ __forceinline__ void add_far(const Far<S> &far, Columns &to) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int k = 0; k < VEC; k++) to[c][k] += far.x[c].get(k);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gine(const Graph graph, const Terms terms, const X *x, OUT *out, C *pieces, u32 piece_size, int add) {
    u32 at = warp_id();
    if (at >= graph.count) return;
    Item item = item_at(graph.items, at);
    Lane lane;
    Far<C> constant;
    constant.load(lane, terms.table, terms.constant);
    Columns sum = {};
    for (u32 first = 0; first < item.count; first += TEAMS * UNROLL) {
        Far<X> far[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            u32 edge = min(first + u * TEAMS + lane.team, item.count - 1);
            far[u].load(lane, x, __ldg(graph.indices + item.begin + edge));
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            u32 edge = first + u * TEAMS + lane.team;
            if (edge >= item.count) continue;
            Columns message = {};
            add_far(constant, message);
            add_edge(lane, terms, item.begin + edge, message);
            add_far(far[u], message);
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int k = 0; k < VEC; k++) sum[c][k] += message[c][k] < 0 ? (C)0 : message[c][k];
        }
    }
    write_sum(lane, graph, at, item.row, sum, 1, out, add, pieces, piece_size);
}

// dx_j = the sum of the g_i where the message is above 0. The graph is the transpose.
extern "C" __global__ void __launch_bounds__(THREADS) gine_gradient(const Graph graph, const Terms terms, const X *x,
                                                                     const X *g, OUT *dx, C *pieces, u32 piece_size,
                                                                     int add) {
    u32 at = warp_id();
    if (at >= graph.count) return;
    Item item = item_at(graph.items, at);
    Lane lane;
    Far<C> constant;
    Far<X> own;
    constant.load(lane, terms.table, terms.constant);
    own.load(lane, x, item.row);
    Columns sum = {};
    for (u32 first = 0; first < item.count; first += TEAMS * UNROLL) {
        Far<X> far[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            u32 edge = min(first + u * TEAMS + lane.team, item.count - 1);
            far[u].load(lane, g, __ldg(graph.indices + item.begin + edge));
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            u32 edge = first + u * TEAMS + lane.team;
            if (edge >= item.count) continue;
            Columns message = {};
            add_far(constant, message);
            add_edge(lane, terms, item.begin + edge, message);
            add_far(own, message);
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int k = 0; k < VEC; k++) sum[c][k] += message[c][k] > 0 ? far[u].x[c].get(k) : (C)0;
        }
    }
    write_sum(lane, graph, at, item.row, sum, 1, dx, add, pieces, piece_size);
}

// A block's rows of sums and a thread's column: what features come to in the gradient of the weight, a row per feature.
extern "C" __global__ void gine_weight(const u64 *indptr, const u32 *indices, const Terms terms, const X *x, const X *g,
                                       C *partial, u64 rows, u64 per) {
    u32 column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= COLUMNS) return;
    const C *table = terms.table + column;
    C *own = partial + (u64)blockIdx.x * (terms.constant + 1) * COLUMNS + column;
    for (u32 k = EDGE_NUMBERS; k < terms.constant; k++) own[(u64)k * COLUMNS] = 0;
    C constant = __ldg(table + (u64)terms.constant * COLUMNS), of_constant = 0;
    C numbers[EDGE_NUMBERS + 1] = {};
    u64 first = blockIdx.x * per, end = min(first + per, rows);
    for (u64 row = first; row < end; row++) {
        C gradient = load(g[row * COLUMNS + column]);
        for (u64 at = __ldg(indptr + row), last = __ldg(indptr + row + 1); at < last; at++) {
            const C *edge = terms.edge(at);
            C message = constant;
#pragma unroll 4
            for (int k = 0; k < EDGE_NUMBERS; k++) message += __ldg(edge + k) * __ldg(table + k * COLUMNS);
#pragma unroll
            for (int k = 0; k < EDGE_CATEGORIES; k++) message += __ldg(table + (u64)terms.row(edge, k) * COLUMNS);
            message += load(x[(u64)__ldg(indices + at) * COLUMNS + column]);
            if (!(message > 0)) continue;
            of_constant += gradient;
#pragma unroll
            for (int k = 0; k < EDGE_NUMBERS; k++) numbers[k] += __ldg(edge + k) * gradient;
#pragma unroll
            for (int k = 0; k < EDGE_CATEGORIES; k++) own[(u64)terms.row(edge, k) * COLUMNS] += gradient;
        }
    }
    own[(u64)terms.constant * COLUMNS] = of_constant;
#pragma unroll
    for (int k = 0; k < EDGE_NUMBERS; k++) own[(u64)k * COLUMNS] = numbers[k];
}
