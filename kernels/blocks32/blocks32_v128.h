/* kernels/blocks32/blocks32_v128.h - blocks of 32 weights with 128-bit vectors: how each format's codes
 * become 32 bytes. q8_0 and q4_0 are two more of them. */
#ifndef QDYNO_KERNELS_BLOCKS32_V128_H
#define QDYNO_KERNELS_BLOCKS32_V128_H

#include "kernels/blocks32/dot_v128.h"
#include "kernels/blocks32/layout.h"

/* q8_0 and q4_0: an f16 scale, then the codes. */
enum { HALF_CODES = 2, Q8_0_BYTES = 34, Q4_0_BYTES = 18, Q4_0_BIAS = 8 };

ALWAYS_INLINE void nibbles(const uint8_t *p, u8x16 out[2])
{
    const u8x16 bytes = load_u8(p);
    out[0] = bits_to(bytes, 15, 0, 0);
    out[1] = bits_to(bytes, 15, 4, 0);
}

/* Bit j of the word at p as 16 in byte j: every byte gets its byte of the word and looks for its bit. */
ALWAYS_INLINE void add_fifths(const uint8_t *p, u8x16 out[2])
{
    const u8x16 bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    const u8x16 spread = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 };
    const uint32_t word = load_u32(p);
    const u8x16 all = (u8x16)(u32x4){ word, word, word, word };
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const u8x16 bytes = look_up(all, spread + (uint8_t)(2 * h));
        out[h] |= (u8x16)((bytes & bit) == bit) & 16;
    }
}

ALWAYS_INLINE void look_up_nibbles(u8x16 table, const uint8_t *p, u8x16 out[2])
{
    nibbles(p, out);
    out[0] = look_up(table, out[0]), out[1] = look_up(table, out[1]);
}

ALWAYS_INLINE void q8_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    out[0] = load_u8(block + HALF_CODES), out[1] = load_u8(block + HALF_CODES + 16);
}

ALWAYS_INLINE void q4_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    nibbles(block + HALF_CODES, out);
}

ALWAYS_INLINE void q4_1_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    nibbles(block + Q4_1_CODES, out);
}

ALWAYS_INLINE void q5_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    nibbles(block + Q5_0_CODES, out);
    add_fifths(block + Q5_0_HIGH, out);
}

ALWAYS_INLINE void q5_1_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    nibbles(block + Q5_1_CODES, out);
    add_fifths(block + Q5_1_HIGH, out);
}

ALWAYS_INLINE void iq4_nl_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    look_up_nibbles((u8x16)(s8x16){ IQ4_NL_VALUES }, block + IQ4_NL_CODES, out);
}

ALWAYS_INLINE void mxfp4_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    look_up_nibbles((u8x16){ MXFP4_BIASED }, block + MXFP4_CODES, out);
}

static const struct block_kind KIND_Q8_0 = { Q8_0_BYTES, 1, 0, true, q8_0_codes, 0, NULL, -1 },
                               KIND_Q4_0 = { Q4_0_BYTES, 1, Q4_0_BIAS, false, q4_0_codes, 0, NULL, -1 },
                               KIND_Q4_1 = { Q4_1_BYTES, 1, 0, false, q4_1_codes, 0, NULL, Q4_1_MIN },
                               KIND_Q5_0 = { Q5_0_BYTES, 1, Q5_0_BIAS, false, q5_0_codes, 0, NULL, -1 },
                               KIND_Q5_1 = { Q5_1_BYTES, 1, 0, false, q5_1_codes, 0, NULL, Q5_1_MIN },
                               KIND_IQ4_NL = { IQ4_NL_BYTES, 1, 0, true, iq4_nl_codes, 0, NULL, -1 },
                               KIND_MXFP4 = { MXFP4_BYTES, 1,  MXFP4_BIAS,  false,
                                              mxfp4_codes, -1, mxfp4_scale, -1 };

BLOCK_KIND_FUNCTIONS(q8_0, KIND_Q8_0)
BLOCK_KIND_FUNCTIONS(q4_0, KIND_Q4_0)
BLOCK_KIND_FUNCTIONS(q4_1, KIND_Q4_1)
BLOCK_KIND_FUNCTIONS(q5_0, KIND_Q5_0)
BLOCK_KIND_FUNCTIONS(q5_1, KIND_Q5_1)
BLOCK_KIND_FUNCTIONS(iq4_nl, KIND_IQ4_NL)
BLOCK_KIND_FUNCTIONS(mxfp4, KIND_MXFP4)

#endif
