/* command_bench_profile.c - see command_bench_profile.h. One config runs one workload several times, in turns
 * with and without a profile: the profiled runs show where the time goes, and the comparison shows what
 * taking the times costs. */
#include "tui/cli/command_bench_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "tui/cli/command_report_all.h"
#include "tui/cli/documents.h"
#include "tui/cli/lib/measured.h"
#include "tui/cli/lib/lib.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/sampling.h"

static const struct column COLUMNS[] = {
    COL("phase", "phase"),
    KEY("layer", .kind = COLUMN_INT),
    COL("operator", "operator"),
    COL("calls", "calls", .kind = COLUMN_INT),
    KEY("seconds", .kind = COLUMN_NUM),
    COL("pass_s", "us/pass", .kind = COLUMN_NUM, .scale = 1e6, .digits = 1),
    COL("time_ratio", "time %", .kind = COLUMN_NUM, .scale = 100, .digits = 1),
    COL("pass_bytes", "bytes/pass", .kind = COLUMN_BYTES),
    COL("pass_ops", "Mop/pass", .kind = COLUMN_NUM, .scale = 1e-6, .digits = 3),
    COL("limit_ratio", "of limit %", .kind = COLUMN_NUM, .scale = 100, .digits = 1),
    COL("limit", "limit"),
};

DOCUMENT(
    PROFILE, "qdyno.profile/1", COLUMNS,
    .members =
        "run machine model config workload repetitions weights_in_cache labels.* phases.* layers[].phase "
        "layers[].layer layers[].operator layers[].calls layers[].seconds layers[].pass_s "
        "layers[].time_ratio layers[].pass_bytes layers[].pass_ops layers[].limit_ratio layers[].limit");

struct profiling {
    struct measured m;
    struct config *configs; /* one */
    char *model;
    char label[WORKLOAD_LINE];
    struct workload workload;
    int repetitions, repetition;
    struct run_profile profile;
    bool in_cache;
    double *step_s;                 /* owned: [gen] decode steps of one run */
    double *log_ratio[PHASE_COUNT]; /* owned: [repetitions] ln(time with a profile / without) */
};

/* ---------------------------------------------------------------- what is measured */

enum err_code bench_profile_check(const struct cli_args *a, struct err *why)
{
    static const char *const WITHOUT[] = { "--rows", "-npl" };
    const bool profile = args_has(a, "--profile");
    for (size_t i = 0; i < COUNT_OF(WITHOUT) && profile; i++)
        if (args_has(a, WITHOUT[i]))
            return err_set(why, ERR_USAGE,
                           "--profile is of one workload: leave %s out; -w tg64@b4 has several sequences",
                           WITHOUT[i]);
    return ERR_OK;
}

/* The only value of a flag. */
static enum err_code single(int *out, const struct cli_args *a, const char *flag, const char *otherwise,
                            struct err *why)
{
    int64_t values[64];
    const int n = args_ints(a, flag, otherwise, values, COUNT_OF(values));
    *out = (int)values[0];
    return n == 1 ? ERR_OK
                  : err_set(why, ERR_USAGE,
                            "--profile is of one workload: expected one value after %s, not %d", flag, n);
}

static enum err_code read_workload(struct profiling *k, struct err *why)
{
    const char *names[ARGS_GIVEN], *prompts = args_text(k->m.a, "--prompts", NULL);
    const int n = args_all(k->m.a, "-w", names, ARGS_GIVEN);
    struct workload *w = &k->workload;
    enum err_code rc = ERR_OK;
    if (n > 1) return err_set(why, ERR_USAGE, "--profile is of one workload: expected one -w, not %d", n);
    if (n && (args_has(k->m.a, "-p") || args_has(k->m.a, "-n") || args_has(k->m.a, "-d")))
        return err_set(why, ERR_USAGE, "-w names the whole workload: leave -p, -n and -d out");
    if (n) {
        rc = workload_parse_prompts(w, names[0], prompts, why);
    } else {
        *w = (struct workload){ .sequences = 1 };
        rc = single(&w->prompt, k->m.a, "-p", "512", why);
        if (!rc) rc = single(&w->gen, k->m.a, "-n", "128", why);
        if (!rc) rc = single(&w->depth, k->m.a, "-d", "0", why);
        char line[WORKLOAD_LINE];
        const bool timed = w->prompt || w->gen; /* the next check refuses the others */
        if (!rc && prompts && timed)
            rc = workload_parse_prompts(w, workload_line(w, line, sizeof line), prompts, why);
    }
    if (!rc && ((!w->prompt && !w->gen) || workload_is_load(w)))
        rc = err_set(why, ERR_USAGE,
                     "--profile is of a prompt and of decode steps: expected a workload such as pp512+tg128");
    return rc;
}

static enum err_code read_config(struct profiling *k, struct err *why)
{
    enum err_code rc = cli_config_grid(&k->configs, &k->m.n, k->m.a, why);
    k->m.configs = k->configs;
    if (!rc && k->m.n > 1)
        rc = err_set(why, ERR_USAGE,
                     "--profile is of one config: expected one -C and one value for each key");
    if (!rc) rc = cli_applied_config(k->configs, k->m.g, k->m.a, why);
    if (rc) return rc;
    const struct config *c = k->configs;
    const struct parallel mode = config_parallel(c);
    const char *device = config_text(c, KNOB_DEVICE);
    if (strcmp(device, "cpu") && config_int(c, KNOB_GPU_LAYERS))
        return err_set(
            why, ERR_USAGE,
            "device=%s: a device computes operators while the program goes on, so their times cannot "
            "be told apart: expected device=cpu",
            device);
    if (config_is_foreign(c))
        return err_set(why, ERR_USAGE, "engine=%s: its operators cannot be timed: expected engine=qdyno",
                       config_text(c, KNOB_ENGINE));
    if (parallel_ranks(&mode) > 1)
        return err_set(why, ERR_USAGE,
                       "parallel=%s: operators are timed in one process: expected parallel=off",
                       config_text(c, KNOB_PARALLEL));
    config_line(c, k->m.line, sizeof k->m.line);
    workload_line(&k->workload, k->label, sizeof k->label);
    rc = workload_check(&k->workload, c, why);
    return rc ? rc : cli_config_model(&k->model, k->m.a, c, why);
}

static enum err_code profiling_init(struct profiling *k, struct err *why)
{
    enum err_code rc = read_workload(k, why);
    if (!rc) rc = read_config(k, why);
    k->repetitions = (int)args_int(k->m.a, "-r", 5);
    k->step_s = calloc((size_t)k->workload.gen + 1, sizeof *k->step_s);
    if (!rc && !k->step_s) rc = err_set(why, ERR_NOMEM, "out of memory");
    for (int i = 0; i < PHASE_COUNT && !rc; i++) {
        k->log_ratio[i] = calloc((size_t)k->repetitions, sizeof *k->log_ratio[i]);
        if (!k->log_ratio[i]) rc = err_set(why, ERR_NOMEM, "out of memory");
    }
    return rc ? rc : measured_open(&k->m, k->m.a, why);
}

/* ---------------------------------------------------------------- the run */

static bool on_event(void *ctx, const json_t *event)
{
    struct profiling *k = ctx;
    if (event)
        progress_show(&k->m.progress, "%s  %s %d/%d  %s", k->m.line, k->label, k->repetition + 1,
                      k->repetitions, json_get_str(event, "phase", ""));
    return !cli_is_interrupted(k->m.g);
}

static struct run_cell cell_spec(struct profiling *k, struct arm *arm)
{
    return (struct run_cell){ .arm = arm,
                              .workload = k->label,
                              .seed = k->m.g->seed,
                              .event = on_event,
                              .ctx = k,
                              .contamination = CONTAMINATION_NOTED,
                              .control_frequency = NAN,
                              .place = { .block = -1, .phase = "bench", .config = k->m.line } };
}

/* The typical decode step: others that use the processors slow down single steps. */
static double median_step(double *step_s, int n)
{
    stats_sort(step_s, n);
    return stats_quantile_sorted(step_s, n, 0.5);
}

/* Seconds of the prompt, and of a decode step, without a profile. The cell is stored. */
static enum err_code run_plain(struct profiling *k, struct arm *arm, double seconds[PHASE_COUNT],
                               struct err *why)
{
    const struct run_cell what = cell_spec(k, arm);
    struct measured_cell c;
    enum err_code rc = run_cell(&k->m.run, &what, &c, why);
    if (!rc && c.failure.code) {
        *why = c.failure;
        rc = c.failure.code;
    }
    const int n = MIN(c.n_itl, k->workload.gen);
    for (int i = 0; i < n; i++) k->step_s[i] = (double)c.itl[i];
    seconds[PHASE_PREFILL] = c.field[FIELD_PREFILL_S];
    seconds[PHASE_DECODE] = median_step(k->step_s, n);
    cell_done(&c);
    return rc;
}

/* The same with a profile, which is added to the others. */
static enum err_code run_profiled(struct profiling *k, struct arm *arm, double seconds[PHASE_COUNT],
                                  struct err *why)
{
    json_t *answer;
    enum err_code rc = arm_profile(arm, k->label, k->m.g->seed, &answer, on_event, k, why);
    if (!rc) rc = run_profile_add(&k->profile, answer, why);
    const json_t *itl = json_object_get(answer, "itl_s");
    const int n = MIN((int)json_array_size(itl), k->workload.gen);
    for (int i = 0; i < n; i++) k->step_s[i] = json_number_value(json_array_get(itl, (size_t)i));
    seconds[PHASE_PREFILL] = json_get_num(answer, "prefill_s", NAN);
    seconds[PHASE_DECODE] = median_step(k->step_s, n);
    json_decref(answer);
    return rc;
}

/* One run of each kind; the order changes from repetition to repetition, so that a trend cancels. */
static enum err_code run_pair(struct profiling *k, struct arm *arm, struct err *why)
{
    double plain[PHASE_COUNT], profiled[PHASE_COUNT];
    const bool plain_first = k->repetition % 2 == 0;
    enum err_code rc = plain_first ? run_plain(k, arm, plain, why) : run_profiled(k, arm, profiled, why);
    if (!rc) rc = plain_first ? run_profiled(k, arm, profiled, why) : run_plain(k, arm, plain, why);
    for (int i = 0; i < PHASE_COUNT && !rc; i++) k->log_ratio[i][k->repetition] = log(profiled[i] / plain[i]);
    return rc;
}

/* Computes the limits of all operators, if the machine's are known. */
static void add_limits(struct profiling *k, const struct arm *arm)
{
    struct prediction p;
    const struct cell_tally none = { 0 };
    const struct run_timing timing = { k->model, k->configs, &k->workload, &none, arm_description(arm) };
    if (!run_predict(&k->m.run, &timing, &p)) return;
    k->in_cache = p.in_cache;
    run_profile_limit(&k->profile, k->configs, &k->m.machine, &k->m.ceilings, p.in_cache);
}

static enum err_code profiling_run(struct profiling *k, struct err *why)
{
    struct arm *arm = NULL;
    const struct arm_spec spec = { .model = k->model,
                                   .config = k->configs,
                                   .ctx = config_int(k->configs, KNOB_CTX) ? 0 : workload_ctx(&k->workload),
                                   .sequences = workload_sequences(&k->workload),
                                   .log = &k->m.g->log };
    const struct moment begun = moment_now();
    enum err_code rc = arm_open(&arm, &spec, on_event, k, why);
    const struct run_spec what = {
        .kind = "profile", .workload = k->label, .label = k->m.line, .has_canary = true
    };
    if (!rc) rc = measured_opened(&k->m, &what, begun, arm_description(arm), why);
    if (!rc && !args_has(k->m.a, "--no-warmup")) {
        const struct run_cell cell = cell_spec(k, arm);
        struct measured_cell c;
        rc = run_measure_cell(&k->m.run, &cell, &c, why);
        cell_done(&c);
    }
    for (k->repetition = 0; k->repetition < k->repetitions && !rc; k->repetition++)
        rc = run_pair(k, arm, why);
    if (!rc) add_limits(k, arm);
    arm_close(arm);
    return rc;
}

/* ---------------------------------------------------------------- figures */

static json_t *line_json(const struct profiling *k, int phase, int layer, const char *name,
                         const struct operator_sum *s)
{
    const struct phase_profile *all = &k->profile.phase[phase];
    const double passes = (double)all->passes;
    json_t *o = json_object();
    json_put_str(o, "phase", PHASE_NAMES[phase]);
    json_put(o, "layer", layer < 0 ? json_null() : json_integer(layer));
    json_put_str(o, "operator", name);
    json_put(o, "calls", s->calls ? json_integer(s->calls) : json_null());
    json_put_num(o, "seconds", s->seconds);
    json_put_num(o, "pass_s", s->seconds / passes);
    json_put_num(o, "time_ratio", s->seconds / all->seconds);
    json_put(o, "pass_bytes", s->calls ? json_integer((int64_t)(s->bytes / passes)) : json_null());
    json_put_num(o, "pass_ops", s->ops > 0 ? s->ops / passes : (double)NAN);
    json_put_num(o, "limit_ratio", s->limit_s / s->seconds);
    json_put_str(o, "limit",
                 isnan(s->limit_s)                       ? NULL
                 : s->memory_limit_s >= 0.5 * s->limit_s ? "memory"
                                                         : "arithmetic");
    return o;
}

/* The operators of one phase: of all layers together in rows, of each layer in `layers`. */
static void put_phase(struct profiling *k, int phase, json_t *rows, json_t *layers)
{
    const struct run_profile *p = &k->profile;
    for (int op = 0; op < OPERATOR_COUNT; op++) {
        const struct operator_sum s = run_profile_over_layers(p, phase, op);
        if (s.calls) json_array_append_new(rows, line_json(k, phase, -1, PASS_OPERATOR_NAMES[op], &s));
    }
    for (int layer = -1; layer < p->layers; layer++)
        for (int op = 0; op < OPERATOR_COUNT; op++) {
            const struct operator_sum *s = run_profile_at(p, phase, layer, op);
            if (s->calls)
                json_array_append_new(layers, line_json(k, phase, layer, PASS_OPERATOR_NAMES[op], s));
        }
    const struct operator_sum all = run_profile_total(p, phase);
    struct operator_sum rest = { .seconds = p->phase[phase].seconds - all.seconds, .limit_s = NAN };
    json_array_append_new(rows, line_json(k, phase, -1, "other", &rest));
    json_array_append_new(layers, line_json(k, phase, -1, "other", &rest));
    rest.seconds = p->phase[phase].seconds;
    json_array_append_new(rows, line_json(k, phase, -1, "all", &rest));
}

/* By how much taking the times slowed a phase down, and the standard error of that. */
static void put_overhead(struct profiling *k, int phase, json_t *to)
{
    const int n = k->repetitions;
    const double *x = k->log_ratio[phase];
    const double overhead = exp(stats_mean(x, n)) - 1, error = stats_sd(x, n) / sqrt(n);
    json_put_num(to, "overhead_ratio", overhead);
    json_put_num(to, "overhead_error_ratio", error);
    static const char *const NAMES[PHASE_COUNT] = { "prefill", "a decode step" };
    char within[64] = "";
    if (isfinite(error)) snprintf(within, sizeof within, " (standard error %.2f %%)", 100 * error);
    table_note(&k->m.table, "overhead: %s took %+.2f %%%s longer with a profile than without", NAMES[phase],
               100 * overhead, within);
}

static void put_extra(struct profiling *k, json_t *layers)
{
    json_t *to = k->m.table.extra, *phases = json_object();
    if (k->m.run.row.id) json_put_int(to, "run", k->m.run.row.id);
    json_put_str(to, "machine", k->m.machine.id);
    json_put_str(to, "model", cli_base_name(k->model));
    json_put_str(to, "config", k->m.line);
    json_put_str(to, "workload", k->label);
    json_put_int(to, "repetitions", k->repetitions);
    json_put_bool(to, "weights_in_cache", k->in_cache);
    json_put(to, "labels", cli_labels_json(&k->m.labels));
    for (int i = 0; i < PHASE_COUNT; i++) {
        const struct phase_profile *p = &k->profile.phase[i];
        json_t *o = json_object();
        if (!p->passes) {
            json_decref(o);
            continue;
        }
        json_put_int(o, "passes", p->passes);
        json_put_num(o, "seconds", p->seconds);
        put_overhead(k, i, o);
        json_put(phases, PHASE_NAMES[i], o);
    }
    json_put(to, "phases", phases);
    json_put(to, "layers", layers);
    if (!k->m.ceilings_known)
        table_note(&k->m.table, "for shares of the machine's limits run `qdyno detect --probe` once");
    if (k->in_cache)
        table_note(&k->m.table,
                   "the weights fit in the caches, so that only arithmetic limits the operators");
    if (k->m.run.row.id)
        table_note(&k->m.table, "run %lld; flame graph: qdyno report %lld --out profile.html",
                   (long long)k->m.run.row.id, (long long)k->m.run.row.id);
}

static void fill_table(struct profiling *k)
{
    json_t *layers = json_array();
    for (int i = 0; i < PHASE_COUNT; i++)
        if (k->profile.phase[i].passes) put_phase(k, i, k->m.table.rows, layers);
    table_headline(&k->m.table, "%s, config %s, %s: %d profiled run%s in turns with %d other%s",
                   cli_base_name(k->model), k->m.line, k->label, k->repetitions, str_plural(k->repetitions),
                   k->repetitions, str_plural(k->repetitions));
    put_extra(k, layers);
}

/* --layers: prints the rows of each layer. The stored document has both. */
static void show_layers(struct table *t)
{
    json_array_clear(t->rows);
    json_array_extend(t->rows, json_object_get(t->extra, "layers"));
    for (int i = 0; i < t->n_columns; i++)
        if (!strcmp(t->columns[i].name, "layer")) t->columns[i].title = "layer";
}

static enum err_code write_folded(const struct profiling *k, struct err *why)
{
    const char *path = args_text(k->m.a, "--folded", NULL);
    struct str text = { 0 };
    if (!path) return ERR_OK;
    run_profile_fold(&k->profile, &text);
    const enum err_code rc = text.failed ? err_set(why, ERR_NOMEM, "out of memory for %s", path)
                                         : report_write_file(path, &text, why);
    str_free(&text);
    return rc;
}

static int profiling_finish(struct profiling *k, enum err_code rc, struct err *why)
{
    progress_clear(&k->m.progress);
    if (!rc) fill_table(k);
    rc = cli_run_finish(&k->m.run, &k->m.table, "done", rc, why);
    if (!rc) rc = write_folded(k, why);
    if (rc) return cli_fail(k->m.a, why);
    if (args_has(k->m.a, "--layers")) show_layers(&k->m.table);
    return cli_print(k->m.g, k->m.a, &k->m.table, EXIT_DONE);
}

int bench_profile(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct profiling *k = calloc(1, sizeof *k);
    if (!k) return cli_fail_memory(a);
    measured_init(&k->m, g, a, &DOCUMENT_PROFILE);
    enum err_code rc = profiling_init(k, &why);
    if (!rc) cli_wait_quiet(g, a, k->m.sampler);
    if (!rc) rc = profiling_run(k, &why);
    const int status = profiling_finish(k, rc, &why);
    measured_close(&k->m);
    run_profile_free(&k->profile);
    for (int i = 0; i < PHASE_COUNT; i++) free(k->log_ratio[i]);
    free(k->step_s);
    free(k->configs);
    free(k->model);
    free(k);
    return status;
}
