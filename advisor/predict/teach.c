/* advisor/predict/teach.c - a run is over: what had been predicted for it goes beside what it measured. */
#include "advisor/predict/predict.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* What was told for how fast the machine was, what would have been without knowing it, and what by the cost
 * model alone. */
struct said {
    struct prediction told, foretold, raw;
};

/* Where a prediction, and what was measured, have each figure; `raw`: of the cost model alone. */
#define AT(field)     offsetof(struct prediction, field)
#define LEARNT(field) offsetof(struct lesson, field)
static const struct figure {
    const char *metric;
    size_t value, low, high, raw, measured;
    bool prefill; /* traits of that work, else of decoding */
    size_t noise; /* where a lesson has what its repetitions say of it; 0: nowhere, they say nothing */
} FIGURES[] = {
    { "decode_tok_s", AT(decode_tok_s), AT(decode_low), AT(decode_high), AT(decode_tok_s),
      LEARNT(decode_tok_s), false, LEARNT(decode_noise) },
    { "token_j", AT(token_j), AT(token_low_j), AT(token_high_j), AT(token_untaught_j), LEARNT(token_j), false,
      0 },
    { "prefill_tok_s", AT(prefill_tok_s), AT(prefill_low), AT(prefill_high), AT(prefill_tok_s),
      LEARNT(prefill_tok_s), true, LEARNT(prefill_noise) },
    { "load_s", AT(load_s), AT(load_low_s), AT(load_high_s), AT(load_s), LEARNT(load_s), true, 0 },
    { "peak_rss_bytes", AT(peak_bytes), AT(peak_low_bytes), AT(peak_high_bytes), AT(peak_bytes),
      LEARNT(peak_bytes), true, 0 },
};

static double number_at(const void *base, size_t offset)
{
    double value;
    memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

static enum err_code keep_figure(struct db *d, struct residual_row *r, const struct figure *f,
                                 const struct said *s, const struct lesson *l, struct err *why)
{
    r->measured = number_at(l, f->measured);
    r->untaught = number_at(&s->raw, f->raw);
    if (!(r->measured > 0) || !(r->untaught > 0) || !isfinite(r->measured)) return ERR_OK;
    snprintf(r->metric, sizeof r->metric, "%s", f->metric);
    r->foretold = number_at(&s->foretold, f->value);
    r->predicted = number_at(&s->told, f->value);
    r->low = number_at(&s->told, f->low);
    r->high = number_at(&s->told, f->high);
    return db_residual_insert(d, r, why);
}

static enum err_code keep_figures(struct db *d, struct residual_row *r, const struct said *s,
                                  const struct lesson *l, const struct gguf *g, struct err *why)
{
    struct model_shape shape;
    enum err_code rc = model_shape_read(&shape, g, why);
    for (size_t i = 0; i < COUNT_OF(FIGURES) && !rc; i++) {
        const struct figure *f = &FIGURES[i];
        struct lesson_work work = f->prefill ? s->told.prefill_work : s->told.decode_work;
        struct lesson_traits traits;
        work.noise = f->noise ? number_at(l, f->noise) : 0;
        lesson_traits_of(&traits, &shape, l->config, &work);
        snprintf(r->traits, sizeof r->traits, "%s", traits.text);
        rc = keep_figure(d, r, f, s, l, why);
    }
    return rc;
}

static void name_row(struct residual_row *r, const struct lesson *l)
{
    const char *name = strrchr(l->model, '/');
    snprintf(r->machine, sizeof r->machine, "%s", l->machine->id);
    lessons_basis(l->ceilings, r->basis, sizeof r->basis);
    snprintf(r->model, sizeof r->model, "%s", name ? name + 1 : l->model);
    config_line(l->config, r->config, sizeof r->config);
    workload_line(l->workload, r->workload, sizeof r->workload);
    r->memory_ratio = l->now.memory_ratio > 0 ? l->now.memory_ratio : NAN;
    r->core_ratio = l->now.core_ratio > 0 ? l->now.core_ratio : NAN;
    r->run_id = l->run_id;
}

static enum err_code say(struct said *s, const struct lesson *l, const struct gguf *g,
                         const struct lessons *lessons, struct err *why)
{
    struct predict_for what = predict_for_workload(l->workload);
    what.lessons = lessons;
    enum err_code rc = predict(&s->foretold, g, l->config, l->machine, l->ceilings, &what, why);
    what.now = l->now;
    if (!rc) rc = predict(&s->told, g, l->config, l->machine, l->ceilings, &what, why);
    what.lessons = NULL;
    if (!rc) rc = predict(&s->raw, g, l->config, l->machine, l->ceilings, &what, why);
    return rc;
}

enum err_code lesson_keep(struct db *d, const struct lesson *l, struct err *why)
{
    struct lessons *lessons = NULL;
    struct said said;
    struct gguf *g = NULL;
    struct residual_row row = { 0 };
    if (config_int(l->config, KNOB_HANDICAP) > 0) return ERR_OK; /* slowed down on purpose */
    enum err_code rc = gguf_open(&g, l->model, why);
    if (!rc) rc = lessons_load(&lessons, d, l->machine->id, l->ceilings, why);
    if (!rc) rc = say(&said, l, g, lessons, why);
    name_row(&row, l);
    if (!rc) rc = keep_figures(d, &row, &said, l, g, why);
    gguf_close(g);
    lessons_free(lessons);
    return rc;
}
