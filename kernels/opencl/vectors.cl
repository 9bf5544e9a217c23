/* Norms, rotations and activations: everything between the products. All sums are f32; a work item adds few
 * numbers, and groups add by halves, so that the error grows with the logarithm of a row's length and with
 * the numbers of one item, not with the length. Nothing may be contracted: what rounds is written. */
#pragma OPENCL FP_CONTRACT OFF

/* ---------------------------------------------------------------- norms */

#define NORM_ITEMS 256 /* of a group, at most; a power of two */

/* The sums of a over the group, for all of its items. */
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

/* Sum of (x - about)^2, and of x - about where that is wanted. Four of each, to add in shorter chains. */
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

/* A group makes one row. layer: LayerNorm, else RMS norm. The mean is found in two steps: what the first one
 * rounds off shows in the sum of differences from it, which are small, and so does its part in the squares.
 */
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

#define ROPE_HEADS 4 /* that share the sine and cosine of an item */

/* An item rotates one pair of some heads of one row. Items: pairs, within them rows of heads. */
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

/* ---------------------------------------------------------------- activation */

/* As enum activation. */
#define SILU      0
#define GELU_TANH 1
#define GELU_ERF  2

float activated(int act, float g)
{
    if (act == SILU) return g / (1 + exp(-g));
    if (act == GELU_TANH) /* (1 + tanh(u)) / 2 without the cancellation; 2 * sqrt(2 / pi) */
        return g / (1 + exp(-1.5957691216057308f * (g + 0.044715f * g * g * g)));
    if (act == GELU_ERF) return 0.5f * g * erfc(-g * 0.7071067811865475f); /* 1 + erf would cancel */
    return g > 0 ? g : 0;
}

/* y may be gate. Items: columns; rows. */
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
    const float v = activated(act, gate[i]);
    y[i] = has_up ? v * up[i] : v;
}
