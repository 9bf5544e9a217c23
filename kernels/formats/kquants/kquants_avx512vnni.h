/* kernels/formats/kquants/kquants_avx512vnni.h - dot products of blocks of 256 weights with 8-bit
 * activations, with AVX-512 VNNI. For each chunk of 64 weights, one vpdpbusd multiplies unsigned codes with
 * activations and leaves sums of four products in 16 lanes. The lanes of a sub-block are neighbours. So a
 * vector of (scale of the weights) * (scale of the activations), permuted to the order of the lanes,
 * completes the chunk. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512VNNI_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512VNNI_H

#include "kernels/formats/kquants/kquants_avx512.h"

/* The part of the work on a block that all rows of activations share. With sub-blocks of 16, `scale` has 16
 * scales, and `min` has 16 factors of the sums of activations: minima, or the scales again in formats with a
 * bias. With sub-blocks of 32, even lanes of `scale` hold the 8 scales and odd lanes those 8 factors, so that
 * one conversion and one product serve both; `min` is unused. */
struct k_block {
    __m512i code[K_CHUNKS];
    __m512 scale, min;
};

ALWAYS_INLINE struct k_block block_of(const uint8_t *block, const struct k_shape *shape, k_scales_fn *scales,
                                      k_codes512_fn *codes)
{
    struct k_block b;
    codes(block, b.code);
    if (shape->sub == 16) {
        const struct k_floats512 f = k_floats(block, shape, scales);
        b.scale = f.scale, b.min = shape->has_min ? f.min : f.scale;
        return b;
    }
    struct k_scales s;
    scales(block, &s);
    const uint32_t d = s.d | (uint32_t)(shape->has_min ? s.dmin : s.d) << 16;
    const __m128i both = _mm_unpacklo_epi8(
        _mm_cvtsi64_si128((long long)s.scale[0]),
        _mm_cvtsi64_si128((long long)(shape->has_min ? s.min[0] : s.scale[0])));
    /* In formats without minima the odd lanes are scales, too, so the unit applies to all lanes. */
    b.scale = _mm512_mul_ps(
        _mm512_mul_ps(_mm512_cvtph_ps(_mm256_set1_epi32((int)d)), _mm512_set1_ps(shape->unit)),
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(both)));
    return b;
}

/* For each lane of sums in chunk c: the lane of `scale` that holds its scale. */
ALWAYS_INLINE __m512i lane_scales(const int sub, const int c)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return sub == 16
               ? _mm512_add_epi32(_mm512_srli_epi32(lane, 2), _mm512_set1_epi32(4 * c))
               : _mm512_add_epi32(_mm512_slli_epi32(_mm512_srli_epi32(lane, 3), 1), _mm512_set1_epi32(4 * c));
}

/* Interleave eight floats each: lane 2j is even[j], lane 2j + 1 is odd[j]. */
ALWAYS_INLINE __m512 interleaved(const float *even, const float *odd)
{
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(_mm512_castps256_ps512(_mm256_loadu_ps(even)), order,
                                  _mm512_castps256_ps512(_mm256_loadu_ps(odd)));
}

/* Multiply one block with one row of activations. *sum accumulates products. *offset accumulates the factors
 * times the sums of activations (with sub-blocks of 32 in odd lanes; even lanes are ignored). At the end of
 * the row *offset, times the bias in formats without minima, is subtracted from *sum. */
ALWAYS_INLINE void block_dot(const struct k_block *b, const struct k_shape *shape, const struct act_q8 *x,
                             int64_t q_at, int64_t d_at, __m512 *sum, __m512 *offset)
{
    const bool by_16 = shape->sub == 16;
    const __m512 dx = interleaved(x->d + d_at, by_16 ? x->d + d_at : x->sum + d_at);
    const __m512 scale = _mm512_mul_ps(b->scale, dx);
    *offset = by_16 ? _mm512_fmadd_ps(b->min, _mm512_loadu_ps(x->sum16 + 2 * d_at), *offset)
                    : _mm512_add_ps(*offset, scale);
#pragma GCC unroll 4
    for (int c = 0; c < K_CHUNKS; c++) {
        const __m512i zero = _mm512_setzero_si512(), at = lane_scales(shape->sub, c);
        const __m512i q = _mm512_loadu_si512(x->q + q_at + c * K_CHUNK);
        const __m512i dots = _mm512_dpbusd_epi32(zero, b->code[c], q);
        *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_permutexvar_ps(at, scale), *sum);
    }
}

ALWAYS_INLINE void dot_unrolled(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                                k_codes512_fn *codes, const int n)
{
    enum { ODD_LANES = 0xaaaa };
    const __m512 offset_by = _mm512_maskz_mov_ps(shape->sub == 16 ? 0xffff : ODD_LANES,
                                                 _mm512_set1_ps(shape->has_min ? 1 : (float)shape->bias));
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m512 sum[DOT_X], offset[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = offset[i] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += shape->block_bytes) {
            prefetch_ahead(block, shape->block_bytes);
            const struct k_block b = block_of(block, shape, scales, codes);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                block_dot(&b, shape, &d->q, i * d->q.q_stride + k, i * d->q.d_stride + k / Q8_BLOCK, &sum[i],
                          &offset[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(_mm512_fnmadd_ps(offset[i], offset_by, sum[i]));
    }
}

ALWAYS_INLINE void dot_q8(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                          k_codes512_fn *codes)
{
    switch (d->n) {
    case 1: dot_unrolled(d, shape, scales, codes, 1); break;
    case 2: dot_unrolled(d, shape, scales, codes, 2); break;
    case 3: dot_unrolled(d, shape, scales, codes, 3); break;
    case 4: dot_unrolled(d, shape, scales, codes, 4); break;
    }
}

#endif
