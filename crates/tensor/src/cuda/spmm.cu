// Sums over neighbours, W·x, and what the maximum's gradient adds up.

extern "C" __global__ void __launch_bounds__(THREADS)
    spmm(const Graph graph, const Weights weights, const X *x, OUT *out, C *pieces, u32 piece_size, int add) {
    u32 at = warp_id();
    if (at >= graph.count) return;
    Item item = item_at(graph.items, at);
    Lane lane;
    C sum[CHUNKS][VEC] = {};
    bool uniform = weights.is_uniform();
    for (u32 from = 0; from < item.count; from += 32) {
        u32 count = min(32u, item.count - from), mine = 0;
        C weight = 0;
        if (lane_id() < count) {
            u64 position = item.begin + from + lane_id();
            mine = __ldg(graph.indices + position);
            weight = uniform ? (C)1 : weights.of_edge(position, mine);
        }
        for (u32 first = 0; first < count; first += TEAMS * UNROLL) {
            Far<X> far[UNROLL];
            C w[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                // A team without an edge left loads what the last one names: loads need no conditions and go out
                // together.
                u32 edge = first + u * TEAMS + lane.team, at = min(edge, count - 1);
                w[u] = __shfl_sync(ALL, weight, at);
                w[u] = edge < count ? w[u] : (C)0;
                far[u].load(lane, x, __shfl_sync(ALL, mine, at));
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                    for (int k = 0; k < VEC; k++) sum[c][k] += w[u] * far[u].x[c].get(k);
        }
    }
    write_sum(lane, graph, at, item.row, sum, weights.of_row(item.row), out, add, pieces, piece_size);
}

// dx_j = the sum of g_i where j, by its original id, was the largest for i. Parallel edges stand side by side and count
// once.
extern "C" __global__ void __launch_bounds__(THREADS) max_gradient(const Graph graph, const u64 *ids, const u32 *arg,
                                                                    const X *g, OUT *dx, C *pieces, u32 piece_size,
                                                                    int add) {
    u32 at = warp_id();
    if (at >= graph.count) return;
    Item item = item_at(graph.items, at);
    Lane lane;
    C sum[CHUNKS][VEC] = {};
    u32 own = original(ids, item.row);
    u64 begin = __ldg(graph.indptr + item.row);
    for (u32 from = 0; from < item.count; from += 32) {
        u32 count = min(32u, item.count - from), mine = 0;
        bool counts = false;
        if (lane_id() < count) {
            u64 position = item.begin + from + lane_id();
            mine = __ldg(graph.indices + position);
            counts = position == begin || __ldg(graph.indices + position - 1) != mine;
        }
        for (u32 first = 0; first < count; first += TEAMS * UNROLL) {
            Far<X> far[UNROLL];
            Far<u32> largest[UNROLL];
            bool takes[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                u32 edge = first + u * TEAMS + lane.team, at = min(edge, count - 1), node = __shfl_sync(ALL, mine, at);
                takes[u] = __shfl_sync(ALL, (int)counts, at) && edge < count;
                far[u].load(lane, g, node);
                largest[u].load(lane, arg, node);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                    for (int k = 0; k < VEC; k++)
                        sum[c][k] += takes[u] && largest[u].x[c].w[k] == own ? far[u].x[c].get(k) : (C)0;
        }
    }
    write_sum(lane, graph, at, item.row, sum, 1, dx, add, pieces, piece_size);
}

// dw_ij = g_i·x_j times the factors. All columns of an edge are its team's.
extern "C" __global__ void __launch_bounds__(THREADS)
    weight_gradient(const Graph graph, const Weights factors, const X *x, const X *g, C *dw) {
    u32 at = warp_id();
    if (at >= graph.count) return;
    Item item = item_at(graph.items, at);
    int team = lane_id() / TEAM, part = lane_id() % TEAM;
    C of_row = factors.of_row(item.row);
    for (u32 first = 0; first < item.count; first += TEAMS) {
        u32 edge = first + team;
        bool exists = edge < item.count;
        u64 position = item.begin + (exists ? edge : 0);
        u32 node = __ldg(graph.indices + position);
        C sum = 0;
#pragma unroll 2
        for (int column = part * VEC; column < COLUMNS; column += TEAM * VEC) {
            Packed<X, VEC> a, b;
            a.load(g + (u64)item.row * COLUMNS + column);
            b.load(x + (u64)node * COLUMNS + column);
#pragma unroll
            for (int k = 0; k < VEC; k++) sum += a.get(k) * b.get(k);
        }
        sum = lane_sum<TEAM>(sum);
        if (exists && part == 0) dw[position] = sum * of_row * factors.of_edge(position, node);
    }
}

// Numerators (1 where there are none) divided by the number of edges of a row; 0 where there are none.
extern "C" __global__ void inverse_degrees(const u64 *indptr, const C *numerators, C *to, u32 rows) {
    i64 row = thread_number();
    if (row >= rows) return;
    u64 degree = indptr[row + 1] - indptr[row];
    C above = numerators ? numerators[row] : (C)1;
    to[row] = degree == 0 ? (C)0 : above / (C)degree;
}
