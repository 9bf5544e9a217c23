/* EETQ: weights as signed bytes, activations as they are. Nearly no loss at half the bytes of f16, and
 * nothing to tune: the scale is the largest magnitude over 128, so a positive extreme is cut by one step. */
#include <math.h>

#include "engine/quant/int8_rows.h"

/* To nearest, ties away from 0, for |v| that may be far out of a byte's range. */
static int round_away(float v)
{
    const int whole = (int)(v < -1000 ? -1000 : v > 1000 ? 1000 : v);
    const float rest = v - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

float eetq_row(const float *x, int64_t n, int8_t *codes)
{
    const float least = 0x1p-24f, most = 65504; /* what f16 can hold */
    float by = int8_largest(x, n) * (1.0f / 128);
    if (by == 0) by = 1;
    by = by < least ? least : by > most ? most : by;
    for (int64_t i = 0; i < n; i++) {
        const int code = round_away(x[i] / by);
        codes[i] = (int8_t)(code < -128 ? -128 : code > 127 ? 127 : code);
    }
    return f16_to_f32(f16_from_f32(by));
}

static void eetq_rows(const struct tensor_job *job, const float *x, void *out, int64_t rows)
{
    int8_rows_encode(job, eetq_row, x, out, rows);
}

static const struct param EETQ_PARAMS[] = {
    { .name = "weights",
      .kind = PARAM_CHOICE,
      .choices = "int8",
      .otherwise = "int8",
      .help = "what weights become: EETQ has one kind" },
    { 0 },
};

const struct method METHOD_EETQ = {
    .name = "eetq",
    .help = "signed bytes for each row, scale = largest / 128 in f16; activations stay floats",
    .good = "everywhere: half the reads of f16 at next to no loss, no calibration",
    .bad = "slower than 4 bits where reading weights is the limit; cuts a row's positive extreme by a step",
    .params = EETQ_PARAMS,
    .formats = "int8",
    .linear_only = true,
    .default_format = "int8",
    .rows = eetq_rows,
};
