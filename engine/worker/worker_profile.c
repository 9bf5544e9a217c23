/* The profile of a cell in the worker's result: what each operator of each layer did. */
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/worker/worker_internal.h"
#include "kernels/kernels.h"

enum err_code worker_profile_begin(struct pass_profile *both, const struct worker *w,
                                   const struct workload *load, struct err *why)
{
    if (!load->prompt && !load->gen)
        return err_set(
            why, ERR_USAGE,
            "a profile is of the passes of a prompt and of decode steps: expected ppN, tgN or both");
    enum err_code rc = profile_init(&both[0], w->model, why);
    if (!rc) rc = profile_init(&both[1], w->model, why);
    if (rc) profile_free(&both[0]);
    return rc;
}

static json_t *operator_json(const struct profile_cell *c, int layer, int op)
{
    json_t *o = json_object();
    json_put_int(o, "layer", layer);
    json_put_str(o, "operator", PASS_OPERATOR_NAMES[op]);
    json_put_int(o, "calls", c->calls);
    json_put_num(o, "seconds", (double)c->ns * 1e-9);
    json_put_int(o, "bytes", c->bytes);
    json_put_num(o, "ops", c->ops);
    json_put_str(o, "format", c->format ? c->format->name : NULL);
    json_put_int(o, "rows", c->rows);
    return o;
}

static json_t *phase_json(const struct pass_profile *p)
{
    json_t *o = json_object(), *list = json_array();
    json_put_int(o, "passes", p->passes);
    json_put_num(o, "seconds", (double)p->ns * 1e-9);
    for (int layer = -1; layer < p->layers; layer++)
        for (int op = 0; op < OPERATOR_COUNT; op++) {
            const struct profile_cell *c = profile_at(p, layer, (enum pass_operator)op);
            if (c->calls) json_array_append_new(list, operator_json(c, layer, op));
        }
    json_put(o, "operators", list);
    return o;
}

void worker_profile_end(json_t *o, struct pass_profile *both)
{
    static const char *const PHASES[] = { "prefill", "decode" };
    json_t *profile = json_object();
    json_put_int(profile, "layers", both[0].layers);
    for (int i = 0; i < 2; i++) {
        json_put(profile, PHASES[i], phase_json(&both[i]));
        profile_free(&both[i]);
    }
    if (o)
        json_put(o, "profile", profile);
    else
        json_decref(profile);
}
