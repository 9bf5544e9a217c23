/* f32: the format nothing is lost in. Reference for files that keep full precision. */
#include <string.h>

#include "kernels/dot_ref.h"
#include "kernels/f32/f32.h"

void f32_encode_ref(const float *x, void *blocks, int64_t n)
{
    memcpy(blocks, x, (size_t)n * sizeof *x);
}

void f32_decode_ref(const void *blocks, float *x, int64_t n)
{
    memcpy(x, blocks, (size_t)n * sizeof *x);
}

void f32_dot_f32_ref(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_F32, f32_decode_ref);
}
