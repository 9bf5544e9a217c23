/* kernels/formats/blocks64/values_avx512.h - sixteen weights as floats with AVX-512: the values that a code
 * can have are multiplied by the scale, then looked up by code. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS64_VALUES_AVX512_H
#define QDYNO_KERNELS_FORMATS_BLOCKS64_VALUES_AVX512_H

#include "kernels/formats/blocks64/layout.h"
#include "kernels/isa/avx512.h"

/* Weights 16 g .. 16 g + 15 of a block. */
typedef __m512 floats16_fn(const uint8_t *block, int g);

ALWAYS_INLINE __m512 q1_0_floats(const uint8_t *block, int g)
{
    const __m512 d = broadcast_f16(block), minus = _mm512_mul_ps(_mm512_set1_ps(-1), d);
    return _mm512_mask_mov_ps(minus, load_u16(block + Q12_CODES + 2 * g), d);
}

/* The look-up uses four bits of an index, but a code has two. So the table repeats its four values, and the
 * upper bits need no mask. */
ALWAYS_INLINE __m512 q2_0_floats(const uint8_t *block, int g)
{
    const __m512i shift = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512 values = _mm512_broadcast_f32x4(_mm_setr_ps(-1, 0, 1, 2));
    int32_t codes;
    memcpy(&codes, block + Q12_CODES + 4 * g, sizeof codes);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi32(codes), shift),
                                 _mm512_mul_ps(values, broadcast_f16(block)));
}

ALWAYS_INLINE __m512 nvfp4_floats(const uint8_t *block, int g)
{
    const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_setr_epi8(NVFP4_VALUES)));
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(4), 1);
    int64_t bytes;
    memcpy(&bytes, block + NVFP4_CODES + 8 * g, sizeof bytes);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_set1_epi64x(bytes)), shift),
                                 _mm512_mul_ps(values, _mm512_set1_ps(nvfp4_half_scale(block[g]))));
}

#endif
