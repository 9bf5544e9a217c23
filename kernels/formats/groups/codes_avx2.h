/* kernels/formats/groups/codes_avx2.h - expand 32 codes of a group to bytes, for AVX2 and AVX-512 VNNI. */
#ifndef QDYNO_KERNELS_FORMATS_GROUPS_CODES_AVX2_H
#define QDYNO_KERNELS_FORMATS_GROUPS_CODES_AVX2_H

#include <immintrin.h>

#include "kernels/formats/groups/layout.h"
#include "kernels/isa/inline.h"

/* Load 16 bytes into both halves of a register and shift the lower half right by `low` bits, the upper half
 * by `high`. Bits of the next byte move into each byte, so the caller masks them. */
ALWAYS_INLINE __m256i group_halves(const uint8_t *p, int low, int high)
{
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm256_srlv_epi64(both, _mm256_setr_epi64x(low, low, high, high));
}

/* Byte j is 4 if bit j of the 32 bits at p is set, else 0. The shuffle copies to byte j the byte that
 * contains bit j. */
ALWAYS_INLINE __m256i group_third_bits(const uint8_t *p)
{
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit), _mm256_set1_epi8(4));
}

/* The 32 codes of a group from code 32 * part on; bits and weights are constants at every call. */
ALWAYS_INLINE __m256i group_codes32(const uint8_t *block, int part, const int bits, const int weights)
{
    const uint8_t *low = block + GROUP_CODES;
    if (bits == 8) return _mm256_loadu_si256((const __m256i *)(low + part * 32));
    if (bits == 4)
        return _mm256_and_si256(group_halves(low + part * GROUP_UNIT_BYTES, 0, 4), _mm256_set1_epi8(15));
    const int shift = part % 2 * 4;
    const __m256i two = _mm256_and_si256(group_halves(low + part / 2 * GROUP_UNIT_BYTES, shift, shift + 2),
                                         _mm256_set1_epi8(3));
    if (bits == 2) return two;
    return _mm256_or_si256(two, group_third_bits(block + GROUP_THIRD_BITS(weights) + part * 4));
}

#endif
