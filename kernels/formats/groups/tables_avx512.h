/* kernels/formats/groups/tables_avx512.h - a group with codes of up to 4 bits has at most sixteen different
 * values, which are computed once and looked up. */
#ifndef QDYNO_KERNELS_FORMATS_GROUPS_TABLES_AVX512_H
#define QDYNO_KERNELS_FORMATS_GROUPS_TABLES_AVX512_H

#include "kernels/formats/groups/layout.h"
#include "kernels/isa/gemv/tables_avx512.h"

/* Lane i is the value of code i % 2^bits, so the upper bits of an index do not matter and codes need not be
 * extracted. */
ALWAYS_INLINE __m512 group_values(const uint8_t *block, const int bits)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i code = _mm512_and_si512(lanes, _mm512_set1_epi32((1 << bits) - 1));
    const __m512 d = broadcast_f16(block), zero = broadcast_f16(block + GROUP_ZERO);
    return _mm512_sub_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(code), d), _mm512_mul_ps(zero, d));
}

ALWAYS_INLINE __m512i group_codes16(const uint8_t *block, int i, const int bits, const int weights)
{
    const int pieces = bits == 4 ? 2 : 4; /* of 16 codes, in the same 16 bytes */
    const uint8_t *p = block + GROUP_CODES + i / pieces * GROUP_UNIT_BYTES;
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    const __m512i codes = _mm512_srli_epi32(bytes, (unsigned)(i % pieces * (8 / pieces)));
    if (bits != 3) return codes;
    const __m512i two = _mm512_and_si512(codes, _mm512_set1_epi32(3));
    const __mmask16 third = load_u16(block + GROUP_THIRD_BITS(weights) + 2 * i);
    return _mm512_mask_add_epi32(two, third, two, _mm512_set1_epi32(4));
}

ALWAYS_INLINE __m512i group_codes_words(const uint8_t *block, int i, const int bits, const int weights)
{
    const uint8_t *p = block + GROUP_CODES + (bits == 4 ? i : i / 2) * GROUP_UNIT_BYTES;
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    const int low = bits == 4 ? 0 : i % 2 * 4, high = low + (bits == 4 ? 4 : 2);
    const __m512i shift = _mm512_inserti64x4(_mm512_set1_epi16((short)low), _mm256_set1_epi16((short)high),
                                             1);
    const __m512i codes = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(bytes), shift);
    if (bits != 3) return codes;
    uint32_t third;
    memcpy(&third, block + GROUP_THIRD_BITS(weights) + 4 * i, sizeof third);
    const __m512i two = _mm512_and_si512(codes, _mm512_set1_epi16(3));
    return _mm512_mask_add_epi16(two, third, two, _mm512_set1_epi16(4));
}

/* Weights 16 i .. 16 i + 15 of a block with 8-bit codes, computed as in the reference. */
ALWAYS_INLINE __m512 group_bytes16(const uint8_t *block, int i)
{
    const __m128i codes = _mm_loadu_si128((const __m128i *)(block + GROUP_CODES + 16 * i));
    const __m512 d = broadcast_f16(block), zero = broadcast_f16(block + GROUP_ZERO);
    return _mm512_sub_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes)), d),
                         _mm512_mul_ps(zero, d));
}

#define TABLE(name, NAME, bits, size)                                                                        \
    ALWAYS_INLINE __m512 name##_values(const uint8_t *block, int unit)                                       \
    {                                                                                                        \
        (void)unit;                                                                                          \
        return group_values(block, bits);                                                                    \
    }                                                                                                        \
    ALWAYS_INLINE __m512i name##_codes16(const uint8_t *block, int i)                                        \
    {                                                                                                        \
        return group_codes16(block, i, bits, size);                                                          \
    }                                                                                                        \
    ALWAYS_INLINE __m512i name##_codes32(const uint8_t *block, int i)                                        \
    {                                                                                                        \
        return group_codes_words(block, i, bits, size);                                                      \
    }                                                                                                        \
    static const struct table_kind NAME = { GROUP_BYTES(bits, size), size,           size,                   \
                                            name##_values,           name##_codes16, name##_codes32 };
GROUP_TABLE_FORMATS(TABLE)
#undef TABLE

#endif
