/* kernels/formats/int8/encode.h - a row of int8. The loops are plain C, which the compiler
 * vectorizes; the reference and the encoders of every instruction set include this file. */
#ifndef QDYNO_KERNELS_FORMATS_INT8_ENCODE_H
#define QDYNO_KERNELS_FORMATS_INT8_ENCODE_H

#include "kernels/half.h"

/* A row of zeros has scale 1. */
static inline void int8_encode_row(const float *x, uint8_t *out, int64_t n)
{
    float scale = largest_magnitude(x, n) / 127;
    if (scale == 0) scale = 1;
    for (int64_t i = 0; i < n; i++) {
        const int32_t code = round_even(x[i] / scale);
        out[i] = (uint8_t)(code < -128 ? -128 : code > 127 ? 127 : code);
    }
    memcpy(out + n, &scale, sizeof scale);
}

#endif
