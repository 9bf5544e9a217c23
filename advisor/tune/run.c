/* advisor/tune/run.c - runs an experiment of a search to its end, and stops it when the search is stopped. */
#include "advisor/experiment/experiment.h"
#include "advisor/tune/parts.h"

enum err_code tune_experiment(const struct tune_options *o, const struct experiment_spec *spec,
                              struct experiment_state *s, tune_experiment_fn *each, void *ctx,
                              struct err *why)
{
    struct experiment *x = NULL;
    const struct experiment_deps deps = { .db_path = o->db_path,
                                          .sampler = o->sampler,
                                          .machine = o->machine,
                                          .program = o->program,
                                          .log = o->log,
                                          .labels = o->labels };
    int64_t version = 0;
    bool goes_on = true, stopped = false;
    enum err_code rc = experiment_start(&x, spec, &deps, why);
    while (!rc && !experiment_finished(x)) {
        experiment_wait(x, &version, 200);
        experiment_state(x, s);
        if (!stopped) rc = each(ctx, s, &goes_on, why);
        if (!goes_on && !stopped) experiment_stop(x);
        stopped = !goes_on;
    }
    if (x) experiment_state(x, s);
    experiment_close(x);
    if (!rc) rc = each(ctx, s, &(bool){ true }, why);
    if (!rc && stopped) rc = err_set(why, ERR_CANCELLED, "stopped");
    if (!rc && s->phase == PHASE_FAILED) rc = err_set(why, s->error_code, "%s", s->error);
    return rc;
}
