/* q4_0 with AVX-512 VNNI, 8-bit activations. Codes stay 0..15, the unsigned operand of
 * vpdpbusd; 8 * (sum of the activations) is subtracted once per block. Four blocks are processed together:
 * their 64 bytes of codes fill a register, whose low nibbles are multiplied by the first 16 activations of
 * each block and whose high nibbles by the others. */
#include "kernels/isa/avx512.h"
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"

enum { BLOCK = 32, GROUP = 4 };

ALWAYS_INLINE __m128i codes_of(const uint8_t *block)
{
    return _mm_loadu_si128((const __m128i *)(block + Q4_0_CODES));
}

/* The last one to three blocks of a row, one at a time. */
ALWAYS_INLINE float last_blocks_dot(const struct dot *d, const uint8_t *w, int i, int64_t b)
{
    float sum = 0;
    for (; b < d->cols / BLOCK; b++) {
        const uint8_t *block = w + b * Q4_0_BYTES;
        const __m128i bytes = codes_of(block), mask = _mm_set1_epi8(15);
        const __m256i codes = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_and_si128(bytes, mask)),
                                                      _mm_and_si128(_mm_srli_epi16(bytes, 4), mask), 1);
        const __m256i q = _mm256_loadu_si256((const __m256i *)(d->q.q + i * d->q.q_stride + b * BLOCK));
        const __m512i dots = _mm512_zextsi256_si512(_mm256_dpbusd_epi32(_mm256_setzero_si256(), codes, q));
        const int64_t at = i * d->q.d_stride + b;
        sum += half_to_float(load_u16(block)) *
               (d->q.d[at] * (float)_mm512_reduce_add_epi32(dots) - 8 * d->q.sum[at]);
    }
    return sum;
}

ALWAYS_INLINE void dot_unrolled(const struct dot *d, const int n)
{
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i firsts = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
    const __m512i seconds = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
    const __m512i mask = _mm512_set1_epi8(15);
    const int64_t groups = d->cols / BLOCK / GROUP;
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m512 sum[DOT_X];
        __m128 offset[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = _mm512_setzero_ps(), offset[i] = _mm_setzero_ps();
        for (int64_t g = 0; g < groups; g++) {
            const uint8_t *p = w + g * GROUP * Q4_0_BYTES;
            prefetch_ahead(p, GROUP * Q4_0_BYTES);
            __m512i bytes = _mm512_castsi128_si512(codes_of(p));
            bytes = _mm512_inserti32x4(bytes, codes_of(p + Q4_0_BYTES), 1);
            bytes = _mm512_inserti32x4(bytes, codes_of(p + 2 * Q4_0_BYTES), 2);
            bytes = _mm512_inserti32x4(bytes, codes_of(p + 3 * Q4_0_BYTES), 3);
            const __m512i low = _mm512_and_si512(bytes, mask);
            const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
            const __m128 scales = load_4_scales(p, Q4_0_BYTES);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
                const int8_t *q = d->q.q + i * d->q.q_stride + g * GROUP * BLOCK;
                const int64_t at = i * d->q.d_stride + g * GROUP;
                const __m512i a = _mm512_loadu_si512(q), b = _mm512_loadu_si512(q + 64);
                __m512i dots = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low,
                                                   _mm512_permutex2var_epi64(a, firsts, b));
                dots = _mm512_dpbusd_epi32(dots, high, _mm512_permutex2var_epi64(a, seconds, b));
                const __m512 both = _mm512_castps128_ps512(_mm_mul_ps(scales, _mm_loadu_ps(d->q.d + at)));
                sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_permutexvar_ps(spread, both),
                                         sum[i]);
                offset[i] = _mm_fmadd_ps(scales, _mm_loadu_ps(d->q.sum + at), offset[i]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m512 off = _mm512_zextps128_ps512(_mm_mul_ps(offset[i], _mm_set1_ps(8)));
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(_mm512_sub_ps(sum[i], off)) +
                                        last_blocks_dot(d, w, i, groups * GROUP);
        }
    }
}

void q4_0_dot_q8_avx512vnni(const struct dot *d)
{
    switch (d->n) {
    case 1: dot_unrolled(d, 1); break;
    case 2: dot_unrolled(d, 2); break;
    case 3: dot_unrolled(d, 3); break;
    case 4: dot_unrolled(d, 4); break;
    }
}
