/* kernels/formats/blocks32/layout.h - the layout of blocks of 32 weights, and the sixteen values of the
 * two formats whose codes are looked up. Code j is the low half of byte j (j < 16) or the high half of byte j
 * - 16; the fifth bit of q5's code j is bit j of a 32-bit word. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS32_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_BLOCKS32_LAYOUT_H

#include "kernels/half.h"

/* Byte offsets; every block but mxfp4's starts with its f16 scale. */
enum {
    Q8_0_CODES = 2,
    Q8_0_BYTES = 34,
    Q4_0_CODES = 2,
    Q4_0_BYTES = 18,
    Q4_1_MIN = 2,
    Q4_1_CODES = 4,
    Q4_1_BYTES = 20,
    Q5_0_HIGH = 2,
    Q5_0_CODES = 6,
    Q5_0_BYTES = 22,
    Q5_1_MIN = 2,
    Q5_1_HIGH = 4,
    Q5_1_CODES = 8,
    Q5_1_BYTES = 24,
    IQ4_NL_CODES = 2,
    IQ4_NL_BYTES = 18,
    MXFP4_CODES = 1, /* behind the exponent */
    MXFP4_BYTES = 17,
};

/* Biases: of the codes of q4_0 and q5_0, and of the table entries of iq4_nl and mxfp4 where kernels need
 * unsigned bytes (vpdpbusd). */
enum { Q4_0_BIAS = 8, Q5_0_BIAS = 16, IQ4_NL_BIAS = 128, MXFP4_BIAS = 12 };

#define IQ4_NL_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
/* The values plus IQ4_NL_BIAS, written as signed bytes. */
#define IQ4_NL_BIASED 1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15

/* Twice 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, so that they are integers; the scale is halved. */
#define MXFP4_VALUES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
#define MXFP4_BIASED 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0

/* Store 32 codes of up to five bits: nibbles_store the low four bits, fifths_store the fifth bits. */
static inline void nibbles_store(uint8_t *out, const uint8_t *code)
{
    for (int j = 0; j < 16; j++) out[j] = (uint8_t)((code[j] & 15) | (code[j + 16] & 15) << 4);
}

static inline void fifths_store(uint8_t *out, const uint8_t *code)
{
    uint32_t high = 0;
    for (int j = 0; j < 32; j++) high |= (uint32_t)(code[j] >> 4) << j;
    memcpy(out, &high, sizeof high);
}

static inline uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Half of 2^(e - 127): subnormal for the two smallest e. */
static inline float mxfp4_scale(const uint8_t *block)
{
    const uint32_t e = block[0];
    return float_of(e >= 2 ? (e - 1) << 23 : 0x00200000u << e);
}

#endif
