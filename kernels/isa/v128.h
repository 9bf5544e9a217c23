/* kernels/isa/v128.h - an interface of 128-bit vectors, so that kernels for SSE4.1 and NEON are written once.
 *
 * A file of an ISA includes the implementation for that ISA (v128_sse41.h, v128_neon.h, v128_dotprod.h),
 * which ends with this header, and then the kernels' headers (*_v128.h). V128(name) appends the ISA's suffix
 * to the name of a function, V128_TABLE(name) to that of a table. Types are the compiler's vector types: + -
 * * & | ^ << >> and comparisons (all bits of a lane set or clear) are operators, and a cast between types
 * keeps the bits.
 *
 * An implementation supplies these inline functions:
 *
 *   load_f32x4 store_f32x4 load_u8 store_s8 unaligned, 16 bytes
 *   load4_s8                                four signed bytes, widened
 *   load_f16 load_bf16                      four 16-bit floats to f32; subnormals and infinities are kept
 *   gather_f16(p, stride)                   four f16 numbers that are `stride` bytes apart, to f32
 *   load_one_f16                            one f16 number to f32
 *   all_f32                                 copy a number to every lane
 *   fma_f32(a, b, c)                        a * b + c, rounded once or twice
 *   max_f32 min_f32                         the second operand where either is NaN
 *   root_f32                                the square root
 *   round_f32                               round to a whole number, ties to even; stays f32
 *   nearest_s32 f32_of_s32                  the same as an integer; convert an integer to f32
 *   sum_of_f32 max_of_f32                   the sum or maximum of the four lanes
 *   transpose_4x4                           transpose four vectors in place
 *   swap_pairs double_low double_high       reorder lanes to 1 0 3 2; 0 0 1 1; 2 2 3 3
 *   sums_of_four_f32(v)                     lane i: the sum of v[i]'s lanes
 *   f32_of_s8 s8_of_s32                     16 signed bytes to f32; 16 integers to bytes, saturated
 *   f32_of_planes(plane)                    16 f32; plane[b] has byte b of each
 *   look_up(table, index)                   in each byte lane table[index], index < 16
 *   mul_u8                                  products of bytes, modulo 256
 *
 * It also supplies dot products of bytes. The second operand is signed and never -128. The type `products`
 * holds partial sums as the instructions of the ISA produce them: which products share a lane differs between
 * ISAs, so kernels may only use the sum of all lanes.
 *
 *   multiply_small                          16 products of unsigned bytes <= 63 with signed bytes
 *   multiply_signed                         16 products of signed bytes
 *   multiply_small_2                        as multiply_small, 32 products
 *   fold                                    add up products to four lanes of s32
 *   fold_signed_2                           fold of 32 products of signed bytes
 *   subscales_of(bytes, n)                  prepare n (8 or 16) signed bytes as scales for fold_scaled
 *   fold_scaled(sum, products, s, j)        sum + fold(products) * scale j; j is a constant after inlining
 *   sums_of_four(v)                         lane i: the sum of v[i]'s lanes
 *
 * It defines V128_TILE_ROWS and V128_TILE_VECTORS, the number of rows and vectors of results that the GEMM
 * tile keeps in registers. keep_f32 and keep_u8 force a value into a register, so that the compiler cannot
 * remove the loops that measure ceilings. */
#ifndef QDYNO_KERNELS_ISA_V128_H
#define QDYNO_KERNELS_ISA_V128_H

#ifndef ALWAYS_INLINE
#error "include isa/v128_sse41.h, isa/v128_neon.h or isa/v128_dotprod.h instead"
#endif

ALWAYS_INLINE void prefetch_ahead(const void *p, int bytes)
{
#pragma GCC unroll 4
    for (int i = 0; i < bytes; i += LINE_BYTES) __builtin_prefetch((const char *)p + AHEAD_BYTES + i);
}

/* The arguments of a dot kernel for the last row of x only. Dot kernels are inlined for four, two and one
 * rows; three rows run as two and one, which saves a quarter of the code. */
ALWAYS_INLINE struct dot last_row(const struct dot *d)
{
    const int64_t first = d->n - 1;
    struct dot last = *d;
    last.n = 1;
    if (last.x) last.x += first * d->x_stride;
    if (last.q.q) {
        last.q.q += first * d->q.q_stride;
        last.q.d += first * d->q.d_stride;
        last.q.sum += first * d->q.d_stride;
        last.q.sum16 += 2 * first * d->q.d_stride;
    }
    last.y += first * d->y_stride;
    return last;
}

ALWAYS_INLINE f32x4 abs_f32(f32x4 v)
{
    return (f32x4)((u32x4)v & 0x7fffffff);
}

/* b in lanes where `mask` (the result of a comparison) is set, else a. */
ALWAYS_INLINE f32x4 choose(s32x4 mask, f32x4 b, f32x4 a)
{
    return (f32x4)(((s32x4)b & mask) | ((s32x4)a & ~mask));
}

/* e^x with an error of at most 2 units in the last place for -87 <= x <= 88; x is clamped to that range.
 * Formula: see exp_avx512. */
ALWAYS_INLINE f32x4 exp_f32(f32x4 x)
{
    static const float FACTORS[] = { 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1, 1 };
    x = max_f32(all_f32(-87.33f), x); /* in this order NaN stays NaN */
    x = min_f32(all_f32(88.72f), x);
    const f32x4 n = round_f32(x * 1.44269504f);
    f32x4 r = fma_f32(n, all_f32(-0.693145751953125f), x);
    r = fma_f32(n, all_f32(-1.42860677e-6f), r);
    f32x4 p = all_f32(1.0f / 5040);
#pragma GCC unroll 7
    for (int i = 0; i < 7; i++) p = fma_f32(p, r, all_f32(FACTORS[i]));
    /* Multiply by 2^n in two steps: 2^128 is not representable, but p * 2^128 may be. */
    const s32x4 whole = nearest_s32(n), half = whole >> 1;
    return p * (f32x4)((half + 127) << 23) * (f32x4)((whole - half + 127) << 23);
}

/* Move the bits `mask` << from of every byte to `mask` << to; the other bits become 0. */
ALWAYS_INLINE u8x16 bits_to(u8x16 v, const int mask, const int from, const int to)
{
    const u16x8 moved = from > to ? (u16x8)v >> (from - to) : (u16x8)v << (to - from);
    return (u8x16)moved & (uint8_t)(mask << to);
}

#endif
