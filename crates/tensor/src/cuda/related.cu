// What edges of several relations have: the first two of an edge's numbers are c and its relation.

// The weight of one of the sums for each edge: a thread per edge. Without a table, each relation has a sum of its own.
extern "C" __global__ void weights_by_relation(const C *edges, const C *table, C *weights, i64 count, int stride, int sums,
                                               int sum) {
    i64 at = thread_number();
    if (at >= count) return;
    const C *edge = edges + at * stride;
    int relation = (int)edge[1];
    C coefficient = table ? table[(i64)relation * sums + sum] : relation == sum ? (C)1 : (C)0;
    weights[at] = coefficient / edge[0];
}

// Sums over a block's edges of products / c, by relation: a thread per relation, in the order of the edges.
extern "C" __global__ void totals_by_relation(const C *edges, const C *products, C *partial, i64 count, i64 per,
                                              int stride, int relations) {
    i64 first = blockIdx.x * per, end = first + per < count ? first + per : count;
    for (int relation = threadIdx.x; relation < relations; relation += blockDim.x) {
        C sum = (C)0;
        for (i64 at = first; at < end; at++)
            if ((int)edges[at * stride + 1] == relation) sum += products[at] / edges[at * stride];
        partial[(i64)blockIdx.x * relations + relation] = sum;
    }
}
