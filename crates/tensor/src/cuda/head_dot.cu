// l_ih = z_ih·a_h and, where there is a second vector, r_ih = z_ih·b_h: a thread per row and head.

extern "C" __global__ void head_dot(const T *z, const C *a, const C *b, C *l, C *r, i64 count, int heads, int width) {
    i64 at = thread_number();
    if (at >= count) return;
    const T *row = z + at * width;
    const C *ah = a + at % heads * width, *bh = b ? b + at % heads * width : ah;
    C left = (C)0, right = (C)0;
    for (int k = 0; k < width; k++) {
        C x = load(row[k]);
        left += x * ah[k];
        right += x * bh[k];
    }
    l[at] = left;
    if (b) r[at] = right;
}
