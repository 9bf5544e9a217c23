/* q8_0: 32 weights as signed bytes under one f16 scale, 34 bytes. Almost lossless. */
#include "kernels/formats/blocks32/encode.h"
#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/half.h"
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"

enum { BLOCK = 32 };

void q8_0_encode_ref(const float *x, void *blocks, int64_t n)
{
    B32_ENCODE(q8_0, Q8_0_BYTES, x, blocks, n);
}

void q8_0_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, in += Q8_0_BYTES) {
        const float d = half_to_float(load_u16(in));
        for (int j = 0; j < BLOCK; j++) x[j] = (float)(int8_t)in[Q8_0_CODES + j] * d;
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
            for (int64_t b = 0; b < d->cols / BLOCK; b++, w += Q8_0_BYTES, q += BLOCK) {
                int32_t dot = 0;
                for (int j = 0; j < BLOCK; j++) dot += (int8_t)w[Q8_0_CODES + j] * q[j];
                sum += (double)half_to_float(load_u16(w)) * scale[b] * dot;
            }
            d->y[i * d->y_stride + r] = (float)sum;
        }
    }
}
