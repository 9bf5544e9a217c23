/* The memory plan of a model that several processes run together. */
#include "engine/plan/plan.h"

enum err_code plan_compute_all(struct memory_plan *out, const struct gguf *g, const struct model_shape *s,
                               const struct hyper *h, const struct config *c, const struct recipe_view *view,
                               const struct model_session *e, struct err *why)
{
    const struct parallel mode = config_parallel(c);
    const int ranks = parallel_ranks(&mode);
    struct model_session session = *e;
    session.part = (struct part){ 0 };
    enum err_code rc = plan_compute(out, g, s, h, c, view, &session, why);
    if (rc || ranks == 1) return rc;
    if ((rc = split_check(&mode, h->arch, s, why))) return rc;
    out->ranks = ranks;
    if (!config_int(c, KNOB_THREADS) && !*config_text(c, KNOB_HOSTS)) /* ranks of a machine share its cores */
        session.backend.threads = MAX(session.backend.threads / ranks, 1);
    session.sequences = part_sequences(&mode, e->sequences);
    out->kv = out->state = out->compute = out->scratch = 0;
    for (int i = 0; i < ranks && !rc; i++) {
        struct memory_plan one;
        session.part = part_of(&mode, i, s->layers);
        if ((rc = plan_compute(&one, g, s, h, c, view, &session, why))) break;
        out->kv += one.kv;
        out->state += one.state;
        out->compute += one.compute;
        out->scratch += one.scratch;
        out->rank_total = MAX(out->rank_total, one.total);
        out->ranks_total += one.total;
    }
    out->total = out->host = out->weights + out->kv + out->state + out->compute + out->scratch;
    return rc;
}
