/* kernels/isa/vectors_v128.h - vector operations with 128 bits, after an implementation of v128.h: whole
 * vectors here, tails through the reference. */
#ifndef QDYNO_KERNELS_VECTORS_V128_H
#define QDYNO_KERNELS_VECTORS_V128_H

#include <math.h>

#include "kernels/isa/isa_kernels.h"

enum { LANES = 4, CHAINS = 4 /* sums side by side: an addition takes its time */ };

static void transpose(const float *src, int64_t src_stride, int rows, int cols, float *dst,
                      int64_t dst_stride)
{
    const int whole_rows = rows & ~(LANES - 1), whole_cols = cols & ~(LANES - 1);
    for (int r = 0; r < whole_rows; r += LANES) {
        for (int c = 0; c < whole_cols; c += LANES) {
            f32x4 v[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) v[i] = load_f32(src + (r + i) * src_stride + c);
            transpose_4x4(v);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) store_f32(dst + (c + i) * dst_stride + r, v[i]);
        }
    }
    VECTORS_REF.transpose(src + whole_cols, src_stride, whole_rows, cols - whole_cols,
                          dst + whole_cols * dst_stride, dst_stride);
    VECTORS_REF.transpose(src + whole_rows * src_stride, src_stride, rows - whole_rows, cols,
                          dst + whole_rows, dst_stride);
}

static void quantize_q8(const float *x, int64_t n, int8_t *q, float *d, float *sum)
{
    for (int64_t b = 0; b < n / Q8_BLOCK; b++, x += Q8_BLOCK, q += Q8_BLOCK) {
        f32x4 v[8], most = all_f32(0);
        s32x4 c[8], total = { 0 };
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
            v[u] = load_f32(x + LANES * u);
            most = max_f32(most, abs_f32(v[u]));
        }
        const float amax = max_of_f32(most);
        const f32x4 id = all_f32(amax != 0 ? 127 / amax : 0);
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
            c[u] = nearest_s32(v[u] * id);
            total += c[u];
        }
        store_s8(q, s8_of_s32(c));
        store_s8(q + 16, s8_of_s32(c + 4));
        d[b] = amax / 127;
        sum[b] = d[b] * sum_of_f32(f32_of_s32(total)); /* |sum| <= 4064: exact in f32 */
    }
}

ALWAYS_INLINE float sum_of_chains(const f32x4 sum[CHAINS])
{
    return sum_of_f32((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* sum of (x - mean)^2 */
static float sum_squares(const float *x, int64_t n, float mean)
{
    f32x4 sum[CHAINS] = { all_f32(0), all_f32(0), all_f32(0), all_f32(0) };
    float tail = 0;
    int64_t i = 0;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES) {
#pragma GCC unroll 4
        for (int u = 0; u < CHAINS; u++) {
            const f32x4 v = load_f32(x + i + LANES * u) - all_f32(mean);
            sum[u] = fma_f32(v, v, sum[u]);
        }
    }
    for (; i < n; i++) tail += (x[i] - mean) * (x[i] - mean);
    return tail + sum_of_chains(sum);
}

static void apply_norm(const float *x, const float *w, const float *bias, int64_t n, float mean, float by,
                       float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const f32x4 v = (load_f32(x + i) - all_f32(mean)) * all_f32(by);
        store_f32(y + i, fma_f32(v, load_f32(w + i), bias ? load_f32(bias + i) : all_f32(0)));
    }
    for (; i < n; i++) y[i] = (x[i] - mean) * by * w[i] + (bias ? bias[i] : 0);
}

static void norm_rms(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y)
{
    apply_norm(x, w, bias, n, 0, 1 / sqrtf(sum_squares(x, n, 0) / (float)n + eps), y);
}

static void norm_layer(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y)
{
    f32x4 sum[CHAINS] = { all_f32(0), all_f32(0), all_f32(0), all_f32(0) };
    float total = 0;
    int64_t i = 0;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES)
#pragma GCC unroll 4
        for (int u = 0; u < CHAINS; u++) sum[u] = sum[u] + load_f32(x + i + LANES * u);
    for (; i < n; i++) total += x[i];
    const float mean = (total + sum_of_chains(sum)) / (float)n;
    apply_norm(x, w, bias, n, mean, 1 / sqrtf(sum_squares(x, n, mean) / (float)n + eps), y);
}

static float max_value(const float *x, int64_t n)
{
    f32x4 m[CHAINS];
    int64_t i = 0;
    for (int u = 0; u < CHAINS; u++) m[u] = all_f32(-INFINITY);
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES)
#pragma GCC unroll 4
        for (int u = 0; u < CHAINS; u++) m[u] = max_f32(load_f32(x + i + LANES * u), m[u]);
    float most = max_of_f32(max_f32(max_f32(m[0], m[1]), max_f32(m[2], m[3])));
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static float exp_sum(float *x, int64_t n, float max)
{
    f32x4 sum = all_f32(0);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const f32x4 e = exp_f32(load_f32(x + i) - all_f32(max));
        sum = sum + e;
        store_f32(x + i, e);
    }
    return sum_of_f32(sum) + VECTORS_REF.exp_sum(x + i, n - i, max);
}

static void scale(float *x, int64_t n, float by)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store_f32(x + i, load_f32(x + i) * all_f32(by));
    for (; i < n; i++) x[i] *= by;
}

typedef f32x4 curve_fn(f32x4 g);

ALWAYS_INLINE void activate(curve_fn *curve, enum activation act, const float *gate, const float *up,
                            int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x4 v = curve(load_f32(gate + i));
        if (up) v = v * load_f32(up + i);
        store_f32(y + i, v);
    }
    VECTORS_REF.activate[act](gate + i, up ? up + i : NULL, n - i, y + i);
}

/* g / (1 + e^-u) */
ALWAYS_INLINE f32x4 times_sigmoid(f32x4 g, f32x4 u)
{
    return g / (all_f32(1) + exp_f32(all_f32(0) - u));
}

ALWAYS_INLINE f32x4 silu(f32x4 g)
{
    return times_sigmoid(g, g);
}

/* 0.5 (1 + tanh u) = 1 / (1 + e^-2u) */
ALWAYS_INLINE f32x4 gelu_tanh(f32x4 g)
{
    const f32x4 cubic = fma_f32(g * g, all_f32(0.044715f), all_f32(1));
    return times_sigmoid(g, g * cubic * all_f32(1.5957691216057308f));
}

static void silu_all(const float *gate, const float *up, int64_t n, float *y)
{
    activate(silu, ACT_SILU, gate, up, n, y);
}

static void gelu_tanh_all(const float *gate, const float *up, int64_t n, float *y)
{
    activate(gelu_tanh, ACT_GELU_TANH, gate, up, n, y);
}

const struct vector_kernels V128_TABLE(VECTORS) = {
    .transpose = transpose,
    .quantize_q8 = quantize_q8,
    .norm_rms = norm_rms,
    .norm_layer = norm_layer,
    .max = max_value,
    .exp_sum = exp_sum,
    .scale = scale,
    .activate = { [ACT_SILU] = silu_all, [ACT_GELU_TANH] = gelu_tanh_all },
};

#endif
