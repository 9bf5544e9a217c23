/* kernels/formats/kquants/kquants_avx512vnni.h - blocks of 256 weights with AVX-512 VNNI and 8-bit
 * activations. Per 64 weights: one vpdpbusd of unsigned codes with the activations leaves sums of four in 16
 * lanes; lanes of a sub-block are neighbours, and a permuted vector of (weights' scale) x (activations'
 * scale) finishes them. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512VNNI_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512VNNI_H

#include "kernels/formats/kquants/kquants_avx512.h"

/* What a block of weights brings, whatever the activations are. With sub-blocks of 32, even lanes of `scale`
 * are scales and odd lanes what is multiplied by the activations' sums (minima, or the scale again where
 * codes are biased): one conversion and one product for both. With sub-blocks of 16, 16 lanes each, and `min`
 * is what meets the sums. */
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
    /* Without minima the unit belongs to both, as d does. */
    b.scale = _mm512_mul_ps(
        _mm512_mul_ps(_mm512_cvtph_ps(_mm256_set1_epi32((int)d)), _mm512_set1_ps(shape->unit)),
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(both)));
    return b;
}

/* For chunk c of 64 weights, where the scale is for each lane of sums. */
ALWAYS_INLINE __m512i lane_scales(const int sub, const int c)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return sub == 16
               ? _mm512_add_epi32(_mm512_srli_epi32(lane, 2), _mm512_set1_epi32(4 * c))
               : _mm512_add_epi32(_mm512_slli_epi32(_mm512_srli_epi32(lane, 3), 1), _mm512_set1_epi32(4 * c));
}

/* Lanes 2j and 2j + 1 from the j-th of eight floats at even and at odd. */
ALWAYS_INLINE __m512 interleaved(const float *even, const float *odd)
{
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(_mm512_castps256_ps512(_mm256_loadu_ps(even)), order,
                                  _mm512_castps256_ps512(_mm256_loadu_ps(odd)));
}

/* One block with one row of activations: sums of products in *sum, what is taken off at the end of the row in
 * *off (sub-blocks of 32: in its odd lanes). */
ALWAYS_INLINE void block_dot(const struct k_block *b, const struct k_shape *shape, const struct act_q8 *x,
                             int64_t q_at, int64_t d_at, __m512 *sum, __m512 *off)
{
    const bool by_16 = shape->sub == 16;
    const __m512 dx = interleaved(x->d + d_at, by_16 ? x->d + d_at : x->sum + d_at);
    const __m512 scale = _mm512_mul_ps(b->scale, dx);
    *off = by_16 ? _mm512_fmadd_ps(b->min, _mm512_loadu_ps(x->sum16 + 2 * d_at), *off)
                 : _mm512_add_ps(*off, scale);
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
    const __m512 off_by = _mm512_maskz_mov_ps(shape->sub == 16 ? 0xffff : ODD_LANES,
                                              _mm512_set1_ps(shape->has_min ? 1 : (float)shape->bias));
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m512 sum[DOT_X], off[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = off[i] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += shape->block_bytes) {
            prefetch_ahead(block, shape->block_bytes);
            const struct k_block b = block_of(block, shape, scales, codes);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                block_dot(&b, shape, &d->q, i * d->q.q_stride + k, i * d->q.d_stride + k / Q8_BLOCK, &sum[i],
                          &off[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(_mm512_fnmadd_ps(off[i], off_by, sum[i]));
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
