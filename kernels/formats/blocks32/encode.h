/* kernels/formats/blocks32/encode.h - encoders of blocks of 32 weights without a search: q8_0 q4_0 q4_1
 * q5_0 q5_1 mxfp4. Every operation is one rounded binary32 operation in the order written, and codes are
 * computed with the scale before it is rounded to f16, so the bytes equal those of ggml's reference. The
 * loops are plain C, which the compiler vectorizes; the reference and the encoders of every instruction set
 * include this file. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS32_ENCODE_H
#define QDYNO_KERNELS_FORMATS_BLOCKS32_ENCODE_H

#include <math.h>

#include "kernels/formats/blocks32/store.h"

static inline float b32_inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

/* The first of the weights with the largest magnitude; 0 for zeros. */
static inline float b32_extreme(const float *x)
{
    const float most = largest_magnitude(x, 32);
    int first = 32;
    for (int j = 0; j < 32; j++) {
        const int at = fabsf(x[j]) == most ? j : 32;
        first = at < first ? at : first;
    }
    return most > 0 ? x[first] : 0;
}

/* A float's bits as an integer of the same order (-0 below 0). */
static inline int32_t b32_key(float v)
{
    const int32_t bits = (int32_t)bits_of(v);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

static inline float b32_of_key(int32_t key)
{
    return float_of((uint32_t)(key < 0 ? key ^ 0x7fffffff : key));
}

/* The minimum and maximum of 32 weights. ggml compares floats in order, so a minimum of zero has the sign of
 * the first zero. */
static inline void b32_range(const float *x, float *min, float *max)
{
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (int j = 0; j < 32; j++) {
        const int32_t key = b32_key(x[j]);
        low = key < low ? key : low, high = key > high ? key : high;
    }
    *min = b32_of_key(low), *max = b32_of_key(high);
    for (int j = 31; j >= 0 && *min == 0; j--)
        if (x[j] == 0) low = b32_key(x[j]);
    *min = b32_of_key(low);
}

static inline void q8_0_encode_block(const float *x, uint8_t *out)
{
    const float d = largest_magnitude(x, 32) / 127, id = b32_inverse(d);
    store_u16(out, half_from_float(d));
    for (int j = 0; j < 32; j++) out[2 + j] = (uint8_t)round_half_away(x[j] * id);
}

/* Encode with codes 0 .. 2 half - 1 that mean (code - half) * d. d is chosen so that the weight of largest
 * magnitude gets code 0, which means -half * d. */
static inline void b32_encode_symmetric(const float *x, const int half, uint8_t *out, uint8_t *code)
{
    const float d = b32_extreme(x) / (float)-half, id = b32_inverse(d);
    store_u16(out, half_from_float(d));
    for (int j = 0; j < 32; j++) {
        const int c = (int)(x[j] * id + ((float)half + 0.5f)); /* never below 0 */
        code[j] = (uint8_t)(c > 2 * half - 1 ? 2 * half - 1 : c);
    }
}

/* Encode with codes 0 .. levels that mean min + code * d. */
static inline void b32_encode_line(const float *x, const int levels, uint8_t *out, uint8_t *code)
{
    float min, max;
    b32_range(x, &min, &max);
    const float d = (max - min) / (float)levels, id = b32_inverse(d);
    store_u16(out, half_from_float(d));
    store_u16(out + Q4_1_MIN, half_from_float(min));
    for (int j = 0; j < 32; j++) {
        const int c = (int)((x[j] - min) * id + 0.5f);
        code[j] = (uint8_t)(c > levels ? levels : c);
    }
}

static inline void q4_0_encode_block(const float *x, uint8_t *out)
{
    uint8_t code[32];
    b32_encode_symmetric(x, 8, out, code);
    nibbles_store(out + Q4_0_CODES, code);
}

static inline void q5_0_encode_block(const float *x, uint8_t *out)
{
    uint8_t code[32];
    b32_encode_symmetric(x, 16, out, code);
    fifths_store(out + Q5_0_HIGH, code);
    nibbles_store(out + Q5_0_CODES, code);
}

static inline void q4_1_encode_block(const float *x, uint8_t *out)
{
    uint8_t code[32];
    b32_encode_line(x, 15, out, code);
    nibbles_store(out + Q4_1_CODES, code);
}

static inline void q5_1_encode_block(const float *x, uint8_t *out)
{
    uint8_t code[32];
    b32_encode_line(x, 31, out, code);
    fifths_store(out + Q5_1_HIGH, code);
    nibbles_store(out + Q5_1_CODES, code);
}

/* Encode a block of mxfp4. The exponent byte makes the largest magnitude 4 to 8 times the scale, whose
 * largest value is 6. ggml rounds the logarithm to binary32 before its floor, so a magnitude just below a
 * large power of two counts as that power; this function does the same. A code is the number of midpoints
 * between neighbouring values that are below
 * x|, so the smaller of two equally near values is chosen. */
static inline void mxfp4_encode_block(const float *x, uint8_t *out)
{
    uint8_t code[32];
    const float largest = largest_magnitude(x, 32);
    out[0] = largest > 0 ? (uint8_t)((int)floorf((float)log2((double)largest)) - 2 + 127) : 0;
    const float s = mxfp4_scale(out);
    for (int j = 0; j < 32; j++) {
        const float v = fabsf(x[j]);
        const int rank = (v > 0.5f * s) + (v > 1.5f * s) + (v > 2.5f * s) + (v > 3.5f * s) + (v > 5 * s) +
                         (v > 7 * s) + (v > 10 * s);
        code[j] = (uint8_t)(rank + (rank && x[j] < 0 ? 8 : 0));
    }
    nibbles_store(out + MXFP4_CODES, code);
}

#define B32_ENCODE(name, bytes, x, out, n)                                                                   \
    for (int64_t i = 0; i < (n); i += 32) name##_encode_block((x) + i, (uint8_t *)(out) + i / 32 * (bytes))

#endif
