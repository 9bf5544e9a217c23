/* advisor/experiment/experiment.c - the thread that carries one comparison from loading to verdict.
 *
 * Other threads get copies of the state. This thread is its only writer, so it reads it without the lock. It
 * changes the state between state_edit() and state_done(), which wakes waiting threads. */
#include "advisor/experiment/parts.h"
#include "advisor/experiment/experiment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cut/cut.h"

struct experiment_state *state_edit(struct experiment *x)
{
    pthread_mutex_lock(&x->lock);
    return &x->state;
}

void state_done(struct experiment *x)
{
    x->version++;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

void experiment_log_event(struct experiment *x, const char *kind, const char *fmt, ...)
{
    char text[sizeof x->state.event[0].text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    struct experiment_state *s = state_edit(x);
    state_event(s, clock_unix_ms(), kind, text);
    state_done(x);
    struct err ignored; /* an event that cannot be stored is no reason to lose the measurement */
    if (x->state.run_id) (void)db_event_add(x->db, x->state.run_id, kind, text, &ignored);
    log_write(&x->log, LOG_INFO, "%s", text);
}

double experiment_elapsed(const struct experiment *x)
{
    return (double)(clock_ns() - x->clock.begun_ns - x->clock.paused_ns) * 1e-9;
}

enum flow experiment_wait_while_paused(struct experiment *x)
{
    if (atomic_load(&x->stop)) return FLOW_STOPPED;
    if (!atomic_load(&x->pause)) return FLOW_CONTINUE;
    const int64_t begun = clock_ns();
    processes_end(x); /* a pause frees their memory as well */
    experiment_log_event(x, "pause", "paused: the arms' processes have ended and nothing is measured");
    struct experiment_state *s = state_edit(x);
    s->running_arm = -1;
    s->cell_phase[0] = 0;
    s->live_tok_s = NAN;
    s->pauses++;
    s->paused_since_ms = clock_unix_ms();
    state_done(x);
    while (atomic_load(&x->pause) && !atomic_load(&x->stop)) clock_sleep_ns(50000000);
    const int64_t paused_ns = clock_ns() - begun;
    x->clock.paused_ns += paused_ns;
    s = state_edit(x);
    s->paused_since_ms = 0;
    s->paused_s += (double)paused_ns * 1e-9;
    state_done(x);
    experiment_log_event(x, "continue", "continued after a pause of %.1f s", (double)paused_ns * 1e-9);
    return atomic_load(&x->stop) ? FLOW_STOPPED : FLOW_PAUSED;
}

static void phase_enter(struct experiment *x, enum experiment_phase phase)
{
    struct experiment_state *s = state_edit(x);
    s->phase = phase;
    s->running_arm = s->block = s->slot = -1;
    s->elapsed_s = experiment_elapsed(x);
    state_done(x);
}

/* ---------------------------------------------------------------- arms */

/* Whether A and at least one challenger still run. */
static bool arms_remain(const struct experiment *x)
{
    int arm[EXPERIMENT_ARMS];
    return !x->state.arm[0].failed && arms_live(&x->state, CELL_BLOCK, arm) >= 2;
}

static bool any_arm(const struct experiment *x)
{
    for (int i = 0; i < x->state.spec.arms; i++)
        if (!x->state.arm[i].failed) return true;
    return false;
}

/* ---------------------------------------------------------------- the run's row */

/* "A vs B vs C" for lists of runs. Runs of the same label count as the same experiment, so lines are cut only
 * where they do not fit, to equal parts. */
static void label_of(const struct experiment_state *s, char *buf, size_t size)
{
    static const char BETWEEN[] = " vs ";
    char line[CONFIG_LINE + WORKLOAD_LINE], part[CONFIG_LINE + WORKLOAD_LINE];
    size_t all = 0, n = 0;
    for (int i = 0; i < s->spec.arms; i++)
        all += strlen(experiment_arm_line(s, i, line, sizeof line)) + strlen(BETWEEN);
    const size_t room = all < size ? sizeof part : size / (size_t)s->spec.arms - strlen(BETWEEN);
    for (int i = 0; i < s->spec.arms; i++) {
        text_cut(part, room, experiment_arm_line(s, i, line, sizeof line));
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? BETWEEN : "", part);
    }
}

/* What is stored with an arm's model. It is made from the state, because the process and its answer are gone
 * by now where memory holds one process at a time. New reference; NULL when the arm never answered. */
static json_t *model_description(const struct experiment_state *s, const struct experiment_arm *a)
{
    if (!*a->sha256) return NULL;
    json_t *o = json_object();
    json_put_str(o, "name", a->model_name);
    json_put_str(o, "arch", a->arch);
    json_put_str(o, "dominant_format", a->dominant_format);
    json_put_str(o, "quantization", *a->quantization ? a->quantization : NULL);
    json_put_bool(o, "random_weights", s->random_weights);
    json_put_bool(o, "answers_unverified", s->answers_unverified);
    if (*a->engine) json_put(o, "engine", experiment_engine(a));
    return o;
}

static struct capsule_arm capsule_arm_of(const struct experiment_state *s, int i, const json_t *description)
{
    const struct experiment_arm *a = &s->arm[i];
    const char *own = config_text(&s->spec.config[i], KNOB_MODEL);
    const char *path = *own ? own : s->spec.model;
    return (struct capsule_arm){ .line = a->line,
                                 .resolved = a->merged_known ? &a->merged : NULL,
                                 .model_path = path,
                                 /* as bench, eval and tune: one file has one name in the list of runs */
                                 .model_name = path && *path ? path_file_name(path) : a->model_name,
                                 .sha256 = a->sha256,
                                 .description = description };
}

/* Starts sampling the machine's conditions with the threads that arm A uses. Failing to do so does not stop
 * the measurement. */
static void conditions_open(struct experiment *x)
{
    const struct experiment_spec *spec = &x->state.spec;
    const char *own = config_text(&spec->config[0], KNOB_MODEL);
    const struct run_timing t = { .model = *own ? own : spec->model,
                                  .config = &spec->config[0],
                                  .workload = &spec->workload };
    struct err why;
    if (run_conditions_open(&x->run, &t, &why))
        log_write(&x->log, LOG_WARN, "memory_ratio and core_ratio stay unknown: %s", why.message);
}

/* Creates the run in the database, or reopens the one to resume. */
static enum err_code experiment_begin_run(struct experiment *x)
{
    const struct experiment_state *s = &x->state;
    struct capsule_arm arm[EXPERIMENT_ARMS];
    json_t *description[EXPERIMENT_ARMS];
    char workload[576], label[RUN_LABEL];
    bool known = false;
    label_of(s, label, sizeof(label));
    for (int i = 0; i < s->spec.arms; i++) {
        description[i] = model_description(s, &s->arm[i]);
        arm[i] = capsule_arm_of(s, i, description[i]);
    }
    json_t *spec = experiment_spec_to_json(&s->spec);
    char *spec_json = json_line(spec);
    (void)ceilings_load(&x->ceilings, x->machine.id, &known, NULL);
    const struct run_spec run = { .kind = "ab",
                                  .workload = experiment_workload_line(&s->spec, workload, sizeof(workload)),
                                  .label = label,
                                  .metric = s->spec.metric->name,
                                  .spec_json = spec_json,
                                  .seed = s->spec.seed,
                                  .resume_id = s->run_id,
                                  .machine = &x->machine,
                                  .ceilings = known ? &x->ceilings : NULL,
                                  .sampler = x->sampler,
                                  .program = x->program,
                                  .labels = &x->labels,
                                  .arm = arm,
                                  .arms = s->spec.arms };
    const enum err_code rc = run_begin(&x->run, x->db, &run, &x->why);
    for (int i = 0; i < s->spec.arms; i++) json_decref(description[i]);
    json_decref(spec);
    free(spec_json);
    if (!rc) conditions_open(x);
    return rc;
}

static enum err_code run_open(struct experiment *x)
{
    const bool resumed = x->state.run_id != 0;
    const enum err_code rc = experiment_begin_run(x);
    if (!rc && resumed) /* what the budget of an earlier session allowed says nothing about this one */
        experiment_log_event(x, "resume", "continued with %.3g s more; %d block%s had been measured",
                             x->state.spec.budget_s, x->state.complete, str_plural(x->state.complete));
    if (rc || resumed) return rc;
    struct experiment_state *e = state_edit(x);
    e->run_id = x->run.row.id;
    e->started_ms = x->run.row.started_ms;
    state_done(x);
    experiment_spans_early(x);
    struct err ignored;
    for (int i = 0; i < e->events; i++) /* events from before the run had a row */
        (void)db_event_add(x->db, e->run_id, e->event[i].kind, e->event[i].text, &ignored);
    return ERR_OK;
}

/* ---------------------------------------------------------------- phases */

enum { WARMUP_LEAST = 4, WARMUP_MOST = 12 };

/* Whether the rate of warm-up cells has settled: MSER (stats.h), applied to their logarithms, drops fewer
 * than half of the cells and keeps at least three. *drop: how many it drops. No warm-up cell counts in any
 * case. */
static bool has_settled(const double *value, int n, int *drop)
{
    double y[WARMUP_MOST];
    for (int i = 0; i < n; i++) y[i] = log(value[i]);
    *drop = stats_mser(y, n);
    return n >= WARMUP_LEAST && *drop >= 0 && 2 * *drop < n && n - *drop >= 3;
}

/* Runs warm-up cells of one arm: caches, clocks and pages settle, and failures show before the comparison.
 * With `more` false only one cell, whose length decides how often a cell repeats the workload. All arms
 * together get at most a tenth of the budget, but each at least one cell. */
static enum flow warm_up_arm(struct experiment *x, int arm, bool more, double *shortest)
{
    const struct experiment_spec *spec = &x->state.spec;
    const double until = experiment_elapsed(x) + 0.1 * spec->budget_s / spec->arms;
    double value[WARMUP_MOST], seconds = INFINITY;
    int n = 0, drop = 0;
    const int most = !more ? 1 : spec->warmup_cells ? MIN(spec->warmup_cells, WARMUP_MOST) : WARMUP_MOST;
    bool settled = false;
    while (n < most && !settled) {
        if (n && !spec->warmup_cells && experiment_elapsed(x) >= until) break;
        if (experiment_wait_while_paused(x) == FLOW_STOPPED) return FLOW_STOPPED;
        const enum flow f = cell_warm_up(x, arm, &seconds, &value[n]);
        if (!n) *shortest = fmin(*shortest, seconds);
        if (f) return f;
        n++;
        settled = !spec->warmup_cells && has_settled(value, n, &drop);
    }
    if (more && !spec->warmup_cells)
        experiment_log_event(x, "warmup", "arm %c: %d warm-up run%s (not counted); its speed %s", 'A' + arm,
                             n, str_plural(n),
                             !settled ? "may still be changing"
                             : drop   ? "became steady after the first of them"
                                      : "was steady from the first of them on");
    return FLOW_CONTINUE;
}

static enum flow warm_up_round(struct experiment *x, bool more, double *shortest)
{
    enum flow worst = FLOW_CONTINUE;
    for (int i = 0; i < x->state.spec.arms; i++) {
        if (x->state.arm[i].failed) {
            worst = FLOW_ARM;
            continue;
        }
        const enum flow f = warm_up_arm(x, i, more, shortest);
        if (f == FLOW_ARM)
            worst = f; /* the other arms are still measured */
        else if (f)
            return f;
        else if (!more && experiment_filling_is_too_long(x, i + 1))
            return FLOW_CONTINUE;
    }
    return worst;
}

/* First one cell per arm: the shortest decides how often a cell repeats the workload, so that cells of every
 * arm last a quarter of a second. Then as many cells as it takes to settle. */
static enum flow warm_up(struct experiment *x)
{
    phase_enter(x, PHASE_WARMUP);
    const bool resumed = x->state.blocks || x->state.control_blocks;
    double shortest = INFINITY, ignored = INFINITY;
    enum flow f = warm_up_round(x, false, &shortest);
    if (f == FLOW_ARM && arms_remain(x)) f = FLOW_CONTINUE;
    if (x->budget.ends_early) return f;
    if (!resumed && f == FLOW_CONTINUE && shortest > 0 && isfinite(shortest)) {
        struct experiment_state *s = state_edit(x);
        s->cell_repeats = workload_is_load(&s->spec.workload) ? 1 : cell_repeats(shortest, CELL_LEAST_S);
        state_done(x);
    }
    const bool more = x->state.spec.warmup_cells != 1 && experiment_budget_left(x) > 0;
    if (f == FLOW_CONTINUE && more) f = warm_up_round(x, true, &ignored);
    return f == FLOW_ARM && arms_remain(x) ? FLOW_CONTINUE : f;
}

/* Reports that the estimand in use has changed. */
static void note_estimand(struct experiment *x, enum estimand before)
{
    const struct experiment_state *s = &x->state;
    const int all = s->control_all.blocks + s->complete;
    if (s->estimand == before) return;
    if (s->estimand == ESTIMAND_LOADED) {
        char by[RUN_BUSIEST];
        /* servers of arms, which somebody else may have started, are no other programs */
        struct own_processes own = { 1, { getpid() } };
        for (int i = 0; i < s->spec.arms && own.n < (int)COUNT_OF(own.pid); i++)
            if (x->pool.process[i] && arm_pid(x->pool.process[i]) > 0)
                own.pid[own.n++] = arm_pid(x->pool.process[i]);
        machine_busiest(by, sizeof by, "", &own, BUSIEST_WINDOW_MS);
        struct experiment_state *edit = state_edit(x);
        snprintf(edit->busiest, sizeof edit->busiest, "%s", by);
        state_done(x);
        experiment_log_event(
            x, "estimand",
            "other programs disturbed most of %d block%s, so disturbed blocks are no longer left out: the result "
            "is the speed under that load%s%s",
            all, str_plural(all), *by ? ". CPU time is used by " : "", by);
    } else {
        experiment_log_event(
            x, "estimand",
            "most blocks are undisturbed again: the result is the speed without load, and disturbed blocks are left out");
    }
}

static enum flow run_control(struct experiment *x)
{
    if (x->state.spec.control_blocks < 0) {
        experiment_log_event(x, "control", "no A/A control was requested: the noise floor is unknown");
        return FLOW_CONTINUE;
    }
    phase_enter(x, PHASE_CONTROL);
    while (x->state.control_blocks < control_wanted(&x->state) && !experiment_block_is_too_late(x)) {
        const enum estimand before = x->state.estimand;
        const enum flow f = block_run(x, CELL_CONTROL);
        if (f != FLOW_CONTINUE) return f;
        note_estimand(x, before);
        experiment_count_down(x);
    }
    process_end(x, TWIN);
    const struct experiment_state *s = &x->state;
    if (s->control_blocks >= 2)
        experiment_log_event(
            x, "control", "A/A control, %d block%s: A differs from itself by %+.2f %% +- %.2f %%%s",
            s->control_blocks, str_plural(s->control_blocks), stats_percent(s->control.estimate),
            stats_percent(s->noise_floor),
            s->control_failed ? "; this bias is too large to compare anything on this machine now" : "");
    return s->control_failed ? FLOW_INVALID : FLOW_CONTINUE;
}

/* Computes the expected number of blocks from the control's spread, and reports what can be found. The number
 * does not limit the run, which ends when its intervals decide, and is not printed: the result has a later
 * estimate, from the spread of all blocks, and two numbers for one question would contradict each other. */
static void plan_once(struct experiment *x)
{
    struct experiment_state *s = &x->state;
    const bool controlled = s->control_blocks >= 2;
    if (s->planned_blocks || (!controlled && s->blocks < s->spec.min_blocks)) return;
    const double sd = controlled ? stats_sd(s->control_d, s->control_blocks)
                                 : stats_sd(s->comparison[s->headline].d, s->comparison[s->headline].blocks);
    const int n = plan_blocks(&s->spec, sd);
    s = state_edit(x);
    s->planned_blocks = n;
    state_done(x);
    experiment_log_event(
        x, "plan",
        "effects of single blocks vary by %.2f %% (standard deviation): %d block%s, the most of this run, can find "
        "differences of %.2f %% or more; the margin is %.2f %%",
        100 * sd, s->spec.max_blocks, str_plural(s->spec.max_blocks),
        stats_percent(experiment_detectable(sd, s->spec.max_blocks)), 100 * s->spec.margin);
}

/* A race may use two thirds of the time for blocks; the rest is for confirming its winner. */
static bool race_time_is_up(const struct experiment *x)
{
    const double begun = x->clock.blocks_begun_s, spent = experiment_elapsed(x) - begun;
    return x->state.spec.race && !x->state.spec.race_only &&
           spent >= (spent + experiment_budget_left(x)) * 2 / 3;
}

static bool phase_is_over(struct experiment *x, enum cell_phase phase)
{
    const struct experiment_state *s = &x->state;
    const int kept = phase == CELL_CONFIRM ? s->confirmation.blocks : s->blocks;
    if (kept >= s->spec.max_blocks) return true;
    if (s->complete >= EXPERIMENT_BLOCKS) return true; /* no room for more */
    if (phase == CELL_BLOCK && s->spec.race ? race_time_is_up(x) || x->race_over
                                            : judge_is_decided(s) && claims_gate_settled(s))
        return true;
    if (!experiment_block_is_too_late(x)) return false;
    experiment_log_event(x, "budget", "the time budget of %.0f s was used up after %d block%s",
                         s->spec.budget_s, kept, str_plural(kept));
    return true;
}

static void race_look(struct experiment *x)
{
    bool was[EXPERIMENT_ARMS];
    for (int k = 1; k < x->state.spec.arms; k++) was[k] = x->state.comparison[k].dropped;
    struct experiment_state *s = state_edit(x);
    x->race_over = judge_race(s);
    state_done(x);
    for (int k = 1; k < s->spec.arms; k++)
        if (s->comparison[k].dropped && !was[k])
            experiment_log_event(x, "race", "arm %c (%.80s) can no longer win and leaves the race", 'A' + k,
                                 s->arm[k].line);
}

static enum flow run_blocks(struct experiment *x, enum cell_phase phase)
{
    phase_enter(x, phase == CELL_CONFIRM ? PHASE_CONFIRM : PHASE_BLOCKS);
    x->clock.blocks_begun_s = experiment_elapsed(x);
    while (plan_once(x), !phase_is_over(x, phase)) {
        const enum estimand before = x->state.estimand;
        enum flow f = block_run(x, phase);
        note_estimand(x, before);
        if (f == FLOW_ARM && arms_remain(x) &&
            !(phase == CELL_CONFIRM && x->state.arm[x->state.headline].failed))
            f = FLOW_CONTINUE; /* the other arms are still compared */
        if (f != FLOW_CONTINUE) return f;
        if (phase == CELL_BLOCK && x->state.spec.race) race_look(x);
        experiment_count_down(x);
    }
    return FLOW_CONTINUE;
}

/* Choosing the best arm exaggerates its effect, so the winner of a race is measured again and only that
 * counts. When A leads there is nothing to confirm: the exaggeration favoured its challengers. */
static enum flow confirm_winner(struct experiment *x)
{
    const struct experiment_state *s = &x->state;
    const struct comparison *c = &s->comparison[s->headline];
    if (!s->spec.race || s->spec.race_only || !c->blocks || s->arm[s->headline].failed || c->effect.upper < 0)
        return FLOW_CONTINUE;
    experiment_log_event(x, "race",
                         "arm %c (%.80s) leads after %d block%s; it is now measured again, against A only",
                         'A' + s->headline, s->arm[s->headline].line, s->blocks, str_plural(s->blocks));
    state_edit(x)->confirming = true;
    state_done(x);
    return run_blocks(x, CELL_CONFIRM);
}

/* ---------------------------------------------------------------- the end */

/* Sets phase and verdict from how the last step ended. Returns the name of the run's state in the database.
 */
static const char *phase_conclude(struct experiment *x, enum flow f)
{
    struct experiment_state *s = state_edit(x);
    const bool all_failed = !any_arm(x);
    const char *name = "done";
    s->running_arm = s->block = s->slot = -1;
    s->cell_phase[0] = 0;
    s->live_tok_s = NAN;
    s->eta_s = 0;
    s->elapsed_s = experiment_elapsed(x);
    s->ended_ms = clock_unix_ms();
    if (x->cost.seconds > 0) s->overhead_ratio = x->cost.sampler_sum / x->cost.seconds;
    s->phase = PHASE_DONE;
    if (f == FLOW_STOPPED) {
        s->phase = PHASE_STOPPED;
        name = "stopped";
    } else if (f == FLOW_BROKEN || all_failed) {
        s->phase = PHASE_FAILED;
        s->error_code = all_failed ? s->arm[0].code : x->why.code;
        snprintf(s->error, sizeof(s->error), "%s", all_failed ? s->arm[0].error : x->why.message);
        name = "failed";
    } else if (f == FLOW_INVALID && *s->reason) {
        judge_numbers(s);
        s->verdict = VERDICT_INVALID;
        s->blocks_needed = -1;
    } else {
        experiment_judge(s);
    }
    judge_companions(s);
    state_done(x);
    return name;
}

static void outcome_store(struct experiment *x, enum flow f)
{
    experiment_budget_end(x);
    const char *name = phase_conclude(x, f);
    const struct experiment_state *s = &x->state;
    if (s->verdict)
        experiment_log_event(x, "verdict", "%s%s%s", verdict_name(s->verdict), *s->reason ? ": " : "",
                             s->reason);
    json_t *document = experiment_to_json(s);
    const struct run_outcome outcome = { .state = name,
                                         .verdict = verdict_name(s->verdict),
                                         .effect_ratio = exp(
                                             experiment_change(s, experiment_headline(s)->effect).estimate),
                                         .document = document };
    struct err why;
    /* in the database "discarded" means: does not count for the result */
    if (s->run_id && s->estimand == ESTIMAND_LOADED &&
        db_blocks_keep(x->db, s->run_id, BLOCKS_INCOMPLETE, &why))
        log_write(&x->log, LOG_WARN, "disturbed blocks of run %lld stay marked as discarded: %s",
                  (long long)s->run_id, why.message);
    if (run_finish(&x->run, &outcome, &why)) {
        struct experiment_state *e = state_edit(x);
        e->phase = PHASE_FAILED;
        e->error_code = why.code;
        snprintf(e->error, sizeof(e->error), "%s", why.message);
        state_done(x);
    } else if (experiment_residuals(x, &why)) { /* the verdict stays valid */
        log_write(&x->log, LOG_WARN, "prediction residuals of run %lld were not stored: %s",
                  (long long)s->run_id, why.message);
    }
    json_decref(document);
    if (x->db) db_unlock(x->db); /* another process may resume the run while this handle still reads it */
    pthread_mutex_lock(&x->lock);
    x->finished = true;
    state_done(x);
}

/* Without sensors there is no canary: such runs are not compared over time. */
static enum err_code canary_run_and_store(struct experiment *x, enum canary_when when)
{
    return x->sampler ? run_canary(&x->run, when, &x->why) : ERR_OK;
}

static enum flow carry_out(struct experiment *x)
{
    phase_enter(x, PHASE_LOADING);
    if (experiment_is_exact(&x->state.spec)) experiment_budget_exact(x);
    enum flow f = processes_load(x);
    if (f == FLOW_STOPPED) return f;
    if (run_open(x)) return FLOW_BROKEN;
    if (!any_arm(x)) return FLOW_ARM;
    if (f != FLOW_INVALID && experiment_wait_until_quiet(x) == FLOW_STOPPED) return FLOW_STOPPED;
    if (f != FLOW_INVALID) f = warm_up(x);
    if (f != FLOW_CONTINUE || x->budget.ends_early) return f;
    if (experiment_is_exact(&x->state.spec)) return quality_run(x);
    processes_plan(x);
    const double before = experiment_elapsed(x);
    if (canary_run_and_store(x, CANARY_START)) return FLOW_BROKEN;
    experiment_budget_plan(x, experiment_elapsed(x) - before);
    experiment_look_for_load(x);
    f = run_control(x);
    if (f == FLOW_CONTINUE && !x->state.confirming) f = run_blocks(x, CELL_BLOCK);
    if (f == FLOW_CONTINUE) f = confirm_winner(x);
    if (f == FLOW_CONTINUE && canary_run_and_store(x, CANARY_END)) return FLOW_BROKEN;
    if (f == FLOW_CONTINUE || f == FLOW_INVALID) { /* quality can be measured on a busy machine, too */
        const enum flow measured = quality_run(x);
        if (measured != FLOW_CONTINUE) f = measured;
    }
    return f;
}

void *experiment_thread(void *arg)
{
    pthread_setname_np(pthread_self(), "experiment");
    struct experiment *x = arg;
    outcome_store(x, carry_out(x));
    processes_end(x); /* here and not in experiment_close: a worker ends with the thread that started it */
    return NULL;
}
