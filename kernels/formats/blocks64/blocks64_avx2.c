/* The blocks of 64 and 128 weights with AVX2, expanded 32 weights at a time. */
#include "kernels/isa/gemv/block_dot_avx2.h"
#include "kernels/formats/blocks64/blocks64.h"
#include "kernels/formats/blocks64/codes.h"

static const struct block_kind Q1_0 = { .bytes = Q1_0_BYTES,
                                        .parts = Q1_0_BLOCK / 32,
                                        .bias = Q12_BIAS,
                                        .codes = q1_0_codes,
                                        .products = products_unsigned,
                                        .scale = leading_scale },
                               Q2_0 = { .bytes = Q2_0_BYTES,
                                        .parts = Q2_0_BLOCK / 32,
                                        .bias = Q12_BIAS,
                                        .codes = q2_0_codes,
                                        .products = products_unsigned,
                                        .scale = leading_scale };

BLOCK_KIND_FUNCTIONS(q1_0, Q1_0)
BLOCK_KIND_UNPACK_Q8(q1_0, Q1_0)
BLOCK_KIND_FUNCTIONS(q2_0, Q2_0)
BLOCK_KIND_UNPACK_Q8(q2_0, Q2_0)

/* ---------------------------------------------------------------- nvfp4 */

enum { PARTS = NVFP4_BLOCK / 32 };

/* Weights 8 u .. 8 u + 7 (u < 4) of a part of 32 as floats. values: the part's codes after look-up. s: the
 * scales of its two groups of 16. */
ALWAYS_INLINE __m256 nvfp4_floats(__m256i values, const float *s, const int u)
{
    __m128i bytes = u & 2 ? _mm256_extracti128_si256(values, 1) : _mm256_castsi256_si128(values);
    if (u & 1) bytes = _mm_srli_si128(bytes, 8);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_set1_ps(s[u / 2]));
}

static void nvfp4_decode(const void *blocks, float *x, int64_t n)
{
    const uint8_t *block = blocks;
    for (int64_t i = 0; i < n; i += NVFP4_BLOCK, block += NVFP4_BYTES) {
        float s[NVFP4_GROUPS];
        _mm_storeu_ps(s, nvfp4_half_scales(block));
#pragma GCC unroll 2
        for (int p = 0; p < PARTS; p++) {
            const __m256i values = nvfp4_signed(block, p);
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++, x += 8) _mm256_storeu_ps(x, nvfp4_floats(values, s + 2 * p, u));
        }
    }
}

ALWAYS_INLINE void nvfp4_dot_f32_unrolled(const struct dot *d, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m256 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += NVFP4_BLOCK, block += NVFP4_BYTES) {
            float s[NVFP4_GROUPS];
            prefetch_ahead(block, NVFP4_BYTES);
            _mm_storeu_ps(s, nvfp4_half_scales(block));
#pragma GCC unroll 2
            for (int p = 0; p < PARTS; p++) {
                const __m256i values = nvfp4_signed(block, p);
#pragma GCC unroll 4
                for (int u = 0; u < 4; u++) {
                    const __m256 v = nvfp4_floats(values, s + 2 * p, u);
#pragma GCC unroll 4
                    for (int i = 0; i < n; i++)
                        sum[i][u & 1] = _mm256_fmadd_ps(
                            v, _mm256_loadu_ps(d->x + i * d->x_stride + k + 32 * p + 8 * u), sum[i][u & 1]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = sum_of_lanes(_mm256_add_ps(sum[i][0], sum[i][1]));
    }
}

/* Dot products of n rows of 8-bit activations (n is a constant). Each half of a register of products belongs
 * to one group of 16 weights, so the scale vector has that group's scale in the same half. */
ALWAYS_INLINE void nvfp4_dot_q8_unrolled(const struct dot *d, const int n)
{
    const __m256i halves = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1), two = _mm256_set1_epi32(2);
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m256 sum[DOT_X][PARTS];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += NVFP4_BLOCK, block += NVFP4_BYTES) {
            prefetch_ahead(block, NVFP4_BYTES);
            const __m256 scales = _mm256_castps128_ps256(nvfp4_half_scales(block));
            __m256i lanes = halves;
#pragma GCC unroll 2
            for (int p = 0; p < PARTS; p++, lanes = _mm256_add_epi32(lanes, two)) {
                const __m256i values = nvfp4_signed(block, p);
                const __m256 scale = _mm256_permutevar8x32_ps(scales, lanes);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++) {
                    const int8_t *q = d->q.q + i * d->q.q_stride + k + 32 * p;
                    const __m256 dx = _mm256_broadcast_ss(d->q.d + i * d->q.d_stride + k / Q8_BLOCK + p);
                    const __m256i dots = products_signed(values, _mm256_loadu_si256((const __m256i *)q));
                    sum[i][p] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), _mm256_mul_ps(scale, dx),
                                                sum[i][p]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = sum_of_lanes(_mm256_add_ps(sum[i][0], sum[i][1]));
    }
}

#define BY_ROWS(name)                                                                                        \
    static void name(const struct dot *d)                                                                    \
    {                                                                                                        \
        switch (d->n) {                                                                                      \
        case 1: name##_unrolled(d, 1); break;                                                                \
        case 2: name##_unrolled(d, 2); break;                                                                \
        case 3: name##_unrolled(d, 3); break;                                                                \
        case 4: name##_unrolled(d, 4); break;                                                                \
        }                                                                                                    \
    }
BY_ROWS(nvfp4_dot_f32)
BY_ROWS(nvfp4_dot_q8)

static void nvfp4_unpack_q8(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, struct q8_group *out)
{
    const struct q8_kind kind = { .sub = NVFP4_GROUP, .bias = NVFP4_BIAS };
    q8_groups_begin(out, rows, k, &kind);
    for (int r = 0; r < rows; r++) {
        const uint8_t *block = w + r * row_bytes;
        struct q8_group *to = out;
        for (int64_t i = 0; i < k; i += NVFP4_BLOCK, block += NVFP4_BYTES) {
            float s[NVFP4_GROUPS];
            prefetch_next_rows(block, row_bytes, NVFP4_BYTES);
            _mm_storeu_ps(s, nvfp4_half_scales(block));
            for (int p = 0; p < PARTS; p++, to++) {
                const __m256i codes = _mm256_add_epi8(nvfp4_signed(block, p), _mm256_set1_epi8(NVFP4_BIAS));
                _mm256_storeu_si256((__m256i *)to->code[r], codes);
                to->scale[0][r] = s[2 * p], to->scale[1][r] = s[2 * p + 1];
            }
        }
    }
}

const struct format_row BLOCKS64_AVX2[BLOCKS64_COUNT] = {
    { FORMAT_Q1_0,
      { .decode = q1_0_decode,
        .dot_f32 = q1_0_dot_f32,
        .dot_q8 = q1_0_dot_q8,
        .unpack_q8 = q1_0_unpack_q8 } },
    { FORMAT_Q2_0,
      { .decode = q2_0_decode,
        .dot_f32 = q2_0_dot_f32,
        .dot_q8 = q2_0_dot_q8,
        .unpack_q8 = q2_0_unpack_q8 } },
    { FORMAT_NVFP4,
      { .decode = nvfp4_decode,
        .dot_f32 = nvfp4_dot_f32,
        .dot_q8 = nvfp4_dot_q8,
        .unpack_q8 = nvfp4_unpack_q8 } },
};
