/* Vector operations with AVX2: whole vectors here, tails through the reference. */
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

static void quantize_q8_avx2(const float *x, int64_t n, int8_t *q, float *d, float *sum)
{
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (int64_t b = 0; b < n / Q8_BLOCK; b++, x += Q8_BLOCK, q += Q8_BLOCK) {
        __m256 v[4], most = _mm256_setzero_ps();
        __m256i c[4], total = _mm256_setzero_si256();
        for (int u = 0; u < 4; u++) {
            v[u] = _mm256_loadu_ps(x + LANES * u);
            most = _mm256_max_ps(most, _mm256_and_ps(v[u], no_sign));
        }
        const float amax = max_of_lanes(most);
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
        d[b] = amax / 127;
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

static void scale_avx2(float *x, int64_t n, float by)
{
    const __m256 s = _mm256_set1_ps(by);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) _mm256_storeu_ps(x + i, _mm256_mul_ps(s, _mm256_loadu_ps(x + i)));
    for (; i < n; i++) x[i] *= by;
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
    .activate = { [ACT_SILU] = silu_avx2, [ACT_GELU_TANH] = gelu_tanh_avx2 },
};
