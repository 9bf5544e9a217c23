/* q8_0 with AVX-512 VNNI, 8-bit activations. vpdpbusd needs one unsigned operand: flipping the top bit adds
 * 128 to the weights, and 128 * (sum of the activations) is subtracted once per block. Four blocks are
 * processed together. */
#include "kernels/isa/avx512.h"
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"

enum { BLOCK = 32, GROUP = 4 };

ALWAYS_INLINE __m512i two_blocks(const uint8_t *w)
{
    const __m256i a = _mm256_loadu_si256((const __m256i *)(w + Q8_0_CODES));
    const __m256i b = _mm256_loadu_si256((const __m256i *)(w + Q8_0_BYTES + Q8_0_CODES));
    return _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1),
                            _mm512_set1_epi8((char)0x80));
}

/* The last one to three blocks of a row, one at a time. */
ALWAYS_INLINE float last_blocks_dot(const struct dot *d, const uint8_t *w, int i, int64_t b)
{
    float sum = 0;
    for (; b < d->cols / BLOCK; b++) {
        const uint8_t *block = w + b * Q8_0_BYTES;
        const __m256i codes = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(block + Q8_0_CODES)),
                                               _mm256_set1_epi8((char)0x80));
        const __m256i q = _mm256_loadu_si256((const __m256i *)(d->q.q + i * d->q.q_stride + b * BLOCK));
        const __m512i dots = _mm512_zextsi256_si512(_mm256_dpbusd_epi32(_mm256_setzero_si256(), codes, q));
        const int64_t at = i * d->q.d_stride + b;
        sum += half_to_float(load_u16(block)) *
               (d->q.d[at] * (float)_mm512_reduce_add_epi32(dots) - 128 * d->q.sum[at]);
    }
    return sum;
}

ALWAYS_INLINE void dot_unrolled(const struct dot *d, const int n)
{
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
    const int64_t groups = d->cols / BLOCK / GROUP;
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m512 sum[DOT_X];
        __m128 offset[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = _mm512_setzero_ps(), offset[i] = _mm_setzero_ps();
        for (int64_t g = 0; g < groups; g++) {
            const uint8_t *p = w + g * GROUP * Q8_0_BYTES;
            prefetch_ahead(p, GROUP * Q8_0_BYTES);
            const __m512i a = two_blocks(p), b = two_blocks(p + 2 * Q8_0_BYTES);
            const __m128 scales = load_4_scales(p, Q8_0_BYTES);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
                const int8_t *q = d->q.q + i * d->q.q_stride + g * GROUP * BLOCK;
                const int64_t at = i * d->q.d_stride + g * GROUP;
                const __m512 both = _mm512_castps128_ps512(_mm_mul_ps(scales, _mm_loadu_ps(d->q.d + at)));
                const __m512i zero = _mm512_setzero_si512();
                const __m512 x = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(zero, a, _mm512_loadu_si512(q)));
                const __m512 y = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(zero, b, _mm512_loadu_si512(q + 64)));
                sum[i] = _mm512_fmadd_ps(x, _mm512_permutexvar_ps(first, both), sum[i]);
                sum[i] = _mm512_fmadd_ps(y, _mm512_permutexvar_ps(second, both), sum[i]);
                offset[i] = _mm_fmadd_ps(scales, _mm_loadu_ps(d->q.sum + at), offset[i]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m512 off = _mm512_zextps128_ps512(_mm_mul_ps(offset[i], _mm_set1_ps(128)));
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(_mm512_sub_ps(sum[i], off)) +
                                        last_blocks_dot(d, w, i, groups * GROUP);
        }
    }
}

void q8_0_dot_q8_avx512vnni(const struct dot *d)
{
    switch (d->n) {
    case 1: dot_unrolled(d, 1); break;
    case 2: dot_unrolled(d, 2); break;
    case 3: dot_unrolled(d, 3); break;
    case 4: dot_unrolled(d, 4); break;
    }
}
