/* Codebooks with AVX-512 VNNI, 8-bit activations: a value is two bytes, each looked up by its code and made
 * unsigned for vpdpbusd; what that adds comes off once a unit by the sums of the activations. */
#include "kernels/codebook/codebook.h"
#include "kernels/codebook/layout.h"
#include "kernels/isa/avx512.h"

enum { HIGH_BIAS = 128, LOW_BIAS = 64, BIAS = 128 * HIGH_BIAS + LOW_BIAS };

static const int8_t NF4_BYTES[2][16] = { { NF4_HIGH }, { NF4_LOW } },
                    FP4_BYTES[2][16] = { { FP4_HIGH }, { FP4_LOW } };

ALWAYS_INLINE __m512i table_of(const int8_t bytes[16], const int bias)
{
    return _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)bytes)),
                           _mm512_set1_epi8((char)bias));
}

/* 64 codes in their order: each 16 bytes twice, its upper codes moved down the second time. */
ALWAYS_INLINE __m512i codes_of(const uint8_t *p)
{
    const __m512i bytes = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
    const __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), bytes);
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    return _mm512_and_si512(_mm512_srlv_epi64(twice, shift), _mm512_set1_epi8(15));
}

/* A lane's sum stays below 4 * 255 * 128 * 128 < 2^24: exact as f32. */
ALWAYS_INLINE void dot_n(const int8_t bytes[2][16], const int scale, const struct dot *d, const int nested,
                         const int n)
{
    const __m512i high = table_of(bytes[0], HIGH_BIAS), low = table_of(bytes[1], LOW_BIAS);
    const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m512 sum[DOT_X];
        float off[DOT_X] = { 0 };
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; w += block_bytes(nested)) {
            prefetch_ahead(w, block_bytes(nested));
#pragma GCC unroll 4
            for (int u = 0; u < block_units(nested); u++, k += UNIT) {
                const float largest = unit_largest(w, u, nested);
                const __m512i codes = codes_of(unit_codes(w, u, nested));
                const __m512i a = _mm512_shuffle_epi8(high, codes), b = _mm512_shuffle_epi8(low, codes);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++) {
                    const __m512i q = _mm512_loadu_si512(d->q.q + i * d->q.q_stride + k);
                    const int64_t at = i * d->q.d_stride + k / Q8_BLOCK;
                    const __m512i zero = _mm512_setzero_si512();
                    const __m512i upper = _mm512_slli_epi32(_mm512_dpbusd_epi32(zero, a, q), 7);
                    const __m512i dots = _mm512_dpbusd_epi32(upper, b, q);
                    const __m128 dx = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(d->q.d + at)));
                    const __m128 by = _mm_mul_ps(dx, _mm_set1_ps(largest));
                    sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots),
                                             _mm512_permutexvar_ps(halves, _mm512_castps128_ps512(by)),
                                             sum[i]);
                    off[i] += largest * (d->q.sum[at] + d->q.sum[at + 1]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = (_mm512_reduce_add_ps(sum[i]) - BIAS * off[i]) / (float)scale;
    }
}

#define FUNCTIONS(name, NAME, book, nested)                                                                  \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        switch (d->n) {                                                                                      \
        case 1: dot_n(book##_BYTES, book##_SCALE, d, nested, 1); break;                                      \
        case 2: dot_n(book##_BYTES, book##_SCALE, d, nested, 2); break;                                      \
        case 3: dot_n(book##_BYTES, book##_SCALE, d, nested, 3); break;                                      \
        case 4: dot_n(book##_BYTES, book##_SCALE, d, nested, 4); break;                                      \
        }                                                                                                    \
    }
CODEBOOK_FORMATS(FUNCTIONS)

#define ROW(name, NAME, book, nested) { FORMAT_##NAME, { .dot_q8 = name##_dot_q8 } },
const struct format_row CODEBOOK_AVX512VNNI[CODEBOOK_COUNT] = { CODEBOOK_FORMATS(ROW) };
