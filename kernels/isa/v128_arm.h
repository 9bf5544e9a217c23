/* kernels/isa/v128_arm.h - the part of the 128-bit interface (v128.h) that is the same for all 64-bit ARM:
 * everything but the products of bytes, which v128_neon.h and v128_dotprod.h supply. */
#ifndef QDYNO_KERNELS_ISA_V128_ARM_H
#define QDYNO_KERNELS_ISA_V128_ARM_H

#include <arm_neon.h>

#include "kernels/half.h"
#include "kernels/isa/inline.h"
#include "kernels/kernel_set.h"

typedef float32x4_t f32x4;
typedef int32x4_t s32x4;
typedef uint32x4_t u32x4;
typedef int16x8_t s16x8;
typedef uint16x8_t u16x8;
typedef int8x16_t s8x16;
typedef uint8x16_t u8x16;

/* Rows and vectors of results that the GEMM tile keeps in registers. ARM has 32 registers. */
enum { V128_TILE_ROWS = 6, V128_TILE_VECTORS = 4 };

/* ---------------------------------------------------------------- memory */

ALWAYS_INLINE f32x4 load_f32x4(const float *p)
{
    return vld1q_f32(p);
}

ALWAYS_INLINE void store_f32x4(float *p, f32x4 v)
{
    vst1q_f32(p, v);
}

ALWAYS_INLINE u8x16 load_u8(const void *p)
{
    return vld1q_u8(p);
}

ALWAYS_INLINE void store_s8(int8_t *p, s8x16 v)
{
    vst1q_s8(p, v);
}

ALWAYS_INLINE s32x4 load4_s8(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(word))));
}

ALWAYS_INLINE f32x4 all_f32(float x)
{
    return vdupq_n_f32(x);
}

/* ---------------------------------------------------------------- 16-bit floats */

ALWAYS_INLINE float load_one_f16(const uint8_t *p)
{
    __fp16 h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}

ALWAYS_INLINE f32x4 load_f16(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

ALWAYS_INLINE f32x4 gather_f16(const uint8_t *p, const int stride)
{
    const uint16x4_t h = { load_u16(p), load_u16(p + stride), load_u16(p + 2 * stride),
                           load_u16(p + 3 * stride) };
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}

ALWAYS_INLINE f32x4 load_bf16(const uint8_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

/* ---------------------------------------------------------------- floats */

ALWAYS_INLINE f32x4 fma_f32(f32x4 a, f32x4 b, f32x4 c)
{
    return vfmaq_f32(c, a, b);
}

ALWAYS_INLINE f32x4 root_f32(f32x4 v)
{
    return vsqrtq_f32(v);
}

/* The instruction fmax returns NaN if either operand is NaN; v128.h requires the second operand. */
ALWAYS_INLINE f32x4 max_f32(f32x4 a, f32x4 b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

ALWAYS_INLINE f32x4 min_f32(f32x4 a, f32x4 b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

ALWAYS_INLINE f32x4 round_f32(f32x4 v)
{
    return vrndnq_f32(v);
}

ALWAYS_INLINE s32x4 nearest_s32(f32x4 v)
{
    return vcvtnq_s32_f32(v);
}

ALWAYS_INLINE f32x4 f32_of_s32(s32x4 v)
{
    return vcvtq_f32_s32(v);
}

ALWAYS_INLINE float sum_of_f32(f32x4 v)
{
    return vaddvq_f32(v);
}

ALWAYS_INLINE float max_of_f32(f32x4 v)
{
    return vmaxvq_f32(v);
}

ALWAYS_INLINE void transpose_4x4(f32x4 r[4])
{
    const f32x4 a = vzip1q_f32(r[0], r[2]), b = vzip2q_f32(r[0], r[2]);
    const f32x4 c = vzip1q_f32(r[1], r[3]), d = vzip2q_f32(r[1], r[3]);
    r[0] = vzip1q_f32(a, c), r[1] = vzip2q_f32(a, c);
    r[2] = vzip1q_f32(b, d), r[3] = vzip2q_f32(b, d);
}

ALWAYS_INLINE f32x4 swap_pairs(f32x4 v)
{
    return vrev64q_f32(v);
}

ALWAYS_INLINE f32x4 double_low(f32x4 v)
{
    return vzip1q_f32(v, v);
}

ALWAYS_INLINE f32x4 double_high(f32x4 v)
{
    return vzip2q_f32(v, v);
}

ALWAYS_INLINE f32x4 sums_of_four_f32(const f32x4 v[4])
{
    return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
}

/* ---------------------------------------------------------------- bytes */

ALWAYS_INLINE void f32_of_s8(s8x16 bytes, f32x4 out[4])
{
    const s16x8 low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    out[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    out[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    out[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    out[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}

ALWAYS_INLINE s8x16 s8_of_s32(const s32x4 v[4])
{
    const s16x8 low = vqmovn_high_s32(vqmovn_s32(v[0]), v[1]), high = vqmovn_high_s32(vqmovn_s32(v[2]), v[3]);
    return vqmovn_high_s16(vqmovn_s16(low), high);
}

ALWAYS_INLINE void f32_of_planes(const u8x16 plane[4], f32x4 out[4])
{
    const u16x8 ab = (u16x8)vzip1q_u8(plane[0], plane[1]), ab2 = (u16x8)vzip2q_u8(plane[0], plane[1]);
    const u16x8 cd = (u16x8)vzip1q_u8(plane[2], plane[3]), cd2 = (u16x8)vzip2q_u8(plane[2], plane[3]);
    out[0] = (f32x4)vzip1q_u16(ab, cd), out[1] = (f32x4)vzip2q_u16(ab, cd);
    out[2] = (f32x4)vzip1q_u16(ab2, cd2), out[3] = (f32x4)vzip2q_u16(ab2, cd2);
}

ALWAYS_INLINE u8x16 look_up(u8x16 table, u8x16 index)
{
    return vqtbl1q_u8(table, index);
}

ALWAYS_INLINE u8x16 mul_u8(u8x16 a, u8x16 b)
{
    return vmulq_u8(a, b);
}

/* ---------------------------------------------------------------- products of bytes */

struct subscales {
    int32_t at[16];
};

ALWAYS_INLINE struct subscales subscales_of(const uint64_t bytes[2], const int n)
{
    struct subscales s;
#pragma GCC unroll 2
    for (int j = 0; j < n; j += 8) {
        const s16x8 wide = vmovl_s8(vcreate_s8(bytes[j / 8]));
        vst1q_s32(s.at + j, vmovl_s16(vget_low_s16(wide)));
        vst1q_s32(s.at + j + 4, vmovl_high_s16(wide));
    }
    return s;
}

ALWAYS_INLINE s32x4 sums_of_four(const s32x4 v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

ALWAYS_INLINE void keep_f32(f32x4 *v)
{
    __asm__ volatile("" : "+w"(*v));
}

ALWAYS_INLINE void keep_u8(u8x16 *v)
{
    __asm__ volatile("" : "+w"(*v));
}

#endif
