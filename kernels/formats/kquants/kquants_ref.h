/* kernels/formats/kquants/kquants_ref.h - reference decoding, and dot products with 8-bit activations, for
 * blocks of 256 weights. A block is expanded to integer codes and float scales, and the rest is common to all
 * formats. A format supplies its shape, its scales and its codes. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_REF_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_REF_H

#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/formats/kquants/layout.h"

/* Expand the codes to unsigned bytes in natural order; the bias is not subtracted. */
typedef void k_codes_fn(const uint8_t *block, uint8_t code[K_BLOCK]);

struct k_format {
    enum format_id id;
    const struct k_shape *shape;
    k_scales_fn *scales;
    k_codes_fn *codes;
};

struct k_weights {
    int16_t code[K_BLOCK]; /* signed: the bias is subtracted */
    float scale[K_SUBS], min[K_SUBS];
};

static inline void k_weights_of(const struct k_format *f, const uint8_t *block, struct k_weights *w)
{
    struct k_scales s;
    uint8_t code[K_BLOCK];
    f->scales(block, &s);
    f->codes(block, code);
    const float d = half_to_float(s.d) * f->shape->unit, dmin = half_to_float(s.dmin);
    for (int j = 0; j < K_BLOCK / f->shape->sub; j++) {
        w->scale[j] = d * (float)(int8_t)(s.scale[j / 8] >> (j % 8 * 8));
        w->min[j] = dmin * (float)(int8_t)(s.min[j / 8] >> (j % 8 * 8));
    }
    for (int i = 0; i < K_BLOCK; i++) w->code[i] = (int16_t)(code[i] - f->shape->bias);
}

static inline void k_blocks_decode(const struct k_format *f, const void *blocks, float *x, int64_t n)
{
    const uint8_t *block = blocks;
    const int sub = f->shape->sub;
    for (int64_t k = 0; k < n; k += K_BLOCK, x += K_BLOCK, block += f->shape->block_bytes) {
        struct k_weights w;
        k_weights_of(f, block, &w);
        for (int i = 0; i < K_BLOCK; i++) x[i] = w.scale[i / sub] * (float)w.code[i] - w.min[i / sub];
    }
}

/* Dot product of one block with one row of activations; d has one scale for 32 activations. */
static inline double k_block_dot(const struct k_weights *w, int sub, const int8_t *q, const float *d)
{
    double sum = 0;
    for (int j = 0; j < K_BLOCK / sub; j++) {
        int32_t dot = 0, total = 0;
        for (int i = j * sub; i < (j + 1) * sub; i++) dot += w->code[i] * q[i], total += q[i];
        sum += ((double)w->scale[j] * dot - (double)w->min[j] * total) * d[j * sub / Q8_BLOCK];
    }
    return sum;
}

static inline void k_dot_q8(const struct k_format *f, const struct dot *d)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        double sum[DOT_X] = { 0 };
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += f->shape->block_bytes) {
            struct k_weights w;
            k_weights_of(f, block, &w);
            for (int i = 0; i < d->n; i++)
                sum[i] += k_block_dot(&w, f->shape->sub, d->q.q + i * d->q.q_stride + k,
                                      d->q.d + i * d->q.d_stride + k / Q8_BLOCK);
        }
        for (int i = 0; i < d->n; i++) d->y[i * d->y_stride + r] = (float)sum[i];
    }
}

/* Define the functions of a format (a struct k_format), and its row in the table of its family. */
#define K_REFERENCE(name, format)                                                                            \
    void name##_decode_ref(const void *blocks, float *x, int64_t n)                                          \
    {                                                                                                        \
        k_blocks_decode(&(format), blocks, x, n);                                                            \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_f32_by_decoding(d, (format).id, name##_decode_ref);                                              \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        k_dot_q8(&(format), d);                                                                              \
    }
#define K_REFERENCE_ROW(name, NAME, scale_of)                                                                \
    {                                                                                                        \
        FORMAT_##NAME,                                                                                       \
        {                                                                                                    \
            .decode = name##_decode_ref, .dot_f32 = name##_dot_f32, .dot_q8 = name##_dot_q8,                 \
            .sums16 = (scale_of) == 16, .encode = name##_encode_rows_ref                                     \
        }                                                                                                    \
    }

#endif
