/* kernels/isa/gemv/block_dot_ref.h - reference decode and dot product with 8-bit activations for formats with
 * 32 weights under one scale. A format supplies a function that extracts 32 small integers. Slow and simple:
 * tests compare the vector kernels with it. */
#ifndef QDYNO_KERNELS_ISA_GEMV_BLOCK_DOT_REF_H
#define QDYNO_KERNELS_ISA_GEMV_BLOCK_DOT_REF_H

#include "kernels/kernel_set.h"

enum { PART = 32 };

/* weight = code * d, plus m where the format has minima. */
struct part {
    float d, m;
    int16_t code[PART];
};
typedef void part_fn(const uint8_t *block, int part, struct part *out);

struct block_shape {
    int bytes, parts; /* a block holds 32 * parts weights */
    bool has_min;
};

static inline void decode_parts(const struct block_shape *s, part_fn *part_at, const void *blocks, float *x,
                                int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += PART * s->parts, in += s->bytes) {
        for (int p = 0; p < s->parts; p++, x += PART) {
            struct part v;
            part_at(in, p, &v);
            for (int j = 0; j < PART; j++) { /* add nothing without a minimum: -0 + 0 would be 0 */
                const float scaled = (float)v.code[j] * v.d;
                x[j] = s->has_min ? scaled + v.m : scaled;
            }
        }
    }
}

static inline void dot_q8_parts(const struct block_shape *s, part_fn *part_at, const struct dot *d)
{
    for (int r = 0; r < d->rows; r++) {
        double sum[DOT_X] = { 0 };
        for (int64_t b = 0; b < d->cols / PART; b++) {
            struct part v;
            part_at(d->w + r * d->row_bytes + b / s->parts * s->bytes, (int)(b % s->parts), &v);
            for (int i = 0; i < d->n; i++) {
                const int8_t *q = d->q.q + i * d->q.q_stride + b * PART;
                int32_t dot = 0, total = 0;
                for (int j = 0; j < PART; j++) dot += v.code[j] * q[j], total += q[j];
                const double scale = d->q.d[i * d->q.d_stride + b];
                sum[i] += scale * ((double)v.d * dot + (s->has_min ? (double)v.m * total : 0));
            }
        }
        for (int i = 0; i < d->n; i++) d->y[i * d->y_stride + r] = (float)sum[i];
    }
}

#endif
