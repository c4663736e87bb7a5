// Losses of rows with their gradients. A warp has every so many-th listed row; a block writes the loss of its rows.

#define WARPS 8

// Adds up the warps' losses in order.
__device__ __forceinline__ void finish(double loss, double *partial) {
    __shared__ double shared[WARPS];
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = loss;
    __syncthreads();
    if (threadIdx.x > 0) return;
    double sum = 0.0;
    for (int k = 0; k < WARPS; k++) sum += shared[k];
    partial[blockIdx.x] = sum;
}

// Cross-entropy of the softmax; a negative label is unknown.
extern "C" __global__ void loss_class(const T *logits, const i64 *labels, const u32 *listed, const float *weights, T *gradient,
                                      double *partial, i64 count, int cols, double smoothing, double total) {
    int lane = threadIdx.x % 32;
    double loss = 0.0, spread = smoothing / cols;
    for (i64 k = (i64)blockIdx.x * WARPS + threadIdx.x / 32; k < count; k += (i64)gridDim.x * WARPS) {
        i64 row = listed[k], label = labels[row];
        if (label < 0) continue;
        const T *x = logits + row * cols;
        double weight = (weights ? (double)weights[k] : 1.0) / total;
        C most = NEGATIVE_INFINITY, all = (C)0, sum = (C)0;
        for (int c = lane; c < cols; c += 32) most = larger(most, load(x[c]));
        most = lane_max<32>(most);
        for (int c = lane; c < cols; c += 32) {
            C at = load(x[c]) - most;
            all += at;
            sum += exponential(at);
        }
        all = lane_sum<32>(all);
        sum = lane_sum<32>(sum);
        C inverse = (C)1 / sum;
        if (gradient) {
            for (int c = lane; c < cols; c += 32) {
                C g = exponential(load(x[c]) - most) * inverse - (C)spread;
                if (c == label) g -= (C)(1.0 - smoothing);
                gradient[row * cols + c] = store<T>(g * (C)weight);
            }
        }
        double at_label = (double)(load(x[label]) - most);
        loss += weight * (log((double)sum) - (1.0 - smoothing) * at_label - spread * (double)all);
    }
    finish(loss, partial);
}

// The weighted sum of what `one` gives for each element of the listed rows, a warp a row: `one(at, weight)`.
template <class F>
__device__ __forceinline__ void loss_of_elements(const u32 *listed, const float *weights, double *partial, i64 count, int cols,
                                                 double total, F one) {
    double loss = 0.0;
    for (i64 k = (i64)blockIdx.x * WARPS + threadIdx.x / 32; k < count; k += (i64)gridDim.x * WARPS) {
        i64 row = listed[k];
        double weight = (weights ? (double)weights[k] : 1.0) / total;
        C sum = (C)0;
        for (int c = threadIdx.x % 32; c < cols; c += 32) sum += one(row * cols + c, weight);
        loss += weight * (double)lane_sum<32>(sum);
    }
    finish(loss, partial);
}

// Binary cross-entropy of each logit; a target that is NaN or negative is unknown.
extern "C" __global__ void loss_each(const T *logits, const C *targets, const u32 *listed, const float *weights, T *gradient,
                                     double *partial, i64 count, int cols, double total) {
    loss_of_elements(listed, weights, partial, count, cols, total, [&](i64 at, double weight) {
        C x = load(logits[at]), t = targets[at];
        bool known = t >= (C)0;
        C e = exponential(-magnitude(x));
        C logistic = (x >= (C)0 ? (C)1 : e) / ((C)1 + e);
        if (gradient) gradient[at] = store<T>(known ? (logistic - t) * (C)weight : (C)0);
        return known ? (x > (C)0 ? x : (C)0) - x * t + (C)log1p((double)e) : (C)0;
    });
}

// The squared difference of each output; a target that is NaN is unknown.
extern "C" __global__ void loss_value(const T *outputs, const C *targets, const u32 *listed, const float *weights, T *gradient,
                                      double *partial, i64 count, int cols, double total) {
    loss_of_elements(listed, weights, partial, count, cols, total, [&](i64 at, double weight) {
        C t = targets[at];
        C difference = t == t ? load(outputs[at]) - t : (C)0;
        if (gradient) gradient[at] = store<T>(difference * (C)(2.0 * weight));
        return difference * difference;
    });
}

// The loss: the blocks' losses in order.
extern "C" __global__ void loss_total(const double *partial, int count, C *loss) {
    double sum = 0.0;
    for (int k = 0; k < count; k++) sum += partial[k];
    *loss = (C)sum;
}
