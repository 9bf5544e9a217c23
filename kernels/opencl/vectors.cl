/* Normalization, rotary embeddings, Hadamard transforms and activation functions. Sums are f32. Each work item
 * adds a few numbers sequentially, and the group then adds the items' sums in a tree. So the rounding error
 * grows with the numbers per item and the logarithm of the items, not with the length of the row. Contraction
 * to fused multiply-adds is disabled, so that only the operations that are written round. */
#pragma OPENCL FP_CONTRACT OFF

/* ---------------------------------------------------------------- norms */

#define NORM_ITEMS 256 /* largest number of items in a group, which is a power of two */

/* The sums of both components of a over the group. All items get the result. */
float2 group_sum(float2 a, local float2 *sums)
{
    const int id = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[id] = a;
    for (int half_way = get_local_size(0) / 2; half_way; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id < half_way) sums[id] += sums[id + half_way];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return sums[0];
}

/* This item's share of the sums over a row: (sum of (x - about)^2, sum of x - about). Each is kept in four
 * partial sums, whose additions do not wait for each other. */
float2 item_sums(global const float *x, int cols, float about)
{
    float squares[4] = { 0, 0, 0, 0 }, plain[4] = { 0, 0, 0, 0 };
    const int step = get_local_size(0);
    for (int at = get_local_id(0); at < cols; at += 4 * step) {
        for (int k = 0; k < 4; k++) {
            const float d = at + k * step < cols ? x[at + k * step] - about : 0;
            squares[k] = fma(d, d, squares[k]);
            plain[k] += d;
        }
    }
    return (float2)((squares[0] + squares[1]) + (squares[2] + squares[3]),
                    (plain[0] + plain[1]) + (plain[2] + plain[3]));
}

/* Normalize one row per group: with `layer` LayerNorm, else RMS norm.
 *
 *   y = (x - mean) / sqrt(power + eps) * w + bias;  power: mean of (x - mean)^2 (RMS norm: mean = 0)
 *
 * LayerNorm computes the mean in two steps, because the first sum has a rounding error:
 *
 *   first = sum(x) / cols,  rest = sum(x - first) / cols,  mean = first + rest
 *   power = sum((x - first)^2) / cols - rest^2
 *
 * The differences from `first` are small, so the second sum is accurate. */
kernel void norm(global const uchar *x_buffer, ulong x_at, long x_stride, global const uchar *w_buffer,
                 ulong w_at, global const uchar *bias_buffer, ulong bias_at, int has_bias, int layer,
                 int cols, float eps, global uchar *y_buffer, ulong y_at, long y_stride)
{
    local float2 sums[NORM_ITEMS];
    const long row = get_group_id(0);
    global const float *x = (global const float *)(x_buffer + x_at) + row * x_stride;
    global const float *w = (global const float *)(w_buffer + w_at);
    global const float *bias = (global const float *)(bias_buffer + bias_at);
    global float *y = (global float *)(y_buffer + y_at) + row * y_stride;
    float mean = 0, power = 0;
    float2 s = group_sum(item_sums(x, cols, 0), sums);
    if (layer) {
        const float first = s.y / cols;
        s = group_sum(item_sums(x, cols, first), sums);
        const float rest = s.y / cols;
        mean = first + rest;
        power = s.x / cols - rest * rest;
    } else {
        power = s.x / cols;
    }
    const float by = 1 / sqrt(power + eps);
    for (int i = get_local_id(0); i < cols; i += get_local_size(0)) {
        const float v = (x[i] - mean) * by * w[i];
        y[i] = has_bias ? v + bias[i] : v;
    }
}

/* ---------------------------------------------------------------- rope */

#define ROPE_HEADS 4 /* heads per item, for which it computes one sine and cosine */

/* An item rotates the pair `pair` of up to ROPE_HEADS heads of one row: (a, b) becomes (a cos - b sin,
 * a sin + b cos). Items: pairs (fastest), parts of the heads, rows. */
kernel void rope(global uchar *x_buffer, ulong x_at, long x_stride, int n, int heads, int head_dim, int pairs,
                 int half_split, float magnitude, global const float *freq, global const int *pos)
{
    const int parts = (heads + ROPE_HEADS - 1) / ROPE_HEADS;
    const int index = get_global_id(0), pair = index % pairs, part = index / pairs % parts;
    const int row = index / pairs / parts;
    if (row >= n) return;
    float cosine, sine = sincos((float)pos[row] * freq[pair], &cosine);
    sine *= magnitude;
    cosine *= magnitude;
    const int u = half_split ? pair : 2 * pair, v = half_split ? pair + pairs : 2 * pair + 1;
    const int last = min(heads, (part + 1) * ROPE_HEADS);
    global float *x = (global float *)(x_buffer + x_at) + row * x_stride;
    for (int h = part * ROPE_HEADS; h < last; h++) {
        global float *head = x + h * head_dim;
        const float a = head[u], b = head[v];
        head[u] = a * cosine - b * sine;
        head[v] = a * sine + b * cosine;
    }
}

/* ---------------------------------------------------------------- Hadamard transform */

#define HADAMARD_MAX 512 /* as in kernels.h */

/* Each group transforms one block in log2(block) steps; step `half_way` adds and subtracts numbers that are
 * so far apart. Groups: blocks of a row; rows. */
kernel void hadamard(global uchar *x_buffer, ulong x_at, long x_stride, int block, float scale)
{
    local float v[HADAMARD_MAX];
    const int id = get_local_id(0), items = get_local_size(0);
    global float *x =
        (global float *)(x_buffer + x_at) + get_global_id(1) * x_stride + get_group_id(0) * (long)block;
    for (int i = id; i < block; i += items) v[i] = x[i];
    for (int half_way = 1; half_way < block; half_way *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = id; i < block / 2; i += items) {
            const int at = i / half_way * 2 * half_way + i % half_way;
            const float a = v[at], b = v[at + half_way];
            v[at] = a + b;
            v[at + half_way] = a - b;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < block; i += items) x[i] = v[i] * scale;
}

/* ---------------------------------------------------------------- activation */

/* The values of enum activation. */
#define SILU         0
#define GELU_TANH    1
#define GELU_ERF     2
#define CLIPPED      4
#define RELU_SQUARED 5
#define SIGMOID      6

float activated(int act, float g)
{
    if (act == SILU) return g / (1 + exp(-g));
    /* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), without cancellation; 2 * sqrt(2 / pi) = 1.596 */
    if (act == GELU_TANH) return g / (1 + exp(-1.5957691216057308f * (g + 0.044715f * g * g * g)));
    /* 1 + erf(v) = erfc(-v), without cancellation */
    if (act == GELU_ERF) return 0.5f * g * erfc(-g * 0.7071067811865475f);
    if (act == RELU_SQUARED) return g < 0 ? 0 : g * g;
    if (act == SIGMOID) return 1 / (1 + exp(-g));
    return g < 0 ? 0 : g; /* keeps NaN */
}

/* y = act(gate), times up with has_up. y may be the same memory as gate. Items: columns; rows. */
kernel void activate(int act, global const uchar *gate_buffer, ulong gate_at, global const uchar *up_buffer,
                     ulong up_at, int has_up, long stride, int cols, global uchar *y_buffer, ulong y_at,
                     long y_stride)
{
    const int i = get_global_id(0);
    const long row = get_global_id(1);
    if (i >= cols) return;
    global const float *gate = (global const float *)(gate_buffer + gate_at) + row * stride;
    global const float *up = (global const float *)(up_buffer + up_at) + row * stride;
    global float *y = (global float *)(y_buffer + y_at) + row * y_stride;
    if (act == CLIPPED) { /* comparisons keep NaN */
        const float g = gate[i] > 7 ? 7 : gate[i], u = up[i] > 7 ? 7 : up[i] < -7 ? -7 : up[i];
        y[i] = g / (1 + exp(-1.702f * g)) * (u + 1);
        return;
    }
    const float v = activated(act, gate[i]);
    y[i] = has_up ? v * up[i] : v;
}

/* ---------------------------------------------------------------- mix */

/* y = sums of k weighted rows of x (struct mix). Items: columns; rows. */
kernel void mix_rows(global const uchar *x_buffer, ulong x_at, long x_stride, global const int *ids,
                     global const float *weights, int k, int cols, global uchar *y_buffer, ulong y_at,
                     long y_stride, int add)
{
    const int i = get_global_id(0);
    const long row = get_global_id(1);
    if (i >= cols) return;
    global const float *x = (global const float *)(x_buffer + x_at);
    global float *y = (global float *)(y_buffer + y_at) + row * y_stride;
    float sum = 0;
    for (int j = 0; j < k; j++) sum += weights[row * k + j] * x[ids[row * k + j] * x_stride + i];
    y[i] = add ? y[i] + sum : sum;
}
