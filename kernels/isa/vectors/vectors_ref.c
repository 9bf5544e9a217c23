/* Vector operations in plain C with sums in binary64: the reference for tests, and the fallback on machines
 * without vector kernels. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/isa/isa_kernels.h"

static void transpose_ref(const float *src, int64_t src_stride, int rows, int cols, float *dst,
                          int64_t dst_stride)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) dst[c * dst_stride + r] = src[r * src_stride + c];
}

static void quantize_q8_ref(const float *x, int64_t n, int8_t *q, float *d, float *sum)
{
    for (int64_t b = 0; b < n / Q8_BLOCK; b++, x += Q8_BLOCK, q += Q8_BLOCK) {
        const float amax = largest_magnitude(x, Q8_BLOCK);
        if (!isfinite(amax)) { /* quantize_q8 in kernel_set.h says why */
            memset(q, 0, Q8_BLOCK);
            d[b] = sum[b] = NAN;
            continue;
        }
        const float id = amax != 0 ? 127 / amax : 0;
        int total = 0;
        for (int j = 0; j < Q8_BLOCK; j++) total += q[j] = (int8_t)rintf(x[j] * id);
        d[b] = amax / 127;
        sum[b] = d[b] * (float)total;
    }
}

static void norm_rms_ref(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    const float by = (float)(1 / sqrt(sum / (double)n + eps));
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * by * w[i] + (bias ? bias[i] : 0);
}

static void norm_layer_ref(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    const double by = 1 / sqrt(squares / (double)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = (float)((x[i] - mean) * by) * w[i] + (bias ? bias[i] : 0);
}

static float max_ref(const float *x, int64_t n)
{
    float m = x[0];
    for (int64_t i = 1; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

static float exp_sum_ref(float *x, int64_t n, float max)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    return (float)sum;
}

static void scale_ref(float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

static void dots_ref(const float *rows, int64_t stride, int n, int64_t cols, const float *x, float *y)
{
    for (int r = 0; r < n; r++) {
        double sum = 0;
        for (int64_t k = 0; k < cols; k++) sum += (double)rows[r * stride + k] * x[k];
        y[r] = (float)sum;
    }
}

static void softcap_ref(float *x, int64_t n, float cap)
{
    for (int64_t i = 0; i < n; i++) x[i] = cap * tanhf(x[i] / cap) + (x[i] - x[i]);
}

static void sincos_ref(const float *x, int64_t n, float by, float *sine, float *cosine)
{
    for (int64_t i = 0; i < n; i++) {
        sincosf(x[i], &sine[i], &cosine[i]);
        sine[i] *= by;
        cosine[i] *= by;
    }
}

static void pair_rotate(float *u, float *v, float sine, float cosine)
{
    const float x = *u, y = *v;
    *u = x * cosine - y * sine;
    *v = x * sine + y * cosine;
}

static void rotate_pairs_ref(float *x, int pairs, const float *sine, const float *cosine)
{
    for (int j = 0; j < pairs; j++) pair_rotate(&x[2 * j], &x[2 * j + 1], sine[j], cosine[j]);
}

static void rotate_halves_ref(float *x, int pairs, const float *sine, const float *cosine)
{
    for (int j = 0; j < pairs; j++) pair_rotate(&x[j], &x[j + pairs], sine[j], cosine[j]);
}

static void hadamard_ref(float *x, int block)
{
    for (int half = 1; half < block; half *= 2)
        for (int i = 0; i < block; i++) {
            if (i & half) continue;
            const float a = x[i], b = x[i + half];
            x[i] = a + b;
            x[i + half] = a - b;
        }
    scale_ref(x, block, 1 / sqrtf((float)block));
}

static void silu_ref(const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] / (1 + expf(-gate[i])) * (up ? up[i] : 1);
}

static void gelu_tanh_ref(const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = gate[i], u = 0.7978845608028654f * (g + 0.044715f * g * g * g); /* sqrt(2/pi) */
        y[i] = 0.5f * g * (1 + tanhf(u)) * (up ? up[i] : 1);
    }
}

static void gelu_erf_ref(const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = gate[i];
        y[i] = 0.5f * g * erfcf(-g * 0.7071067811865475f) * (up ? up[i] : 1); /* 1 + erf would cancel */
    }
}

static void relu_ref(const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = (gate[i] < 0 ? 0 : gate[i]) * (up ? up[i] : 1); /* keeps NaN */
}

static void relu_squared_ref(const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = (gate[i] < 0 ? 0 : gate[i] * gate[i]) * (up ? up[i] : 1);
}

static void sigmoid_ref(const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = 1 / (1 + expf(-gate[i])) * (up ? up[i] : 1);
}

static void swiglu_clipped_ref(const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) { /* written so that NaN stays NaN */
        const float g = gate[i] > 7 ? 7 : gate[i], u = up[i] > 7 ? 7 : up[i] < -7 ? -7 : up[i];
        y[i] = g / (1 + expf(-1.702f * g)) * (u + 1);
    }
}

const struct vector_kernels VECTORS_REF = {
    .transpose = transpose_ref,
    .quantize_q8 = quantize_q8_ref,
    .norm_rms = norm_rms_ref,
    .norm_layer = norm_layer_ref,
    .max = max_ref,
    .exp_sum = exp_sum_ref,
    .scale = scale_ref,
    .dots = dots_ref,
    .softcap = softcap_ref,
    .sincos = sincos_ref,
    .rotate = { rotate_pairs_ref, rotate_halves_ref },
    .hadamard = hadamard_ref,
    .activate = { [ACT_SILU] = silu_ref,
                  [ACT_GELU_TANH] = gelu_tanh_ref,
                  [ACT_GELU_ERF] = gelu_erf_ref,
                  [ACT_RELU] = relu_ref,
                  [ACT_RELU_SQUARED] = relu_squared_ref,
                  [ACT_SIGMOID] = sigmoid_ref,
                  [ACT_SWIGLU_CLIPPED] = swiglu_clipped_ref },
};
