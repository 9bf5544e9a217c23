/* q4_0: 32 weights as 4-bit codes under one f16 scale, 18 bytes. Byte j holds code j (low half) and code j +
 * 16 (high half); a code c means (c - 8) * d, and d carries the sign of the block's largest weight. */
#include "kernels/formats/blocks32/encode.h"
#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/half.h"
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"

enum { BLOCK = 32 };

void q4_0_encode_ref(const float *x, void *blocks, int64_t n)
{
    B32_ENCODE(q4_0, Q4_0_BYTES, x, blocks, n);
}

void q4_0_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t b = 0; b < n / BLOCK; b++, x += BLOCK, in += Q4_0_BYTES) {
        const float d = half_to_float(load_u16(in));
        for (int j = 0; j < BLOCK / 2; j++) {
            x[j] = (float)((in[Q4_0_CODES + j] & 15) - 8) * d;
            x[j + BLOCK / 2] = (float)((in[Q4_0_CODES + j] >> 4) - 8) * d;
        }
    }
}

void q4_0_dot_f32_ref(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_Q4_0, q4_0_decode_ref);
}

void q4_0_dot_q8_ref(const struct dot *d)
{
    for (int r = 0; r < d->rows; r++) {
        for (int i = 0; i < d->n; i++) {
            const uint8_t *w = d->w + r * d->row_bytes;
            const int8_t *q = d->q.q + i * d->q.q_stride;
            const float *scale = d->q.d + i * d->q.d_stride;
            double sum = 0;
            for (int64_t b = 0; b < d->cols / BLOCK; b++, w += Q4_0_BYTES, q += BLOCK) {
                int32_t dot = 0;
                for (int j = 0; j < BLOCK / 2; j++)
                    dot += ((w[Q4_0_CODES + j] & 15) - 8) * q[j] +
                           ((w[Q4_0_CODES + j] >> 4) - 8) * q[j + BLOCK / 2];
                sum += (double)half_to_float(load_u16(w)) * scale[b] * dot;
            }
            d->y[i * d->y_stride + r] = (float)sum;
        }
    }
}
