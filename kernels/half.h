/* kernels/half.h - conversions of 16-bit floats and unaligned loads, as inline functions for the reference
 * kernels and the scalar remainders of vector kernels. Conversions round to nearest even and keep subnormals.
 * Source: IEEE 754 binary16; bf16 is the upper half of binary32. */
#ifndef QDYNO_KERNELS_HALF_H
#define QDYNO_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Blocks of 18 or 34 bytes in a mapped file have no alignment. */
static inline uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_u16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline float half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t magnitude = h & 0x7fff;
    if (magnitude >= 0x7c00) return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude < 0x0400) { /* subnormal: the integer times 2^-24 is exact */
        float v = (float)magnitude * 0x1p-24f;
        return float_of(bits_of(v) | sign);
    }
    return float_of(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

/* Computes all cases and selects one without branches, so that the compiler can vectorize loops of it. */
static inline uint16_t half_from_float(float x)
{
    const uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000;
    const int32_t a = (int32_t)(u & 0x7fffffff); /* signed ones compare faster in vectors */
    /* below 2^-14: adding 0.5 leaves units of 2^-24, rounded by the addition itself */
    const int32_t small = (int32_t)bits_of(float_of((uint32_t)a) + 0.5f) - 0x3f000000;
    int32_t h = (a - ((127 - 15) << 23) + 0xfff + ((a >> 13) & 1)) >> 13;
    h = a < 0x38800000 ? small : h;
    h = a >= 0x477ff000 ? 0x7c00 : h; /* 65520 and above round to infinity */
    h = a > 0x7f800000 ? 0x7e00 : h;
    return (uint16_t)(sign | (uint32_t)h);
}

static inline float bhalf_to_float(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

static inline uint16_t bhalf_from_float(float x)
{
    const uint32_t u = bits_of(x);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* The largest magnitude of n numbers; NaN when one of them is NaN. The bits of magnitudes are compared as
 * integers: their order is the same, with NaN above infinity, and unlike float comparisons the compiler may
 * reorder and vectorize them. */
static inline float largest_magnitude(const float *x, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t size = (int32_t)(bits_of(x[i]) & 0x7fffffff);
        most = size > most ? size : most;
    }
    return float_of((uint32_t)most);
}

/* Round to the nearest integer, ties to even, for |v| <= 2^22. Adding 1.5 * 2^23 leaves units of 1, so the
 * addition itself rounds. */
static inline int32_t round_even(float v)
{
    return (int32_t)(bits_of(v + 12582912.0f) - bits_of(12582912.0f));
}

/* Round to the nearest integer, halves away from zero: roundf without a library call. v - whole is exact. */
static inline int32_t round_half_away(float v)
{
    const int32_t whole = (int32_t)v;
    const float rest = v - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

#endif
