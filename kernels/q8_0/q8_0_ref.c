/* q8_0: 32 weights as signed bytes under one f16 scale, 34 bytes. The 8-bit format that loses next to
 * nothing. */
#include <math.h>

#include "kernels/dot_ref.h"
#include "kernels/half.h"
#include "kernels/q8_0/q8_0.h"

enum { BLOCK = 32, BLOCK_BYTES = 34, CODES = 2 };

/* To nearest, halves away from zero, like roundf but without a call: the part cut off is exact. This also
 * writes the KV cache, token by token. */
static inline int8_t round_half_away(float v)
{
    const int whole = (int)v;
    const float rest = v - (float)whole;
    return (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
}

void q8_0_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, out += BLOCK_BYTES) {
        float amax = 0;
        for (int j = 0; j < BLOCK; j++) amax = fabsf(x[j]) > amax ? fabsf(x[j]) : amax;
        const float d = amax / 127, id = d != 0 ? 1 / d : 0;
        store_u16(out, half_from_float(d));
        for (int j = 0; j < BLOCK; j++) out[CODES + j] = (uint8_t)round_half_away(x[j] * id);
    }
}

void q8_0_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, in += BLOCK_BYTES) {
        const float d = half_to_float(load_u16(in));
        for (int j = 0; j < BLOCK; j++) x[j] = (float)(int8_t)in[CODES + j] * d;
    }
}

void q8_0_dot_f32_ref(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_Q8_0, q8_0_decode_ref);
}

void q8_0_dot_q8_ref(const struct dot *d)
{
    for (int r = 0; r < d->rows; r++) {
        for (int i = 0; i < d->n; i++) {
            const uint8_t *w = d->w + r * d->row_bytes;
            const int8_t *q = d->q.q + i * d->q.q_stride;
            const float *scale = d->q.d + i * d->q.d_stride;
            double sum = 0;
            for (int64_t b = 0; b < d->cols / BLOCK; b++, w += BLOCK_BYTES, q += BLOCK) {
                int32_t dot = 0;
                for (int j = 0; j < BLOCK; j++) dot += (int8_t)w[CODES + j] * q[j];
                sum += (double)half_to_float(load_u16(w)) * scale[b] * dot;
            }
            d->y[i * d->y_stride + r] = (float)sum;
        }
    }
}
