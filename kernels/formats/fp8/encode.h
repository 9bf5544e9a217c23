/* kernels/formats/fp8/encode.h - encode a row of fp8. The loops are plain C, which the compiler vectorizes;
 * the reference and the encoders of every instruction set include this file. */
#ifndef QDYNO_KERNELS_FORMATS_FP8_ENCODE_H
#define QDYNO_KERNELS_FORMATS_FP8_ENCODE_H

#include "kernels/formats/fp8/codes.h"

/* A row of zeros has scale 1e-12 / max and codes 0. */
static inline void fp8_encode_row(const struct fp8_kind *f, const float largest, const float *x, uint8_t *out,
                                  int64_t n)
{
    const float most = largest_magnitude(x, n), scale = (most > 1e-12f ? most : 1e-12f) / largest;
    for (int64_t i = 0; i < n; i++) out[i] = fp8_from_float(f, x[i] / scale);
    memcpy(out + n, &scale, sizeof scale);
}

#endif
