/* Ternary weights with AVX-512 VNNI: 256 weights under one scale. tq1_0 takes two rounds of the shared dot
 * product. tq2_0 has a loop of its own: a load of 32 bytes yields the codes of four parts, and the scale of a
 * block is multiplied with those of its eight parts of activations at once. */
#include "kernels/isa/gemv/block_dot_avx512vnni.h"
#include "kernels/formats/ternary/codes.h"
#include "kernels/formats/ternary/ternary.h"

_Static_assert(TQ_BIAS == 1, "tq2_0 subtracts the sums of activations times the scale");

ALWAYS_INLINE __m128 tq1_0_scales(const uint8_t *block)
{
    return _mm512_castps512_ps128(broadcast_f16(block + TQ1_0_D));
}

static const struct block_kind512 TQ1_0 = {
    .bytes = TQ1_0_BYTES, .parts = TQ_PARTS, .bias = TQ_BIAS, .codes = tq1_0_codes, .scales = tq1_0_scales
};

static void tq1_0_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&TQ1_0, d);
}

enum { PAIRS = TQ_PARTS / 2 };

/* The codes of parts 2 * pair and 2 * pair + 1: the same bytes, shifted by two bits more. */
ALWAYS_INLINE __m512i tq2_0_codes64(const uint8_t *block, const int pair)
{
    const __m512i twice = _mm512_broadcast_i64x4(
        _mm256_loadu_si256((const __m256i *)(block + pair / 2 * 32)));
    const __m512i shift = _mm512_add_epi64(_mm512_set1_epi64(pair % 2 * 4),
                                           _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2));
    return _mm512_and_si512(_mm512_srlv_epi64(twice, shift), _mm512_set1_epi8(3));
}

ALWAYS_INLINE void tq2_0_dot_unrolled(const struct dot *d, const int n)
{
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m512 sum[DOT_X][2];
        __m256 offset[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            sum[i][0] = sum[i][1] = _mm512_setzero_ps();
            offset[i] = _mm256_setzero_ps();
        }
        for (int64_t k = 0; k < d->cols; k += TQ_BLOCK, w += TQ2_0_BYTES) {
            const __m256 scale = _mm512_castps512_ps256(broadcast_f16(w + TQ2_0_D));
            __m512i codes[PAIRS];
            prefetch_ahead(w, TQ2_0_BYTES);
#pragma GCC unroll 4
            for (int p = 0; p < PAIRS; p++) codes[p] = tq2_0_codes64(w, p);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
                const int8_t *q = d->q.q + i * d->q.q_stride + k;
                const int64_t at = i * d->q.d_stride + k / Q8_BLOCK;
                const __m512 by = _mm512_castps256_ps512(_mm256_mul_ps(scale, _mm256_loadu_ps(d->q.d + at)));
                offset[i] = _mm256_fmadd_ps(scale, _mm256_loadu_ps(d->q.sum + at), offset[i]);
#pragma GCC unroll 4
                for (int p = 0; p < PAIRS; p++) {
                    const __m512i dots = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes[p],
                                                             _mm512_loadu_si512(q + 64 * p));
                    const __m512i parts = _mm512_add_epi32(spread, _mm512_set1_epi32(2 * p));
                    sum[i][p & 1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots),
                                                    _mm512_permutexvar_ps(parts, by), sum[i][p & 1]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(
                _mm512_sub_ps(_mm512_add_ps(sum[i][0], sum[i][1]), _mm512_zextps256_ps512(offset[i])));
    }
}

static void tq2_0_dot_q8(const struct dot *d)
{
    switch (d->n) {
    case 1: tq2_0_dot_unrolled(d, 1); break;
    case 2: tq2_0_dot_unrolled(d, 2); break;
    case 3: tq2_0_dot_unrolled(d, 3); break;
    case 4: tq2_0_dot_unrolled(d, 4); break;
    }
}

const struct format_row TERNARY_AVX512VNNI[TERNARY_COUNT] = {
    { FORMAT_TQ1_0, { .dot_q8 = tq1_0_dot_q8 } },
    { FORMAT_TQ2_0, { .dot_q8 = tq2_0_dot_q8 } },
};
