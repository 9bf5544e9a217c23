/* LLM.int8(): products of bytes, but for the few columns of activations that are too large for a byte's
 * steps.
 *
 * Which columns those are is found in every product anew. They multiply with the weights as stored, or, where
 * a calibration says which columns to expect, with f16 copies that were kept of them. */
#include <math.h>
#include <stdlib.h>

#include "engine/quant/calibration.h"
#include "engine/quant/int8_rows.h"
#include "engine/quant/rounding.h"

static float through_f16(float x)
{
    const float most = 65504, near = x < -most ? -most : x > most ? most : x;
    return f16_to_f32(f16_from_f32(near));
}

float llm_int8_row(const float *x, int64_t n, int8_t *codes)
{
    const float largest = through_f16(int8_largest(x, n)); /* rounding keeps the order */
    const float by = largest > 0 ? 127 / largest : 0;
    for (int64_t i = 0; i < n; i++) codes[i] = (int8_t)round_between(through_f16(x[i]) * by, -127, 127);
    return largest > 0 ? largest / 127 : 1;
}

/* ---------------------------------------------------------------- the method */

static const struct param LLM_INT8_PARAMS[] = {
    { .name = "llm_int8_threshold",
      .aliases = "threshold",
      .kind = PARAM_REAL,
      .min = 0,
      .max = 1e6,
      .otherwise = "6",
      .help = "activations of this size and more make their column multiply as floats; 0: none does" },
    { .name = "llm_int8_has_fp16_weight",
      .aliases = "has_fp16_weight",
      .kind = PARAM_BOOL,
      .otherwise = "false",
      .help = "keep f16 weights of the columns that were outliers during calibration" },
    { 0 },
};

static bool keeps_columns(const struct params *p)
{
    return params_bool(p, "llm_int8_has_fp16_weight");
}

static enum err_code llm_int8_check(const struct params *p, struct err *why)
{
    if (keeps_columns(p) && !(params_real(p, "llm_int8_threshold") > 0))
        return err_set(
            why, ERR_USAGE,
            "llm_int8_has_fp16_weight=true wants a llm_int8_threshold above 0: without one there are no outliers");
    return ERR_OK;
}

static enum calibration_need llm_int8_needs(const struct params *p)
{
    return keeps_columns(p) ? CALIBRATION_NEEDED : CALIBRATION_NONE;
}

static struct act_scheme llm_int8_act(const struct params *p)
{
    return (struct act_scheme){ .kind = INPUT_INT8_OUTLIERS,
                                .threshold = (float)params_real(p, "llm_int8_threshold") };
}

static bool was_outlier(const struct tensor_job *job, int64_t column, float threshold)
{
    return job->input->max_abs[column] >= threshold;
}

static int llm_int8_companions(const struct tensor_job *job, struct companion_tensor *out)
{
    if (!keeps_columns(&job->params) || !job->input || !job->input->max_abs) return 0;
    const float threshold = (float)params_real(&job->params, "llm_int8_threshold");
    int64_t count = 0;
    for (int64_t k = 0; k < job->cols; k++) count += was_outlier(job, k, threshold);
    out[0] = (struct companion_tensor){ .what = COMPANION_OUTLIERS, .size = count };
    out[1] = (struct companion_tensor){ .what = COMPANION_OUTLIER_WEIGHTS, .size = count * job->rows };
    return count ? 2 : 0;
}

static void llm_int8_rows(const struct tensor_job *job, const float *x, void *out, int64_t rows)
{
    int8_rows_encode(job, llm_int8_row, x, out, rows);
}

static void keep_columns(struct tensor_job *job)
{
    const float threshold = (float)params_real(&job->params, "llm_int8_threshold");
    const struct companion_tensor *columns = job_companion(job, COMPANION_OUTLIERS),
                                  *weights = job_companion(job, COMPANION_OUTLIER_WEIGHTS);
    int64_t n = 0;
    for (int64_t k = 0; columns && k < job->cols; k++) {
        if (!was_outlier(job, k, threshold)) continue;
        ((float *)columns->data)[n] = (float)k;
        for (int64_t r = 0; r < job->rows; r++)
            ((uint16_t *)weights->data)[n * job->rows + r] = f16_from_f32(
                through_f16(job->x[r * job->cols + k]));
        n++;
    }
}

static enum err_code llm_int8_tensor(struct tensor_job *job, struct err *why)
{
    if (keeps_columns(&job->params)) {
        if (!job->input || !job->input->max_abs)
            return err_set(
                why, ERR_USAGE,
                "llm_int8_has_fp16_weight=true: nothing is known of the largest inputs of '%s' (an "
                "imatrix holds mean squares only): give calib= a file that qdyno calibrate made, or a text",
                job->name);
        keep_columns(job);
    }
    job_encode_rows(job, llm_int8_rows);
    return ERR_OK;
}

const struct method METHOD_LLM_INT8 = {
    .name = "llm_int8",
    .help = "LLM.int8(): products of bytes, columns with large activations apart as floats",
    .good = "prompts on VNNI and AMX; models whose few huge activations ruin plain 8 bits",
    .bad = "one token at a time (a search for outliers in every product), and AVX2 without VNNI",
    .params = LLM_INT8_PARAMS,
    .formats = "int8",
    .linear_only = true,
    .calibration = CALIBRATION_OPTIONAL,
    .default_format = "int8",
    .check = llm_int8_check,
    .needs = llm_int8_needs,
    .act = llm_int8_act,
    .companions = llm_int8_companions,
    .tensor = llm_int8_tensor,
};
