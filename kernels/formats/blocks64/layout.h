/* kernels/formats/blocks64/layout.h - where the blocks of 64 and 128 weights keep what. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS64_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_BLOCKS64_LAYOUT_H

#include <stdint.h>
#include <string.h>

/* q1_0 and q2_0: an f16 scale, then codes in natural order, the first in the lowest bits. A one-bit code
 * counts as 0 or 2, so that both formats have the same bias. nvfp4: four scale bytes, then 8 bytes for each
 * of four groups of 16 weights: byte j has weight j in its low half and weight j + 8 in its high half. */
enum {
    Q1_0_BLOCK = 128,
    Q1_0_BYTES = 18,
    Q2_0_BLOCK = 64,
    Q2_0_BYTES = 18,
    Q12_CODES = 2,
    Q12_BIAS = 1,
    NVFP4_BLOCK = 64,
    NVFP4_GROUPS = 4,
    NVFP4_GROUP = 16,
    NVFP4_CODES = 4,
    NVFP4_BYTES = 36,
    NVFP4_BIAS = 12,
};

/* Twice the values of the sixteen codes; what the scale bytes mean is halved instead. */
#define NVFP4_VALUES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

/* Half of a scale: 4 bits of exponent (bias 7) and 3 of mantissa, like the magnitude of an fp8 e4m3 number;
 * 0x7f means 0. As the upper bits of an f16, such a number is 2^-8 of itself, here computed in binary32. */
static inline float nvfp4_half_scale(uint8_t byte)
{
    const uint32_t code = byte & 0x7f;
    if (code == 0x7f) return 0;
    if (code < 8) return (float)code * 0x1p-10f;
    const uint32_t bits = (code << 20) + ((127u - 7u - 1u) << 23);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

#endif
