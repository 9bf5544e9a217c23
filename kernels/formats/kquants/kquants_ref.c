/* The 256-weight formats, reference: a block is expanded to integer codes and float scales; decode and dot
 * products are the same for all formats from there on. */
#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/kquants/layout.h"

typedef void codes_fn(const uint8_t *block, uint8_t code[K_BLOCK]);

struct k_format {
    enum format_id id;
    const struct k_shape *shape;
    k_scales_fn *scales;
    codes_fn *codes;
};

struct k_weights {
    int16_t code[K_BLOCK]; /* without bias */
    float scale[K_SUBS], min[K_SUBS];
};

static void two_bit_codes(const uint8_t *in, uint8_t code[K_BLOCK])
{
    for (int i = 0; i < K_BLOCK; i++) code[i] = in[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

static void four_bit_codes(const uint8_t *in, uint8_t code[K_BLOCK])
{
    for (int i = 0; i < K_BLOCK; i++) code[i] = in[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

/* Bit b of byte l is one more bit of code 32b + l. */
static void plane_add(const uint8_t *plane, int shift, uint8_t code[K_BLOCK])
{
    for (int i = 0; i < K_BLOCK; i++) code[i] |= (uint8_t)((plane[i % 32] >> (i / 32) & 1) << shift);
}

static void q2_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    two_bit_codes(block + Q2_K_CODES, code);
}

static void q3_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    two_bit_codes(block + Q3_K_CODES, code);
    plane_add(block + Q3_K_HIGH, 2, code);
}

static void q4_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    four_bit_codes(block + Q4_K_CODES, code);
}

static void q5_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    four_bit_codes(block + Q5_K_CODES, code);
    plane_add(block + Q5_K_HIGH, 4, code);
}

static void q6_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    two_bit_codes(block + Q6_K_HIGH, code);
    for (int i = 0; i < K_BLOCK; i++) {
        const int low = block[Q6_K_LOW + i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        code[i] = (uint8_t)(code[i] << 4 | low);
    }
}

static void iq4_xs_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    static const int8_t VALUES[16] = { IQ4_VALUES };
    for (int i = 0; i < K_BLOCK; i++) {
        const int c = block[IQ4_XS_CODES + i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
        code[i] = (uint8_t)(VALUES[c] + 128);
    }
}

/* In the order of KQUANTS_REF. */
static const struct k_format FORMATS_HERE[KQUANT_COUNT] = {
    { FORMAT_Q2_K, &Q2_K_SHAPE, q2_k_scales, q2_k_codes },
    { FORMAT_Q3_K, &Q3_K_SHAPE, q3_k_scales, q3_k_codes },
    { FORMAT_Q4_K, &Q4_K_SHAPE, q4_k_scales, q4_k_codes },
    { FORMAT_Q5_K, &Q5_K_SHAPE, q4_k_scales, q5_k_codes },
    { FORMAT_Q6_K, &Q6_K_SHAPE, q6_k_scales, q6_k_codes },
    { FORMAT_IQ4_XS, &IQ4_XS_SHAPE, iq4_xs_scales, iq4_xs_codes },
};

static void weights_of(const struct k_format *f, const uint8_t *block, struct k_weights *w)
{
    struct k_scales s;
    uint8_t code[K_BLOCK];
    f->scales(block, &s);
    f->codes(block, code);
    const float d = half_to_float(s.d), dmin = half_to_float(s.dmin);
    for (int j = 0; j < K_BLOCK / f->shape->sub; j++) {
        w->scale[j] = d * (float)(int8_t)(s.scale[j / 8] >> (j % 8 * 8));
        w->min[j] = dmin * (float)(int8_t)(s.min[j / 8] >> (j % 8 * 8));
    }
    for (int i = 0; i < K_BLOCK; i++) w->code[i] = (int16_t)(code[i] - f->shape->bias);
}

static void blocks_decode(const struct k_format *f, const void *blocks, float *x, int64_t n)
{
    const uint8_t *block = blocks;
    const int sub = f->shape->sub;
    for (int64_t k = 0; k < n; k += K_BLOCK, x += K_BLOCK, block += f->shape->block_bytes) {
        struct k_weights w;
        weights_of(f, block, &w);
        for (int i = 0; i < K_BLOCK; i++) x[i] = w.scale[i / sub] * (float)w.code[i] - w.min[i / sub];
    }
}

/* One block with one row of activations. */
static double block_dot(const struct k_weights *w, int sub, const int8_t *q, const float *d)
{
    double sum = 0;
    for (int j = 0; j < K_BLOCK / sub; j++) {
        int32_t dot = 0, total = 0;
        for (int i = j * sub; i < (j + 1) * sub; i++) dot += w->code[i] * q[i], total += q[i];
        sum += ((double)w->scale[j] * dot - (double)w->min[j] * total) * d[j * sub / Q8_BLOCK];
    }
    return sum;
}

static void dot_q8(const struct k_format *f, const struct dot *d)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        double sum[DOT_X] = { 0 };
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += f->shape->block_bytes) {
            struct k_weights w;
            weights_of(f, block, &w);
            for (int i = 0; i < d->n; i++)
                sum[i] += block_dot(&w, f->shape->sub, d->q.q + i * d->q.q_stride + k,
                                    d->q.d + i * d->q.d_stride + k / Q8_BLOCK);
        }
        for (int i = 0; i < d->n; i++) d->y[i * d->y_stride + r] = (float)sum[i];
    }
}

/* The functions of each format, for the registry and the tables. */
#define K_REFERENCE(name, at)                                                                                \
    void name##_decode_ref(const void *blocks, float *x, int64_t n)                                          \
    {                                                                                                        \
        blocks_decode(&FORMATS_HERE[at], blocks, x, n);                                                      \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_f32_by_decoding(d, FORMATS_HERE[at].id, name##_decode_ref);                                      \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        dot_q8(&FORMATS_HERE[at], d);                                                                        \
    }
K_REFERENCE(q2_k, 0)
K_REFERENCE(q3_k, 1)
K_REFERENCE(q4_k, 2)
K_REFERENCE(q5_k, 3)
K_REFERENCE(q6_k, 4)
K_REFERENCE(iq4_xs, 5)

#define ROW(name, NAME, scale_of)                                                                            \
    {                                                                                                        \
        FORMAT_##NAME,                                                                                       \
        {                                                                                                    \
            .decode = name##_decode_ref, .dot_f32 = name##_dot_f32, .dot_q8 = name##_dot_q8,                 \
            .sums16 = (scale_of) == 16, .encode = name##_encode_rows_ref                                     \
        }                                                                                                    \
    }
const struct format_row KQUANTS_REF[KQUANT_COUNT] = {
    ROW(q2_k, Q2_K, 16), ROW(q3_k, Q3_K, 16), ROW(q4_k, Q4_K, 32),
    ROW(q5_k, Q5_K, 32), ROW(q6_k, Q6_K, 16), ROW(iq4_xs, IQ4_XS, 32),
};
