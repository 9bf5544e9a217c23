/* Codebook rows to bytes with AVX2. kquants_avx2.h does the rest. */
#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/layout.h"
#include "kernels/formats/kquants/kquants_avx2.h"

/* Set all bits of byte i if bit i of `bits` is set. */
ALWAYS_INLINE __m256i mask_of_bits(uint32_t bits)
{
    const __m256i bytes = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i own = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), bytes);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, own), own);
}

ALWAYS_INLINE void codes_of(iq_part_fn *part, const int base, const uint8_t *block, __m256i code[PARTS])
{
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) {
        struct iq_part v;
        part(block, p, &v);
        code[p] = _mm256_set_epi64x((long long)v.bytes[3], (long long)v.bytes[2], (long long)v.bytes[1],
                                    (long long)v.bytes[0]);
        if (!base) continue;
        const __m256i negative = mask_of_bits(v.negative);
        code[p] = _mm256_sub_epi8(_mm256_xor_si256(code[p], negative), negative);
        code[p] = _mm256_add_epi8(code[p], _mm256_set1_epi8((char)base));
    }
}

/* X(function prefix, FORMAT_ suffix, bias added to magnitudes with signs (0: the bytes contain it), codes are
 * wide). */
#define FORMATS_HERE(X)                                                                                      \
    X(iq1_s, IQ1_S, 0, false)                                                                                \
    X(iq1_m, IQ1_M, 0, false)                                                                                \
    X(iq2_xxs, IQ2_XXS, 64, true)                                                                            \
    X(iq2_xs, IQ2_XS, 64, true)                                                                              \
    X(iq2_s, IQ2_S, 64, true)                                                                                \
    X(iq3_xxs, IQ3_XXS, 64, true)                                                                            \
    X(iq3_s, IQ3_S, 16, false)

#define IQ_FUNCTIONS(name, NAME, base, is_wide)                                                              \
    ALWAYS_INLINE void name##_codes(const uint8_t *block, __m256i code[PARTS])                               \
    {                                                                                                        \
        codes_of(name##_part, base, block, code);                                                            \
    }                                                                                                        \
    K_FUNCTIONS(name, NAME##_SHAPE, name##_scales, name##_codes)
FORMATS_HERE(IQ_FUNCTIONS)

#define IQ_ROW(name, NAME, base, is_wide)                                                                    \
    { FORMAT_##NAME,                                                                                         \
      { .decode = name##_decode,                                                                             \
        .dot_f32 = name##_dot_f32,                                                                           \
        .dot_q8 = name##_dot_q8,                                                                             \
        .unpack_q8 = name##_unpack_q8,                                                                       \
        .wide_q8 = is_wide } },
const struct format_row IQUANTS_AVX2[IQUANT_COUNT] = { FORMATS_HERE(IQ_ROW) };
