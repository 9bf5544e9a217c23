/* kernels/isa/v128_sse41.h - the 128-bit interface (v128.h) with SSE4.1, for x86 processors of 2008 to 2013.
 * These have sixteen registers, no fused multiply-add and no conversion of 16-bit floats. */
#ifndef QDYNO_KERNELS_ISA_V128_SSE41_H
#define QDYNO_KERNELS_ISA_V128_SSE41_H

#include <smmintrin.h>

#include "kernels/half.h"
#include "kernels/isa/inline.h"
#include "kernels/kernel_set.h"

#define V128(name)       name##_sse41
#define V128_TABLE(name) name##_SSE41

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t s32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef int16_t s16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef int8_t s8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));

/* Rows and vectors of results that the GEMM tile keeps in registers. */
enum { V128_TILE_ROWS = 6, V128_TILE_VECTORS = 2 };

/* ---------------------------------------------------------------- memory */

ALWAYS_INLINE f32x4 load_f32x4(const float *p)
{
    return _mm_loadu_ps(p);
}

ALWAYS_INLINE void store_f32x4(float *p, f32x4 v)
{
    _mm_storeu_ps(p, v);
}

ALWAYS_INLINE u8x16 load_u8(const void *p)
{
    return (u8x16)_mm_loadu_si128((const __m128i *)p);
}

ALWAYS_INLINE void store_s8(int8_t *p, s8x16 v)
{
    _mm_storeu_si128((__m128i *)p, (__m128i)v);
}

ALWAYS_INLINE s32x4 load4_s8(const uint8_t *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return (s32x4)_mm_cvtepi8_epi32(_mm_cvtsi32_si128(word));
}

ALWAYS_INLINE f32x4 all_f32(float x)
{
    return _mm_set1_ps(x);
}

/* ---------------------------------------------------------------- 16-bit floats */

/* Convert four f16 numbers in 32-bit lanes. The result has the bits of half_to_float except for the quiet bit
 * of NaN. A subnormal f16 is an integer times 2^-24 and is converted as such: arithmetic with subnormal f32
 * operands is slow on these processors. */
ALWAYS_INLINE f32x4 f32_of_f16(u32x4 h)
{
    const s32x4 magnitude = (s32x4)(h & 0x7fff), sign = (s32x4)((h & 0x8000) << 16);
    const s32x4 infinite = (magnitude > 0x7bff) & 0x7f800000;
    const s32x4 normal = ((magnitude << 13) + ((127 - 15) << 23)) | infinite;
    const f32x4 tiny = _mm_mul_ps(_mm_cvtepi32_ps((__m128i)magnitude), all_f32(0x1p-24f));
    const f32x4 v = _mm_blendv_ps((f32x4)normal, tiny, (f32x4)(magnitude < 0x400));
    return _mm_or_ps(v, (f32x4)sign);
}

ALWAYS_INLINE float load_one_f16(const uint8_t *p)
{
    return half_to_float(load_u16(p));
}

ALWAYS_INLINE f32x4 load_f16(const uint8_t *p)
{
    return f32_of_f16((u32x4)_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

ALWAYS_INLINE f32x4 gather_f16(const uint8_t *p, const int stride)
{
    const u32x4 h = { load_u16(p), load_u16(p + stride), load_u16(p + 2 * stride), load_u16(p + 3 * stride) };
    return f32_of_f16(h);
}

ALWAYS_INLINE f32x4 load_bf16(const uint8_t *p)
{
    return (f32x4)((u32x4)_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)p)) << 16);
}

/* ---------------------------------------------------------------- floats */

ALWAYS_INLINE f32x4 fma_f32(f32x4 a, f32x4 b, f32x4 c)
{
    return _mm_add_ps(_mm_mul_ps(a, b), c);
}

ALWAYS_INLINE f32x4 root_f32(f32x4 v)
{
    return _mm_sqrt_ps(v);
}

ALWAYS_INLINE f32x4 max_f32(f32x4 a, f32x4 b)
{
    return _mm_max_ps(a, b);
}

ALWAYS_INLINE f32x4 min_f32(f32x4 a, f32x4 b)
{
    return _mm_min_ps(a, b);
}

ALWAYS_INLINE f32x4 round_f32(f32x4 v)
{
    return _mm_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

ALWAYS_INLINE s32x4 nearest_s32(f32x4 v)
{
    return (s32x4)_mm_cvtps_epi32(v);
}

ALWAYS_INLINE f32x4 f32_of_s32(s32x4 v)
{
    return _mm_cvtepi32_ps((__m128i)v);
}

ALWAYS_INLINE float sum_of_f32(f32x4 v)
{
    const f32x4 s = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

ALWAYS_INLINE float max_of_f32(f32x4 v)
{
    const f32x4 s = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

ALWAYS_INLINE void transpose_4x4(f32x4 r[4])
{
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
}

ALWAYS_INLINE f32x4 swap_pairs(f32x4 v)
{
    return _mm_shuffle_ps(v, v, 0xb1);
}

ALWAYS_INLINE f32x4 double_low(f32x4 v)
{
    return _mm_unpacklo_ps(v, v);
}

ALWAYS_INLINE f32x4 double_high(f32x4 v)
{
    return _mm_unpackhi_ps(v, v);
}

ALWAYS_INLINE f32x4 sums_of_four_f32(const f32x4 v[4])
{
    return _mm_hadd_ps(_mm_hadd_ps(v[0], v[1]), _mm_hadd_ps(v[2], v[3]));
}

/* ---------------------------------------------------------------- bytes */

ALWAYS_INLINE void f32_of_s8(s8x16 bytes, f32x4 out[4])
{
    const __m128i v = (__m128i)bytes;
    out[0] = _mm_cvtepi32_ps(_mm_cvtepi8_epi32(v));
    out[1] = _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_srli_si128(v, 4)));
    out[2] = _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_srli_si128(v, 8)));
    out[3] = _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_srli_si128(v, 12)));
}

ALWAYS_INLINE s8x16 s8_of_s32(const s32x4 v[4])
{
    return (s8x16)_mm_packs_epi16(_mm_packs_epi32((__m128i)v[0], (__m128i)v[1]),
                                  _mm_packs_epi32((__m128i)v[2], (__m128i)v[3]));
}

ALWAYS_INLINE void f32_of_planes(const u8x16 plane[4], f32x4 out[4])
{
    const __m128i a = (__m128i)plane[0], b = (__m128i)plane[1], c = (__m128i)plane[2], d = (__m128i)plane[3];
    const __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
    const __m128i ab2 = _mm_unpackhi_epi8(a, b), cd2 = _mm_unpackhi_epi8(c, d);
    out[0] = (f32x4)_mm_unpacklo_epi16(ab, cd), out[1] = (f32x4)_mm_unpackhi_epi16(ab, cd);
    out[2] = (f32x4)_mm_unpacklo_epi16(ab2, cd2), out[3] = (f32x4)_mm_unpackhi_epi16(ab2, cd2);
}

ALWAYS_INLINE u8x16 look_up(u8x16 table, u8x16 index)
{
    return (u8x16)_mm_shuffle_epi8((__m128i)table, (__m128i)index);
}

/* SSE4.1 has no product of bytes, so this multiplies 16-bit lanes. The lower byte of a lane's product depends
 * only on the lower bytes. The upper bytes are multiplied separately, with zeros below them. */
ALWAYS_INLINE u8x16 mul_u8(u8x16 a, u8x16 b)
{
    const u16x8 even = ((u16x8)a * (u16x8)b) & 0xff, odd = ((u16x8)a & 0xff00) * ((u16x8)b >> 8);
    return (u8x16)(even | odd);
}

/* ---------------------------------------------------------------- products of bytes */

typedef s16x8 products; /* each lane is the sum of two products */

ALWAYS_INLINE products multiply_small(u8x16 codes, s8x16 q)
{
    return (s16x8)_mm_maddubs_epi16((__m128i)codes, (__m128i)q);
}

/* pmaddubsw needs an unsigned operand: code * q = |code| * (q with the sign of code). */
ALWAYS_INLINE products multiply_signed(u8x16 codes, s8x16 q)
{
    return (s16x8)_mm_maddubs_epi16(_mm_abs_epi8((__m128i)codes), _mm_sign_epi8((__m128i)q, (__m128i)codes));
}

ALWAYS_INLINE products multiply_small_2(const u8x16 codes[2], const s8x16 q[2])
{
    return multiply_small(codes[0], q[0]) + multiply_small(codes[1], q[1]);
}

ALWAYS_INLINE s32x4 fold(products p)
{
    return (s32x4)_mm_madd_epi16((__m128i)p, _mm_set1_epi16(1));
}

ALWAYS_INLINE s32x4 fold_signed_2(const u8x16 codes[2], const s8x16 q[2])
{
    return fold(multiply_signed(codes[0], q[0])) + fold(multiply_signed(codes[1], q[1]));
}

struct subscales {
    __m128i wide[2];
};

ALWAYS_INLINE struct subscales subscales_of(const uint64_t bytes[2], const int n)
{
    struct subscales s;
    s.wide[0] = _mm_cvtepi8_epi16(_mm_cvtsi64_si128((long long)bytes[0]));
    s.wide[1] = n > 8 ? _mm_cvtepi8_epi16(_mm_cvtsi64_si128((long long)bytes[1])) : _mm_setzero_si128();
    return s;
}

ALWAYS_INLINE s32x4 fold_scaled(s32x4 sum, products p, const struct subscales *s, const int j)
{
    const __m128i spread = _mm_set1_epi16((short)(0x0100 + 0x0202 * (j % 8)));
    return sum + (s32x4)_mm_madd_epi16((__m128i)p, _mm_shuffle_epi8(s->wide[j / 8], spread));
}

ALWAYS_INLINE s32x4 sums_of_four(const s32x4 v[4])
{
    return (s32x4)_mm_hadd_epi32(_mm_hadd_epi32((__m128i)v[0], (__m128i)v[1]),
                                 _mm_hadd_epi32((__m128i)v[2], (__m128i)v[3]));
}

/* For measuring ceilings: the compiler must keep *v in a register and cannot assume anything about it. */
ALWAYS_INLINE void keep_f32(f32x4 *v)
{
    __asm__ volatile("" : "+x"(*v));
}

ALWAYS_INLINE void keep_u8(u8x16 *v)
{
    __asm__ volatile("" : "+x"(*v));
}

#include "kernels/isa/v128.h"

#endif
