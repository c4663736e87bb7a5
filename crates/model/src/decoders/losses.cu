// Targets of scores with all nodes: `right` at the partners of a row, which are sorted, `rest` elsewhere.

extern "C" __global__ void targets(const T *starts, i64, i32, const T *partners, i64, i32, T *to, i64 rows, i32 nodes,
                                   double right, double rest) {
    i64 at = thread_number();
    if (at >= rows * nodes) return;
    i64 row = at / nodes, node = at % nodes;
    i64 low = (i64)load(starts[row]), end = (i64)load(starts[row + 1]), high = end;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if ((i64)load(partners[middle]) < node) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < end && (i64)load(partners[low]) == node;
    to[at] = Number<T>::narrow(found ? right : rest);
}
