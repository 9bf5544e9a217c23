/* The blocks of 64 and 128 weights with AVX-512 VNNI and 8-bit activations. */
#include "kernels/isa/gemv/block_dot_avx512vnni.h"
#include "kernels/formats/blocks64/blocks64.h"
#include "kernels/formats/blocks64/codes.h"

/* The four scales of a round of 128 weights: one block of q1_0, or two blocks of q2_0. */
ALWAYS_INLINE __m128 q1_0_scales(const uint8_t *block)
{
    return _mm512_castps512_ps128(broadcast_f16(block));
}

ALWAYS_INLINE __m128 q2_0_scales(const uint8_t *block)
{
    const uint64_t first = load_u16(block) * 0x10001u, second = load_u16(block + Q2_0_BYTES) * 0x10001u;
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)(first | second << 32)));
}

static const struct block_kind512 Q1_0 = { .bytes = Q1_0_BYTES,
                                           .parts = Q1_0_BLOCK / 32,
                                           .bias = Q12_BIAS,
                                           .codes = q1_0_codes,
                                           .scales = q1_0_scales },
                                  Q2_0 = { .bytes = Q2_0_BYTES,
                                           .parts = Q2_0_BLOCK / 32,
                                           .bias = Q12_BIAS,
                                           .codes = q2_0_codes,
                                           .scales = q2_0_scales };

static void q1_0_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&Q1_0, d);
}

static void q2_0_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&Q2_0, d);
}

/* Dot products of n rows of 8-bit activations (n is a constant). A register holds a block, so four lanes of
 * products belong to each group of 16 weights. vpdpbusd needs unsigned codes: magnitudes are multiplied by
 * activations that got the sign of the code, so no bias has to be corrected by sums of activations. */
ALWAYS_INLINE void nvfp4_dot_unrolled(const struct dot *d, const int n)
{
    const __m512i magnitudes = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, 1, 2, 3, 4, 6, 8, 12));
    const __m512i quarter = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m512 sum[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += NVFP4_BLOCK, block += NVFP4_BYTES) {
            prefetch_ahead(block, NVFP4_BYTES);
            const __m512i nibbles = _mm512_inserti64x4(_mm512_castsi256_si512(nvfp4_nibbles(block, 0)),
                                                       nvfp4_nibbles(block, 1), 1);
            const __mmask64 negative = _mm512_test_epi8_mask(nibbles, _mm512_set1_epi8(8));
            const __m512i codes = _mm512_shuffle_epi8(magnitudes, nibbles);
            const __m512 scale = _mm512_permutexvar_ps(quarter,
                                                       _mm512_castps128_ps512(nvfp4_half_scales(block)));
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
                const float *dx = d->q.d + i * d->q.d_stride + k / Q8_BLOCK;
                const __m512 by = _mm512_insertf32x8(_mm512_set1_ps(dx[0]), _mm256_set1_ps(dx[1]), 1);
                const __m512i q = _mm512_loadu_si512(d->q.q + i * d->q.q_stride + k);
                const __m512i turned = _mm512_mask_sub_epi8(q, negative, _mm512_setzero_si512(), q);
                const __m512i dots = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, turned);
                sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(scale, by), sum[i]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(sum[i]);
    }
}

static void nvfp4_dot_q8(const struct dot *d)
{
    switch (d->n) {
    case 1: nvfp4_dot_unrolled(d, 1); break;
    case 2: nvfp4_dot_unrolled(d, 2); break;
    case 3: nvfp4_dot_unrolled(d, 3); break;
    case 4: nvfp4_dot_unrolled(d, 4); break;
    }
}

const struct format_row BLOCKS64_AVX512VNNI[BLOCKS64_COUNT] = {
    { FORMAT_Q1_0, { .dot_q8 = q1_0_dot_q8 } },
    { FORMAT_Q2_0, { .dot_q8 = q2_0_dot_q8 } },
    { FORMAT_NVFP4, { .dot_q8 = nvfp4_dot_q8 } },
};
