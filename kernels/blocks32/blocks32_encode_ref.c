/* Blocks of 32 weights, the encoders. Every operation is one rounded binary32 operation in the order written,
 * codes come from the unrounded scale: so the bytes equal those of ggml's reference. */
#include <math.h>

#include "kernels/blocks32/blocks32.h"
#include "kernels/blocks32/layout.h"
#include "kernels/kquants/search.h"

enum { BLOCK = 32 };

static float inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

/* Codes 0..levels from the minimum upwards. */
static void affine_codes(const float *x, int levels, uint8_t *block, uint8_t *code)
{
    float min = x[0], max = x[0];
    for (int j = 1; j < BLOCK; j++) {
        if (x[j] < min) min = x[j];
        if (x[j] > max) max = x[j];
    }
    const float d = (max - min) / (float)levels, id = inverse(d);
    store_u16(block, half_from_float(d));
    store_u16(block + Q4_1_MIN, half_from_float(min));
    for (int j = 0; j < BLOCK; j++) {
        const int c = (int)((x[j] - min) * id + 0.5f);
        code[j] = (uint8_t)(c > levels ? levels : c);
    }
}

void q4_1_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks, code[BLOCK];
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, out += Q4_1_BYTES) {
        affine_codes(x, 15, out, code);
        nibbles_store(out + Q4_1_CODES, code);
    }
}

void q5_1_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks, code[BLOCK];
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, out += Q5_1_BYTES) {
        affine_codes(x, 31, out, code);
        fifths_store(out + Q5_1_HIGH, code);
        nibbles_store(out + Q5_1_CODES, code);
    }
}

/* The weight of largest magnitude, the first if several, becomes code 0. */
void q5_0_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks, code[BLOCK];
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, out += Q5_0_BYTES) {
        float largest = 0, extreme = 0;
        for (int j = 0; j < BLOCK; j++)
            if (fabsf(x[j]) > largest) largest = fabsf(x[j]), extreme = x[j];
        const float d = extreme / -Q5_0_BIAS, id = inverse(d);
        store_u16(out, half_from_float(d));
        for (int j = 0; j < BLOCK; j++) {
            const int c = (int)(x[j] * id + 16.5f); /* never below 0: the extreme itself is -16 */
            code[j] = (uint8_t)(c > 31 ? 31 : c);
        }
        fifths_store(out + Q5_0_HIGH, code);
        nibbles_store(out + Q5_0_CODES, code);
    }
}

/* The exponent that puts the largest magnitude into the top of the values' range, 4..8 times the unit. The
 * logarithm is rounded to binary32 before its floor: just below a large power of two it reaches the next. */
static uint8_t mxfp4_exponent(const float *x)
{
    float largest = 0;
    for (int j = 0; j < BLOCK; j++)
        if (fabsf(x[j]) > largest) largest = fabsf(x[j]);
    return largest > 0 ? (uint8_t)((int)floorf((float)log2((double)largest)) - 2 + 127) : 0;
}

static uint8_t mxfp4_nearest(float x, float scale)
{
    static const float VALUE[16] = { MXFP4_VALUES };
    int best = 0;
    for (int c = 1; c < 16; c++)
        if (fabsf(VALUE[c] * scale - x) < fabsf(VALUE[best] * scale - x)) best = c;
    return (uint8_t)best;
}

void mxfp4_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks, code[BLOCK];
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, out += MXFP4_BYTES) {
        out[0] = mxfp4_exponent(x);
        const float scale = mxfp4_scale(out);
        for (int j = 0; j < BLOCK; j++) code[j] = mxfp4_nearest(x[j], scale);
        nibbles_store(out + MXFP4_CODES, code);
    }
}
