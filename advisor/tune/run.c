/* advisor/tune/run.c - the run of a search in the database, and its experiments: each runs to its end, and
 * stops when the search is stopped. */
#include <string.h>

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

enum err_code tune_resumed_run(struct run_row *row, struct db *d, int64_t id, struct err *why)
{
    const enum err_code rc = db_run_get(d, id, row, why);
    if (rc) return rc;
    if (strcmp(row->kind, "tune"))
        return err_set(why, ERR_USAGE, "--resume %lld: expected a tuning run, but that run is of kind '%s'",
                       (long long)id, row->kind);
    if (!strcmp(row->state, "done"))
        return err_set(why, ERR_USAGE, "--resume %lld: that search is finished: qdyno show %lld prints it",
                       (long long)id, (long long)id);
    return ERR_OK;
}

enum err_code tune_run_open(struct run *run, struct db *d, const struct tune_options *o,
                            const struct tune_run_about *about, struct err *why)
{
    char work[WORKLOAD_LINE];
    json_t *model = json_object();
    json_put_str(model, "name", about->shape->name);
    json_put_str(model, "arch", about->shape->arch);
    json_put_int(model, "params", about->shape->params);
    const struct capsule_arm arm = { .line = about->label,
                                     .model_path = o->model_path,
                                     .model_name = path_file_name(o->model_path),
                                     .sha256 = about->sha256,
                                     .description = model };
    const struct run_spec spec = { .kind = "tune",
                                   .workload = workload_line(&o->workload, work, sizeof work),
                                   .label = about->label,
                                   .metric = about->metric,
                                   .spec_json = about->spec_json,
                                   .seed = o->seed,
                                   .resume_id = o->resume_id,
                                   .has_canary = o->sampler != NULL,
                                   .machine = o->machine,
                                   .ceilings = o->ceilings,
                                   .sampler = o->sampler,
                                   .program = o->program,
                                   .labels = o->labels,
                                   .arm = &arm,
                                   .arms = 1 };
    enum err_code rc = o->resume_id ? db_run_lock(d, o->resume_id, why) : ERR_OK; /* before it is reopened */
    if (!rc) rc = run_begin(run, d, &spec, why);
    json_decref(model);
    return rc;
}
