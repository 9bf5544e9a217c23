/* kernels/formats/iquants/layout.h - byte layout of blocks of 256 weights, for every kernel of the family.
 *
 * As in the k-quants, whose kernels this family uses, weight i = scale[j] * (code[i] - bias) with j = i / sub
 * and scale[j] = d * unit * (an odd integer). The file has no codes: eight weights (iq3: four) share a row of
 * a codebook. A part is 32 weights. The functions below read the rows and signs of a part with portable code;
 * each instruction set turns them into a vector of codes. */
#ifndef QDYNO_KERNELS_FORMATS_IQUANTS_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_IQUANTS_LAYOUT_H

#include "kernels/formats/iquants/grids.h"
#include "kernels/formats/kquants/layout.h"

enum { IQ_PARTS = 8, IQ_PART = 32, IQ_GROUPS = 4 /* groups of eight weights in a part */ };

static const struct k_shape IQ1_S_SHAPE = { .block_bytes = 50, .sub = 32, .bias = IQ1_BIAS, .unit = 0.125f },
                            IQ1_M_SHAPE = { .block_bytes = 56, .sub = 16, .bias = IQ1_BIAS, .unit = 0.125f },
                            IQ2_XXS_SHAPE = { .block_bytes = 66, .sub = 32, .bias = 64, .unit = 0.125f },
                            IQ2_XS_SHAPE = { .block_bytes = 74, .sub = 16, .bias = 64, .unit = 0.125f },
                            IQ2_S_SHAPE = { .block_bytes = 82, .sub = 16, .bias = 64, .unit = 0.125f },
                            IQ3_XXS_SHAPE = { .block_bytes = 98, .sub = 32, .bias = 64, .unit = 0.25f },
                            IQ3_S_SHAPE = { .block_bytes = 110, .sub = 32, .bias = 16, .unit = 1 };

/* Byte offsets. */
enum {
    IQ_CODES = 2, /* d is at offset 0, except in iq1_m, where it is spread over the scales */
    IQ1_S_HIGH = 34,
    IQ1_M_CODES = 0,
    IQ1_M_HIGH = 32,
    IQ1_M_SCALES = 48,
    IQ2_XS_SCALES = 66,
    IQ2_S_SIGNS = 34,
    IQ2_S_HIGH = 66,
    IQ2_S_SCALES = 74,
    IQ3_XXS_WORDS = 66,
    IQ3_S_HIGH = 66,
    IQ3_S_SIGNS = 74,
    IQ3_S_SCALES = 106,
};

/* ---------------------------------------------------------------- scales */

/* Spread eight 4-bit fields n over eight bytes and return 2n + 1 in each byte. */
static inline uint64_t iq_odd_bytes(uint64_t nibbles)
{
    nibbles = (nibbles | nibbles << 16) & 0x0000ffff0000ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff00ff00ff00ff;
    nibbles = (nibbles | nibbles << 4) & 0x0f0f0f0f0f0f0f0f;
    return 2 * nibbles + k_bytes(1);
}

static inline void iq_scales_begin(const uint8_t *block, struct k_scales *s)
{
    s->d = load_u16(block), s->dmin = 0;
    s->scale[0] = s->scale[1] = s->min[0] = s->min[1] = 0;
}

/* Read sixteen 4-bit scales. */
static inline void iq2_scales16(const uint8_t *block, int at, struct k_scales *s)
{
    iq_scales_begin(block, s);
    s->scale[0] = iq_odd_bytes(k_load_u32(block + at));
    s->scale[1] = iq_odd_bytes(k_load_u32(block + at + 4));
}

static inline void iq2_xs_scales(const uint8_t *block, struct k_scales *s)
{
    iq2_scales16(block, IQ2_XS_SCALES, s);
}

static inline void iq2_s_scales(const uint8_t *block, struct k_scales *s)
{
    iq2_scales16(block, IQ2_S_SCALES, s);
}

static inline void iq3_s_scales(const uint8_t *block, struct k_scales *s)
{
    iq_scales_begin(block, s);
    s->scale[0] = iq_odd_bytes(k_load_u32(block + IQ3_S_SCALES));
}

/* Read eight scales from the upper four bits of 32-bit words that are `step` bytes apart. */
static inline void iq_scales_of_words(const uint8_t *block, int at, int step, struct k_scales *s)
{
    uint64_t nibbles = 0;
    iq_scales_begin(block, s);
    for (int p = 0; p < IQ_PARTS; p++)
        nibbles |= (uint64_t)(k_load_u32(block + at + p * step) >> 28) << 4 * p;
    s->scale[0] = iq_odd_bytes(nibbles);
}

static inline void iq2_xxs_scales(const uint8_t *block, struct k_scales *s)
{
    iq_scales_of_words(block, IQ_CODES + 4, 8, s);
}

static inline void iq3_xxs_scales(const uint8_t *block, struct k_scales *s)
{
    iq_scales_of_words(block, IQ3_XXS_WORDS, 4, s);
}

static inline void iq1_s_scales(const uint8_t *block, struct k_scales *s)
{
    uint64_t nibbles = 0;
    iq_scales_begin(block, s);
    for (int p = 0; p < IQ_PARTS; p++)
        nibbles |= (uint64_t)(load_u16(block + IQ1_S_HIGH + 2 * p) >> 12 & 7) << 4 * p;
    s->scale[0] = iq_odd_bytes(nibbles);
}

static inline void iq1_m_scales(const uint8_t *block, struct k_scales *s)
{
    s->d = s->dmin = 0, s->min[0] = s->min[1] = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t nibbles = 0;
        for (int h = 0; h < 2; h++) {
            const uint64_t word = load_u16(block + IQ1_M_SCALES + 4 * i + 2 * h);
            s->d |= (uint16_t)(word >> 12 << 4 * (2 * i + h));
            nibbles |= ((word & 7) | (word & 070) << 1 | (word & 0700) << 2 | (word & 07000) << 3) << 16 * h;
        }
        s->scale[i] = iq_odd_bytes(nibbles);
    }
}

/* ---------------------------------------------------------------- codes */

/* The 32 weights of a part: bytes[g] has the magnitudes of eight weights, and bit i of `negative` is the sign
 * of weight i. Formats without signs (iq1) have codes including the bias in the bytes. */
struct iq_part {
    uint64_t bytes[IQ_GROUPS];
    uint32_t negative;
};
typedef void iq_part_fn(const uint8_t *block, int p, struct iq_part *out);

/* Each byte has seven signs in its lower bits. Set the eighth bit to their parity, so that the number of
 * negative weights is even. */
static inline uint32_t iq_signs_even(uint32_t seven)
{
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 0x01010101) << 7;
}

/* The same for four 7-bit fields without gaps. */
static inline uint32_t iq_signs_of_28(uint32_t v)
{
    return iq_signs_even((v & 0x7f) | (v & 0x3f80) << 1 | (v & 0x1fc000) << 2 | (v & 0xfe00000) << 3);
}

static inline void iq2_xxs_part(const uint8_t *block, int p, struct iq_part *out)
{
    const uint8_t *at = block + IQ_CODES + 8 * p;
    for (int g = 0; g < IQ_GROUPS; g++) out->bytes[g] = IQ2_XXS_BYTES[at[g]];
    out->negative = iq_signs_of_28(k_load_u32(at + 4));
}

static inline void iq2_xs_part(const uint8_t *block, int p, struct iq_part *out)
{
    const uint64_t words = k_load_u64(block + IQ_CODES + 8 * p);
    for (int g = 0; g < IQ_GROUPS; g++) out->bytes[g] = IQ2_XS_BYTES[words >> 16 * g & 511];
    uint64_t seven = words >> 9 & 0x007f007f007f007f;
    seven = (seven | seven >> 8) & 0x0000ffff0000ffff;
    out->negative = iq_signs_even((uint32_t)(seven | seven >> 16));
}

static inline void iq2_s_part(const uint8_t *block, int p, struct iq_part *out)
{
    const uint8_t *at = block + IQ_CODES + 4 * p;
    const uint32_t high = block[IQ2_S_HIGH + p];
    for (int g = 0; g < IQ_GROUPS; g++) out->bytes[g] = IQ2_S_BYTES[at[g] | (high >> 2 * g & 3) << 8];
    out->negative = k_load_u32(block + IQ2_S_SIGNS + 4 * p);
}

static inline void iq3_xxs_part(const uint8_t *block, int p, struct iq_part *out)
{
    const uint8_t *at = block + IQ_CODES + 8 * p;
    for (int g = 0; g < IQ_GROUPS; g++)
        out->bytes[g] = IQ3_XXS_BYTES[at[2 * g]] | (uint64_t)IQ3_XXS_BYTES[at[2 * g + 1]] << 32;
    out->negative = iq_signs_of_28(k_load_u32(block + IQ3_XXS_WORDS + 4 * p));
}

static inline void iq3_s_part(const uint8_t *block, int p, struct iq_part *out)
{
    const uint8_t *at = block + IQ_CODES + 8 * p;
    const uint32_t high = block[IQ3_S_HIGH + p];
    for (int g = 0; g < IQ_GROUPS; g++) {
        const uint32_t first = at[2 * g] | (high >> 2 * g & 1) << 8;
        const uint32_t second = at[2 * g + 1] | (high >> (2 * g + 1) & 1) << 8;
        out->bytes[g] = IQ3_S_BYTES[first] | (uint64_t)IQ3_S_BYTES[second] << 32;
    }
    out->negative = k_load_u32(block + IQ3_S_SIGNS + 4 * p);
}

/* The shift of eight weights, to be added to eight bytes at once: 1 or -1 in every byte. The bytes are at
 * least 8, so -1 does not borrow from a neighbour. */
static inline uint64_t iq1_shift(bool down)
{
    return down ? 0 - k_bytes(1) : k_bytes(1);
}

static inline void iq1_s_part(const uint8_t *block, int p, struct iq_part *out)
{
    const uint8_t *at = block + IQ_CODES + 4 * p;
    const uint32_t high = load_u16(block + IQ1_S_HIGH + 2 * p);
    const uint64_t shift = iq1_shift(high >> 15);
    for (int g = 0; g < IQ_GROUPS; g++) out->bytes[g] = IQ1_BYTES[at[g] | (high >> 3 * g & 7) << 8] + shift;
    out->negative = 0;
}

static inline void iq1_m_part(const uint8_t *block, int p, struct iq_part *out)
{
    const uint8_t *at = block + IQ1_M_CODES + 4 * p;
    const uint32_t high = load_u16(block + IQ1_M_HIGH + 2 * p);
    for (int g = 0; g < IQ_GROUPS; g++)
        out->bytes[g] = IQ1_BYTES[at[g] | (high >> 4 * g & 7) << 8] + iq1_shift(high >> (4 * g + 3) & 1);
    out->negative = 0;
}

#endif
