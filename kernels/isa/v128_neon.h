/* kernels/isa/v128_neon.h - the 128-bit interface (v128.h) with instructions of every 64-bit ARM. */
#ifndef QDYNO_KERNELS_ISA_V128_NEON_H
#define QDYNO_KERNELS_ISA_V128_NEON_H

#include "kernels/isa/v128_arm.h"

#define V128(name)       name##_neon
#define V128_TABLE(name) name##_NEON

typedef s16x8 products; /* each lane is the sum of two or, after multiply_small_2, four products */

ALWAYS_INLINE products multiply_signed(u8x16 codes, s8x16 q)
{
    const s8x16 c = vreinterpretq_s8_u8(codes);
    return vmlal_high_s8(vmull_s8(vget_low_s8(c), vget_low_s8(q)), c, q);
}

ALWAYS_INLINE products multiply_small(u8x16 codes, s8x16 q)
{
    return multiply_signed(codes, q);
}

ALWAYS_INLINE products multiply_small_2(const u8x16 codes[2], const s8x16 q[2])
{
    const s8x16 c = vreinterpretq_s8_u8(codes[1]);
    const s16x8 first = vmlal_s8(multiply_signed(codes[0], q[0]), vget_low_s8(c), vget_low_s8(q[1]));
    return vmlal_high_s8(first, c, q[1]);
}

ALWAYS_INLINE s32x4 fold(products p)
{
    return vpaddlq_s16(p);
}

ALWAYS_INLINE s32x4 fold_signed_2(const u8x16 codes[2], const s8x16 q[2])
{
    return vpadalq_s16(fold(multiply_signed(codes[0], q[0])), multiply_signed(codes[1], q[1]));
}

ALWAYS_INLINE s32x4 fold_scaled(s32x4 sum, products p, const struct subscales *s, const int j)
{
    return vmlaq_n_s32(sum, vpaddlq_s16(p), s->at[j]);
}

#include "kernels/isa/v128.h"

#endif
