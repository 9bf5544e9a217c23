/* advisor/teach.c - a run is over: what had been predicted for it goes beside what it measured. */
#include "advisor/predict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advisor/experiment.h"
#include "advisor/teach.h"

struct keeping {
    struct db *d;
    struct residual_row row;
    struct err *why;
    enum err_code rc;
};

static void keep(struct keeping *k, const char *metric, double untaught, struct estimate told,
                 double measured)
{
    if (k->rc || !(measured > 0) || !(untaught > 0) || !isfinite(measured)) return;
    struct residual_row *r = &k->row;
    snprintf(r->metric, sizeof r->metric, "%s", metric);
    r->untaught = untaught;
    r->predicted = told.value;
    r->low = told.low;
    r->high = told.high;
    r->measured = measured;
    k->rc = db_residual_insert(k->d, r, k->why);
}

static void keep_all(struct keeping *k, const struct lesson *l, const struct prediction *told,
                     const struct prediction *raw)
{
    char *traits = k->row.traits;
    struct lesson_traits decode, prefill;
    struct gguf *g = NULL;
    struct model_shape shape;
    k->rc = gguf_open(&g, l->model, k->why);
    if (!k->rc) k->rc = model_shape_read(&shape, g, k->why);
    gguf_close(g);
    if (k->rc) return;
    lesson_traits_of(&decode, &shape, l->config, &told->decode_work);
    lesson_traits_of(&prefill, &shape, l->config, &told->prefill_work);
    snprintf(traits, sizeof k->row.traits, "%s", decode.text);
    keep(k, "decode_tok_s", raw->decode_tok_s,
         (struct estimate){ told->decode_tok_s, told->decode_low, told->decode_high, 0 }, l->decode_tok_s);
    keep(k, "token_j", raw->token_untaught_j,
         (struct estimate){ told->token_j, told->token_low_j, told->token_high_j, 0 }, l->token_j);
    snprintf(traits, sizeof k->row.traits, "%s", prefill.text);
    keep(k, "prefill_tok_s", raw->prefill_tok_s,
         (struct estimate){ told->prefill_tok_s, told->prefill_low, told->prefill_high, 0 },
         l->prefill_tok_s);
    keep(k, "load_s", raw->load_s, (struct estimate){ told->load_s, told->load_low_s, told->load_high_s, 0 },
         l->load_s);
    keep(k, "peak_rss_bytes", raw->peak_bytes,
         (struct estimate){ told->peak_bytes, told->peak_low_bytes, told->peak_high_bytes, 0 },
         l->peak_bytes);
}

enum err_code lesson_keep(struct db *d, const struct lesson *l, struct err *why)
{
    struct lessons *lessons = NULL;
    struct prediction told, raw;
    struct gguf *g = NULL;
    struct keeping k = { .d = d, .why = why };
    struct predict_for what = predict_for_workload(l->workload);
    if (config_int(l->config, KNOB_HANDICAP) > 0) return ERR_OK; /* slowed down on purpose */
    enum err_code rc = gguf_open(&g, l->model, why);
    if (!rc) rc = lessons_load(&lessons, d, l->machine->id, l->ceilings, why);
    if (!rc) rc = predict(&raw, g, l->config, l->machine, l->ceilings, &what, why);
    what.lessons = lessons;
    if (!rc) rc = predict(&told, g, l->config, l->machine, l->ceilings, &what, why);
    gguf_close(g);
    if (!rc) {
        struct residual_row *r = &k.row;
        const char *name = strrchr(l->model, '/');
        snprintf(r->machine, sizeof r->machine, "%s", l->machine->id);
        lessons_basis(l->ceilings, r->basis, sizeof r->basis);
        snprintf(r->model, sizeof r->model, "%s", name ? name + 1 : l->model);
        config_line(l->config, r->config, sizeof r->config);
        workload_line(l->workload, r->workload, sizeof r->workload);
        r->run_id = l->run_id;
        keep_all(&k, l, &told, &raw);
        rc = k.rc;
    }
    lessons_free(lessons);
    return rc;
}

enum err_code lesson_keep_run(struct db *d, const struct experiment_state *s, const struct machine *machine,
                              const struct machine_ceilings *ceilings, struct err *why)
{
    const struct workload *w = &s->spec.workload;
    enum err_code rc = ERR_OK;
    if (s->phase != PHASE_DONE || s->blocks < 1 || *w->eval_file || w->train) return ERR_OK;
    for (int i = 0; i < MAX(s->spec.arms, 2) && !rc; i++) {
        const struct experiment_arm *arm = &s->arm[i];
        const char *named = config_text(&s->spec.config[i], KNOB_MODEL);
        if (arm->failed) continue;
        rc = lesson_keep(
            d,
            &(struct lesson){ .machine = machine,
                              .ceilings = ceilings,
                              .model = *named ? named : s->spec.model,
                              .config = &s->spec.config[i],
                              .workload = w,
                              .decode_tok_s = arm->decode_tok_s,
                              .prefill_tok_s = arm->prefill_tok_s,
                              .peak_bytes = NAN, /* of two models' buffers some are never filled */
                              .load_s = NAN,     /* recipes may have been made in it */
                              .token_j = NAN,
                              .run_id = s->run_id },
            why);
    }
    return rc;
}
