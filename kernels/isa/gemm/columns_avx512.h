/* kernels/isa/gemm/columns_avx512.h - 16 weight rows side by side in the lanes of vectors (struct q8_columns
 * of kernel_set.h). */
#ifndef QDYNO_KERNELS_ISA_GEMM_COLUMNS_AVX512_H
#define QDYNO_KERNELS_ISA_GEMM_COLUMNS_AVX512_H

#include "kernels/isa/avx512.h"

/* Load 16 bytes of each of 16 rows: lane r of out[i] has bytes 4 * i .. 4 * i + 3 of row r. */
ALWAYS_INLINE void columns_load(const uint8_t *w, int64_t row_bytes, __m512i out[4])
{
    __m512i rows[4], t[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* rows j, j + 4, j + 8, j + 12 */
        const uint8_t *p = w + j * row_bytes;
        rows[j] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
        rows[j] = _mm512_inserti32x4(rows[j], _mm_loadu_si128((const __m128i *)(p + 4 * row_bytes)), 1);
        rows[j] = _mm512_inserti32x4(rows[j], _mm_loadu_si128((const __m128i *)(p + 8 * row_bytes)), 2);
        rows[j] = _mm512_inserti32x4(rows[j], _mm_loadu_si128((const __m128i *)(p + 12 * row_bytes)), 3);
    }
    t[0] = _mm512_unpacklo_epi32(rows[0], rows[1]), t[1] = _mm512_unpackhi_epi32(rows[0], rows[1]);
    t[2] = _mm512_unpacklo_epi32(rows[2], rows[3]), t[3] = _mm512_unpackhi_epi32(rows[2], rows[3]);
    out[0] = _mm512_unpacklo_epi64(t[0], t[2]), out[1] = _mm512_unpackhi_epi64(t[0], t[2]);
    out[2] = _mm512_unpacklo_epi64(t[1], t[3]), out[3] = _mm512_unpackhi_epi64(t[1], t[3]);
}

/* Load the f16 at `w` of each of 16 rows as f32. */
ALWAYS_INLINE __m512 columns_f16(const uint8_t *w, int64_t row_bytes)
{
    __m128i half[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        uint64_t four[2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const uint8_t *p = w + (8 * h + 4 * i) * row_bytes;
            four[i] = (uint64_t)load_u16(p) | (uint64_t)load_u16(p + row_bytes) << 16 |
                      (uint64_t)load_u16(p + 2 * row_bytes) << 32 |
                      (uint64_t)load_u16(p + 3 * row_bytes) << 48;
        }
        half[h] = _mm_set_epi64x((long long)four[1], (long long)four[0]);
    }
    return _mm512_cvtph_ps(_mm256_set_m128i(half[1], half[0]));
}

ALWAYS_INLINE void prefetch_step(struct prefetch *p)
{
    for (int64_t i = 0; i < p->step; i += LINE_BYTES) _mm_prefetch((const char *)p->next + i, _MM_HINT_T0);
    p->next += p->step;
}

/* The bytes of all lanes, moved right by `shift` bits and masked. shift and mask are constants. */
ALWAYS_INLINE __m512i byte_bits(__m512i v, const int shift, const int mask)
{
    if (shift) v = _mm512_srli_epi16(v, shift);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}

#endif
