/* Reference kernels and encoders of ternary weights: each is -d, 0 or d. The formats are meant for models
 * trained with ternary weights; other weights are rounded to these three values and lose almost all
 * information. */
#include <math.h>

#include "kernels/isa/gemv/block_dot_ref.h"
#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/half.h"
#include "kernels/formats/ternary/layout.h"
#include "kernels/formats/ternary/ternary.h"

static const struct block_shape TQ1_0 = { TQ1_0_BYTES, TQ_PARTS, false },
                                TQ2_0 = { TQ2_0_BYTES, TQ_PARTS, false };

static int tq1_0_code(const uint8_t *block, int i)
{
    const struct tq1_0_run *runs = TQ1_0_RUNS, *run = &runs[i < runs[1].first   ? 0
                                                            : i < runs[2].first ? 1
                                                                                : 2];
    const int within = i - run->first;
    return tq1_0_trit(block[run->at + within % run->bytes], within / run->bytes);
}

static void tq1_0_part(const uint8_t *block, int part, struct part *out)
{
    out->d = half_to_float(load_u16(block + TQ1_0_D)), out->m = 0;
    for (int j = 0; j < PART; j++) out->code[j] = (int8_t)(tq1_0_code(block, part * PART + j) - TQ_BIAS);
}

static void tq2_0_part(const uint8_t *block, int part, struct part *out)
{
    const uint8_t *in = block + part / 4 * PART;
    out->d = half_to_float(load_u16(block + TQ2_0_D)), out->m = 0;
    for (int j = 0; j < PART; j++) out->code[j] = (int8_t)((in[j] >> part % 4 * 2 & 3) - TQ_BIAS);
}

/* Set codes to round(x / d) + 1, that is 0, 1 or 2. Returns d, the largest magnitude. */
static float ternary_codes_of(const float *x, uint8_t *code)
{
    float d = 0;
    for (int j = 0; j < TQ_BLOCK; j++)
        if (fabsf(x[j]) > d) d = fabsf(x[j]);
    const float id = d != 0 ? 1 / d : 0;
    for (int j = 0; j < TQ_BLOCK; j++) code[j] = (uint8_t)((int)roundf(x[j] * id) + TQ_BIAS);
    return d;
}

/* A byte holds five trits. They form a number v < 3^5 with the first trit as the most significant digit, and
 * the byte is ceil(v * 256 / 243), a fraction of 256. Multiplying the byte by 3 moves the next trit into the
 * bits above 256, so a decoder needs no division. */
void tq1_0_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks, code[TQ_BLOCK];
    for (int64_t i = 0; i < n; i += TQ_BLOCK, x += TQ_BLOCK, out += TQ1_0_BYTES) {
        store_u16(out + TQ1_0_D, half_from_float(ternary_codes_of(x, code)));
        for (size_t r = 0; r < COUNT_OF(TQ1_0_RUNS); r++) {
            const struct tq1_0_run *run = &TQ1_0_RUNS[r];
            for (int m = 0; m < run->bytes; m++) {
                int v = 0;
                for (int t = 0; t < 5; t++)
                    v = v * 3 + (t < run->trits ? code[run->first + m + t * run->bytes] : 0);
                out[run->at + m] = (uint8_t)((v * 256 + 242) / 243);
            }
        }
    }
}

void tq2_0_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks, code[TQ_BLOCK];
    for (int64_t i = 0; i < n; i += TQ_BLOCK, x += TQ_BLOCK, out += TQ2_0_BYTES) {
        store_u16(out + TQ2_0_D, half_from_float(ternary_codes_of(x, code)));
        for (int j = 0; j < TQ2_0_D; j++) {
            const uint8_t *c = code + j / PART * 4 * PART + j % PART;
            out[j] = (uint8_t)(c[0] | c[PART] << 2 | c[2 * PART] << 4 | c[3 * PART] << 6);
        }
    }
}

#define REF_FUNCTIONS(name, NAME)                                                                            \
    void name##_decode_ref(const void *blocks, float *x, int64_t n)                                          \
    {                                                                                                        \
        decode_parts(&NAME, name##_part, blocks, x, n);                                                      \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_f32_by_decoding(d, FORMAT_##NAME, name##_decode_ref);                                            \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        dot_q8_parts(&NAME, name##_part, d);                                                                 \
    }
REF_FUNCTIONS(tq1_0, TQ1_0)
REF_FUNCTIONS(tq2_0, TQ2_0)

const struct format_row TERNARY_REF[TERNARY_COUNT] = {
    { FORMAT_TQ1_0, { .decode = tq1_0_decode_ref, .dot_f32 = tq1_0_dot_f32, .dot_q8 = tq1_0_dot_q8 } },
    { FORMAT_TQ2_0, { .decode = tq2_0_decode_ref, .dot_f32 = tq2_0_dot_f32, .dot_q8 = tq2_0_dot_q8 } },
};
