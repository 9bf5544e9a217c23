/* Reference kernels and encoders of the formats with blocks of 64 and 128 weights. */
#include <math.h>

#include "kernels/isa/gemv/block_dot_ref.h"
#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/half.h"
#include "kernels/formats/blocks64/blocks64.h"
#include "kernels/formats/blocks64/layout.h"

static const struct block_shape Q1_0 = { Q1_0_BYTES, Q1_0_BLOCK / PART, false },
                                Q2_0 = { Q2_0_BYTES, Q2_0_BLOCK / PART, false };

static void q1_0_part(const uint8_t *block, int part, struct part *out)
{
    const uint8_t *in = block + Q12_CODES + part * (PART / 8);
    out->d = half_to_float(load_u16(block)), out->m = 0;
    for (int j = 0; j < PART; j++) out->code[j] = (int16_t)(2 * (in[j / 8] >> j % 8 & 1) - Q12_BIAS);
}

static void q2_0_part(const uint8_t *block, int part, struct part *out)
{
    const uint8_t *in = block + Q12_CODES + part * (PART / 4);
    out->d = half_to_float(load_u16(block)), out->m = 0;
    for (int j = 0; j < PART; j++) out->code[j] = (int16_t)((in[j / 4] >> j % 4 * 2 & 3) - Q12_BIAS);
}

/* d = mean magnitude, added in the order of the weights; the code is the sign, and zero counts as positive.
 */
void q1_0_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i += Q1_0_BLOCK, x += Q1_0_BLOCK, out += Q1_0_BYTES) {
        float sum = 0;
        memset(out + Q12_CODES, 0, Q1_0_BYTES - Q12_CODES);
        for (int j = 0; j < Q1_0_BLOCK; j++) {
            sum += fabsf(x[j]);
            out[Q12_CODES + j / 8] |= (uint8_t)((x[j] >= 0) << j % 8);
        }
        store_u16(out, half_from_float(sum / Q1_0_BLOCK));
    }
}

/* d = largest magnitude; codes are round(x / d) + 1. The fourth code, 2 d, is never written. */
void q2_0_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i += Q2_0_BLOCK, x += Q2_0_BLOCK, out += Q2_0_BYTES) {
        float d = 0;
        for (int j = 0; j < Q2_0_BLOCK; j++)
            if (fabsf(x[j]) > d) d = fabsf(x[j]);
        const float inverse = d > 0 ? 1 / d : 0;
        memset(out + Q12_CODES, 0, Q2_0_BYTES - Q12_CODES);
        for (int j = 0; j < Q2_0_BLOCK; j++)
            out[Q12_CODES + j / 4] |= (uint8_t)(((int)roundf(x[j] * inverse) + Q12_BIAS) << j % 4 * 2);
        store_u16(out, half_from_float(d));
    }
}

void q1_0_to_q2_0(const void *blocks, void *out, int64_t n)
{
    const uint8_t *in = blocks;
    uint8_t *to = out;
    for (int64_t i = 0; i < n; i += Q2_0_BLOCK, to += Q2_0_BYTES) {
        const uint8_t *block = in + i / Q1_0_BLOCK * Q1_0_BYTES;
        const uint8_t *bits = block + Q12_CODES + i % Q1_0_BLOCK / 8;
        memcpy(to, block, Q12_CODES);
        for (int j = 0; j < Q2_0_BLOCK / 4; j++) {
            const uint8_t four = (uint8_t)(bits[j / 2] >> j % 2 * 4 & 15);
            to[Q12_CODES + j] = (uint8_t)((four & 1) << 1 | (four & 2) << 2 | (four & 4) << 3 |
                                          (four & 8) << 4);
        }
    }
}

#define REF_FUNCTIONS(name, NAME)                                                                            \
    void name##_decode_ref(const void *blocks, float *x, int64_t n)                                          \
    {                                                                                                        \
        decode_parts(&NAME, name##_part, blocks, x, n);                                                      \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_f32_by_decoding(d, FORMAT_##NAME, name##_decode_ref);                                            \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        dot_q8_parts(&NAME, name##_part, d);                                                                 \
    }
REF_FUNCTIONS(q1_0, Q1_0)
REF_FUNCTIONS(q2_0, Q2_0)

/* ---------------------------------------------------------------- nvfp4 */

static const int8_t VALUES[16] = { NVFP4_VALUES };

static int nvfp4_value(const uint8_t *block, int i)
{
    const int in_group = i % NVFP4_GROUP;
    const uint8_t byte = block[NVFP4_CODES + i / NVFP4_GROUP * 8 + in_group % 8];
    return VALUES[byte >> in_group / 8 * 4 & 15];
}

/* The scale byte nearest to s; halves round up. */
static uint8_t nvfp4_scale_byte(float s)
{
    enum { LARGEST = 0x7e, SUBNORMALS = 8 };
    if (!(s > 0)) return 0;
    if (s >= 448) return LARGEST;
    if (s < 0x1p-6f) {
        const int code = (int)(s * 0x1p9f + 0.5f);
        return (uint8_t)MIN(code, SUBNORMALS - 1);
    }
    const uint32_t code = (bits_of(s) - ((127u - 7u) << 23) + (1u << 19)) >> 20;
    return (uint8_t)MIN(code, (uint32_t)LARGEST);
}

void nvfp4_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i += NVFP4_BLOCK, out += NVFP4_BYTES) {
        memset(out, 0, NVFP4_BYTES);
        for (int g = 0; g < NVFP4_GROUPS; g++, x += NVFP4_GROUP) {
            float most = 0;
            for (int j = 0; j < NVFP4_GROUP; j++)
                if (fabsf(x[j]) > most) most = fabsf(x[j]);
            out[g] = nvfp4_scale_byte(most / 6);
            const float scale = nvfp4_half_scale(out[g]);
            for (int j = 0; j < NVFP4_GROUP; j++) {
                int best = 0;
                for (int c = 1; c < 16; c++)
                    if (fabsf((float)VALUES[c] * scale - x[j]) < fabsf((float)VALUES[best] * scale - x[j]))
                        best = c;
                out[NVFP4_CODES + g * 8 + j % 8] |= (uint8_t)(best << j / 8 * 4);
            }
        }
    }
}

void nvfp4_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *block = blocks;
    for (int64_t i = 0; i < n; i += NVFP4_BLOCK, block += NVFP4_BYTES)
        for (int j = 0; j < NVFP4_BLOCK; j++)
            *x++ = (float)nvfp4_value(block, j) * nvfp4_half_scale(block[j / NVFP4_GROUP]);
}

static void nvfp4_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_NVFP4, nvfp4_decode_ref);
}

static void nvfp4_dot_q8(const struct dot *d)
{
    for (int r = 0; r < d->rows; r++) {
        double sum[DOT_X] = { 0 };
        for (int64_t k = 0; k < d->cols; k += NVFP4_GROUP) {
            const uint8_t *block = d->w + r * d->row_bytes + k / NVFP4_BLOCK * NVFP4_BYTES;
            const int first = (int)(k % NVFP4_BLOCK);
            const double scale = nvfp4_half_scale(block[first / NVFP4_GROUP]);
            for (int i = 0; i < d->n; i++) {
                const int8_t *q = d->q.q + i * d->q.q_stride + k;
                int32_t dot = 0;
                for (int j = 0; j < NVFP4_GROUP; j++) dot += nvfp4_value(block, first + j) * q[j];
                sum[i] += scale * dot * (double)d->q.d[i * d->q.d_stride + k / Q8_BLOCK];
            }
        }
        for (int i = 0; i < d->n; i++) d->y[i * d->y_stride + r] = (float)sum[i];
    }
}

const struct format_row BLOCKS64_REF[BLOCKS64_COUNT] = {
    { FORMAT_Q1_0, { .decode = q1_0_decode_ref, .dot_f32 = q1_0_dot_f32, .dot_q8 = q1_0_dot_q8 } },
    { FORMAT_Q2_0, { .decode = q2_0_decode_ref, .dot_f32 = q2_0_dot_f32, .dot_q8 = q2_0_dot_q8 } },
    { FORMAT_NVFP4, { .decode = nvfp4_decode_ref, .dot_f32 = nvfp4_dot_f32, .dot_q8 = nvfp4_dot_q8 } },
};
