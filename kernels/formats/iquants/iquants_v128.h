/* kernels/formats/iquants/iquants_v128.h - codebook rows to bytes with 128-bit vectors; kquants_v128.h does
 * the rest. Include an implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_FORMATS_IQUANTS_IQUANTS_V128_H
#define QDYNO_KERNELS_FORMATS_IQUANTS_IQUANTS_V128_H

#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/layout.h"
#include "kernels/formats/kquants/kquants_v128.h"

typedef uint64_t iq_u64x2 __attribute__((vector_size(16)));

/* Set all bits of byte i if bit i of `bits` (16 bits are used) is set. */
ALWAYS_INLINE u8x16 iq_mask_of_bits(uint32_t bits)
{
    const u8x16 own = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    const u8x16 spread = (u8x16)(iq_u64x2){ k_bytes((uint8_t)bits), k_bytes((uint8_t)(bits >> 8)) };
    return (u8x16)((spread & own) == own);
}

/* Read the codes of part p. base: bias that is added to magnitudes with signs. */
ALWAYS_INLINE void iq_codes(iq_part_fn *part, bool has_signs, uint8_t base, const uint8_t *block, int p,
                            u8x16 out[2])
{
    struct iq_part v;
    part(block, p, &v);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        out[h] = (u8x16)(iq_u64x2){ v.bytes[2 * h], v.bytes[2 * h + 1] };
        if (!has_signs) continue;
        const u8x16 negative = iq_mask_of_bits(v.negative >> 16 * h);
        out[h] = (out[h] ^ negative) - negative + base;
    }
}

/* Wide formats use signed codes (k_signed), so their base is 0. */
#define IQ_KIND(name, NAME, has_signs, base)                                                                 \
    ALWAYS_INLINE void name##_codes(const uint8_t *block, int p, u8x16 out[2])                               \
    {                                                                                                        \
        iq_codes(name##_part, has_signs, base, block, p, out);                                               \
    }                                                                                                        \
    static const struct k_kind K_##NAME = { .shape = &NAME##_SHAPE,                                          \
                                            .scales = name##_scales,                                         \
                                            .codes = name##_codes };                                         \
    K_KIND_FUNCTIONS(name, K_##NAME)
IQ_KIND(iq1_s, IQ1_S, false, 0)
IQ_KIND(iq1_m, IQ1_M, false, 0)
IQ_KIND(iq2_xxs, IQ2_XXS, true, 0)
IQ_KIND(iq2_xs, IQ2_XS, true, 0)
IQ_KIND(iq2_s, IQ2_S, true, 0)
IQ_KIND(iq3_xxs, IQ3_XXS, true, 0)
IQ_KIND(iq3_s, IQ3_S, true, 16)

#endif
