/* advisor/run/residual.c - by how much a prediction missed what a run measured, stored for the correction
 * model (advisor/predict). */
#include "advisor/run/run.h"
#include "engine/import/import.h"

#include <math.h>
#include <string.h>

bool run_predict(const struct run *r, const struct run_timing *t, struct prediction *out)
{
    struct gguf *file = NULL;
    if (workload_is_load(t->workload)) return false; /* its speed depends on what arrives when */
    if (config_is_foreign(t->config)) return false;  /* the predictions are about qdyno's own kernels */
    if (!r->ceilings || model_file_open(&file, t->model, NULL)) return false;
    struct predict_for what = predict_for_workload(t->workload);
    const struct tally_totals *all = t->tally ? &t->tally->all : NULL;
    if (all && all->n && all->decode_experts > 0) what.decode_experts = all->decode_experts / all->n;
    const enum err_code rc = predict(out, file, t->config, r->machine, r->ceilings, &what, NULL);
    gguf_close(file);
    return !rc;
}

/* Whether loading included quantizing a recipe or measuring kernels: then its time says nothing about loading
 * a file. */
static bool did_more_than_load(const json_t *description)
{
    if (json_get_num(description, "autotune_s", 0) > 0) return true;
    const json_t *spans = json_object_get(description, "spans");
    for (size_t i = 0; i < json_array_size(spans); i++)
        if (!strcmp(json_get_str(json_array_get(spans, i), "name", ""), "quantize")) return true;
    return false;
}

enum err_code run_residuals(struct run *r, const struct run_timing *t, struct err *why)
{
    const struct tally_totals *s = &t->tally->undisturbed;
    struct prediction p;
    uint32_t usable;
    /* With QDYNO_ISA set the kernels are not those that were timed. Where most repetitions were disturbed,
     * the conditions sampled between them do not describe the few that were not. */
    if (!r->ceilings || !s->n || 2 * s->n < t->tally->all.n || isa_usable(&usable, why) ||
        usable != isa_detect() || !run_predict(r, t, &p))
        return ERR_OK;
    const struct workload *w = t->workload;
    const int64_t batch = config_int(t->config, KNOB_BATCH);
    const bool only_decodes = s->gen_tokens > 0 && !s->prompt_tokens && !w->depth;
    const bool fills_buffers = w->prompt + w->depth >= batch; /* untouched pages take no memory */
    const struct run_observation l = {
        .machine = r->machine,
        .ceilings = r->ceilings,
        .model = t->model,
        .config = t->config,
        .workload = w,
        .decode_tok_s = tally_decode_rate(s),
        .prefill_tok_s = tally_prefill_rate(s),
        .peak_bytes = fills_buffers && s->peak_bytes > 0 ? s->peak_bytes : (double)NAN,
        .load_s = did_more_than_load(t->description)
                      ? (double)NAN
                      : json_get_num(t->description, METRICS[METRIC_LOAD_TIME].name, (double)NAN),
        .token_j = only_decodes ? s->energy_j / s->gen_tokens : (double)NAN,
        .decode_noise = rates_noise(s->decode, tally_rates(s)),
        .prefill_noise = rates_noise(s->prefill, tally_rates(s)),
        .conditions = run_conditions(r),
        .run_id = r->row.id,
    };
    return residuals_record(r->db, &l, why);
}
