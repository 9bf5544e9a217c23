/* SmoothQuant: activations in 8 bits fail for a few inputs that are a hundred times the others. Half of that
 * (as a power) goes into the weights, which have room; what is left, integers hold well. */
#include "engine/quant/smoothquant.h"

#include <math.h>
#include <stdlib.h>

#include "engine/quant/calibration.h"
#include "engine/quant/fold.h"

static const float LEAST = 1e-5f; /* the reference's, for maxima and scales alike */

void smoothquant_weight_max(const float *w, int64_t rows, int64_t cols, float *weights)
{
    for (int64_t row = 0; row < rows; row++, w += cols)
        for (int64_t k = 0; k < cols; k++) weights[k] = fabsf(w[k]) > weights[k] ? fabsf(w[k]) : weights[k];
}

void smoothquant_scales(const float *inputs, const float *weights, int64_t n, double alpha, float *scales)
{
    for (int64_t k = 0; k < n; k++) {
        const float weight = MAX(weights[k], LEAST);
        const float s = powf(inputs[k], (float)alpha) / powf(weight, (float)(1 - alpha));
        scales[k] = MAX(s, LEAST);
    }
}

/* What calibration says about a fold's input; NULL: it does not know. */
static const float *input_maxima(const struct layer_job *job, const struct fold *f)
{
    const struct calibration_input *in = calibration_find(job->calibration, f->readers[0]->job.name);
    return in && in->cols == f->n ? in->max_abs : NULL;
}

static enum err_code smooth(const struct layer_job *job, const struct fold *f, struct err *why)
{
    if (f->obstacle) {
        log_write(job->log, LOG_INFO, "smoothquant, layer %d: %s is not smoothed: %s", job->layer, f->input,
                  f->obstacle);
        return ERR_OK;
    }
    const float *inputs = input_maxima(job, f);
    if (!inputs)
        return err_set(why, ERR_USAGE,
                       "smoothquant needs the largest inputs of '%s', which this calibration does not "
                       "know (an imatrix has mean squares only): make one from a text",
                       f->readers[0]->job.name);
    float *scales = calloc(2 * (size_t)f->n, sizeof *scales);
    if (!scales) return err_set(why, ERR_NOMEM, "out of memory");
    float *weights = scales + f->n;
    for (int i = 0; i < f->reader_count; i++) {
        const struct tensor_job *m = &f->readers[i]->job;
        smoothquant_weight_max(m->x, m->rows, m->cols, weights);
    }
    smoothquant_scales(inputs, weights, f->n, params_real(&job->params, "alpha"), scales);
    fold_apply(f, scales);
    free(scales);
    return ERR_OK;
}

/* Inputs behind norms only: those of attn_output and ffn_down stay, as in the reference. */
static enum err_code smoothquant_layer(struct layer_job *job, struct err *why)
{
    static const enum fold_input SMOOTHED[] = { FOLD_ATTENTION, FOLD_FEED_FORWARD };
    struct fold folds[FOLD_COUNT];
    enum err_code rc = folds_find(job, folds, why);
    for (size_t i = 0; i < COUNT_OF(SMOOTHED) && !rc; i++) {
        const struct fold *f = &folds[SMOOTHED[i]];
        if (f->reader_count) rc = smooth(job, f, why);
    }
    return rc;
}

/* ---------------------------------------------------------------- the row of METHODS */

static struct act_scheme smoothquant_act(const struct params *p)
{
    const bool token = params_is(p, "act_quant", "per_token");
    return (struct act_scheme){ .kind = token ? INPUT_INT8_TOKEN : INPUT_INT8_TENSOR };
}

static const struct param SMOOTHQUANT_PARAMS[] = {
    { .name = "alpha",
      .kind = PARAM_REAL,
      .min = 0,
      .max = 1,
      .otherwise = "0.5",
      .help =
          "share of the difficulty that moves from activations into weights; 0.8 to 0.9 for models with outliers" },
    { .name = "act_quant",
      .kind = PARAM_CHOICE,
      .choices = "per_token per_tensor",
      .otherwise = "per_token",
      .help = "what shares a scale of activations" },
    { 0 },
};

const struct method METHOD_SMOOTHQUANT = {
    .name = "smoothquant",
    .help = "8-bit weights and activations; outliers of activations moved into the weights first",
    .good = "prompts on integer units (AMX, VNNI), also of models with outliers",
    .bad = "twice the reads of 4 bits when decoding",
    .params = SMOOTHQUANT_PARAMS,
    .formats = "int8",
    .linear_only = true,
    .calibration = CALIBRATION_NEEDED,
    .default_format = "int8",
    .act = smoothquant_act,
    .rows = nearest_rows, /* steps of largest / 127, ties to even */
    .layer = smoothquant_layer,
};
