/* kernels/formats/fp8/codes.h - conversion of 8-bit floats. Decoding goes through f16, whose bits contain
 * theirs. Encoding rounds to nearest even and saturates, so it never writes infinity or NaN. */
#ifndef QDYNO_KERNELS_FORMATS_FP8_CODES_H
#define QDYNO_KERNELS_FORMATS_FP8_CODES_H

#include "kernels/half.h"

/* The bits of an e4m3, shifted into an f16, are too small by this factor: its exponent bias is 7, not 15. */
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

/* Where the format keeps the bits of a f32's exponent and mantissa, and its limits. */
struct fp8_kind {
    int cut;              /* mantissa bits of a f32 that go */
    uint32_t bias;        /* of the exponent, in units of a code, to take off */
    float normal;         /* smallest */
    float per_unit;       /* one over the smallest subnormal */
    uint8_t largest_code; /* finite */
};
static const struct fp8_kind E4M3 = { 20, (127 - 7) << 3, 0x1p-6f, 0x1p9f, 0x7e },
                             E5M2 = { 21, (127 - 15) << 2, 0x1p-14f, 0x1p16f, 0x7b };

static inline uint8_t fp8_from_float(const struct fp8_kind *f, float x)
{
    const uint32_t u = bits_of(x), sign = u >> 24 & 0x80, a = u & 0x7fffffff;
    const float magnitude = float_of(a);
    /* 1.5 * 2^23 leaves units of 1, rounded by the addition itself; both cases, so that loops become vectors
     */
    const int32_t small = (int32_t)(bits_of(magnitude * f->per_unit + 12582912.0f) & 0xff);
    const int32_t normal = (int32_t)((a + (1u << (f->cut - 1)) - 1 + (a >> f->cut & 1)) >> f->cut) -
                           (int32_t)f->bias;
    const int32_t code = magnitude < f->normal ? small : normal;
    return (uint8_t)(sign | (uint32_t)(code > f->largest_code ? f->largest_code : code));
}

#endif
