/* kernels/formats/fp8/codes.h - conversion of 8-bit floats. Decoding goes through f16: an e5m2 number is the
 * upper byte of an f16, and the bits of an e4m3 number fit into one. Encoding rounds to nearest even and
 * saturates, so it never writes infinity or NaN. */
#ifndef QDYNO_KERNELS_FORMATS_FP8_CODES_H
#define QDYNO_KERNELS_FORMATS_FP8_CODES_H

#include "kernels/half.h"

/* Shifted into an f16, the bits of an e4m3 number mean its value times 2^-8: the exponent bias of e4m3 is 7,
 * that of f16 15. */
#define E4M3_FROM_HALF 256.0f
#define E4M3_MAX       448.0f
#define E5M2_MAX       57344.0f

/* The two NaN codes (0x7f, 0xff) decode to 480 and -480; no encoder here writes them. */
static inline float e4m3_to_float(uint8_t code)
{
    return half_to_float((uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7)) * E4M3_FROM_HALF;
}

static inline float e5m2_to_float(uint8_t code)
{
    return half_to_float((uint16_t)(code << 8));
}

/* Parameters of a format for fp8_from_float. */
struct fp8_kind {
    int cut;              /* number of low mantissa bits of an f32 that the format does not have */
    uint32_t bias;        /* difference of the exponent biases, shifted to the exponent of a code */
    float normal;         /* smallest normal number */
    float per_unit;       /* 1 / (smallest subnormal number) */
    uint8_t largest_code; /* code of the largest finite number */
};
static const struct fp8_kind
    E4M3 = { .cut = 20, .bias = (127 - 7) << 3, .normal = 0x1p-6f, .per_unit = 0x1p9f, .largest_code = 0x7e },
    E5M2 = {
        .cut = 21, .bias = (127 - 15) << 2, .normal = 0x1p-14f, .per_unit = 0x1p16f, .largest_code = 0x7b
    };

static inline uint8_t fp8_from_float(const struct fp8_kind *f, float x)
{
    const uint32_t u = bits_of(x), sign = u >> 24 & 0x80, a = u & 0x7fffffff;
    const float magnitude = float_of(a);
    /* Subnormal: adding 1.5 * 2^23 rounds to an integer. Both cases are computed and one is selected, so that
     * the compiler can vectorize loops. */
    const int32_t small = (int32_t)(bits_of(magnitude * f->per_unit + 12582912.0f) & 0xff);
    const int32_t normal = (int32_t)((a + (1u << (f->cut - 1)) - 1 + (a >> f->cut & 1)) >> f->cut) -
                           (int32_t)f->bias;
    const int32_t code = magnitude < f->normal ? small : normal;
    return (uint8_t)(sign | (uint32_t)(code > f->largest_code ? f->largest_code : code));
}

#endif
