/* Quantizing activations to 8 bits fails when a few inputs are a hundred times larger than the others. Part
 * of that range is moved into the weights, which tolerate it; what remains fits into 8 bits. */
#include "engine/quant/smoothquant.h"

#include <math.h>
#include <stdlib.h>

#include "engine/quant/calibration.h"
#include "engine/quant/scale_folding.h"

static const float LEAST = 1e-5f; /* lower limit of maxima and scales, as in the reference */

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

/* Largest |activation| of each of a fold's inputs [n]; NULL: the calibration does not contain it. */
static const float *fold_input_maxima(const struct layer_job *job, const struct fold *f)
{
    const struct calibration_input *in = calibration_find(job->calibration, f->consumers[0]->job.name);
    return in && in->cols == f->n ? in->max_abs : NULL;
}

/* Compute and fold the scales of one input, unless they cannot be folded. */
static enum err_code smooth_input(const struct layer_job *job, const struct fold *f, struct err *why)
{
    if (f->obstacle) {
        log_write(job->log, LOG_INFO, "smoothquant, layer %d: %s is not smoothed: %s", job->layer, f->input,
                  f->obstacle);
        return ERR_OK;
    }
    const float *inputs = fold_input_maxima(job, f);
    if (!inputs)
        return err_set(why, ERR_USAGE,
                       "smoothquant needs the largest inputs of '%s', which this calibration does not "
                       "contain (an imatrix contains mean squares only): make a calibration from a text",
                       f->consumers[0]->job.name);
    float *scales = calloc(2 * (size_t)f->n, sizeof *scales);
    if (!scales) return err_set(why, ERR_NOMEM, "out of memory");
    float *weights = scales + f->n;
    for (int i = 0; i < f->consumer_count; i++) {
        const struct tensor_job *m = &f->consumers[i]->job;
        smoothquant_weight_max(m->x, m->rows, m->cols, weights);
    }
    smoothquant_scales(inputs, weights, f->n, params_real(&job->params, "alpha"), scales);
    fold_apply(f, scales);
    free(scales);
    return ERR_OK;
}

/* Only inputs behind norms, as in the reference; those of attn_output and ffn_down stay unscaled. */
static enum err_code smoothquant_layer(struct layer_job *job, struct err *why)
{
    static const enum fold_input SMOOTHED[] = { FOLD_ATTENTION, FOLD_FEED_FORWARD };
    struct fold folds[FOLD_COUNT];
    enum err_code rc = folds_find(job, folds, why);
    for (size_t i = 0; i < COUNT_OF(SMOOTHED) && !rc; i++) {
        const struct fold *f = &folds[SMOOTHED[i]];
        if (f->consumer_count) rc = smooth_input(job, f, why);
    }
    return rc;
}

/* ---------------------------------------------------------------- row of METHODS */

static struct act_scheme smoothquant_act(const struct params *p)
{
    const bool token = params_is(p, "act_quant", "per_token");
    return (struct act_scheme){ .kind = token ? INPUT_INT8_TOKEN : INPUT_INT8_TENSOR };
}

static const struct param SMOOTHQUANT_PARAMS[] = {
    { .name = "alpha",
      .kind = VALUE_REAL,
      .min = 0,
      .max = 1,
      .otherwise = "0.5",
      .help =
          "migration strength: share of the activations' range moved into weights; 0.8 to 0.9 with outliers" },
    { .name = "act_quant",
      .kind = VALUE_CHOICE,
      .choices = "per_token per_tensor",
      .otherwise = "per_token",
      .help = "activations that share a scale" },
    { 0 },
};

const struct method METHOD_SMOOTHQUANT = {
    .name = "smoothquant",
    .help = "8-bit weights and activations; activation outliers are moved into the weights first",
    .good = "prefill on integer units (AMX, VNNI), also for models with activation outliers",
    .bad = "decoding reads twice the bytes of 4-bit formats",
    .params = SMOOTHQUANT_PARAMS,
    .formats = "int8",
    .linear_only = true,
    .calibration = CALIBRATION_NEEDED,
    .default_format = "int8",
    .act = smoothquant_act,
    .rows = nearest_rows, /* scale = largest magnitude / 127, ties to even */
    .layer = smoothquant_layer,
};
