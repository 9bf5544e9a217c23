/* kernels/formats/iquants/iquants_avx512.h - codebook rows to bytes with AVX-512, shared by the AVX-512, VNNI
 * and BF16 files of the family. */
#ifndef QDYNO_KERNELS_FORMATS_IQUANTS_IQUANTS_AVX512_H
#define QDYNO_KERNELS_FORMATS_IQUANTS_IQUANTS_AVX512_H

#include "kernels/formats/iquants/layout.h"
#include "kernels/formats/kquants/kquants_avx512.h"

/* Read the codes of a block. base: bias that is added to magnitudes with signs; 0 if the bytes already
 * contain it. */
ALWAYS_INLINE void iq_codes512(iq_part_fn *part, const int base, const uint8_t *block, __m512i code[K_CHUNKS])
{
#pragma GCC unroll 4
    for (int c = 0; c < K_CHUNKS; c++) {
        struct iq_part v[2];
        part(block, 2 * c, &v[0]);
        part(block, 2 * c + 1, &v[1]);
        code[c] = _mm512_set_epi64((long long)v[1].bytes[3], (long long)v[1].bytes[2],
                                   (long long)v[1].bytes[1], (long long)v[1].bytes[0],
                                   (long long)v[0].bytes[3], (long long)v[0].bytes[2],
                                   (long long)v[0].bytes[1], (long long)v[0].bytes[0]);
        if (!base) continue;
        const __mmask64 negative = (__mmask64)v[1].negative << 32 | v[0].negative;
        const __m512i plus = _mm512_set1_epi8((char)base);
        code[c] = _mm512_mask_sub_epi8(_mm512_add_epi8(plus, code[c]), negative, plus, code[c]);
    }
}

/* Define name##_codes512 for every format of the family. */
#define IQ_CODES512(name, base)                                                                              \
    ALWAYS_INLINE void name##_codes512(const uint8_t *block, __m512i code[K_CHUNKS])                         \
    {                                                                                                        \
        iq_codes512(name##_part, base, block, code);                                                         \
    }
IQ_CODES512(iq1_s, 0)
IQ_CODES512(iq1_m, 0)
IQ_CODES512(iq2_xxs, 64)
IQ_CODES512(iq2_xs, 64)
IQ_CODES512(iq2_s, 64)
IQ_CODES512(iq3_xxs, 64)
IQ_CODES512(iq3_s, 16)

#endif
