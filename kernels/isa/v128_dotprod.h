/* kernels/isa/v128_dotprod.h - the 128-bit interface (v128.h) for ARM with the dot product instruction. */
#ifndef QDYNO_KERNELS_ISA_V128_DOTPROD_H
#define QDYNO_KERNELS_ISA_V128_DOTPROD_H

#include "kernels/isa/v128_arm.h"

#define V128(name)       name##_dotprod
#define V128_TABLE(name) name##_DOTPROD

typedef s32x4 products; /* each lane is the sum of four products, or eight after multiply_small_2 */

ALWAYS_INLINE products multiply_signed(u8x16 codes, s8x16 q)
{
    return vdotq_s32(vdupq_n_s32(0), vreinterpretq_s8_u8(codes), q);
}

ALWAYS_INLINE products multiply_small(u8x16 codes, s8x16 q)
{
    return multiply_signed(codes, q);
}

ALWAYS_INLINE products multiply_small_2(const u8x16 codes[2], const s8x16 q[2])
{
    return vdotq_s32(multiply_signed(codes[0], q[0]), vreinterpretq_s8_u8(codes[1]), q[1]);
}

ALWAYS_INLINE s32x4 fold(products p)
{
    return p;
}

ALWAYS_INLINE s32x4 fold_signed_2(const u8x16 codes[2], const s8x16 q[2])
{
    return multiply_small_2(codes, q);
}

ALWAYS_INLINE s32x4 fold_scaled(s32x4 sum, products p, const struct subscales *s, const int j)
{
    return vmlaq_n_s32(sum, p, s->at[j]);
}

#include "kernels/isa/v128.h"

#endif
