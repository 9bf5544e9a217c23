/* Signed bytes under a scale for each row: the layout that integer hardware multiplies as it is. */
#include <math.h>

#include "kernels/blocks32/dot_ref.h"
#include "kernels/dot_ref.h"
#include "kernels/half.h"
#include "kernels/int8/int8.h"

/* To nearest, ties to even, |v| <= 2^22: 1.5 * 2^23 leaves units of 1, rounded by the addition itself. */
static inline int32_t round_even(float v)
{
    return (int32_t)(bits_of(v + 12582912.0f) - bits_of(12582912.0f));
}

/* A row of zeros has scale 1. */
void int8_encode_ref(const float *x, void *row, int64_t n)
{
    uint8_t *out = row;
    float amax = 0;
    for (int64_t i = 0; i < n; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    float scale = amax / 127;
    if (scale == 0) scale = 1;
    for (int64_t i = 0; i < n; i++) {
        const int32_t code = round_even(x[i] / scale);
        out[i] = (uint8_t)(code < -128 ? -128 : code > 127 ? 127 : code);
    }
    memcpy(out + n, &scale, sizeof scale);
}

static void int8_codes(const void *codes, float *x, int64_t n)
{
    const int8_t *in = codes;
    for (int64_t i = 0; i < n; i++) x[i] = in[i];
}

void int8_decode_ref(const void *row, float *x, int64_t n)
{
    float scale;
    memcpy(&scale, (const uint8_t *)row + n, sizeof scale);
    int8_codes(row, x, n);
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
}

static void int8_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_INT8, int8_codes);
}

static void int8_part(const uint8_t *block, int part, struct part *out)
{
    (void)part;
    out->d = 1;
    for (int j = 0; j < PART; j++) out->code[j] = (int8_t)block[j];
}

static void int8_dot_q8(const struct dot *d)
{
    static const struct block_shape SHAPE = { INT8_BLOCK, 1, false };
    dot_q8_parts(&SHAPE, int8_part, d);
}

const struct format_row INT8_REF[INT8_COUNT] = {
    { FORMAT_INT8, { .decode = int8_codes, .dot_f32 = int8_dot_f32, .dot_q8 = int8_dot_q8 } },
};
