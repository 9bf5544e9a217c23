/* A step of training: gradients of the passes, summed as a tree, then the optimizer. */
#include "engine/train/learner.h"

#include <stdlib.h>
#include <string.h>

enum err_code learner_open(struct learner *l, const struct learner_options *o, struct err *why)
{
    *l = (struct learner){ .o = *o };
    enum err_code rc = network_open(&l->network, &o->network, why);
    if (rc) return rc;
    const int64_t params = network_params(l->network);
    l->m = calloc((size_t)params, sizeof *l->m);
    l->v = calloc((size_t)params, sizeof *l->v);
    if (!l->m || !l->v) return err_set(why, ERR_NOMEM, "out of memory for training");
    rc = sums_open(&l->sums, params, o->passes, why);
    if (!rc && o->optimizer == OPTIMIZER_MUON) rc = muon_open(&l->muon, l->network, why);
    return rc;
}

void learner_close(struct learner *l)
{
    muon_close(l->muon);
    network_close(l->network);
    sums_close(&l->sums);
    free(l->m);
    free(l->v);
    *l = (struct learner){ .o = l->o };
}

int64_t learner_optimizer_bytes(const struct learner *l)
{
    const int64_t params = network_params(l->network);
    return 2 * params * (int64_t)sizeof(float) + sums_bytes(params, l->o.passes);
}

struct pass {
    struct learner *l;
    const struct learner_step *s;
    const struct learner_rows *r;
};

/* The gradient of one pass. */
static double pass_run(void *ctx, int number)
{
    const struct pass *p = ctx;
    const struct learner_options *o = &p->l->o;
    const int64_t at = (int64_t)number * o->network.batch * o->network.shape.ctx;
    if (p->r->alive) p->r->alive(p->r->ctx);
    memset(network_gradients(p->l->network), 0, (size_t)p->l->sums.n * sizeof(float));
    return network_backward(p->l->network, p->r->tokens + at, p->r->targets + at, p->s->by);
}

double learner_gradients(struct learner *l, const struct learner_step *s, const struct learner_rows *r)
{
    struct pass p = { l, s, r };
    return sums_run(&l->sums, network_threads(l->network),
                    &(struct sums_leaves){ pass_run, &p, network_gradients(l->network) }, l->o.passes);
}

double learner_update(struct learner *l, const struct learner_step *s)
{
    const double length = adam_step(&(struct adam_step){ .o = &l->o.adam,
                                                         .network = l->network,
                                                         .muon = l->muon,
                                                         .m = l->m,
                                                         .v = l->v,
                                                         .t = s->t,
                                                         .rate = s->rate,
                                                         .scale = (double)s->scale });
    if (s->trim) network_trim(l->network);
    return length;
}
