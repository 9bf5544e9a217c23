/* kernels/formats/ternary/ternary_v128.h - ternary weights with 128-bit vectors: 256 weights under one scale,
 * expanded 32 at a time. */
#ifndef QDYNO_KERNELS_FORMATS_TERNARY_TERNARY_V128_H
#define QDYNO_KERNELS_FORMATS_TERNARY_TERNARY_V128_H

#include "kernels/isa/gemv/block_dot_v128.h"
#include "kernels/formats/ternary/layout.h"

/* The leading trit of byte * power (mod 256): 0 below 256/3, 1 below 512/3, else 2. */
ALWAYS_INLINE u8x16 trits(u8x16 bytes, u8x16 powers)
{
    const u8x16 v = mul_u8(bytes, powers);
    return -((u8x16)(v >= 86) + (u8x16)(v >= 171));
}

ALWAYS_INLINE u8x16 trits_of_power(u8x16 bytes, uint8_t power)
{
    return trits(bytes, (u8x16){ 0 } + power);
}

/* The layout is described in README.md of this folder. Parts 0 to 4 are the five trits of 32 bytes. Parts 5,
 * 6 and the first half of part 7 are the five trits of 16 bytes; the second half of part 7 is the four trits
 * of 4 bytes. */
ALWAYS_INLINE void tq1_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    static const uint8_t POWER[5] = { 1, 3, 9, 27, 81 };
    if (part < 5) {
        out[0] = trits_of_power(load_u8(block), POWER[part]);
        out[1] = trits_of_power(load_u8(block + 16), POWER[part]);
        return;
    }
    const u8x16 second = load_u8(block + TQ1_0_SECOND);
    if (part < 7) {
        out[0] = trits_of_power(second, POWER[part == 5 ? 0 : 2]);
        out[1] = trits_of_power(second, POWER[part == 5 ? 1 : 3]);
        return;
    }
    uint32_t third;
    memcpy(&third, block + TQ1_0_THIRD, sizeof third);
    out[0] = trits_of_power(second, POWER[4]);
    out[1] = trits((u8x16)(u32x4){ third, third, third, third },
                   (u8x16){ 1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27 });
}

ALWAYS_INLINE void tq2_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    const uint8_t *in = block + part / 4 * PART;
    out[0] = bits_to(load_u8(in), 3, part % 4 * 2, 0);
    out[1] = bits_to(load_u8(in + 16), 3, part % 4 * 2, 0);
}

static const struct block_kind KIND_TQ1_0 = {
    .bytes = TQ1_0_BYTES, .parts = TQ_PARTS, .bias = TQ_BIAS, .codes = tq1_0_codes, .scale_at = TQ1_0_D
};
static const struct block_kind KIND_TQ2_0 = {
    .bytes = TQ2_0_BYTES, .parts = TQ_PARTS, .bias = TQ_BIAS, .codes = tq2_0_codes, .scale_at = TQ2_0_D
};

BLOCK_KIND_FUNCTIONS(tq1_0, KIND_TQ1_0)
BLOCK_KIND_FUNCTIONS(tq2_0, KIND_TQ2_0)

#endif
