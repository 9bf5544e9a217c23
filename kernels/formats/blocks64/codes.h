/* kernels/formats/blocks64/codes.h - expand codes to bytes with AVX2 instructions; used by kernels for AVX2
 * and for AVX-512. Include isa/avx2.h or isa/avx512.h first. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS64_CODES_H
#define QDYNO_KERNELS_FORMATS_BLOCKS64_CODES_H

#include <immintrin.h>

#include "kernels/half.h"
#include "kernels/formats/blocks64/layout.h"

#ifndef ALWAYS_INLINE
#error "include isa/avx2.h or isa/avx512.h first"
#endif

/* Byte i is 2 if bit i of the part's 32 bits is set, else 0. */
ALWAYS_INLINE __m256i q1_0_codes(const uint8_t *block, int part)
{
    const __m256i from = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i own = _mm256_set1_epi64x((long long)0x8040201008040201);
    int32_t bits;
    memcpy(&bits, block + Q12_CODES + part * 4, sizeof bits);
    const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), from), own);
    return _mm256_and_si256(_mm256_cmpeq_epi8(spread, own), _mm256_set1_epi8(2));
}

/* Expand each byte to four: first move its two halves apart, then the two codes of each half. */
ALWAYS_INLINE __m256i q2_0_codes(const uint8_t *block, int part)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(block + Q12_CODES + part * 8));
    __m256i v = _mm256_cvtepu8_epi32(bytes);
    v = _mm256_and_si256(_mm256_or_si256(v, _mm256_slli_epi32(v, 12)), _mm256_set1_epi32(0x000f000f));
    return _mm256_and_si256(_mm256_or_si256(v, _mm256_slli_epi32(v, 6)), _mm256_set1_epi8(3));
}

/* Half of the four scales of a block; see nvfp4_half_scale. Shifted by 7, a scale byte has the bits of an f16
 * with 2^-8 of its value, because the exponent bias of f16 is 15. */
ALWAYS_INLINE __m128 nvfp4_half_scales(const uint8_t *block)
{
    int32_t four;
    memcpy(&four, block, sizeof four);
    const __m128i none = _mm_set1_epi16(0x7f);
    const __m128i code = _mm_and_si128(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(four)), none);
    const __m128i halves = _mm_slli_epi16(_mm_andnot_si128(_mm_cmpeq_epi16(code, none), code), 7);
    return _mm_mul_ps(_mm_cvtph_ps(halves), _mm_set1_ps(128)); /* 2^8 / 2 */
}

/* The codes of weights 32 part .. 32 part + 31 of a block, one per byte. */
ALWAYS_INLINE __m256i nvfp4_nibbles(const uint8_t *block, int part)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(block + NVFP4_CODES + 16 * part));
    const __m128i mask = _mm_set1_epi8(15), low = _mm_and_si128(bytes, mask),
                  high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi64(low, high)),
                                   _mm_unpackhi_epi64(low, high), 1);
}

ALWAYS_INLINE __m256i nvfp4_signed(const uint8_t *block, int part)
{
    const __m256i values = _mm256_broadcastsi128_si256(_mm_setr_epi8(NVFP4_VALUES));
    return _mm256_shuffle_epi8(values, nvfp4_nibbles(block, part));
}

#endif
