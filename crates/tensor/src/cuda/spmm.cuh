// Aggregation: how lanes share a row. Compiled for one width of rows. Given by defines:
//   COLUMNS           of a row
//   X_TYPE, OUT_TYPE  types of the rows that are read and written
//   VEC, TEAM         a lane has VEC columns at a time; a team of TEAM lanes serves one edge
//   CHUNKS            vectors of a lane; columns beyond TEAM·CHUNKS·VEC are served by other blocks (y)
//   UNROLL            edges in flight

typedef Type<X_TYPE>::Stored X;
typedef Type<OUT_TYPE>::Stored OUT;

constexpr int TEAMS = 32 / TEAM;
constexpr int TILE = TEAM * CHUNKS * VEC;
constexpr bool ALL_COLUMNS = COLUMNS % TILE == 0;

// What this lane has of a row.
struct Lane {
    int team, first;

    __device__ __forceinline__ Lane() {
        team = lane_id() / TEAM;
        first = blockIdx.y * TILE + lane_id() % TEAM * VEC;
    }

    __device__ __forceinline__ int column(int c) const { return first + c * TEAM * VEC; }
    __device__ __forceinline__ bool has(int c) const { return ALL_COLUMNS || column(c) < COLUMNS; }
};

template <typename S> struct Far {
    Packed<S, VEC> x[CHUNKS];

    __device__ __forceinline__ void load(const Lane &lane, const S *rows, u32 row) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            x[c].clear();
            if (lane.has(c)) x[c].load(rows + (u64)row * COLUMNS + lane.column(c));
        }
    }
};

// A sum over all teams, in each of them.
__device__ __forceinline__ C sum_teams(C x) {
#pragma unroll
    for (int o = TEAM; o < 32; o *= 2) x += __shfl_xor_sync(ALL, x, o);
    return x;
}

struct Graph {
    const Item *items;
    const u32 *indices;
    const u64 *indptr;
    u32 count, pieces; // items, and how many of them are pieces
};

// The factors of an edge's weight, seen from the rows of one direction; null where they are 1.
struct Weights {
    const C *edge;
    const u64 *map; // from positions to edges; null where they are the same
    const C *row, *column;

    __device__ __forceinline__ bool is_uniform() const { return !edge && !column; }

    __device__ __forceinline__ C of_edge(u64 position, u32 node) const {
        C weight = edge ? __ldg(edge + (map ? __ldg(map + position) : position)) : (C)1;
        return column ? weight * __ldg(column + node) : weight;
    }

    __device__ __forceinline__ C of_row(u32 at) const { return row ? __ldg(row + at) : (C)1; }
};

// The sum of an item is complete: into its row, times `factor`, or into its piece.
__device__ __forceinline__ void write_sum(const Lane &lane, const Graph &graph, u32 at, u32 row, C (&sum)[CHUNKS][VEC],
                                          C factor, OUT *out, int add, C *pieces, u32 piece_size) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            sum[c][k] = sum_teams(sum[c][k]);
            if (at >= graph.pieces) sum[c][k] *= factor;
        }
        if (lane.team != 0 || !lane.has(c)) continue;
        if (at >= graph.pieces)
            put(out + (u64)row * COLUMNS + lane.column(c), sum[c], add);
        else
            put(pieces + (u64)at * piece_size + lane.column(c), sum[c], 0);
    }
}
