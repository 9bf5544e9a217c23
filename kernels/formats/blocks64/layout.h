/* kernels/formats/blocks64/layout.h - byte layout of the formats with blocks of 64 and 128 weights. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS64_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_BLOCKS64_LAYOUT_H

#include <stdint.h>
#include <string.h>

/* q1_0 and q2_0: an f16 scale, then codes in natural order, the first in the lowest bits. Kernels expand a
 * one-bit code to 0 or 2, so that both formats have the bias Q12_BIAS. nvfp4: four scale bytes, then 8 bytes
 * for each of four groups of 16 weights; byte j has the code of weight j in its low half and that of weight j
 * + 8 in its high half. */
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

/* Twice the values of the sixteen codes, so that they are integers. The scales are halved in return
 * (nvfp4_half_scale). */
#define NVFP4_VALUES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

/* Half of the scale that a byte encodes: an unsigned 8-bit float with 4 exponent bits (bias 7) and 3 mantissa
 * bits, as the magnitude of fp8 e4m3. 0x7f means 0. Codes below 8 are subnormal: code * 2^-9. For the others,
 * the bits are moved to the exponent and mantissa of a binary32. */
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
