/* kernels/formats/fp8/fp8_v128.h - 8-bit floats with 128-bit vectors, four at a time. Sign, exponent and
 * mantissa of a code are shifted to their places in an f32, and a multiplication corrects the exponent bias.
 * (Before it, subnormal codes are subnormal f32, which some processors multiply slowly. Such weights are far
 * below the scale of a row.) Include an implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_FORMATS_FP8_FP8_V128_H
#define QDYNO_KERNELS_FORMATS_FP8_FP8_V128_H

#include "kernels/formats/fp8/codes.h"
#include "kernels/formats/floats/floats_v128.h"

ALWAYS_INLINE f32x4 load4_e4m3(const uint8_t *p)
{
    return (f32x4)(load4_s8(p) << 20 & (int32_t)0x87f00000) * all_f32(0x1p120f); /* exponent bias 127 - 7 */
}

ALWAYS_INLINE float load1_e4m3(const uint8_t *p)
{
    return e4m3_to_float(*p);
}

ALWAYS_INLINE f32x4 load4_e5m2(const uint8_t *p)
{
    const s32x4 code = load4_s8(p), infinite = ((code & 0x7f) > 0x7b) & 0x7f800000;
    const f32x4 v = (f32x4)(code << 21 & (int32_t)0x8fe00000) * all_f32(0x1p112f); /* 127 - 15 */
    return (f32x4)((s32x4)v | infinite);
}

ALWAYS_INLINE float load1_e5m2(const uint8_t *p)
{
    return e5m2_to_float(*p);
}

static const struct float_kind KIND_E4M3 = { 1, load4_e4m3, load1_e4m3 },
                               KIND_E5M2 = { 1, load4_e5m2, load1_e5m2 };

FLOAT_KIND_FUNCTIONS(fp8_e4m3, KIND_E4M3)
FLOAT_KIND_FUNCTIONS(fp8_e5m2, KIND_E5M2)

#endif
