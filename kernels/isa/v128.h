/* kernels/isa/v128.h - the interface of 128-bit vectors, over which SSE4.1 and NEON kernels are written once.
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
 *   load_f16 load_bf16                      four numbers of 2 bytes to f32; subnormals and infinities kept
 *   gather_f16(p, stride) load_one_f16      four f16 numbers `stride` bytes apart; one
 *   all_f32                                 one number in every lane
 *   fma_f32(a, b, c)                        a * b + c, rounded once or twice
 *   max_f32 min_f32                         the second operand where either is NaN
 *   root_f32                                the square root
 *   round_f32 nearest_s32 f32_of_s32        to even; to an integer; from one
 *   sum_of_f32 max_of_f32                   over the lanes
 *   transpose_4x4                           in place
 *   swap_pairs double_low double_high       lanes 1 0 3 2; 0 0 1 1; 2 2 3 3
 *   sums_of_four_f32                        as sums_of_four below, of floats
 *   f32_of_s8 s8_of_s32                     16 bytes to 16 floats; 16 integers to bytes, saturated
 *   f32_of_planes                           16 floats from their first, second, third and fourth bytes
 *   look_up(table, index)                   table[index] by lane, index < 16
 *   mul_u8                                  modulo 256
 *
 * and products of 16 unsigned (small, <= 63) or signed bytes with signed ones that are never -128, summed as
 * far as the instructions do it by themselves (`products`; which products share a lane is left open, sums of
 * all lanes are what counts):
 *
 *   multiply_small multiply_signed          16 products
 *   multiply_small_2                        32 products
 *   fold                                    products to s32 in four lanes
 *   fold_signed_2                           fold of 32 signed products
 *   subscales_of(bytes, n)                  n (8 or 16) signed bytes, made ready for
 *   fold_scaled(sum, products, s, j)        sum + fold(products) * (byte j), j a constant after inlining
 *   sums_of_four(v)                         lane i: the sum of v[i]'s lanes
 *
 * Also V128_TILE_ROWS x V128_TILE_VECTORS, how many results of a product stay in registers, and keep_f32 and
 * keep_u8, which pin a register for measuring ceilings. */
#ifndef QDYNO_KERNELS_ISA_V128_H
#define QDYNO_KERNELS_ISA_V128_H

#ifndef ALWAYS_INLINE
#error "include isa/v128_sse41.h, isa/v128_neon.h or isa/v128_dotprod.h instead"
#endif

/* Prefetch distance of weights: see avx512.h. */
enum { AHEAD_BYTES = 4096, LINE_BYTES = 64 };

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
