// Sums over ranks, added in the order of ranks: the same bits on whichever rank they are made. The piece of this rank
// is `own`, which may be `to`; those of all others lie one after the other. A thread per element; bf16 is rounded once.

extern "C" __global__ void add_up(T *to, const T *own, const T *others, int rank, int ranks, i64 n) {
    i64 k = thread_number();
    if (k >= n) return;
    C sum = (C)0;
    for (int p = 0; p < ranks; p++) {
        C x = load(p == rank ? own[k] : others[(p - (p > rank)) * n + k]);
        sum = p == 0 ? x : sum + x;
    }
    to[k] = store<T>(sum);
}
