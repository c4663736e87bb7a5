// cos θ and sin θ side by side, and dθ = cos θ·dsin − sin θ·dcos; computed in f64, as on the host.

extern "C" __global__ void turn(const T *angles, i64, i32 half, T *to, i64 rows, i32 cols) {
    i64 at = thread_number();
    if (at >= rows * cols) return;
    i64 row = at / cols;
    i32 c = (i32)(at % cols);
    double angle = (double)load(angles[row * half + c % half]);
    to[at] = Number<T>::narrow(c < half ? cos(angle) : sin(angle));
}

extern "C" __global__ void turn_backward(const T *turns, i64, i32, const T *dy, i64, i32, T *to, i64 rows, i32 half) {
    i64 at = thread_number();
    if (at >= rows * half) return;
    i64 cosine = at / half * 2 * half + at % half, sine = cosine + half;
    to[at] = Number<T>::narrow((double)load(turns[cosine]) * (double)load(dy[sine]) -
                               (double)load(turns[sine]) * (double)load(dy[cosine]));
}
