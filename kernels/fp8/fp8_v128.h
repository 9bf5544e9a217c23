/* kernels/fp8/fp8_v128.h - eight-bit floats with 128-bit vectors: four at a time by way of f16. After an
 * implementation of isa/v128.h. */
#ifndef QDYNO_KERNELS_FP8_V128_H
#define QDYNO_KERNELS_FP8_V128_H

#include "kernels/fp8/codes.h"
#include "kernels/isa/floats_v128.h"

ALWAYS_INLINE f32x4 load4_e4m3(const uint8_t *p)
{
    const u32x4 code = load4_u8(p);
    return f32_of_f16((code & 0x80) << 8 | (code & 0x7f) << 7) * all_f32(E4M3_FROM_HALF);
}

ALWAYS_INLINE float load1_e4m3(const uint8_t *p)
{
    return e4m3_to_float(*p);
}

ALWAYS_INLINE f32x4 load4_e5m2(const uint8_t *p)
{
    return f32_of_f16(load4_u8(p) << 8);
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
