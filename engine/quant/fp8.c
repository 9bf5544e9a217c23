/* FP8 weights: eight-bit floats under a scale for each row, for the whole matrix or for tiles of 128 x 128.
 *
 * A float of eight bits has its error relative to each weight, so coarser scales cost little until weights
 * fall below the smallest subnormal: what `granularity` measures. */
#include <math.h>
#include <stdlib.h>

#include "engine/quant/methods.h"

enum { TILE = 128 };

static const struct param FP8_PARAMS[] = {
    { .name = "fp8_format",
      .aliases = "float8_dtype",
      .kind = PARAM_CHOICE,
      .choices = "e4m3 e5m2",
      .otherwise = "e4m3",
      .help = "e4m3: three bits of mantissa, up to 448; e5m2: two, up to 57344" },
    { .name = "granularity",
      .kind = PARAM_CHOICE,
      .choices = "channel tensor block",
      .otherwise = "channel",
      .help = "weights that share a scale: a row, the matrix, or tiles of 128 x 128 (e4m3 only)" },
    { .name = "activation_scheme",
      .kind = PARAM_CHOICE,
      .choices = "dynamic none",
      .otherwise = "dynamic",
      .help = "dynamic: activations become fp8, too, with a scale for each token; none: they stay floats" },
    { .name = "activation_scale_ub",
      .kind = PARAM_REAL,
      .min = 0,
      .max = 1e6,
      .otherwise = "1200",
      .help = "dynamic: a token's largest magnitude counts as this at most; 0: no bound" },
    { 0 },
};

static bool wide(const struct params *p)
{
    return params_is(p, "fp8_format", "e5m2");
}

static const struct format *fp8_made(const struct params *p)
{
    if (params_is(p, "granularity", "block")) return format_find("fp8_e4m3_b128");
    return &FORMATS[wide(p) ? FORMAT_FP8_E5M2 : FORMAT_FP8_E4M3];
}

static enum err_code fp8_check(const struct params *p, struct err *why)
{
    if (params_is(p, "granularity", "block") && wide(p))
        return err_set(why, ERR_USAGE,
                       "granularity=block wants fp8_format=e4m3: tiles of e5m2 have no format");
    if (params_is(p, "activation_scheme", "none") && params_given(p, "activation_scale_ub"))
        return err_set(why, ERR_USAGE, "activation_scale_ub is for activation_scheme=dynamic");
    return ERR_OK;
}

static const char *fp8_format(const struct params *p)
{
    return fp8_made(p)->name;
}

static struct act_scheme fp8_act(const struct params *p)
{
    if (params_is(p, "activation_scheme", "none")) return (struct act_scheme){ .kind = INPUT_FREE };
    return (struct act_scheme){ .kind = INPUT_FP8_TOKEN,
                                .limit = (float)params_real(p, "activation_scale_ub") };
}

/* Largest magnitudes of tiles of `rows` x `cols` weights, row by row of tiles. */
struct tiles {
    const struct tensor_job *job;
    int64_t rows, cols, down, across;
    float *scale; /* [down][across] */
};

static void measure_tiles(void *arg, int member, int size)
{
    const struct tiles *t = arg;
    const struct tensor_job *job = t->job;
    for (int64_t i = t->down * member / size; i < t->down * (member + 1) / size; i++)
        for (int64_t j = 0; j < t->across; j++) {
            float largest = 1e-12f;
            for (int64_t r = i * t->rows; r < MIN((i + 1) * t->rows, job->rows); r++)
                for (int64_t k = j * t->cols; k < MIN((j + 1) * t->cols, job->cols); k++) {
                    const float size_of = fabsf(job->x[r * job->cols + k]);
                    largest = size_of > largest ? size_of : largest;
                }
            t->scale[i * t->across + j] = largest / (wide(&job->params) ? 57344.0f : 448.0f);
        }
}

static void encode_tiles(void *arg, int member, int size)
{
    const struct tiles *t = arg;
    const struct tensor_job *job = t->job;
    const int64_t row_bytes = format_row_bytes(job->format, job->cols);
    for (int64_t r = job->rows * member / size; r < job->rows * (member + 1) / size; r++)
        format_fp8_encode(job->format, t->scale + r / t->rows * t->across, job->x + r * job->cols,
                          (uint8_t *)job->out + r * row_bytes, job->cols);
}

static enum err_code fp8_tensor(struct tensor_job *job, struct err *why)
{
    if (params_is(&job->params, "granularity", "channel")) {
        job_encode_rows(job, NULL);
        return ERR_OK;
    }
    const bool block = params_is(&job->params, "granularity", "block");
    struct tiles t = { .job = job, .rows = block ? TILE : job->rows, .cols = block ? TILE : job->cols };
    t.down = (job->rows + t.rows - 1) / t.rows;
    t.across = (job->cols + t.cols - 1) / t.cols;
    t.scale = malloc((size_t)(t.down * t.across) * sizeof *t.scale);
    if (!t.scale) return err_set(why, ERR_NOMEM, "out of memory for '%s'", job->name);
    threadpool_run(job->pool, measure_tiles, &t);
    threadpool_run(job->pool, encode_tiles, &t);
    free(t.scale);
    return ERR_OK;
}

const struct method METHOD_FP8 = {
    .name = "fp8",
    .help = "eight-bit floats for weights and, while the model runs, for activations",
    .good =
        "decoding anywhere: half the reads of f16, small weights in rows with large ones keep their precision",
    .bad = "prompts on processors: no arithmetic for it, every weight is converted",
    .params = FP8_PARAMS,
    .formats = "fp8_e4m3 fp8_e5m2 fp8_e4m3_b128",
    .linear_only = true,
    .check = fp8_check,
    .format = fp8_format,
    .act = fp8_act,
    .tensor = fp8_tensor,
};
