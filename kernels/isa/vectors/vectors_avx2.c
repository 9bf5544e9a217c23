/* Vector operations with AVX2. The reference handles the last elements that fill no vector. */
#include <math.h>

#include "kernels/isa/avx2.h"
#include "kernels/isa/isa_kernels.h"

enum { LANES = 8 };

/* src[8][8] at stride to dst[8][8] at stride. */
ALWAYS_INLINE void transpose_8x8(const float *src, int64_t src_stride, float *dst, int64_t dst_stride)
{
    __m256 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(src + i * src_stride);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(dst + i * dst_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(dst + (i + 4) * dst_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

static void transpose_avx2(const float *src, int64_t src_stride, int rows, int cols, float *dst,
                           int64_t dst_stride)
{
    const int whole_rows = rows & ~(LANES - 1), whole_cols = cols & ~(LANES - 1);
    for (int r = 0; r < whole_rows; r += LANES)
        for (int c = 0; c < whole_cols; c += LANES)
            transpose_8x8(src + r * src_stride + c, src_stride, dst + c * dst_stride + r, dst_stride);
    VECTORS_REF.transpose(src + whole_cols, src_stride, whole_rows, cols - whole_cols,
                          dst + whole_cols * dst_stride, dst_stride);
    VECTORS_REF.transpose(src + whole_rows * src_stride, src_stride, rows - whole_rows, cols,
                          dst + whole_rows, dst_stride);
}

/* The float whose bits are the largest of eight non-negative integers. */
ALWAYS_INLINE float max_of_magnitude_bits(__m256i bits)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

static void quantize_q8_avx2(const float *x, int64_t n, int8_t *q, float *d, float *sum)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    for (int64_t b = 0; b < n / Q8_BLOCK; b++, x += Q8_BLOCK, q += Q8_BLOCK) {
        __m256 v[4];
        __m256i c[4], total = _mm256_setzero_si256(), most = _mm256_setzero_si256();
        for (int u = 0; u < 4; u++) { /* as integers: a maximum of floats would drop NaN */
            v[u] = _mm256_loadu_ps(x + LANES * u);
            most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[u]), no_sign));
        }
        const float amax = max_of_magnitude_bits(most);
        const __m256 id = _mm256_set1_ps(amax != 0 ? 127 / amax : 0);
        for (int u = 0; u < 4; u++) {
            c[u] = _mm256_cvtps_epi32(_mm256_mul_ps(v[u], id));
            total = _mm256_add_epi32(total, c[u]);
        }
        /* The packs work inside 128-bit lanes; the permutation puts the groups of four back in order. */
        const __m256i words = _mm256_packs_epi32(c[0], c[1]), more = _mm256_packs_epi32(c[2], c[3]);
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256((__m256i *)q,
                            _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words, more), order));
        d[b] = amax / 127 + (amax - amax);                       /* NaN when amax is not finite */
        sum[b] = d[b] * sum_of_lanes(_mm256_cvtepi32_ps(total)); /* |sum| <= 4064: exact in f32 */
    }
}

/* sum of (x - mean)^2 */
static float sum_squares(const float *x, int64_t n, float mean)
{
    __m256 sum[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };
    const __m256 m = _mm256_set1_ps(mean);
    float tail = 0;
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        for (int u = 0; u < 2; u++) {
            const __m256 v = _mm256_sub_ps(_mm256_loadu_ps(x + i + LANES * u), m);
            sum[u] = _mm256_fmadd_ps(v, v, sum[u]);
        }
    }
    for (; i < n; i++) tail += (x[i] - mean) * (x[i] - mean);
    return tail + sum_of_lanes(_mm256_add_ps(sum[0], sum[1]));
}

static void apply_norm(const float *x, const float *w, const float *bias, int64_t n, float mean, float by,
                       float *y)
{
    const __m256 m = _mm256_set1_ps(mean), s = _mm256_set1_ps(by);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m256 v = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), m), s);
        const __m256 plus = bias ? _mm256_loadu_ps(bias + i) : _mm256_setzero_ps();
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(v, _mm256_loadu_ps(w + i), plus));
    }
    for (; i < n; i++) y[i] = (x[i] - mean) * by * w[i] + (bias ? bias[i] : 0);
}

static void norm_rms_avx2(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y)
{
    apply_norm(x, w, bias, n, 0, 1 / sqrtf(sum_squares(x, n, 0) / (float)n + eps), y);
}

static void norm_layer_avx2(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y)
{
    __m256 sum = _mm256_setzero_ps();
    float total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum = _mm256_add_ps(sum, _mm256_loadu_ps(x + i));
    for (; i < n; i++) total += x[i];
    const float mean = (total + sum_of_lanes(sum)) / (float)n;
    apply_norm(x, w, bias, n, mean, 1 / sqrtf(sum_squares(x, n, mean) / (float)n + eps), y);
}

static float max_avx2(const float *x, int64_t n)
{
    __m256 m = _mm256_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) m = _mm256_max_ps(m, _mm256_loadu_ps(x + i));
    float most = max_of_lanes(m);
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static float exp_sum_avx2(float *x, int64_t n, float max)
{
    __m256 sum = _mm256_setzero_ps();
    const __m256 m = _mm256_set1_ps(max);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m256 e = exp_avx2(_mm256_sub_ps(_mm256_loadu_ps(x + i), m));
        sum = _mm256_add_ps(sum, e);
        _mm256_storeu_ps(x + i, e);
    }
    return sum_of_lanes(sum) + VECTORS_REF.exp_sum(x + i, n - i, max);
}

/* Lane i of the result is the sum of all lanes of v[i]. */
ALWAYS_INLINE __m256 sums_of_8(__m256 v[8])
{
    const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

static void dots_avx2(const float *rows, int64_t stride, int n, int64_t cols, const float *x, float *y)
{
    const int64_t whole = cols & ~(int64_t)(LANES - 1);
    for (int r = 0; r < n; r += LANES) {
        const float *row[LANES];
        __m256 sum[LANES];
        float out[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < LANES; i++)
            row[i] = rows + MIN(r + i, n - 1) * stride, sum[i] = _mm256_setzero_ps();
        for (int64_t k = 0; k < whole; k += LANES) {
            const __m256 v = _mm256_loadu_ps(x + k);
#pragma GCC unroll 8
            for (int i = 0; i < LANES; i++) sum[i] = _mm256_fmadd_ps(_mm256_loadu_ps(row[i] + k), v, sum[i]);
        }
        _mm256_storeu_ps(out, sums_of_8(sum));
        for (int i = 0; i < MIN(LANES, n - r); i++) {
            for (int64_t k = whole; k < cols; k++) out[i] += row[i][k] * x[k];
            y[r + i] = out[i];
        }
    }
}

/* See softcap_avx512. */
ALWAYS_INLINE __m256 tanh_avx2(__m256 v)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1);
    const __m256 a = _mm256_andnot_ps(sign, v), z = _mm256_mul_ps(v, v), e = exp_avx2(_mm256_add_ps(a, a));
    const __m256 far = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2), _mm256_add_ps(e, one)));
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(-5.70498872745e-3f), z, _mm256_set1_ps(2.06390887954e-2f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-5.37397155531e-2f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.33314422036e-1f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-3.33332819422e-1f));
    const __m256 near = _mm256_fmadd_ps(_mm256_mul_ps(p, z), a, a);
    const __m256 t = _mm256_blendv_ps(far, near, _mm256_cmp_ps(a, _mm256_set1_ps(0.625f), _CMP_LT_OQ));
    return _mm256_or_ps(t, _mm256_and_ps(sign, v));
}

static void softcap_avx2(float *x, int64_t n, float cap)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m256 u = _mm256_loadu_ps(x + i), v = _mm256_mul_ps(u, _mm256_set1_ps(1 / cap));
        const __m256 poison = _mm256_sub_ps(u, u); /* 0, or NaN where u is not finite */
        _mm256_storeu_ps(x + i, _mm256_fmadd_ps(_mm256_set1_ps(cap), tanh_avx2(v), poison));
    }
    VECTORS_REF.softcap(x + i, n - i, cap);
}

/* See quarter_turns of vectors_avx512.c; 4 angles. */
ALWAYS_INLINE __m128 quarter_turns(__m128 x, __m128i *turns)
{
    const __m256d v = _mm256_cvtps_pd(x);
    const __m256d k = _mm256_round_pd(_mm256_mul_pd(v, _mm256_set1_pd(0.63661977236758134308)),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256d r = _mm256_fnmadd_pd(k, _mm256_set1_pd(1.57079632679489655800), v);
    r = _mm256_fnmadd_pd(k, _mm256_set1_pd(6.12323399573676603587e-17), r);
    *turns = _mm256_cvtpd_epi32(k);
    return _mm256_cvtpd_ps(r);
}

static void sincos_avx2(const float *x, int64_t n, float by, float *sine, float *cosine)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m128i low, high;
        const __m128 r0 = quarter_turns(_mm_loadu_ps(x + i), &low);
        const __m128 r1 = quarter_turns(_mm_loadu_ps(x + i + 4), &high);
        const __m256 r = _mm256_set_m128(r1, r0), z = _mm256_mul_ps(r, r), scale = _mm256_set1_ps(by);
        const __m256i turns = _mm256_set_m128i(high, low), one = _mm256_set1_epi32(1),
                      two = _mm256_set1_epi32(2);
        __m256 s = _mm256_fmadd_ps(_mm256_set1_ps(-1.9515295891e-4f), z, _mm256_set1_ps(8.3321608736e-3f));
        s = _mm256_fmadd_ps(s, z, _mm256_set1_ps(-1.6666654611e-1f));
        s = _mm256_fmadd_ps(_mm256_mul_ps(s, z), r, r);
        __m256 c = _mm256_fmadd_ps(_mm256_set1_ps(2.443315711809948e-5f), z,
                                   _mm256_set1_ps(-1.388731625493765e-3f));
        c = _mm256_fmadd_ps(c, z, _mm256_set1_ps(4.166664568298827e-2f));
        c = _mm256_fmadd_ps(c, z, _mm256_set1_ps(-0.5f));
        c = _mm256_fmadd_ps(c, z, _mm256_set1_ps(1));
        const __m256 odd = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(turns, one), one));
        const __m256i sign_s = _mm256_slli_epi32(_mm256_and_si256(turns, two), 30);
        const __m256i sign_c = _mm256_slli_epi32(_mm256_and_si256(_mm256_add_epi32(turns, one), two), 30);
        const __m256 sn = _mm256_xor_ps(_mm256_blendv_ps(s, c, odd), _mm256_castsi256_ps(sign_s));
        const __m256 cs = _mm256_xor_ps(_mm256_blendv_ps(c, s, odd), _mm256_castsi256_ps(sign_c));
        _mm256_storeu_ps(sine + i, _mm256_mul_ps(sn, scale));
        _mm256_storeu_ps(cosine + i, _mm256_mul_ps(cs, scale));
    }
    VECTORS_REF.sincos(x + i, n - i, by, sine + i, cosine + i);
}

static void rotate_halves_avx2(float *x, int pairs, const float *sine, const float *cosine)
{
    int j = 0;
    for (; j + LANES <= pairs; j += LANES) {
        const __m256 s = _mm256_loadu_ps(sine + j), c = _mm256_loadu_ps(cosine + j);
        const __m256 u = _mm256_loadu_ps(x + j), v = _mm256_loadu_ps(x + pairs + j);
        _mm256_storeu_ps(x + j, _mm256_fmsub_ps(u, c, _mm256_mul_ps(v, s)));
        _mm256_storeu_ps(x + pairs + j, _mm256_fmadd_ps(u, s, _mm256_mul_ps(v, c)));
    }
    for (; j < pairs; j++) {
        const float u = x[j], v = x[j + pairs];
        x[j] = u * cosine[j] - v * sine[j];
        x[j + pairs] = u * sine[j] + v * cosine[j];
    }
}

static void rotate_pairs_avx2(float *x, int pairs, const float *sine, const float *cosine)
{
    int j = 0;
    for (; j + 4 <= pairs; j += 4) {
        const __m128 s4 = _mm_loadu_ps(sine + j), c4 = _mm_loadu_ps(cosine + j);
        const __m256 s = _mm256_set_m128(_mm_unpackhi_ps(s4, s4), _mm_unpacklo_ps(s4, s4));
        const __m256 c = _mm256_set_m128(_mm_unpackhi_ps(c4, c4), _mm_unpacklo_ps(c4, c4));
        const __m256 v = _mm256_loadu_ps(x + 2 * j), turned = _mm256_mul_ps(_mm256_permute_ps(v, 0xb1), s);
        _mm256_storeu_ps(x + 2 * j, _mm256_fmaddsub_ps(v, c, turned));
    }
    VECTORS_REF.rotate[0](x + 2 * j, pairs - j, sine + j, cosine + j);
}

static void scale_avx2(float *x, int64_t n, float by)
{
    const __m256 s = _mm256_set1_ps(by);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) _mm256_storeu_ps(x + i, _mm256_mul_ps(s, _mm256_loadu_ps(x + i)));
    for (; i < n; i++) x[i] *= by;
}

/* Sums and differences of lanes whose numbers differ in one bit; `swapped`: v with these lanes exchanged,
 * `signs`: -0 in the lanes of the differences. */
ALWAYS_INLINE __m256 butterfly(__m256 v, __m256 swapped, __m256 signs)
{
    return _mm256_add_ps(swapped, _mm256_xor_ps(v, signs));
}

static void hadamard_avx2(float *x, int block)
{
    const float minus = -0.0f;
    const __m256 one = _mm256_setr_ps(0, minus, 0, minus, 0, minus, 0, minus),
                 two = _mm256_setr_ps(0, 0, minus, minus, 0, 0, minus, minus),
                 four = _mm256_setr_ps(0, 0, 0, 0, minus, minus, minus, minus),
                 scale = _mm256_set1_ps(1 / sqrtf((float)block));
    if (block < LANES) {
        VECTORS_REF.hadamard(x, block);
        return;
    }
    for (int i = 0; i < block; i += LANES) {
        __m256 v = _mm256_loadu_ps(x + i);
        v = butterfly(v, _mm256_permute_ps(v, 0xb1), one);
        v = butterfly(v, _mm256_permute_ps(v, 0x4e), two);
        v = butterfly(v, _mm256_permute2f128_ps(v, v, 1), four);
        _mm256_storeu_ps(x + i, block == LANES ? _mm256_mul_ps(v, scale) : v);
    }
    for (int half = LANES; half < block; half *= 2) {
        const __m256 by = 2 * half == block ? scale : _mm256_set1_ps(1);
        for (int i = 0; i < block; i += LANES) {
            if (i & half) continue;
            const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + half);
            _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_add_ps(a, b), by));
            _mm256_storeu_ps(x + i + half, _mm256_mul_ps(_mm256_sub_ps(a, b), by));
        }
    }
}

typedef __m256 curve_fn(__m256 g);

ALWAYS_INLINE void activate(curve_fn *curve, enum activation act, const float *gate, const float *up,
                            int64_t n, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = curve(_mm256_loadu_ps(gate + i));
        if (up) v = _mm256_mul_ps(v, _mm256_loadu_ps(up + i));
        _mm256_storeu_ps(y + i, v);
    }
    VECTORS_REF.activate[act](gate + i, up ? up + i : NULL, n - i, y + i);
}

/* g / (1 + e^-u) */
ALWAYS_INLINE __m256 times_sigmoid(__m256 g, __m256 u)
{
    const __m256 one = _mm256_set1_ps(1);
    return _mm256_div_ps(g, _mm256_add_ps(one, exp_avx2(_mm256_sub_ps(_mm256_setzero_ps(), u))));
}

ALWAYS_INLINE __m256 silu(__m256 g)
{
    return times_sigmoid(g, g);
}

/* 0.5 (1 + tanh u) = 1 / (1 + e^-2u) */
ALWAYS_INLINE __m256 gelu_tanh(__m256 g)
{
    const __m256 cubic = _mm256_fmadd_ps(_mm256_mul_ps(g, g), _mm256_set1_ps(0.044715f), _mm256_set1_ps(1));
    return times_sigmoid(g, _mm256_mul_ps(_mm256_mul_ps(g, cubic), _mm256_set1_ps(1.5957691216057308f)));
}

/* See gelu_erf of vectors_avx512.c. */
ALWAYS_INLINE __m256 gelu_erf(__m256 g)
{
    static const float P[] = { 0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                               -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f };
    const __m256 a = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), g), one = _mm256_set1_ps(1);
    const __m256 z = _mm256_mul_ps(a, _mm256_set1_ps(0.70710678118f));
    const __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(z, _mm256_set1_ps(0.5f), one));
    __m256 p = _mm256_set1_ps(P[0]);
#pragma GCC unroll 9
    for (int i = 1; i < 10; i++) p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(P[i]));
    const __m256 c = _mm256_mul_ps(t, exp_avx2(_mm256_fnmadd_ps(z, z, p)));
    const __m256 below = _mm256_cmp_ps(g, _mm256_setzero_ps(), _CMP_LT_OQ);
    const __m256 both = _mm256_blendv_ps(_mm256_sub_ps(_mm256_set1_ps(2), c), c, below);
    return _mm256_mul_ps(_mm256_mul_ps(g, _mm256_set1_ps(0.5f)), both);
}

static void gelu_erf_avx2(const float *gate, const float *up, int64_t n, float *y)
{
    activate(gelu_erf, ACT_GELU_ERF, gate, up, n, y);
}

static void silu_avx2(const float *gate, const float *up, int64_t n, float *y)
{
    activate(silu, ACT_SILU, gate, up, n, y);
}

static void gelu_tanh_avx2(const float *gate, const float *up, int64_t n, float *y)
{
    activate(gelu_tanh, ACT_GELU_TANH, gate, up, n, y);
}

const struct vector_kernels VECTORS_AVX2 = {
    .transpose = transpose_avx2,
    .quantize_q8 = quantize_q8_avx2,
    .norm_rms = norm_rms_avx2,
    .norm_layer = norm_layer_avx2,
    .max = max_avx2,
    .exp_sum = exp_sum_avx2,
    .scale = scale_avx2,
    .dots = dots_avx2,
    .softcap = softcap_avx2,
    .sincos = sincos_avx2,
    .rotate = { rotate_pairs_avx2, rotate_halves_avx2 },
    .hadamard = hadamard_avx2,
    .activate = { [ACT_SILU] = silu_avx2, [ACT_GELU_TANH] = gelu_tanh_avx2, [ACT_GELU_ERF] = gelu_erf_avx2 },
};
