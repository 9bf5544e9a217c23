/* FP8: 8-bit float weights with a scale for each row, for the matrix, or for tiles. The error of a float is
 * relative to each weight, so a coarse scale costs little until weights become subnormal; the parameter
 * `granularity` lets one measure that. Tiles of 128 x 128 (as in DeepSeek-V3, 2024) are stored as blocks of
 * 128 weights, each repeating the tile's scale. Formats: OCP 8-bit Floating Point Specification, 2023. */
#include <math.h>

#include "engine/quant/methods.h"

static const struct param FP8_PARAMS[] = {
    { .name = "fp8_format",
      .aliases = "float8_dtype",
      .kind = VALUE_CHOICE,
      .choices = "e4m3 e5m2",
      .otherwise = "e4m3",
      .help = "e4m3: 3 bits of mantissa, up to 448; e5m2: 2 bits, up to 57344" },
    { .name = "granularity",
      .kind = VALUE_CHOICE,
      .choices = "channel tensor block",
      .otherwise = "channel",
      .help = "weights that share a scale: a row, the whole matrix, or a tile of 128 x 128 (e4m3 only)" },
    { .name = "activation_scheme",
      .kind = VALUE_CHOICE,
      .choices = "dynamic none",
      .otherwise = "dynamic",
      .help = "dynamic: activations are rounded to fp8 with a scale for each token; none: they stay floats" },
    { .name = "activation_scale_ub",
      .kind = VALUE_REAL,
      .min = 0,
      .max = 1e6,
      .otherwise = "1200",
      .help = "dynamic: upper bound of a token's largest magnitude; 0: no bound" },
    { 0 },
};

static bool fp8_is_e5m2(const struct params *p)
{
    return params_is(p, "fp8_format", "e5m2");
}

static bool fp8_in_tiles(const struct params *p)
{
    return params_is(p, "granularity", "block");
}

static enum err_code fp8_check(const struct params *p, struct err *why)
{
    if (params_is(p, "activation_scheme", "none") && params_given(p, "activation_scale_ub"))
        return err_set(why, ERR_USAGE, "activation_scale_ub needs activation_scheme=dynamic");
    if (fp8_in_tiles(p) && fp8_is_e5m2(p))
        return err_set(why, ERR_USAGE,
                       "granularity=block needs fp8_format=e4m3: no format stores e5m2 in tiles");
    return ERR_OK;
}

static const char *fp8_format(const struct params *p)
{
    return FORMATS[fp8_in_tiles(p)  ? FORMAT_FP8_E4M3_B128
                   : fp8_is_e5m2(p) ? FORMAT_FP8_E5M2
                                    : FORMAT_FP8_E4M3]
        .name;
}

static struct act_scheme fp8_act(const struct params *p)
{
    if (params_is(p, "activation_scheme", "none")) return (struct act_scheme){ .kind = INPUT_FREE };
    return (struct act_scheme){ .kind = INPUT_FP8_TOKEN,
                                .limit = (float)params_real(p, "activation_scale_ub") };
}

/* Encoding with one scale for the matrix. */
struct fp8_scaled {
    const struct tensor_job *job;
    const float *scale;
};

/* Thread function: encode some rows with the scale of the whole matrix. */
static void fp8_encode_scaled(void *arg, int member, int size)
{
    const struct fp8_scaled *s = arg;
    const struct tensor_job *job = s->job;
    const int64_t row_bytes = format_row_bytes(job->format, job->cols);
    for (int64_t r = job->rows * member / size; r < job->rows * (member + 1) / size; r++)
        format_fp8_encode(job->format, s->scale, job->x + r * job->cols, (uint8_t *)job->out + r * row_bytes,
                          job->cols);
}

/* Largest magnitude of rows x cols weights, `stride` apart. */
static float largest_magnitude(const float *x, int64_t rows, int64_t cols, int64_t stride)
{
    float largest = 1e-12f;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++) {
            const float magnitude = fabsf(x[r * stride + k]);
            largest = magnitude > largest ? magnitude : largest;
        }
    return largest;
}

/* Thread function: encode some strips of 128 rows, tile by tile. */
static void fp8_encode_tiles(void *arg, int member, int size)
{
    enum { TILE = 128, TILE_BYTES = TILE + sizeof(float) };
    const struct tensor_job *job = arg;
    const int64_t strips = (job->rows + TILE - 1) / TILE,
                  row_bytes = format_row_bytes(job->format, job->cols);
    for (int64_t s = strips * member / size; s < strips * (member + 1) / size; s++) {
        const int64_t first = s * TILE, rows = MIN((int64_t)TILE, job->rows - first);
        for (int64_t k = 0; k < job->cols; k += TILE) {
            const float *x = job->x + first * job->cols + k;
            uint8_t *out = (uint8_t *)job->out + first * row_bytes + k / TILE * TILE_BYTES;
            const float scale = largest_magnitude(x, rows, TILE, job->cols) / 448.0f;
            for (int64_t r = 0; r < rows; r++)
                format_fp8_encode(&FORMATS[FORMAT_FP8_E4M3], &scale, x + r * job->cols, out + r * row_bytes,
                                  TILE);
        }
    }
}

/* The method's `tensor`: encode with one scale a row, a tile or a matrix. */
static enum err_code fp8_tensor(struct tensor_job *job, struct err *why)
{
    (void)why;
    if (params_is(&job->params, "granularity", "channel")) {
        job_encode_rows(job, nearest_rows);
        return ERR_OK;
    }
    if (fp8_in_tiles(&job->params)) {
        threadpool_run(job->pool, fp8_encode_tiles, job);
        return ERR_OK;
    }
    const float scale = largest_magnitude(job->x, job->rows, job->cols, job->cols) /
                        (fp8_is_e5m2(&job->params) ? 57344.0f : 448.0f);
    struct fp8_scaled s = { job, &scale };
    threadpool_run(job->pool, fp8_encode_scaled, &s);
    return ERR_OK;
}

const struct method METHOD_FP8 = {
    .name = "fp8",
    .help = "8-bit float weights and, at run time, 8-bit float activations",
    .good =
        "decoding on any machine: half the bytes of f16; small weights keep their precision beside large ones",
    .bad = "prefill on CPUs: they have no fp8 arithmetic, so every weight is converted",
    .params = FP8_PARAMS,
    .formats = "fp8_e4m3 fp8_e5m2 fp8_e4m3_b128",
    .linear_only = true,
    .check = fp8_check,
    .format = fp8_format,
    .act = fp8_act,
    .tensor = fp8_tensor,
};
