/* Vector operations with AVX-512; tails by masks, sums in f32 over 16 or 64 lanes. */
#include <math.h>

#include "kernels/isa/avx512.h"
#include "kernels/isa/isa_kernels.h"

static void transpose_avx512(const float *src, int64_t src_stride, int rows, int cols, float *dst,
                             int64_t dst_stride)
{
    for (int r0 = 0; r0 < rows; r0 += 16) {
        for (int c0 = 0; c0 < cols; c0 += 16) {
            const __mmask16 in = first_lanes(cols - c0), out = first_lanes(rows - r0);
            __m512i v[16];
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++)
                v[r] = r0 + r < rows ? _mm512_maskz_loadu_epi32(in, src + (r0 + r) * src_stride + c0)
                                     : _mm512_setzero_si512();
            transpose_16x16(v);
#pragma GCC unroll 16
            for (int c = 0; c < 16; c++)
                if (c0 + c < cols) _mm512_mask_storeu_epi32(dst + (c0 + c) * dst_stride + r0, out, v[c]);
        }
    }
}

static void quantize_q8_avx512(const float *x, int64_t n, int8_t *q, float *d, float *sum)
{
    for (int64_t b = 0; b < n / Q8_BLOCK; b++, x += Q8_BLOCK, q += Q8_BLOCK) {
        const __m512 u = _mm512_loadu_ps(x), v = _mm512_loadu_ps(x + 16);
        const float amax = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(u), _mm512_abs_ps(v)));
        const __m512 id = _mm512_set1_ps(amax != 0 ? 127 / amax : 0);
        const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(u, id)),
                      c = _mm512_cvtps_epi32(_mm512_mul_ps(v, id));
        _mm_storeu_si128((__m128i *)q, _mm512_cvtsepi32_epi8(a));
        _mm_storeu_si128((__m128i *)(q + 16), _mm512_cvtsepi32_epi8(c));
        d[b] = amax / 127;
        sum[b] = d[b] * (float)_mm512_reduce_add_epi32(_mm512_add_epi32(a, c));
    }
}

/* y = (x - mean) * by * w + bias, bias NULL: none. */
static void apply_norm(const float *x, const float *w, const float *bias, int64_t n, float mean, float by,
                       float *y)
{
    const __m512 m = _mm512_set1_ps(mean), s = _mm512_set1_ps(by);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        const __m512 v = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), m), s);
        const __m512 plus = bias ? _mm512_maskz_loadu_ps(lanes, bias + i) : _mm512_setzero_ps();
        _mm512_mask_storeu_ps(y + i, lanes, _mm512_fmadd_ps(v, _mm512_maskz_loadu_ps(lanes, w + i), plus));
    }
}

/* sum of (x - mean)^2 */
static float sum_squares(const float *x, int64_t n, float mean)
{
    __m512 sum[2] = { _mm512_setzero_ps(), _mm512_setzero_ps() };
    const __m512 m = _mm512_set1_ps(mean);
    for (int64_t i = 0; i < n; i += 32) {
        for (int u = 0; u < 2; u++) {
            const __mmask16 lanes = first_lanes(n - i - 16 * u);
            const __m512 v = _mm512_maskz_sub_ps(lanes, _mm512_maskz_loadu_ps(lanes, x + i + 16 * u), m);
            sum[u] = _mm512_fmadd_ps(v, v, sum[u]);
        }
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]));
}

static void norm_rms_avx512(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y)
{
    apply_norm(x, w, bias, n, 0, 1 / sqrtf(sum_squares(x, n, 0) / (float)n + eps), y);
}

static void norm_layer_avx512(const float *x, const float *w, const float *bias, int64_t n, float eps,
                              float *y)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(first_lanes(n - i), x + i));
    const float mean = _mm512_reduce_add_ps(sum) / (float)n;
    apply_norm(x, w, bias, n, mean, 1 / sqrtf(sum_squares(x, n, mean) / (float)n + eps), y);
}

static float max_avx512(const float *x, int64_t n)
{
    __m512 m = _mm512_set1_ps(-INFINITY);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        m = _mm512_mask_max_ps(m, lanes, m, _mm512_maskz_loadu_ps(lanes, x + i));
    }
    return _mm512_reduce_max_ps(m);
}

static float exp_sum_avx512(float *x, int64_t n, float max)
{
    __m512 sum = _mm512_setzero_ps();
    const __m512 m = _mm512_set1_ps(max);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        const __m512 e = exp_avx512(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), m));
        sum = _mm512_mask_add_ps(sum, lanes, sum, e);
        _mm512_mask_storeu_ps(x + i, lanes, e);
    }
    return _mm512_reduce_add_ps(sum);
}

static void scale_avx512(float *x, int64_t n, float by)
{
    const __m512 s = _mm512_set1_ps(by);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_mul_ps(s, _mm512_maskz_loadu_ps(lanes, x + i)));
    }
}

typedef __m512 curve_fn(__m512 g);

ALWAYS_INLINE void activate(curve_fn *curve, const float *gate, const float *up, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        __m512 v = curve(_mm512_maskz_loadu_ps(lanes, gate + i));
        if (up) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(lanes, up + i));
        _mm512_mask_storeu_ps(y + i, lanes, v);
    }
}

/* g / (1 + e^-u) */
ALWAYS_INLINE __m512 times_sigmoid(__m512 g, __m512 u)
{
    const __m512 one = _mm512_set1_ps(1);
    return _mm512_div_ps(g, _mm512_add_ps(one, exp_avx512(_mm512_sub_ps(_mm512_setzero_ps(), u))));
}

ALWAYS_INLINE __m512 silu(__m512 g)
{
    return times_sigmoid(g, g);
}

/* 0.5 (1 + tanh u) = 1 / (1 + e^-2u) */
ALWAYS_INLINE __m512 gelu_tanh(__m512 g)
{
    const __m512 cubic = _mm512_fmadd_ps(_mm512_mul_ps(g, g), _mm512_set1_ps(0.044715f), _mm512_set1_ps(1));
    return times_sigmoid(g, _mm512_mul_ps(_mm512_mul_ps(g, cubic), _mm512_set1_ps(1.5957691216057308f)));
}

ALWAYS_INLINE __m512 relu(__m512 g)
{
    return _mm512_max_ps(_mm512_setzero_ps(), g); /* in this order NaN stays NaN */
}

static void silu_avx512(const float *gate, const float *up, int64_t n, float *y)
{
    activate(silu, gate, up, n, y);
}

static void gelu_tanh_avx512(const float *gate, const float *up, int64_t n, float *y)
{
    activate(gelu_tanh, gate, up, n, y);
}

static void relu_avx512(const float *gate, const float *up, int64_t n, float *y)
{
    activate(relu, gate, up, n, y);
}

const struct vector_kernels VECTORS_AVX512 = {
    .transpose = transpose_avx512,
    .quantize_q8 = quantize_q8_avx512,
    .norm_rms = norm_rms_avx512,
    .norm_layer = norm_layer_avx512,
    .max = max_avx512,
    .exp_sum = exp_sum_avx512,
    .scale = scale_avx512,
    .activate = { [ACT_SILU] = silu_avx512, [ACT_GELU_TANH] = gelu_tanh_avx512, [ACT_RELU] = relu_avx512 },
};
