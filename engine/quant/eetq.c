/* EETQ: 8-bit weights with one scale a row, float activations. Half the bytes of f16 with nearly no loss. The
 * scale is the largest magnitude / 128, so a largest positive weight is clipped to 127 / 128. Source: the
 * EETQ project (NetEase-FuXi), which takes its rounding from FasterTransformer. */
#include <math.h>

#include "engine/quant/int8_rows.h"

/* Round to nearest, ties away from 0; v may be far outside the range of a byte. */
static int round_away(float v)
{
    const int whole = (int)(v < -1000 ? -1000 : v > 1000 ? 1000 : v);
    const float rest = v - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

float eetq_row(const float *x, int64_t n, int8_t *codes)
{
    const float least = 0x1p-24f, most = 65504; /* range of f16 */
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
      .kind = VALUE_CHOICE,
      .choices = "int8",
      .otherwise = "int8",
      .help = "type of the weights; EETQ has only one" },
    { 0 },
};

const struct method METHOD_EETQ = {
    .name = "eetq",
    .help = "8-bit weights with a scale for each row (largest / 128, f16); activations stay floats",
    .good = "every machine: half the bytes of f16 at almost no loss, no calibration",
    .bad =
        "slower than 4 bits when memory bandwidth limits; clips a row's largest positive weight by one step",
    .params = EETQ_PARAMS,
    .formats = "int8",
    .linear_only = true,
    .default_format = "int8",
    .rows = eetq_rows,
};
