/* bf16 (the upper half of f32): half the bytes and the whole range of f32, 8 bits of precision. */
#include "kernels/dot_ref.h"
#include "kernels/half.h"
#include "kernels/bf16/bf16.h"

void bf16_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i++) store_u16(out + 2 * i, bhalf_from_float(x[i]));
}

void bf16_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i++) x[i] = bhalf_to_float(load_u16(in + 2 * i));
}

void bf16_dot_f32_ref(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_BF16, bf16_decode_ref);
}
