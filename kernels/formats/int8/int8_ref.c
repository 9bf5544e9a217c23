/* int8, reference: signed bytes with a scale per row, which integer hardware multiplies without unpacking. */
#include "kernels/isa/gemv/block_dot_ref.h"
#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/formats/int8/encode.h"
#include "kernels/formats/int8/int8.h"

void int8_encode_ref(const float *x, void *row, int64_t n)
{
    int8_encode_row(x, row, n);
}

static void int8_codes(const void *codes, float *x, int64_t n)
{
    const int8_t *in = codes;
    for (int64_t i = 0; i < n; i++) x[i] = in[i];
}

void int8_decode_ref(const void *row, float *x, int64_t n)
{
    float scale;
    memcpy(&scale, (const uint8_t *)row + n, sizeof scale);
    int8_codes(row, x, n);
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
}

static void int8_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_INT8, int8_codes);
}

static void int8_part(const uint8_t *block, int part, struct part *out)
{
    (void)part;
    out->d = 1;
    for (int j = 0; j < PART; j++) out->code[j] = (int8_t)block[j];
}

static void int8_dot_q8(const struct dot *d)
{
    static const struct block_shape SHAPE = { INT8_BLOCK, 1, false };
    dot_q8_parts(&SHAPE, int8_part, d);
}

const struct format_row INT8_REF[INT8_COUNT] = {
    { FORMAT_INT8, { .decode = int8_codes, .dot_f32 = int8_dot_f32, .dot_q8 = int8_dot_q8 } },
};
