/* kernels/isa/gemv/dot_ref.h - the reference GEMV kernel for every format: decode a piece of a weight row and
 * multiply it in binary64. It is slow and simple; tests compare all other GEMV kernels with it. */
#ifndef QDYNO_KERNELS_ISA_GEMV_DOT_REF_H
#define QDYNO_KERNELS_ISA_GEMV_DOT_REF_H

#include "kernels/kernel_set.h"

enum { DOT_REF_PIECE = 256 }; /* a multiple of every block size */

static inline void dot_f32_by_decoding(const struct dot *d, enum format_id id, format_decode_fn *decode)
{
    float piece[DOT_REF_PIECE];
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        double sum[DOT_X] = { 0 };
        for (int64_t k = 0; k < d->cols; k += DOT_REF_PIECE) {
            const int64_t n = MIN((int64_t)DOT_REF_PIECE, d->cols - k);
            decode(w + format_span_bytes(&FORMATS[id], k), piece, n);
            for (int i = 0; i < d->n; i++) {
                const float *x = d->x + i * d->x_stride + k;
                double s0 = 0, s1 = 0;
                int64_t j = 0;
                for (; j + 2 <= n; j += 2) { /* two chains: the addition's latency is the limit */
                    s0 += (double)piece[j] * x[j];
                    s1 += (double)piece[j + 1] * x[j + 1];
                }
                if (j < n) s0 += (double)piece[j] * x[j];
                sum[i] += s0 + s1;
            }
        }
        for (int i = 0; i < d->n; i++) d->y[i * d->y_stride + r] = (float)sum[i];
    }
}

#endif
