/* int8_dynamic and int8_static: 8-bit weights and activations. The range of activations is found at run time
 * (dynamic) or by calibration (static). Source: PyTorch, torch.ao.quantization. */
#include <math.h>

#include "engine/quant/int8_rows.h"
#include "engine/quant/rounding.h"
#include "engine/quant/static_input.h"

float int8_observed_row(const float *x, int64_t n, int8_t *codes)
{
    const float wanted = int8_largest(x, n) / 127.5f, least = 0x1p-23f,
                scale = wanted > least ? wanted : least;
    const float by = 1 / scale;
    for (int64_t i = 0; i < n; i++) codes[i] = (int8_t)round_between(x[i] * by, -128, 127);
    return scale;
}

/* ---------------------------------------------------------------- int8_dynamic */

static const struct param INT8_DYNAMIC_PARAMS[] = {
    { .name = "act_quant",
      .kind = VALUE_CHOICE,
      .choices = "per_token per_tensor",
      .otherwise = "per_token",
      .help =
          "per_token: symmetric, one scale for each; per_tensor: one scale and zero point for a whole product" },
    { 0 },
};

static struct act_scheme int8_dynamic_act(const struct params *p)
{
    return (struct act_scheme){ .kind = params_is(p, "act_quant", "per_token") ? INPUT_INT8_TOKEN
                                                                               : INPUT_INT8_TENSOR };
}

const struct method METHOD_INT8_DYNAMIC = {
    .name = "int8_dynamic",
    .help = "8-bit weights and activations; ranges of activations are found at run time",
    .good = "prefill on VNNI and AMX, no calibration; close to weight-only int8 up to a few billion weights",
    .bad = "large models, whose activation outliers make every step coarse (use smoothquant or llm_int8)",
    .params = INT8_DYNAMIC_PARAMS,
    .formats = "int8",
    .linear_only = true,
    .default_format = "int8",
    .act = int8_dynamic_act,
    .rows = nearest_rows, /* scale = the row's largest magnitude / 127 */
};

/* ---------------------------------------------------------------- int8_static */

static const struct param INT8_STATIC_PARAMS[] = {
    { .name = "observer",
      .kind = VALUE_CHOICE,
      .choices = "histogram minmax moving_average percentile entropy",
      .otherwise = "histogram",
      .help = "how the range of an input is derived from the calibration" },
    { .name = "qscheme",
      .kind = VALUE_CHOICE,
      .choices = "per_tensor_affine per_tensor_symmetric",
      .otherwise = "per_tensor_affine",
      .help = "affine: zero point anywhere in the codes; symmetric: in their middle" },
    { .name = "reduce_range",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help = "7-bit codes, as fbgemm needs on AVX2; our products use 8 bits everywhere" },
    { .name = "averaging_constant",
      .kind = VALUE_REAL,
      .min = 1e-6,
      .max = 1,
      .otherwise = "0.01",
      .help = "moving_average: weight of each new sequence's range" },
    { .name = "percentile",
      .kind = VALUE_REAL,
      .min = 50,
      .max = 100,
      .otherwise = "99.999",
      .help = "percentile: share of the values that stays inside the range" },
    { .name = "num_quantized_bins",
      .kind = VALUE_INT,
      .min = 16,
      .max = 1024,
      .otherwise = "128",
      .help = "entropy: number of levels that are compared with the histogram" },
    { 0 },
};

static struct act_scheme int8_static_act(const struct params *p)
{
    (void)p;
    return (struct act_scheme){ .kind = INPUT_INT8_STATIC };
}

/* Range over all sequences (MinMaxObserver). */
static struct range input_minmax(const struct calibration_input *in)
{
    struct range r = { in->batch_min[0], in->batch_max[0] };
    for (int64_t b = 1; b < in->batches; b++) {
        r.low = in->batch_min[b] < r.low ? in->batch_min[b] : r.low;
        r.high = in->batch_max[b] > r.high ? in->batch_max[b] : r.high;
    }
    return r;
}

/* Moving average of the range over sequences (MovingAverageMinMaxObserver). */
static struct range input_moving_average(const struct calibration_input *in, float constant)
{
    struct range r = { in->batch_min[0], in->batch_max[0] };
    for (int64_t b = 1; b < in->batches; b++) {
        r.low += constant * (in->batch_min[b] - r.low);
        r.high += constant * (in->batch_max[b] - r.high);
    }
    return r;
}

/* The range of an input by the chosen observer. */
static enum err_code input_range(const struct tensor_job *job, struct range *out, struct err *why)
{
    const struct params *p = &job->params;
    const struct calibration_input *in = job->input;
    if (params_is(p, "observer", "entropy"))
        return range_entropy(&in->symmetric, (int)params_int(p, "num_quantized_bins"), out, why);
    if (params_is(p, "observer", "minmax"))
        *out = input_minmax(in);
    else if (params_is(p, "observer", "moving_average"))
        *out = input_moving_average(in, (float)params_real(p, "averaging_constant"));
    else if (params_is(p, "observer", "percentile"))
        *out = range_percentile(&in->histogram, params_real(p, "percentile"));
    else
        *out = range_least_error(&in->histogram);
    return ERR_OK;
}

static int int8_static_companions(const struct tensor_job *job, struct companion_tensor *out)
{
    (void)job;
    return static_input_companion(out);
}

static void int8_static_rows(const struct tensor_job *job, const float *x, void *out, int64_t rows)
{
    int8_rows_encode(job, int8_observed_row, x, out, rows);
}

/* The method's `tensor`: store the scale of the input, then encode the weights. */
static enum err_code int8_static_tensor(struct tensor_job *job, struct err *why)
{
    struct range r;
    enum err_code rc = static_input_known(job, why);
    if (!rc) rc = input_range(job, &r, why);
    if (rc) return rc;
    const int most = params_bool(&job->params, "reduce_range") ? 127 : 255;
    const bool affine = params_is(&job->params, "qscheme", "per_tensor_affine");
    static_input_put(job, affine ? affine_observed(r, 0, most) : symmetric_observed(r, 0, most), most);
    job_encode_rows(job, int8_static_rows);
    return ERR_OK;
}

const struct method METHOD_INT8_STATIC = {
    .name = "int8_static",
    .help = "8-bit weights and activations; ranges of activations are fixed by calibration",
    .good = "VNNI, AMX and small machines: no range search at run time",
    .bad = "activation outliers, and text unlike the calibration text",
    .params = INT8_STATIC_PARAMS,
    .formats = "int8",
    .linear_only = true,
    .calibration = CALIBRATION_NEEDED,
    .default_format = "int8",
    .act = int8_static_act,
    .companions = int8_static_companions,
    .tensor = int8_static_tensor,
};
