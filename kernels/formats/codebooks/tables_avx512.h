/* kernels/formats/codebooks/tables_avx512.h - the codebook formats as tables of sixteen values a unit. */
#ifndef QDYNO_KERNELS_FORMATS_CODEBOOKS_TABLES_AVX512_H
#define QDYNO_KERNELS_FORMATS_CODEBOOKS_TABLES_AVX512_H

#include "kernels/formats/codebooks/layout.h"
#include "kernels/isa/gemv/tables_avx512.h"

static const float NF4_VALUE[16] = { NF4_VALUES }, FP4_VALUE[16] = { FP4_VALUES };

/* 16 i.. of a block's weights: two runs of 16 codes share 16 bytes. */
ALWAYS_INLINE __m512i codebook_codes16(const uint8_t *block, int i, const int nested)
{
    const uint8_t *p = unit_codes(block, i / 4, nested) + i % 4 / 2 * 16;
    return _mm512_srli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)),
                             (unsigned)(i % 2 * 4));
}

ALWAYS_INLINE __m512i codebook_codes32(const uint8_t *block, int i, const int nested)
{
    const uint8_t *p = unit_codes(block, i / 2, nested) + i % 2 * 16;
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    return _mm512_srlv_epi16(_mm512_cvtepu8_epi16(bytes), shift);
}

#define TABLE(name, NAME, book, nested)                                                                      \
    ALWAYS_INLINE __m512 name##_values(const uint8_t *block, int unit)                                       \
    {                                                                                                        \
        return _mm512_mul_ps(_mm512_loadu_ps(book##_VALUE),                                                  \
                             _mm512_set1_ps(unit_largest(block, unit, nested)));                             \
    }                                                                                                        \
    ALWAYS_INLINE __m512i name##_codes16(const uint8_t *block, int i)                                        \
    {                                                                                                        \
        return codebook_codes16(block, i, nested);                                                           \
    }                                                                                                        \
    ALWAYS_INLINE __m512i name##_codes32(const uint8_t *block, int i)                                        \
    {                                                                                                        \
        return codebook_codes32(block, i, nested);                                                           \
    }                                                                                                        \
    static const struct table_kind NAME = { nested ? NESTED_BYTES : PLAIN_BYTES,                             \
                                            nested ? UNIT * NESTED_UNITS : UNIT,                             \
                                            UNIT,                                                            \
                                            name##_values,                                                   \
                                            name##_codes16,                                                  \
                                            name##_codes32 };
CODEBOOK_FORMATS(TABLE)
#undef TABLE

#endif
