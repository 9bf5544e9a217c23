/* advisor/predict/residuals.c - stores the predictions of a finished run beside its measurements. */
#include "advisor/predict/predict.h"
#include "engine/import/import.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"

/* One run, predicted three ways. */
struct run_predictions {
    struct prediction corrected;     /* with the correction model and the run's machine conditions */
    struct prediction no_conditions; /* with the correction model, conditions unknown */
    struct prediction uncorrected;   /* by the cost model alone, with the run's conditions */
};

/* The figures that have residuals: offsets of their members in struct prediction and struct run_observation.
 */
static const struct figure {
    const struct metric *metric; /* NULL: RESIDUAL_TOKEN_J */
    size_t value;                /* an interval in struct prediction */
    size_t uncorrected;          /* in struct prediction: the value before correction */
    size_t measured;             /* in struct run_observation */
    bool prefill;                /* has the traits of prefill, otherwise those of decode */
    size_t noise;                /* its standard error in struct run_observation; 0: none */
} FIGURES[] = {
    { .metric = &METRICS[METRIC_DECODE_RATE],
      .value = offsetof(struct prediction, decode_tok_s),
      .uncorrected = offsetof(struct prediction, decode_tok_s),
      .measured = offsetof(struct run_observation, decode_tok_s),
      .noise = offsetof(struct run_observation, decode_noise) },
    { .metric = NULL,
      .value = offsetof(struct prediction, token_j),
      .uncorrected = offsetof(struct prediction, token_uncorrected_j),
      .measured = offsetof(struct run_observation, token_j) },
    { .metric = &METRICS[METRIC_PREFILL_RATE],
      .value = offsetof(struct prediction, prefill_tok_s),
      .uncorrected = offsetof(struct prediction, prefill_tok_s),
      .measured = offsetof(struct run_observation, prefill_tok_s),
      .prefill = true,
      .noise = offsetof(struct run_observation, prefill_noise) },
    { .metric = &METRICS[METRIC_LOAD_TIME],
      .value = offsetof(struct prediction, load_s),
      .uncorrected = offsetof(struct prediction, load_s),
      .measured = offsetof(struct run_observation, load_s),
      .prefill = true },
    { .metric = &METRICS[METRIC_PEAK_MEMORY],
      .value = offsetof(struct prediction, peak_bytes),
      .uncorrected = offsetof(struct prediction, peak_bytes),
      .measured = offsetof(struct run_observation, peak_bytes),
      .prefill = true },
};

/* An interval begins with its estimate. */
static double number_at(const void *base, size_t offset)
{
    return *(const double *)((const char *)base + offset);
}

/* A figure without a measurement or without a prediction leaves no row. */
static enum err_code figure_store(struct db *d, struct residual_row *r, const struct figure *f,
                                  const struct run_predictions *p, const struct run_observation *o,
                                  struct err *why)
{
    r->measured = number_at(o, f->measured);
    r->untaught = number_at(&p->uncorrected, f->uncorrected);
    if (!(r->measured > 0) || !(r->untaught > 0) || !isfinite(r->measured)) return ERR_OK;
    snprintf(r->metric, sizeof r->metric, "%s", f->metric ? f->metric->name : RESIDUAL_TOKEN_J);
    r->foretold = number_at(&p->no_conditions, f->value);
    const struct interval *predicted = (const void *)((const char *)&p->corrected + f->value);
    r->predicted = predicted->estimate;
    r->low = predicted->lower;
    r->high = predicted->upper;
    return db_residual_insert(d, r, why);
}

static enum err_code figures_store(struct db *d, struct residual_row *r, const struct run_predictions *p,
                                   const struct run_observation *o, const struct gguf *g, struct err *why)
{
    struct model_shape shape;
    enum err_code rc = model_shape_read(&shape, g, why);
    for (size_t i = 0; i < COUNT_OF(FIGURES) && !rc; i++) {
        const struct figure *f = &FIGURES[i];
        struct residual_work work = f->prefill ? p->corrected.prefill_work : p->corrected.decode_work;
        struct residual_traits traits;
        work.noise = f->noise ? number_at(o, f->noise) : 0;
        residual_traits_of(&traits, &shape, o->config, &work);
        snprintf(r->traits, sizeof r->traits, "%s", traits.text);
        rc = figure_store(d, r, f, p, o, why);
    }
    return rc;
}

/* The columns that are the same for all figures of a run. */
static void row_describe_run(struct residual_row *r, const struct run_observation *o)
{
    snprintf(r->machine, sizeof r->machine, "%s", o->machine->id);
    correction_basis(o->ceilings, r->basis, sizeof r->basis);
    snprintf(r->model, sizeof r->model, "%s", path_file_name(o->model));
    config_line(o->config, r->config, sizeof r->config);
    workload_line(o->workload, r->workload, sizeof r->workload);
    r->memory_ratio = o->conditions.memory_ratio > 0 ? o->conditions.memory_ratio : NAN;
    r->core_ratio = o->conditions.core_ratio > 0 ? o->conditions.core_ratio : NAN;
    r->run_id = o->run_id;
}

static enum err_code run_predict(struct run_predictions *p, const struct run_observation *o,
                                 const struct gguf *g, const struct correction *correction, struct err *why)
{
    struct predict_for what = predict_for_workload(o->workload);
    what.correction = correction;
    enum err_code rc = predict(&p->no_conditions, g, o->config, o->machine, o->ceilings, &what, why);
    what.conditions = o->conditions;
    if (!rc) rc = predict(&p->corrected, g, o->config, o->machine, o->ceilings, &what, why);
    what.correction = NULL;
    if (!rc) rc = predict(&p->uncorrected, g, o->config, o->machine, o->ceilings, &what, why);
    return rc;
}

enum err_code residuals_record(struct db *d, const struct run_observation *o, struct err *why)
{
    struct correction *correction = NULL;
    struct run_predictions predictions;
    struct gguf *g = NULL;
    struct residual_row row = { 0 };
    /* A run that was slowed down on purpose would bias the correction. */
    if (config_int(o->config, KNOB_HANDICAP) > 0) return ERR_OK;
    enum err_code rc = model_file_open(&g, o->model, why);
    if (!rc) rc = correction_load(&correction, d, o->machine->id, o->ceilings, why);
    if (!rc) rc = run_predict(&predictions, o, g, correction, why);
    row_describe_run(&row, o);
    if (!rc) rc = figures_store(d, &row, &predictions, o, g, why);
    gguf_close(g);
    correction_free(correction);
    return rc;
}
