/* LLM.int8(): 8-bit weights and activations, except for input columns with outlier activations, which are
 * multiplied as floats.
 *
 * Outlier columns are detected in every product at run time. They use the dequantized stored weights, or,
 * with llm_int8_has_fp16_weight, f16 copies of the original weights kept for columns that the calibration
 * expects to be outliers. Source: Dettmers et al., "LLM.int8(): 8-bit Matrix Multiplication for Transformers
 * at Scale", 2022; rounding as in bitsandbytes. */
#include <math.h>
#include <stdlib.h>

#include "engine/quant/calibration.h"
#include "engine/quant/int8_rows.h"
#include "engine/quant/rounding.h"

static float round_to_f16(float x)
{
    const float most = 65504, near = x < -most ? -most : x > most ? most : x;
    return f16_to_f32(f16_from_f32(near));
}

float llm_int8_row(const float *x, int64_t n, int8_t *codes)
{
    const float largest = round_to_f16(int8_largest(x, n)); /* rounding keeps the order */
    const float by = largest > 0 ? 127 / largest : 0;
    for (int64_t i = 0; i < n; i++) codes[i] = (int8_t)round_between(round_to_f16(x[i]) * by, -127, 127);
    return largest > 0 ? largest / 127 : 1;
}

/* ---------------------------------------------------------------- the method */

static const struct param LLM_INT8_PARAMS[] = {
    { .name = "llm_int8_threshold",
      .aliases = "threshold",
      .kind = VALUE_REAL,
      .min = 0,
      .max = 1e6,
      .otherwise = "6",
      .help = "columns with activations of at least this magnitude are multiplied as floats; 0: none" },
    { .name = "llm_int8_has_fp16_weight",
      .aliases = "has_fp16_weight",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help = "keep f16 weights of the columns that are outliers in the calibration" },
    { 0 },
};

static bool keeps_outlier_weights(const struct params *p)
{
    return params_bool(p, "llm_int8_has_fp16_weight");
}

static enum err_code llm_int8_check(const struct params *p, struct err *why)
{
    if (keeps_outlier_weights(p) && !(params_real(p, "llm_int8_threshold") > 0))
        return err_set(
            why, ERR_USAGE,
            "llm_int8_has_fp16_weight=true needs llm_int8_threshold above 0: there are no outliers otherwise");
    return ERR_OK;
}

static enum calibration_need llm_int8_needs(const struct params *p)
{
    return keeps_outlier_weights(p) ? CALIBRATION_NEEDED : CALIBRATION_NONE;
}

static struct act_scheme llm_int8_act(const struct params *p)
{
    return (struct act_scheme){ .kind = INPUT_INT8_OUTLIERS,
                                .threshold = (float)params_real(p, "llm_int8_threshold") };
}

/* Whether a column's activations reached the threshold in the calibration. */
static bool column_is_outlier(const struct tensor_job *job, int64_t column, float threshold)
{
    return job->input->max_abs[column] >= threshold;
}

/* The method's `companions`: list and weights of outlier columns, if there are any. */
static int llm_int8_companions(const struct tensor_job *job, struct companion_tensor *out)
{
    if (!keeps_outlier_weights(&job->params) || !job->input || !job->input->max_abs) return 0;
    const float threshold = (float)params_real(&job->params, "llm_int8_threshold");
    int64_t count = 0;
    for (int64_t k = 0; k < job->cols; k++) count += column_is_outlier(job, k, threshold);
    out[0] = (struct companion_tensor){ .what = COMPANION_OUTLIERS, .size = count };
    out[1] = (struct companion_tensor){ .what = COMPANION_OUTLIER_WEIGHTS, .size = count * job->rows };
    return count ? 2 : 0;
}

static void llm_int8_rows(const struct tensor_job *job, const float *x, void *out, int64_t rows)
{
    int8_rows_encode(job, llm_int8_row, x, out, rows);
}

/* Store the original weights of outlier columns, and the list of those columns, as companion tensors. */
static void store_outlier_weights(struct tensor_job *job)
{
    const float threshold = (float)params_real(&job->params, "llm_int8_threshold");
    const struct companion_tensor *columns = job_companion(job, COMPANION_OUTLIERS),
                                  *weights = job_companion(job, COMPANION_OUTLIER_WEIGHTS);
    int64_t n = 0;
    for (int64_t k = 0; columns && k < job->cols; k++) {
        if (!column_is_outlier(job, k, threshold)) continue;
        ((float *)columns->data)[n] = (float)k;
        for (int64_t r = 0; r < job->rows; r++)
            ((uint16_t *)weights->data)[n * job->rows + r] = f16_from_f32(
                round_to_f16(job->x[r * job->cols + k]));
        n++;
    }
}

/* The method's `tensor`: store outlier columns, then encode the rows. */
static enum err_code llm_int8_tensor(struct tensor_job *job, struct err *why)
{
    if (keeps_outlier_weights(&job->params)) {
        if (!job->input || !job->input->max_abs)
            return err_set(
                why, ERR_USAGE,
                "llm_int8_has_fp16_weight=true needs the largest inputs of '%s', which the calibration does "
                "not contain (an imatrix contains mean squares only): give calib= a file made by qdyno "
                "calibrate, or a text",
                job->name);
        store_outlier_weights(job);
    }
    job_encode_rows(job, llm_int8_rows);
    return ERR_OK;
}

const struct method METHOD_LLM_INT8 = {
    .name = "llm_int8",
    .help = "LLM.int8(): 8-bit products, except input columns with outlier activations, which use floats",
    .good = "prefill on VNNI and AMX; models whose activation outliers break plain 8-bit quantization",
    .bad = "decoding (every product searches for outliers), and AVX2 without VNNI",
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
