/* kernels/formats/groups/codes_avx512.h - expand 64 codes of a group to bytes in one register. */
#ifndef QDYNO_KERNELS_FORMATS_GROUPS_CODES_AVX512_H
#define QDYNO_KERNELS_FORMATS_GROUPS_CODES_AVX512_H

#include "kernels/formats/groups/layout.h"
#include "kernels/isa/avx512.h"

/* The 64 codes of a group from code 32 * part on; part is even, bits and weights are constants at every call.
 * The bytes are copied to each quarter of the register and shifted there by the position of the quarter's
 * codes. */
ALWAYS_INLINE __m512i group_codes64(const uint8_t *block, int part, const int bits, const int weights)
{
    const uint8_t *low = block + GROUP_CODES;
    if (bits == 8) return _mm512_loadu_si512(low + part * 32);
    if (bits == 4) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(low + part * GROUP_UNIT_BYTES));
        const __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                                       _mm512_castsi256_si512(bytes));
        const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
        return _mm512_and_si512(_mm512_srlv_epi64(twice, shift), _mm512_set1_epi8(15));
    }
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(low + part / 2 * GROUP_UNIT_BYTES));
    const __m512i shift = _mm512_setr_epi64(0, 0, 2, 2, 4, 4, 6, 6);
    const __m512i two = _mm512_and_si512(_mm512_srlv_epi64(_mm512_broadcast_i32x4(bytes), shift),
                                         _mm512_set1_epi8(3));
    if (bits == 2) return two;
    uint64_t third;
    memcpy(&third, block + GROUP_THIRD_BITS(weights) + part * 4, sizeof third);
    return _mm512_mask_add_epi8(two, third, two, _mm512_set1_epi8(4));
}

#endif
