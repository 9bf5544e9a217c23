/* kernels/formats/blocks32/blocks32_v128.h - blocks of 32 weights with 128-bit vectors: for each
 * format, a function that extracts the 32 codes as bytes; isa/gemv/block_dot_v128.h derives the kernels. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS32_BLOCKS32_V128_H
#define QDYNO_KERNELS_FORMATS_BLOCKS32_BLOCKS32_V128_H

#include "kernels/isa/gemv/block_dot_v128.h"
#include "kernels/formats/blocks32/layout.h"

/* The 32 codes in 16 bytes: codes 0..15 are the lower halves of the bytes, 16..31 the upper ones. */
ALWAYS_INLINE void nibbles(const uint8_t *p, u8x16 out[2])
{
    const u8x16 bytes = load_u8(p);
    out[0] = bits_to(bytes, 15, 0, 0);
    out[1] = bits_to(bytes, 15, 4, 0);
}

ALWAYS_INLINE void look_up_nibbles(u8x16 table, const uint8_t *p, u8x16 out[2])
{
    nibbles(p, out);
    out[0] = look_up(table, out[0]), out[1] = look_up(table, out[1]);
}

ALWAYS_INLINE void q8_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    out[0] = load_u8(block + Q8_0_CODES), out[1] = load_u8(block + Q8_0_CODES + 16);
}

ALWAYS_INLINE void q4_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    nibbles(block + Q4_0_CODES, out);
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
    add_bits(block + Q5_0_HIGH, 16, out);
}

ALWAYS_INLINE void q5_1_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    nibbles(block + Q5_1_CODES, out);
    add_bits(block + Q5_1_HIGH, 16, out);
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

static const struct block_kind
    KIND_Q8_0 = { .bytes = Q8_0_BYTES, .parts = 1, .is_signed = true, .codes = q8_0_codes },
    KIND_Q4_0 = { .bytes = Q4_0_BYTES, .parts = 1, .bias = Q4_0_BIAS, .codes = q4_0_codes },
    KIND_Q4_1 = { .bytes = Q4_1_BYTES, .parts = 1, .codes = q4_1_codes, .min = MIN, .min_at = Q4_1_MIN },
    KIND_Q5_0 = { .bytes = Q5_0_BYTES, .parts = 1, .bias = Q5_0_BIAS, .codes = q5_0_codes },
    KIND_Q5_1 = { .bytes = Q5_1_BYTES, .parts = 1, .codes = q5_1_codes, .min = MIN, .min_at = Q5_1_MIN },
    KIND_IQ4_NL = { .bytes = IQ4_NL_BYTES, .parts = 1, .is_signed = true, .codes = iq4_nl_codes },
    KIND_MXFP4 = {
        .bytes = MXFP4_BYTES, .parts = 1, .bias = MXFP4_BIAS, .codes = mxfp4_codes, .scale = mxfp4_scale
    };

BLOCK_KIND_FUNCTIONS(q8_0, KIND_Q8_0)
BLOCK_KIND_FUNCTIONS(q4_0, KIND_Q4_0)
BLOCK_KIND_FUNCTIONS(q4_1, KIND_Q4_1)
BLOCK_KIND_FUNCTIONS(q5_0, KIND_Q5_0)
BLOCK_KIND_FUNCTIONS(q5_1, KIND_Q5_1)
BLOCK_KIND_FUNCTIONS(iq4_nl, KIND_IQ4_NL)
BLOCK_KIND_FUNCTIONS(mxfp4, KIND_MXFP4)

#endif
