// Merges states of the online softmax, rows m ‖ s ‖ acc, into those of listed rows: a thread per listed row and head,
// which takes them in order. A target is (row, first position, end).

extern "C" __global__ void attention_merge(const C *partial, const uint4 *targets, const u32 *positions, C *states, i64 count, int heads,
                                           int d) {
    i64 at = thread_number();
    if (at >= count) return;
    uint4 target = targets[at / heads];
    int h = at % heads, width = d / heads, size = 2 * heads + d;
    C *to = states + (i64)target.x * size;
    for (u32 p = target.y; p < target.z; p++) {
        const C *from = partial + (i64)positions[p] * size;
        C m = larger(to[h], from[h]);
        // Both empty: −∞ − (−∞) would be NaN.
        if (m == NEGATIVE_INFINITY) continue;
        C a = exp2((C)(to[h] - m)), b = exp2((C)(from[h] - m));
        to[h] = m;
        to[heads + h] = to[heads + h] * a + from[heads + h] * b;
        for (int c = 2 * heads + h * width; c < 2 * heads + (h + 1) * width; c++) to[c] = to[c] * a + from[c] * b;
    }
}
