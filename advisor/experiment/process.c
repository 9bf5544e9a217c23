/* advisor/experiment/process.c - the processes that the arms run in.
 *
 * The placement of a process in memory makes it up to a few percent faster or slower than another process of
 * the same config, for as long as it lives. A comparison of two processes that live for the whole run would
 * include that difference, whatever the number of blocks. So each block starts new processes, unless loading
 * takes longer than measuring (docs/statistics.md, "New processes in every block"). */
#include "advisor/experiment/parts.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- one process */

/* A person changes the load of the running cell: the worker of that cell hears of it, and the block is
 * measured again. */
static void change_pass_on(struct experiment *x)
{
    char settings[LIVE_SETTINGS];
    struct err why;
    pthread_mutex_lock(&x->lock);
    const bool wanted = x->change.wanted;
    const double rate_by = x->change.rate_by;
    memcpy(settings, x->change.settings, sizeof settings);
    x->change.wanted = false;
    pthread_mutex_unlock(&x->lock);
    if (!wanted || !workload_is_load(&x->state.spec.workload)) return;
    for (size_t i = 0; i < COUNT_OF(x->pool.process); i++)
        if (x->pool.process[i] && arm_change_load(x->pool.process[i], rate_by, settings, &why))
            experiment_log_event(x, "load", "the load was not changed: %s", why.message);
    experiment_log_event(x, "load", "the load was changed by hand (%s%s%s): this block is measured again",
                         rate_by > 1   ? "more requests"
                         : rate_by < 1 ? "fewer requests"
                                       : "",
                         rate_by != 1 && *settings ? ", " : "", settings);
    x->changed_by_hand = true;
}

/* A progress event of an arm. */
static void progress_take(struct experiment_state *s, int arm, const json_t *event)
{
    snprintf(s->cell_phase, sizeof(s->cell_phase), "%s", json_get_str(event, "phase", ""));
    s->cell_done = (int)json_get_int(event, "done", 0);
    s->cell_of = (int)json_get_int(event, "of", 0);
    const double seconds = json_get_num(event, "seconds", NAN);
    occupancy_read(&s->occupancy, arm, json_object_get(event, "occupancy"));
    if (arm >= 0) arm_ranks_read(&s->arm[arm], json_object_get(event, "ranks"));
    s->live_known = live_read(&s->live, json_object_get(event, "load")) || s->live_known;
    s->live_tok_s = seconds > 0 && s->cell_done > 0 ? s->cell_done / seconds : NAN;
}

bool experiment_arm_event(void *ctx, const json_t *event)
{
    const struct arm_events *of = ctx;
    struct experiment *x = of->x;
    const int64_t now = clock_ns();
    if (event && !strcmp(json_get_str(event, "event", ""), "refused"))
        experiment_log_event(x, "load", "the load was not changed: %s", json_get_str(event, "message", ""));
    change_pass_on(x);
    /* The screen redraws at most ten times a second; the lock is not taken more often than that, except for
     * the figures of ranks: the worker sends them once a second. */
    const int64_t pause_ns = json_object_get(event, "ranks") ? 0 : event ? 50000000 : 100000000;
    if (now - x->clock.shown_ns >= pause_ns) {
        x->clock.shown_ns = now;
        struct experiment_state *s = state_edit(x);
        s->elapsed_s = experiment_elapsed(x);
        if (event && !strcmp(json_get_str(event, "event", ""), "progress")) progress_take(s, of->arm, event);
        state_done(x);
    }
    return !atomic_load(&x->stop);
}

bool experiment_event(void *ctx, const json_t *event)
{
    struct experiment *x = ctx;
    return experiment_arm_event(&(struct arm_events){ x, x->state.running_arm }, event);
}

void process_end(struct experiment *x, int process)
{
    arm_close(x->pool.process[process]);
    x->pool.process[process] = NULL;
}

void processes_end(struct experiment *x)
{
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(x->pool.process); i++) {
        any = any || x->pool.process[i];
        process_end(x, (int)i);
    }
    if (!any) return;
    struct experiment_state *s = state_edit(x);
    for (int i = 0; i < EXPERIMENT_ARMS; i++) s->arm[i].ready = false;
    state_done(x);
}

enum flow arm_fail(struct experiment *x, int arm, const struct err *why)
{
    if (why->code == ERR_CANCELLED) return FLOW_STOPPED;
    struct experiment_state *s = state_edit(x);
    s->arm[arm].failed = true;
    s->arm[arm].ready = false;
    s->arm[arm].code = why->code;
    snprintf(s->arm[arm].error, sizeof(s->arm[arm].error), "%s", why->message);
    state_done(x);
    experiment_log_event(x, "arm", "arm %c failed: %s", 'A' + arm, why->message);
    arm_close(x->pool.process[arm]);
    x->pool.process[arm] = NULL;
    return FLOW_ARM;
}

static struct arm_spec arm_spec_of(const struct experiment *x, int arm)
{
    const struct experiment_spec *s = &x->state.spec;
    return (struct arm_spec){
        .model = s->model,
        .config = &s->config[arm],
        /* 0: the context is set in the config line, as part of what is compared */
        .ctx = config_int(&s->config[arm], KNOB_CTX) ? 0 : workload_ctx(experiment_workload(s, arm)),
        .sequences = workload_sequences_for(experiment_workload(s, arm), &s->config[arm]),
        .train = s->workload.train > 0,
        .program = x->program,
        .log = &x->log,
    };
}

/* What a reader must know of another engine's figures, once for each arm. */
static void notes_log(struct experiment *x, int arm, const struct arm *a)
{
    const char *text;
    if (x->pool.noted[arm]) return;
    x->pool.noted[arm] = true;
    for (size_t i = 0; (text = arm_note(a, i)); i++)
        experiment_log_event(x, "engine", "arm %c: %s", 'A' + arm, text);
}

enum flow process_start(struct experiment *x, int process, int arm)
{
    if (x->pool.lifetime == LIFETIME_CELL) processes_end(x);
    if (x->pool.process[process]) return FLOW_CONTINUE;
    struct experiment_state *s = state_edit(x);
    s->running_arm = arm;
    s->cell_done = s->cell_of = 0;
    s->live_tok_s = NAN;
    snprintf(s->cell_phase, sizeof(s->cell_phase), "load");
    state_done(x);
    const struct arm_spec spec = arm_spec_of(x, arm);
    struct err why = { 0 };
    struct span_row spans[1 + SPANS_MOST];
    const struct moment begun = moment_now();
    const enum err_code rc = arm_open(&x->pool.process[process], &spec, experiment_event, x, &why);
    spans[0] = span_until_now("load", begun, rc ? why.message : NULL);
    const json_t *description = rc ? NULL : arm_description(x->pool.process[process]);
    experiment_spans(x, arm, spans, spans_read(spans, 1, COUNT_OF(spans), description, begun));
    if (rc) {
        x->why = why;
        return why.code == ERR_CANCELLED ? FLOW_STOPPED
                                         : FLOW_ARM; /* the caller decides how to handle the failure */
    }
    notes_log(x, arm, x->pool.process[process]);
    x->pool.start_s[arm] = (double)(spans[0].ended_ns - spans[0].begun_ns) * 1e-9;
    const char *sha256 = json_get_str(description, "sha256", "");
    const bool same = !*s->arm[arm].sha256 || !strcmp(s->arm[arm].sha256, sha256);
    s = state_edit(x);
    if (!same)
        snprintf(s->reason, sizeof(s->reason),
                 "the model file of arm %c has changed since the run began: its hash is %.8s, it was %.8s",
                 'A' + arm, sha256, s->arm[arm].sha256);
    s->arm[arm].ready = true;
    arm_describe(&s->arm[arm], description);
    s->random_weights = s->random_weights || json_get_bool(description, "random_weights", false);
    s->answers_unverified = s->answers_unverified || json_get_bool(description, "answers_unverified", false);
    state_done(x);
    return same ? FLOW_CONTINUE : FLOW_INVALID;
}

/* ---------------------------------------------------------------- all of them */

/* Bytes of memory that a new process could have now; -1 unknown. */
static int64_t arms_memory_available(const struct experiment *x)
{
    double row[METRIC_SENSOR_COUNT];
    int64_t bytes = x->machine.memory_available_bytes;
    if (x->sampler) {
        sampler_latest(x->sampler, row, NULL, 0);
        if (row[METRIC_MEM_AVAILABLE] > 0) bytes = (int64_t)row[METRIC_MEM_AVAILABLE];
    }
    if (x->machine.cgroup_memory_bytes > 0 && (bytes < 0 || x->machine.cgroup_memory_bytes < bytes))
        bytes = x->machine.cgroup_memory_bytes;
    return bytes;
}

enum err_code experiment_check_arm(const struct experiment_spec *s, int arm, struct err *why)
{
    const struct config *c = &s->config[arm];
    const struct workload *w = experiment_workload(s, arm);
    if (w->train) return ERR_OK; /* a new model from random weights: there is no file */
    const int ctx = config_int(c, KNOB_CTX) ? 0 : workload_ctx(w);
    const enum err_code rc = arm_check(c, s->model, ctx, workload_sequences_for(w, c), why);
    return rc ? err_prefix(why, "arm %c", 'A' + arm) : ERR_OK;
}

enum err_code experiment_check(const struct experiment_spec *s, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < s->arms && (i == 0 || s->arms == 2) && !rc; i++) rc = experiment_check_arm(s, i, why);
    return rc;
}

/* Computes the memory plan of an arm before its process starts. False when that is impossible. */
static bool arm_plan(struct memory_plan *out, const struct experiment_spec *s, int arm)
{
    const char *path = config_model_file(&s->config[arm], s->model);
    struct gguf *g = NULL;
    struct err ignored;
    if (!*path || model_file_open(&g, path, &ignored)) return false;
    const int ctx = config_int(&s->config[arm], KNOB_CTX) ? 0 : workload_ctx(experiment_workload(s, arm));
    const int sequences = workload_sequences_for(experiment_workload(s, arm), &s->config[arm]);
    const bool ok = !recipe_plan_memory(out, g, &s->config[arm], ctx, sequences, &ignored);
    gguf_close(g);
    return ok;
}

/* Whether the device of an arm has room for all arms that run on it. */
static bool device_holds(const struct experiment_spec *s, const struct memory_plan plan[EXPERIMENT_ARMS],
                         int arm)
{
    const char *device = config_text(&s->config[arm], KNOB_DEVICE);
    double sum = 0;
    for (int i = 0; i < s->arms; i++)
        if (!strcmp(config_text(&s->config[i], KNOB_DEVICE), device)) sum += (double)plan[i].device;
    if (!arm) sum = fmax(sum, 2 * (double)plan[0].device); /* the control runs A twice */
    return plan[arm].device_room < 0 || sum <= (double)plan[arm].device_room;
}

static bool arms_fit_together(const struct experiment *x)
{
    const struct experiment_spec *s = &x->state.spec;
    const int64_t have = arms_memory_available(x);
    struct memory_plan plan[EXPERIMENT_ARMS];
    double sum = 0;
    for (int i = 0; i < s->arms; i++) {
        if (!arm_plan(&plan[i], s, i)) return true; /* unknown: try it; ERR_FIT shows when it does not fit */
        sum += (double)plan[i].host;
    }
    for (int i = 0; i < s->arms; i++)
        if (!device_holds(s, plan, i)) return false;
    return have < 0 || fmax(sum, 2 * (double)plan[0].host) <= 0.9 * (double)have;
}

bool twin_fits(const struct experiment *x)
{
    const int64_t have = arms_memory_available(x);
    struct memory_plan plan;
    if (!arm_plan(&plan, &x->state.spec, 0)) return false;
    return (have < 0 || (double)plan.host <= 0.9 * (double)have) && plan.device <= 0;
}

enum flow processes_load(struct experiment *x)
{
    x->pool.lifetime = arms_fit_together(x) ? LIFETIME_RUN : LIFETIME_CELL;
    if (x->pool.lifetime == LIFETIME_CELL)
        experiment_log_event(
            x, "plan",
            "memory is too small for all arms at once: each cell loads its arm again; loading is not timed");
    enum flow worst = FLOW_CONTINUE;
    for (int i = 0; i < x->state.spec.arms; i++) {
        if (experiment_wait_while_paused(x) == FLOW_STOPPED) return FLOW_STOPPED;
        enum flow f = process_start(x, i, i);
        const bool crowded = x->why.code == ERR_FIT ||
                             x->why.code == ERR_NOMEM; /* devices report it only when loading */
        if (f == FLOW_ARM && crowded && i && x->pool.lifetime != LIFETIME_CELL && !x->state.arm[0].failed) {
            x->pool.lifetime = LIFETIME_CELL; /* try one process at a time */
            f = process_start(x, i, i);
            if (f == FLOW_CONTINUE)
                experiment_log_event(
                    x, "plan",
                    "arm %c does not fit in memory beside the others: each cell loads its arm again; loading is not timed",
                    'A' + i);
        }
        if (f == FLOW_ARM) f = arm_fail(x, i, &x->why);
        if (f == FLOW_STOPPED || f == FLOW_INVALID) return f;
        if (f == FLOW_ARM) worst = f;
    }
    return worst;
}

void processes_plan(struct experiment *x)
{
    const struct experiment_state *s = &x->state;
    double start_s = 0, cells_s = 0;
    if (x->pool.lifetime == LIFETIME_CELL) return;
    for (int i = 0; i < s->spec.arms; i++) {
        if (s->arm[i].failed) continue;
        start_s += x->pool.start_s[i] + x->state.arm[i].fill_s;
        cells_s += 2 * fmax(x->state.arm[i].cell_s, CELL_LEAST_S);
    }
    const bool cheap = start_s <= cells_s;
    x->pool.lifetime = s->spec.processes == PROCESSES_KEPT || (s->spec.processes == PROCESSES_AUTO && !cheap)
                           ? LIFETIME_RUN
                           : LIFETIME_BLOCK;
    if (x->pool.lifetime == LIFETIME_BLOCK)
        experiment_log_event(
            x, "plan", "each block starts new processes, so that memory placement averages out over blocks");
    else if (s->spec.processes == PROCESSES_KEPT)
        experiment_log_event(
            x, "plan",
            "processes are kept for the whole run, as requested: the effect includes their memory placement");
    else
        experiment_log_event(
            x, "plan",
            "processes are kept for the whole run: starting them takes %.1f s, a block's cells %.1f s; the "
            "effect includes memory placement (see --processes)",
            start_s, cells_s);
}

/* Keeps the first span, the untimed run itself, and the filling of its cache. Its prefill and decode would
 * look like timed ones in a trace. Returns how many spans are left. */
static int spans_keep_fill(struct span_row *span, int n)
{
    int kept = 1; /* the run itself */
    for (int i = 1; i < n; i++)
        if (!strcmp(span[i].name, "fill")) span[kept++] = span[i];
    return kept;
}

/* Runs the workload once, untimed, so that a new process has read its weights and touched its memory. */
static enum flow process_warm_up(struct experiment *x, int process, int arm)
{
    struct workload w = *experiment_workload(&x->state.spec, arm);
    char line[576];
    json_t *answer = NULL;
    struct err why = { 0 };
    if (*w.eval_file) return FLOW_CONTINUE; /* the result does not depend on time */
    /* Arms that keep the cache at this depth fill it here, so that no timed cell follows a long prompt. */
    if (!ENGINES[config_engine(&x->state.spec.config[arm])].keeps_depth) w.depth = 0;
    w.gen = MIN(w.gen, 8);
    w.train = MIN(w.train, 1);
    workload_shorten_load(&w);
    workload_line(&w, line, sizeof(line));
    const struct moment begun = moment_now();
    const enum err_code rc = arm_cell(x->pool.process[process], line, x->state.spec.seed, &answer,
                                      experiment_event, x, &why);
    struct span_row spans[1 + SPANS_MOST] = { span_until_now("settle", begun, rc ? why.message : NULL) };
    const int n = spans_read(spans, 1, COUNT_OF(spans), answer, begun);
    experiment_spans(x, arm, spans, spans_keep_fill(spans, n));
    if (rc) return arm_fail(x, arm, &why);
    json_decref(answer);
    return FLOW_CONTINUE;
}

enum flow process_prepare(struct experiment *x, int process, int arm)
{
    const bool kept = x->pool.lifetime != LIFETIME_CELL && x->pool.process[process];
    enum flow f = process_start(x, process, arm);
    if (f == FLOW_ARM) return arm_fail(x, arm, &x->why);
    return f || kept ? f : process_warm_up(x, process, arm);
}
