/* Vector operations with AVX-512. Masks handle the last elements; sums are f32 in 16 or 64 lanes. */
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
        /* Magnitudes compared as integers: a maximum of floats would drop NaN. */
        const __m512i most = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(u)),
                                              _mm512_castps_si512(_mm512_abs_ps(v)));
        const float amax = float_of((uint32_t)_mm512_reduce_max_epi32(most));
        const __m512 id = _mm512_set1_ps(amax != 0 ? 127 / amax : 0);
        const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(u, id)),
                      c = _mm512_cvtps_epi32(_mm512_mul_ps(v, id));
        _mm_storeu_si128((__m128i *)q, _mm512_cvtsepi32_epi8(a));
        _mm_storeu_si128((__m128i *)(q + 16), _mm512_cvtsepi32_epi8(c));
        d[b] = amax / 127 + (amax - amax); /* NaN when amax is not finite */
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

/* Lane i of the result is the sum of all lanes of v[i]: four rounds of two shuffles and an addition. */
ALWAYS_INLINE __m512 sums_of_16(__m512 v[16])
{
    __m512 t[8], u[4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        t[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                             _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        u[i] = _mm512_add_ps(_mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    const __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(u[0], u[1], 0x88),
                                   _mm512_shuffle_f32x4(u[0], u[1], 0xdd));
    const __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(u[2], u[3], 0x88),
                                   _mm512_shuffle_f32x4(u[2], u[3], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

static void dots_avx512(const float *rows, int64_t stride, int n, int64_t cols, const float *x, float *y)
{
    for (int r = 0; r < n; r += 16) {
        const float *row[16];
        __m512 sum[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) row[i] = rows + MIN(r + i, n - 1) * stride, sum[i] = _mm512_setzero_ps();
        int64_t k = 0;
        for (; k + 16 <= cols; k += 16) {
            const __m512 v = _mm512_loadu_ps(x + k);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) sum[i] = _mm512_fmadd_ps(_mm512_loadu_ps(row[i] + k), v, sum[i]);
        }
        const __mmask16 rest = first_lanes(cols - k);
        if (rest) {
            const __m512 v = _mm512_maskz_loadu_ps(rest, x + k);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                sum[i] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(rest, row[i] + k), v, sum[i]);
        }
        _mm512_mask_storeu_ps(y + r, first_lanes(n - r), sums_of_16(sum));
    }
}

static void scale_avx512(float *x, int64_t n, float by)
{
    const __m512 s = _mm512_set1_ps(by);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_mul_ps(s, _mm512_maskz_loadu_ps(lanes, x + i)));
    }
}

/* cap * tanh(x / cap): near 0 a polynomial, elsewhere 1 - 2 / (e^2|x| + 1) with the sign put back. */
static void softcap_avx512(float *x, int64_t n, float cap)
{
    const __m512 by = _mm512_set1_ps(cap), down = _mm512_set1_ps(1 / cap), one = _mm512_set1_ps(1);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        const __m512 u = _mm512_maskz_loadu_ps(lanes, x + i), v = _mm512_mul_ps(u, down),
                     a = _mm512_abs_ps(v);
        const __m512 e = exp_avx512(_mm512_add_ps(a, a)), z = _mm512_mul_ps(v, v);
        const __m512 far = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2), _mm512_add_ps(e, one)));
        __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(-5.70498872745e-3f), z, _mm512_set1_ps(2.06390887954e-2f));
        p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-5.37397155531e-2f));
        p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.33314422036e-1f));
        p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-3.33332819422e-1f));
        const __m512 near = _mm512_fmadd_ps(_mm512_mul_ps(p, z), a, a);
        const __mmask16 small = _mm512_cmp_ps_mask(a, _mm512_set1_ps(0.625f), _CMP_LT_OQ);
        const __m512 t = _mm512_mask_mov_ps(far, small, near), sign = _mm512_set1_ps(-0.0f);
        const __m512 poison = _mm512_sub_ps(u, u); /* 0, or NaN where u is not finite */
        _mm512_mask_storeu_ps(x + i, lanes,
                              _mm512_fmadd_ps(by, _mm512_or_ps(t, _mm512_and_ps(sign, v)), poison));
    }
}

/* Reduce 8 angles to a number of quarter turns and a remainder within an eighth of a turn, in binary64,
 * because angles reach 10^5. */
ALWAYS_INLINE __m256 quarter_turns(__m256 x, __m256i *turns)
{
    const __m512d v = _mm512_cvtps_pd(x);
    const __m512d k = _mm512_roundscale_pd(_mm512_mul_pd(v, _mm512_set1_pd(0.63661977236758134308)), 8);
    __m512d r = _mm512_fnmadd_pd(k, _mm512_set1_pd(1.57079632679489655800), v);
    r = _mm512_fnmadd_pd(k, _mm512_set1_pd(6.12323399573676603587e-17), r);
    *turns = _mm512_cvtpd_epi32(k);
    return _mm512_cvtpd_ps(r);
}

/* Sines and cosines for rope. Absolute error: below 2e-7 for |x| < 2^30. */
static void sincos_avx512(const float *x, int64_t n, float by, float *sine, float *cosine)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        const __m512 angle = _mm512_maskz_loadu_ps(lanes, x + i);
        __m256i low, high;
        const __m256 r0 = quarter_turns(_mm512_castps512_ps256(angle), &low);
        const __m256 r1 = quarter_turns(_mm512_extractf32x8_ps(angle, 1), &high);
        const __m512 r = _mm512_insertf32x8(_mm512_castps256_ps512(r0), r1, 1), z = _mm512_mul_ps(r, r);
        const __m512i turns = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        __m512 s = _mm512_fmadd_ps(_mm512_set1_ps(-1.9515295891e-4f), z, _mm512_set1_ps(8.3321608736e-3f));
        s = _mm512_fmadd_ps(s, z, _mm512_set1_ps(-1.6666654611e-1f));
        s = _mm512_fmadd_ps(_mm512_mul_ps(s, z), r, r);
        __m512 c = _mm512_fmadd_ps(_mm512_set1_ps(2.443315711809948e-5f), z,
                                   _mm512_set1_ps(-1.388731625493765e-3f));
        c = _mm512_fmadd_ps(c, z, _mm512_set1_ps(4.166664568298827e-2f));
        c = _mm512_fmadd_ps(c, z, _mm512_set1_ps(-0.5f));
        c = _mm512_fmadd_ps(c, z, _mm512_set1_ps(1));
        const __mmask16 odd = _mm512_test_epi32_mask(turns, _mm512_set1_epi32(1));
        const __m512i sign_s = _mm512_slli_epi32(_mm512_and_si512(turns, _mm512_set1_epi32(2)), 30);
        const __m512i sign_c = _mm512_slli_epi32(
            _mm512_and_si512(_mm512_add_epi32(turns, _mm512_set1_epi32(1)), _mm512_set1_epi32(2)), 30);
        const __m512 sn = _mm512_xor_ps(_mm512_mask_mov_ps(s, odd, c), _mm512_castsi512_ps(sign_s));
        const __m512 cs = _mm512_xor_ps(_mm512_mask_mov_ps(c, odd, s), _mm512_castsi512_ps(sign_c));
        _mm512_mask_storeu_ps(sine + i, lanes, _mm512_mul_ps(sn, _mm512_set1_ps(by)));
        _mm512_mask_storeu_ps(cosine + i, lanes, _mm512_mul_ps(cs, _mm512_set1_ps(by)));
    }
}

static void rotate_halves_avx512(float *x, int pairs, const float *sine, const float *cosine)
{
    for (int j = 0; j < pairs; j += 16) {
        const __mmask16 lanes = first_lanes(pairs - j);
        const __m512 s = _mm512_maskz_loadu_ps(lanes, sine + j), c = _mm512_maskz_loadu_ps(lanes, cosine + j);
        const __m512 u = _mm512_maskz_loadu_ps(lanes, x + j), v = _mm512_maskz_loadu_ps(lanes, x + pairs + j);
        _mm512_mask_storeu_ps(x + j, lanes, _mm512_fmsub_ps(u, c, _mm512_mul_ps(v, s)));
        _mm512_mask_storeu_ps(x + pairs + j, lanes, _mm512_fmadd_ps(u, s, _mm512_mul_ps(v, c)));
    }
}

static void rotate_pairs_avx512(float *x, int pairs, const float *sine, const float *cosine)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    for (int j = 0; j < pairs; j += 8) {
        const __mmask16 eight = first_lanes(MIN(pairs - j, 8)), lanes = first_lanes(2 * (pairs - j));
        const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(eight, sine + j));
        const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(eight, cosine + j));
        const __m512 v = _mm512_maskz_loadu_ps(lanes, x + 2 * j);
        const __m512 turned = _mm512_mul_ps(_mm512_permute_ps(v, 0xb1), s);
        _mm512_mask_storeu_ps(x + 2 * j, lanes, _mm512_fmaddsub_ps(v, c, turned));
    }
}

/* Sums and differences of lanes whose numbers differ in one bit; `swapped`: v with these lanes exchanged,
 * `differences`: the lanes of the differences. */
ALWAYS_INLINE __m512 butterfly(__m512 v, __m512 swapped, __mmask16 differences)
{
    return _mm512_mask_sub_ps(_mm512_add_ps(swapped, v), differences, swapped, v);
}

static void hadamard_avx512(float *x, int block)
{
    enum { LANES = 16 };
    const __m512 scale = _mm512_set1_ps(1 / sqrtf((float)block));
    if (block < LANES) {
        VECTORS_REF.hadamard(x, block);
        return;
    }
    for (int i = 0; i < block; i += LANES) {
        __m512 v = _mm512_loadu_ps(x + i);
        v = butterfly(v, _mm512_permute_ps(v, 0xb1), 0xaaaa);
        v = butterfly(v, _mm512_permute_ps(v, 0x4e), 0xcccc);
        v = butterfly(v, _mm512_shuffle_f32x4(v, v, 0xb1), 0xf0f0);
        v = butterfly(v, _mm512_shuffle_f32x4(v, v, 0x4e), 0xff00);
        _mm512_storeu_ps(x + i, block == LANES ? _mm512_mul_ps(v, scale) : v);
    }
    for (int half = LANES; half < block; half *= 2) {
        const __m512 by = 2 * half == block ? scale : _mm512_set1_ps(1);
        for (int i = 0; i < block; i += LANES) {
            if (i & half) continue;
            const __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + half);
            _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_add_ps(a, b), by));
            _mm512_storeu_ps(x + i + half, _mm512_mul_ps(_mm512_sub_ps(a, b), by));
        }
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

/* GELU, 0.5 g (1 + erf(g / sqrt 2)), computed through erfc(z) for z >= 0 to avoid cancellation where the
 * result is small. erfc(z) = t exp(-z^2 + P(t)) with t = 1 / (1 + z / 2), relative error 1.2e-7. Source:
 * Press et al., Numerical Recipes. */
ALWAYS_INLINE __m512 gelu_erf(__m512 g)
{
    static const float P[] = { 0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                               -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f };
    const __m512 z = _mm512_mul_ps(_mm512_abs_ps(g), _mm512_set1_ps(0.70710678118f)), one = _mm512_set1_ps(1);
    const __m512 t = _mm512_div_ps(one, _mm512_fmadd_ps(z, _mm512_set1_ps(0.5f), one));
    __m512 p = _mm512_set1_ps(P[0]);
#pragma GCC unroll 9
    for (int i = 1; i < 10; i++) p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(P[i]));
    const __m512 c = _mm512_mul_ps(t, exp_avx512(_mm512_fnmadd_ps(z, z, p)));
    const __mmask16 below = _mm512_cmp_ps_mask(g, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512 both = _mm512_mask_mov_ps(_mm512_sub_ps(_mm512_set1_ps(2), c), below, c);
    return _mm512_mul_ps(_mm512_mul_ps(g, _mm512_set1_ps(0.5f)), both);
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

static void gelu_erf_avx512(const float *gate, const float *up, int64_t n, float *y)
{
    activate(gelu_erf, gate, up, n, y);
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
    .dots = dots_avx512,
    .softcap = softcap_avx512,
    .sincos = sincos_avx512,
    .rotate = { rotate_pairs_avx512, rotate_halves_avx512 },
    .hadamard = hadamard_avx512,
    .activate = { [ACT_SILU] = silu_avx512,
                  [ACT_GELU_TANH] = gelu_tanh_avx512,
                  [ACT_GELU_ERF] = gelu_erf_avx512,
                  [ACT_RELU] = relu_avx512 },
};
