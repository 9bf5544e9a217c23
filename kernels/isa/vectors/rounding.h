/* kernels/isa/vectors/rounding.h - activation quantization in plain C loops, which the compiler vectorizes
 * with the flags of the including file (rounding_*.c). `fma` (a constant) says whether the ISA has a fused
 * multiply-add. */
#ifndef QDYNO_KERNELS_ISA_VECTORS_ROUNDING_H
#define QDYNO_KERNELS_ISA_VECTORS_ROUNDING_H

#include <string.h>

#include "kernels/kernel_set.h"

static inline uint32_t float_bits(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* Magnitudes are compared by their bits as integers, which gives the same order and ranks NaN highest. */
static inline float largest_magnitude(const float *x, int64_t n)
{
    int32_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t bits = (int32_t)(float_bits(x[i]) & 0x7fffffff);
        top = bits > top ? bits : top;
    }
    return bits_float((uint32_t)top);
}

/* x / by, correctly rounded, in a third of the time of a division. The product with the reciprocal is off by
 * at most one unit; its remainder is exact, and one correction step with it yields the correctly rounded
 * quotient. Source: Markstein, "Computation of elementary functions on the IBM RISC System/6000" (1990). */
static inline __attribute__((always_inline)) float divided(float x, float by, float reciprocal,
                                                           const bool fma)
{
    if (!fma) return x / by;
    const float q = x * reciprocal;
    const float exact = __builtin_fmaf(__builtin_fmaf(-q, by, x), reciprocal, q);
    return __builtin_fabsf(q) < 0x1p100f ? exact : q; /* the correction would overflow for huge q */
}

static inline __attribute__((always_inline)) void codes_of(const float *restrict x, int64_t n,
                                                           const struct u8_scale *s, uint8_t *restrict code,
                                                           const bool divide, const bool fma)
{
    const float low = (float)-s->zero, high = (float)(255 - s->zero);
    const float by = s->by, reciprocal = s->reciprocal;
    const int32_t zero = s->zero - (int32_t)float_bits(12582912.0f);
    for (int64_t i = 0; i < n; i++) {
        float v = divide ? divided(x[i], by, reciprocal, fma) : x[i] * reciprocal;
        v = v < low ? low : v;
        v = v > high ? high : v;
        code[i] = (uint8_t)((int32_t)float_bits(v + 12582912.0f) +
                            zero); /* 1.5 * 2^23: units of 1, to even */
    }
}

static inline __attribute__((always_inline)) void
quantize_codes(const float *x, int64_t n, const struct u8_scale *s, uint8_t *code, const bool fma)
{
    if (s->by > 0)
        codes_of(x, n, s, code, true, fma);
    else
        codes_of(x, n, s, code, false, fma);
}

/* Round x / by to the numbers of k: to nearest, ties to even. Larger finite magnitudes become `largest`;
 * infinities and NaN become NaN, so that a damaged activation stays visible. Below `normal`, adding and
 * subtracting `magic` rounds to the spacing of subnormals. */
static inline __attribute__((always_inline)) void round_kind(const float *restrict x, int64_t n, float by,
                                                             const struct small_float *k, float *restrict y,
                                                             const bool fma)
{
    const uint32_t odd = k->drop, half = (1u << (k->drop - 1)) - 1, keep = ~((1u << k->drop) - 1);
    const float magic = k->magic, normal = k->normal, largest = k->largest, reciprocal = 1 / by;
    for (int64_t i = 0; i < n; i++) {
        const float v = divided(x[i], by, reciprocal, fma);
        const uint32_t u = float_bits(v), sign = float_bits(x[i]) & 0x80000000; /* of -0, too */
        float r = bits_float(((u & 0x7fffffff) + half + (u >> odd & 1)) & keep);
        const float a = bits_float(u & 0x7fffffff), small = (a + magic) - magic;
        r = a < normal ? small : r;
        r = r > largest ? largest : r;
        r = bits_float(float_bits(r) | sign);
        const float poison = x[i] - x[i]; /* 0, or NaN where x is not finite */
        y[i] = poison != 0 ? poison : v != v ? v : r;
    }
}

static inline void adjust_panel(const struct adjustment *a)
{
    const float *restrict by = a->by;
    for (int r = 0; r < a->rows; r++) {
        const float scale = a->scale[r], add = a->add[r];
        float *restrict c = a->c + r * SLIVER;
        for (int t = 0; t < SLIVER; t++) c[t] = c[t] * by[t] * scale + add;
    }
}

#define ROUNDING_FUNCTIONS(isa, fma)                                                                         \
    static float largest_##isa(const float *x, int64_t n)                                                    \
    {                                                                                                        \
        return largest_magnitude(x, n);                                                                      \
    }                                                                                                        \
    static void quantize_u8_##isa(const float *x, int64_t n, const struct u8_scale *s, uint8_t *code)        \
    {                                                                                                        \
        quantize_codes(x, n, s, code, fma);                                                                  \
    }                                                                                                        \
    static void round_##isa(const float *x, int64_t n, float by, const struct small_float *k, float *y)      \
    {                                                                                                        \
        round_kind(x, n, by, k, y, fma);                                                                     \
    }                                                                                                        \
    static void adjust_##isa(const struct adjustment *a)                                                     \
    {                                                                                                        \
        adjust_panel(a);                                                                                     \
    }

#define ROUNDING_TABLE(isa)                                                                                  \
    {                                                                                                        \
        .largest = largest_##isa, .quantize_u8 = quantize_u8_##isa, .round = round_##isa,                    \
        .adjust = adjust_##isa                                                                               \
    }

#endif
