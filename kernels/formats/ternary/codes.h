/* kernels/formats/ternary/codes.h - expand 32 ternary codes (0, 1, 2) to bytes with AVX2 instructions; used
 * by kernels for AVX2 and for AVX-512. Include isa/avx2.h or isa/avx512.h first. */
#ifndef QDYNO_KERNELS_FORMATS_TERNARY_CODES_H
#define QDYNO_KERNELS_FORMATS_TERNARY_CODES_H

#include <immintrin.h>

#include "kernels/formats/ternary/layout.h"

#ifndef ALWAYS_INLINE
#error "include isa/avx2.h or isa/avx512.h first"
#endif

/* The leading trit of v = byte * power (mod 256): 0 if v < 256/3, 1 if v < 512/3, else 2. AVX2 has no product
 * of bytes, so 16-bit lanes are multiplied: the low byte of a product depends on the low bytes only. Odd
 * bytes are multiplied separately, with zeros below them. */
ALWAYS_INLINE __m256i trits(__m256i bytes, __m256i powers)
{
    const __m256i low = _mm256_set1_epi16(0xff);
    const __m256i even = _mm256_and_si256(_mm256_mullo_epi16(bytes, powers), low);
    const __m256i odd = _mm256_mullo_epi16(_mm256_andnot_si256(low, bytes), powers);
    const __m256i v = _mm256_or_si256(even, odd);
    const __m256i third = _mm256_set1_epi8(86), two_thirds = _mm256_set1_epi8((char)171);
    const __m256i reached = _mm256_add_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(v, third), v),
                                            _mm256_cmpeq_epi8(_mm256_max_epu8(v, two_thirds), v));
    return _mm256_sub_epi8(_mm256_setzero_si256(), reached);
}

ALWAYS_INLINE __m256i two_powers(short low, short high)
{
    return _mm256_inserti128_si256(_mm256_set1_epi16(low), _mm_set1_epi16(high), 1);
}

ALWAYS_INLINE __m256i tq1_0_codes(const uint8_t *block, int part)
{
    static const uint8_t POWER[5] = { 1, 3, 9, 27, 81 };
    if (part < 5) return trits(_mm256_loadu_si256((const __m256i *)block), _mm256_set1_epi16(POWER[part]));
    const __m128i second = _mm_loadu_si128((const __m128i *)(block + TQ1_0_SECOND));
    const __m256i twice = _mm256_broadcastsi128_si256(second);
    if (part == 5) return trits(twice, two_powers(1, 3));
    if (part == 6) return trits(twice, two_powers(9, 27));
    int32_t third;
    memcpy(&third, block + TQ1_0_THIRD, sizeof third);
    return trits(
        _mm256_inserti128_si256(twice, _mm_set1_epi32(third), 1),
        _mm256_setr_epi32(0x510051, 0x510051, 0x510051, 0x510051, 0x10001, 0x30003, 0x90009, 0x1b001b));
}

ALWAYS_INLINE __m256i tq2_0_codes(const uint8_t *block, int part)
{
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(block + part / 4 * 32));
    return _mm256_and_si256(_mm256_srl_epi16(bytes, _mm_cvtsi32_si128(part % 4 * 2)), _mm256_set1_epi8(3));
}

#endif
