/* kernels/isa/vectors/vectors_v128.h - vector operations with 128-bit vectors. The reference handles the last
 * elements that fill no vector. Include an implementation of v128.h first. */
#ifndef QDYNO_KERNELS_ISA_VECTORS_VECTORS_V128_H
#define QDYNO_KERNELS_ISA_VECTORS_VECTORS_V128_H

#include <math.h>

#include "kernels/isa/isa_kernels.h"

enum { LANES = 4, CHAINS = 4 /* independent partial sums hide the latency of additions */ };

static void transpose(const float *src, int64_t src_stride, int rows, int cols, float *dst,
                      int64_t dst_stride)
{
    const int whole_rows = rows & ~(LANES - 1), whole_cols = cols & ~(LANES - 1);
    for (int r = 0; r < whole_rows; r += LANES) {
        for (int c = 0; c < whole_cols; c += LANES) {
            f32x4 v[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) v[i] = load_f32x4(src + (r + i) * src_stride + c);
            transpose_4x4(v);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) store_f32x4(dst + (c + i) * dst_stride + r, v[i]);
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
        f32x4 v[8], most = all_f32(0), poison = all_f32(0);
        s32x4 c[8];
        u32x4 total = { 0 }; /* unsigned, because the integers of NaN overflow */
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
            v[u] = load_f32x4(x + LANES * u);
            most = max_f32(most, abs_f32(v[u]));
            /* NaN if v is infinite or NaN, else 0, because max_f32 loses a NaN */
            poison = poison + (v[u] - v[u]);
        }
        const float amax = max_of_f32(most);
        const f32x4 id = all_f32(amax != 0 ? 127 / amax : 0);
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
            c[u] = nearest_s32(v[u] * id);
            total += (u32x4)c[u];
        }
        store_s8(q, s8_of_s32(c));
        store_s8(q + 16, s8_of_s32(c + 4));
        d[b] = amax / 127 + sum_of_f32(poison);
        sum[b] = d[b] * sum_of_f32(f32_of_s32((s32x4)total)); /* |sum| <= 4064: exact in f32 */
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
            const f32x4 v = load_f32x4(x + i + LANES * u) - all_f32(mean);
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
        const f32x4 v = (load_f32x4(x + i) - all_f32(mean)) * all_f32(by);
        store_f32x4(y + i, fma_f32(v, load_f32x4(w + i), bias ? load_f32x4(bias + i) : all_f32(0)));
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
        for (int u = 0; u < CHAINS; u++) sum[u] = sum[u] + load_f32x4(x + i + LANES * u);
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
        for (int u = 0; u < CHAINS; u++) m[u] = max_f32(load_f32x4(x + i + LANES * u), m[u]);
    float most = max_of_f32(max_f32(max_f32(m[0], m[1]), max_f32(m[2], m[3])));
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static float exp_sum(float *x, int64_t n, float max)
{
    f32x4 sum = all_f32(0);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const f32x4 e = exp_f32(load_f32x4(x + i) - all_f32(max));
        sum = sum + e;
        store_f32x4(x + i, e);
    }
    return sum_of_f32(sum) + VECTORS_REF.exp_sum(x + i, n - i, max);
}

static void scale(float *x, int64_t n, float by)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) store_f32x4(x + i, load_f32x4(x + i) * all_f32(by));
    for (; i < n; i++) x[i] *= by;
}

/* Four rows at a time, so that each vector of x is loaded once for four rows. Past the last row, that row is
 * used again and the results are dropped. */
static void dots(const float *rows, int64_t stride, int n, int64_t cols, const float *x, float *y)
{
    const int64_t whole = cols & ~(int64_t)(LANES - 1);
    for (int r = 0; r < n; r += 4) {
        const float *row[4];
        f32x4 sum[4];
        float out[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) row[i] = rows + MIN(r + i, n - 1) * stride, sum[i] = all_f32(0);
        for (int64_t k = 0; k < whole; k += LANES) {
            const f32x4 v = load_f32x4(x + k);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) sum[i] = fma_f32(load_f32x4(row[i] + k), v, sum[i]);
        }
        store_f32x4(out, sums_of_four_f32(sum));
        for (int i = 0; i < MIN(4, n - r); i++) {
            for (int64_t k = whole; k < cols; k++) out[i] += row[i][k] * x[k];
            y[r + i] = out[i];
        }
    }
}

static void rotate_halves(float *x, int pairs, const float *sine, const float *cosine)
{
    int j = 0;
    for (; j + LANES <= pairs; j += LANES) {
        const f32x4 s = load_f32x4(sine + j), c = load_f32x4(cosine + j);
        const f32x4 u = load_f32x4(x + j), v = load_f32x4(x + pairs + j);
        store_f32x4(x + j, u * c - v * s);
        store_f32x4(x + pairs + j, fma_f32(u, s, v * c));
    }
    for (; j < pairs; j++) {
        const float u = x[j], v = x[j + pairs];
        x[j] = u * cosine[j] - v * sine[j];
        x[j + pairs] = u * sine[j] + v * cosine[j];
    }
}

/* A pair (u, v) becomes (u c - v s, v c + u s). */
static void rotate_pairs(float *x, int pairs, const float *sine, const float *cosine)
{
    const f32x4 sign = { -1, 1, -1, 1 };
    int j = 0;
    for (; j + LANES <= pairs; j += LANES) {
        const f32x4 s = load_f32x4(sine + j), c = load_f32x4(cosine + j);
        const f32x4 low = load_f32x4(x + 2 * j), high = load_f32x4(x + 2 * j + 4);
        store_f32x4(x + 2 * j, fma_f32(low, double_low(c), swap_pairs(low) * double_low(s) * sign));
        store_f32x4(x + 2 * j + 4, fma_f32(high, double_high(c), swap_pairs(high) * double_high(s) * sign));
    }
    VECTORS_REF.rotate[0](x + 2 * j, pairs - j, sine + j, cosine + j);
}

/* tanh: a polynomial for |v| < 0.625, else 1 - 2 / (e^2|v| + 1) with the sign of v (see softcap_avx512). */
ALWAYS_INLINE f32x4 tanh_f32(f32x4 v)
{
    const f32x4 a = abs_f32(v), z = v * v, e = exp_f32(a + a), one = all_f32(1);
    const f32x4 far = one - all_f32(2) / (e + one);
    f32x4 p = fma_f32(all_f32(-5.70498872745e-3f), z, all_f32(2.06390887954e-2f));
    p = fma_f32(p, z, all_f32(-5.37397155531e-2f));
    p = fma_f32(p, z, all_f32(1.33314422036e-1f));
    p = fma_f32(p, z, all_f32(-3.33332819422e-1f));
    const f32x4 t = choose((s32x4)(a < all_f32(0.625f)), fma_f32(p * z, a, a), far);
    return (f32x4)((u32x4)t | ((u32x4)v & 0x80000000u));
}

static void softcap(float *x, int64_t n, float cap)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const f32x4 v = load_f32x4(x + i);
        /* v - v turns infinities into NaN */
        store_f32x4(x + i, tanh_f32(v * all_f32(1 / cap)) * all_f32(cap) + (v - v));
    }
    VECTORS_REF.softcap(x + i, n - i, cap);
}

typedef f32x4 curve_fn(f32x4 g);

ALWAYS_INLINE void activate(curve_fn *curve, enum activation act, const float *gate, const float *up,
                            int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x4 v = curve(load_f32x4(gate + i));
        if (up) v = v * load_f32x4(up + i);
        store_f32x4(y + i, v);
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

/* See gelu_erf of vectors_avx512.c. */
ALWAYS_INLINE f32x4 gelu_erf(f32x4 g)
{
    static const float P[] = { 0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                               -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f };
    const f32x4 z = abs_f32(g) * all_f32(0.70710678118f);
    const f32x4 t = all_f32(1) / fma_f32(z, all_f32(0.5f), all_f32(1));
    f32x4 p = all_f32(P[0]);
#pragma GCC unroll 9
    for (int i = 1; i < 10; i++) p = fma_f32(p, t, all_f32(P[i]));
    const f32x4 c = t * exp_f32(fma_f32(all_f32(0) - z, z, p));
    return g * all_f32(0.5f) * choose((s32x4)(g < all_f32(0)), c, all_f32(2) - c);
}

static void silu_all(const float *gate, const float *up, int64_t n, float *y)
{
    activate(silu, ACT_SILU, gate, up, n, y);
}

static void gelu_tanh_all(const float *gate, const float *up, int64_t n, float *y)
{
    activate(gelu_tanh, ACT_GELU_TANH, gate, up, n, y);
}

static void gelu_erf_all(const float *gate, const float *up, int64_t n, float *y)
{
    activate(gelu_erf, ACT_GELU_ERF, gate, up, n, y);
}

const struct vector_kernels V128_TABLE(VECTORS) = {
    .transpose = transpose,
    .quantize_q8 = quantize_q8,
    .norm_rms = norm_rms,
    .norm_layer = norm_layer,
    .max = max_value,
    .exp_sum = exp_sum,
    .scale = scale,
    .dots = dots,
    .softcap = softcap,
    .rotate = { rotate_pairs, rotate_halves },
    .activate = { [ACT_SILU] = silu_all, [ACT_GELU_TANH] = gelu_tanh_all, [ACT_GELU_ERF] = gelu_erf_all },
};

#endif
