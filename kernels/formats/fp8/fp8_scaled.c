/* Encode with a scale that the caller chose, for example that of a whole matrix or tile. */
#include <assert.h>
#include <string.h>

#include "kernels/formats/fp8/codes.h"
#include "kernels/kernels.h"

void format_fp8_encode(const struct format *f, const float *scale, const float *x, void *row, int64_t n)
{
    const bool wide = f == &FORMATS[FORMAT_FP8_E5M2];
    uint8_t *out = row;
    assert(wide || f == &FORMATS[FORMAT_FP8_E4M3]);
    for (int64_t i = 0; i < n; i++) out[i] = fp8_from_float(wide ? &E5M2 : &E4M3, x[i] / *scale);
    memcpy(out + n, scale, sizeof *scale);
}
