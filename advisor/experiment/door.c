/* advisor/experiment/door.c - starting or resuming an experiment, reading its state, waiting, stopping. */
#include "advisor/experiment/parts.h"
#include "advisor/experiment/experiment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool experiment_is_open(const struct run_row *row)
{
    json_t *o = NULL;
    const char *text = row->outcome_json ? row->outcome_json : "";
    if (strcmp(row->state, "done") || verdict_parse(row->verdict) == VERDICT_INCONCLUSIVE) return true;
    if (json_parse(&o, text, strlen(text), NULL)) return false;
    const char *gate = json_get_str(json_object_get(o, "gate"), "outcome", "");
    const bool open = !strcmp(gate, gate_outcome_name(GATE_UNDECIDED));
    json_decref(o);
    return open;
}

/* Continues a run with its own specification and kept blocks. */
static enum err_code state_resume(struct experiment *x, const struct experiment_spec *given, struct err *why)
{
    const int64_t run_id = given->resume_id;
    struct run_row row = { 0 };
    enum err_code rc = db_run_get(x->db, run_id, &row, why); /* fails when there is no such run */
    run_row_free(&row);
    if (!rc) rc = db_run_lock(x->db, run_id, why);
    if (!rc) rc = db_run_get(x->db, run_id, &row, why); /* again, now that no other process can change it */
    if (rc) return rc;
    if (strcmp(row.kind, "ab"))
        rc = err_set(why, ERR_USAGE, "run %lld is a %s: only an experiment can be resumed", (long long)run_id,
                     row.kind);
    else if (!experiment_is_open(&row))
        rc = err_set(why, ERR_USAGE, "run %lld is finished (%s): `qdyno replay %lld` measures it again",
                     (long long)run_id, *row.verdict ? row.verdict : "no verdict", (long long)run_id);
    else if (strcmp(row.machine, x->machine.id))
        rc = err_set(why, ERR_USAGE, "run %lld was measured on machine %s, this is %s: they do not mix",
                     (long long)run_id, row.machine, x->machine.id);
    json_t *o = NULL;
    struct experiment_spec spec;
    if (!rc)
        rc = json_parse(&o, row.spec_json ? row.spec_json : "", row.spec_json ? strlen(row.spec_json) : 0,
                        why);
    if (!rc) rc = experiment_spec_from_json(&spec, o, why);
    /* time, number of blocks and the wait for a quiet machine are those of this session */
    if (!rc) spec.wait_quiet_s = given->wait_quiet_s;
    if (!rc && given->budget_s > 0) spec.budget_s = given->budget_s;
    if (!rc && given->max_blocks > 0) spec.max_blocks = given->max_blocks;
    if (!rc) rc = spec_resolve(&spec, why);
    json_decref(o);
    if (!rc) {
        spec.resume_id = run_id;
        state_init(&x->state, &spec);
        rc = state_rebuild(&x->state, &x->totals, x->db, run_id, true, why);
        x->state.started_ms = row.started_ms;
        x->state.paused_since_ms = 0; /* a pause ended with the process that made it */
        for (int i = 0; i < spec.arms; i++) x->state.arm[i].failed = false; /* it gets another chance */
    }
    run_row_free(&row);
    return rc;
}

static enum err_code experiment_new(struct experiment *x, const struct experiment_spec *spec,
                                    const struct experiment_deps *deps, struct err *why)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&x->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&x->lock, NULL);
    atomic_init(&x->stop, false);
    atomic_init(&x->pause, false);
    x->sampler = deps->sampler;
    x->machine = *deps->machine;
    if (deps->labels) x->labels = *deps->labels;
    if (deps->log)
        x->log = *deps->log;
    else
        x->log.level = LOG_QUIET;
    x->program = deps->program ? strdup(deps->program) : NULL;
    if (deps->program && !x->program) return err_set(why, ERR_NOMEM, "no memory for an experiment");
    enum err_code rc = db_open(&x->db, deps->db_path, why);
    if (rc) return rc;
    struct experiment_spec resolved = *spec;
    if (!spec->resume_id) rc = spec_resolve(&resolved, why);
    if (rc) return rc;
    state_init(&x->state, &resolved);
    if (spec->resume_id) rc = state_resume(x, spec, why);
    snprintf(x->state.machine_id, sizeof(x->state.machine_id), "%s", x->machine.id);
    x->clock.begun_ns = clock_ns();
    return rc;
}

enum err_code experiment_start(struct experiment **out, const struct experiment_spec *spec,
                               const struct experiment_deps *deps, struct err *why)
{
    *out = NULL;
    struct experiment *x = calloc(1, sizeof(*x));
    if (!x) return err_set(why, ERR_NOMEM, "no memory for an experiment");
    x->spans.at.block = -1;
    enum err_code rc = experiment_new(x, spec, deps, why);
    if (!rc && (errno = pthread_create(&x->thread, NULL, experiment_thread, x)))
        rc = err_set(why, err_of_errno(errno), "cannot start the experiment's thread: %s", strerror(errno));
    if (rc) {
        experiment_close(x);
        return rc;
    }
    x->joinable = true;
    *out = x;
    return ERR_OK;
}

void experiment_state(struct experiment *x, struct experiment_state *out)
{
    pthread_mutex_lock(&x->lock);
    *out = x->state;
    pthread_mutex_unlock(&x->lock);
    out->pausing = atomic_load(&x->pause) && !out->paused_since_ms && out->phase < PHASE_DONE;
}

void experiment_wait(struct experiment *x, int64_t *version, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&x->lock);
    while (x->version == *version && !x->finished)
        if (pthread_cond_timedwait(&x->changed, &x->lock, &until)) break;
    *version = x->version;
    pthread_mutex_unlock(&x->lock);
}

bool experiment_finished(struct experiment *x)
{
    pthread_mutex_lock(&x->lock);
    const bool finished = x->finished;
    pthread_mutex_unlock(&x->lock);
    return finished;
}

void experiment_stop(struct experiment *x)
{
    atomic_store(&x->stop, true);
}

void experiment_pause(struct experiment *x, bool wait)
{
    atomic_store(&x->pause, wait);
}

/* Adds the settings of a config line to those of another; the newer value of a key counts. A line that
 * cannot be read replaces the other one, so that the worker refuses it with its message. */
static void settings_add(char *settings, size_t size, const char *more)
{
    struct config all, added;
    char line[CONFIG_LINE];
    const bool read = !config_parse(&all, settings, NULL) && !config_parse(&added, more, NULL);
    for (int id = 0; id < KNOB_COUNT && read; id++)
        if (added.given[id]) config_take(&all, &added, (enum knob_id)id);
    snprintf(settings, size, "%s", read ? config_line(&all, line, sizeof line) : more);
}

void experiment_change_load(struct experiment *x, double rate_by, const char *settings)
{
    pthread_mutex_lock(&x->lock);
    x->change.rate_by = x->change.wanted ? x->change.rate_by * rate_by : rate_by;
    if (!x->change.wanted) *x->change.settings = '\0';
    if (*settings) settings_add(x->change.settings, sizeof x->change.settings, settings);
    x->change.wanted = true;
    pthread_mutex_unlock(&x->lock);
}

void experiment_close(struct experiment *x)
{
    if (!x) return;
    experiment_stop(x);
    if (x->joinable) pthread_join(x->thread, NULL);
    for (size_t i = 0; i < COUNT_OF(x->pool.process); i++) arm_close(x->pool.process[i]);
    run_close(&x->run);
    db_close(x->db);
    totals_free(&x->totals);
    free(x->spans.early);
    free(x->program);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}
