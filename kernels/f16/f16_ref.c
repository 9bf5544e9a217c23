/* f16 (IEEE binary16): half the bytes of f32, 11 bits of precision, nothing above 65504. */
#include "kernels/dot_ref.h"
#include "kernels/half.h"
#include "kernels/f16/f16.h"

void f16_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i++) store_u16(out + 2 * i, half_from_float(x[i]));
}

void f16_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i++) x[i] = half_to_float(load_u16(in + 2 * i));
}

void f16_dot_f32_ref(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_F16, f16_decode_ref);
}
