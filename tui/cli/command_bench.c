/* qdyno bench: a grid of configs × workloads, each config in a worker of its own, so that peak memory belongs
 * to one config and a config that dies is a row that says so. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/predict/predict.h"
#include "advisor/run/run.h"
#include "advisor/stats/stats.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/probe/probe.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/sampling.h"
#include "tui/cli/record.h"
#include "tui/cli/tally.h"

/* clang-format off */
const struct cli_flag FLAGS_BENCH[] = {
    FLAG_MODEL_ROW,
    { .name = "-p", .alias = "--n-prompt", .value = "N,...", .kind = FLAG_INTS, .max = 1 << 24,
      .help = "prompt lengths to time; 0 none; default 512" },
    { .name = "-n", .alias = "--n-gen", .value = "N,...", .kind = FLAG_INTS, .max = 1 << 24,
      .help = "numbers of tokens to generate; 0 none; default 128" },
    { .name = "-d", .alias = "--n-depth", .value = "N,...", .kind = FLAG_INTS, .max = 1 << 24,
      .help = "tokens already in the cache; default 0" },
    { .name = "-npl", .alias = "--n-parallel", .value = "N,...", .kind = FLAG_INTS, .min = 1, .max = 1 << 16,
      .help = "sequences that run side by side; default 1" },
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD", .many = true,
      .help = "instead of -p, -n, -d and -npl: e.g. pp512+tg128@d4096@b16" },
    FLAG_CONFIGS_ROW,
    { .name = "-r", .alias = "--repetitions", .value = "N", .kind = FLAG_INT, .min = 1, .max = 10000,
      .help = "timed repetitions; default 5" },
    { .name = "--no-warmup", .help = "no untimed run before each workload" },
    { .name = NULL },
};
/* clang-format on */

const struct column BENCH_COLUMNS[] = {
    { .name = "model", .title = "model" },
    { .name = "config", .title = "config" },
    { .name = "workload", .title = "workload" },
    { .name = "sequences", .kind = COLUMN_INT },
    { .name = "repetitions", .kind = COLUMN_INT },
    METRIC_COLUMN(METRIC_PREFILL_RATE),
    { .name = "prefill_sd_tok_s", .title = "+-", .kind = COLUMN_NUM, .digits = 2 },
    METRIC_COLUMN(METRIC_DECODE_RATE),
    { .name = "decode_sd_tok_s", .title = "+-", .kind = COLUMN_NUM, .digits = 2 },
    { .name = "decode_seq_tok_s", .title = "per sequence", .kind = COLUMN_NUM, .digits = 2 },
    METRIC_COLUMN(METRIC_TTFT),
    METRIC_COLUMN(METRIC_ITL_P50),
    METRIC_COLUMN(METRIC_ITL_P95),
    METRIC_COLUMN(METRIC_ITL_P99),
    METRIC_COLUMN(METRIC_LOAD_TIME),
    METRIC_COLUMN(METRIC_PEAK_MEMORY),
    { .name = "plan_bytes", .kind = COLUMN_BYTES },
    { .name = "huge_bytes", .kind = COLUMN_BYTES },
    { .name = "prefetch_s", .kind = COLUMN_NUM },
    METRIC_COLUMN(METRIC_ENERGY),
    METRIC_COLUMN(METRIC_LIMIT_SHARE_PREFILL),
    METRIC_COLUMN(METRIC_LIMIT_SHARE_DECODE),
    { .name = "memory_ratio", .kind = COLUMN_NUM },
    { .name = "core_ratio", .kind = COLUMN_NUM },
    { .name = "disturbed", .title = "disturbed", .kind = COLUMN_INT },
    { .name = "random_weights", .kind = COLUMN_BOOL },
    { .name = "error", .title = "error" },
};
const size_t BENCH_COLUMN_COUNT = COUNT_OF(BENCH_COLUMNS);

enum { WORKLOADS_MAX = 256, SAMPLES_MAX = 6000 };
static const double LIMIT_SLACK = 1.05;      /* ceilings are measured within a few percent */
static const double CONDITIONS_SLACK = 0.85; /* below, others on the host use memory or cores, too */

struct bench {
    const struct cli_global *g;
    const struct cli_args *a;
    struct machine machine;
    struct machine_ceilings ceilings;
    bool ceilings_known;
    struct sampler_thread *sampler;
    struct conditions_probe conditions;
    struct sample *window; /* [SAMPLES_MAX] */
    struct recorder recorder;
    struct table table;
    struct workload workload[WORKLOADS_MAX];
    int n_workloads, repetitions, ctx;
    bool side_by_side; /* some workload has more than one sequence */
    struct config *configs;
    int n_configs, ok;
    /* now */
    int config_i, workload_i, repetition;
    char line[2048], model[4096];
    const char *label;
    struct progress progress;
    struct err first; /* the first failure */
};

static bool on_event(void *ctx, const json_t *event)
{
    struct bench *b = ctx;
    if (event)
        progress_show(&b->progress, "%d/%d %s  %s %d/%d  %s %lld/%lld", b->config_i + 1, b->n_configs,
                      b->line, b->label, b->repetition, b->repetitions, json_get_str(event, "phase", ""),
                      (long long)json_get_int(event, "done", 0), (long long)json_get_int(event, "of", 0));
    return !cli_is_interrupted(b->g);
}

static enum err_code add_workload(struct bench *b, const char *text, struct err *why)
{
    struct workload w;
    enum err_code rc = workload_parse(&w, text, why);
    if (rc) return rc;
    if (*w.eval_file) return err_set(why, ERR_USAGE, "-w %s: `qdyno eval` does that", text);
    if (w.train) return err_set(why, ERR_USAGE, "-w %s: `qdyno ab` compares settings of training", text);
    if (b->n_workloads == WORKLOADS_MAX)
        return err_set(why, ERR_USAGE, "more than %d workloads", WORKLOADS_MAX);
    b->workload[b->n_workloads++] = w;
    b->ctx = MAX(b->ctx, workload_ctx(&w));
    b->side_by_side |= workload_sequences(&w) > 1;
    return ERR_OK;
}

static enum err_code named_workloads(struct bench *b, const char **names, int n, struct err *why)
{
    enum err_code rc = ERR_OK;
    if (args_has(b->a, "-p") || args_has(b->a, "-n") || args_has(b->a, "-d") || args_has(b->a, "-npl"))
        return err_set(why, ERR_USAGE, "-w names the whole workload: leave -p, -n, -d and -npl out");
    for (int i = 0; i < n && !rc; i++) rc = add_workload(b, names[i], why);
    return rc;
}

/* One of the grid, unless it has nothing to time. */
static enum err_code grid_cell(struct bench *b, const struct workload *w, struct err *why)
{
    char line[64];
    return w->prompt || w->gen ? add_workload(b, workload_line(w, line, sizeof line), why) : ERR_OK;
}

static enum err_code grid_workloads(struct bench *b, struct err *why)
{
    int64_t p[64], n[64], d[64], l[64];
    int np = args_ints(b->a, "-p", "512", p, 64), nn = args_ints(b->a, "-n", "128", n, 64),
        nd = args_ints(b->a, "-d", "0", d, 64), nl = args_ints(b->a, "-npl", "1", l, 64);
    enum err_code rc = ERR_OK;
    for (int s = 0; s < nl * nd && !rc; s++) {
        const struct workload base = { .depth = (int)d[s % nd], .sequences = (int)l[s / nd] };
        struct workload w = base;
        for (int i = 0; i < np && !rc; i++) {
            w.prompt = (int)p[i];
            rc = grid_cell(b, &w, why);
        }
        w = base;
        for (int i = 0; i < nn && !rc; i++) {
            w.gen = (int)n[i];
            rc = grid_cell(b, &w, why);
        }
    }
    if (!rc && !b->n_workloads) rc = err_set(why, ERR_USAGE, "-p 0 and -n 0 leave nothing to time");
    return rc;
}

static enum err_code plan_work(struct bench *b, struct err *why)
{
    const char *names[ARGS_GIVEN];
    int n = args_all(b->a, "-w", names, ARGS_GIVEN);
    enum err_code rc = n ? named_workloads(b, names, n, why) : grid_workloads(b, why);
    if (!rc) rc = cli_configs(&b->configs, &b->n_configs, b->a, why);
    if (!rc) rc = cli_applied_config(&b->configs[0], b->g, b->a, why);
    b->repetitions = (int)args_int(b->a, "-r", 5);
    return rc;
}

static enum err_code one_cell(struct bench *b, struct arm *arm, struct tally *t, bool warmup, struct err *why)
{
    json_t *answer = NULL;
    char reason[160];
    int64_t from = clock_ns(), started = clock_unix_ms();
    enum err_code rc = arm_cell(arm, b->label, b->g->seed, &answer, on_event, b, why);
    int64_t to = clock_ns();
    if (warmup) {
        json_decref(answer);
        return rc;
    }
    int n = b->sampler ? sampler_window(b->sampler, from, to, b->window, SAMPLES_MAX) : 0;
    struct recorded_cell cell = { .arm = b->config_i,
                                  .config = b->line,
                                  .answer = answer,
                                  .error = rc ? why->message : NULL,
                                  .started_ms = started,
                                  .seconds = (double)(to - from) * 1e-9,
                                  .samples = b->window,
                                  .n_samples = n,
                                  .start_ns = from };
    cell.energy_j = arm_energy(arm, b->window, n, 2, cell.seconds);
    if (rc != ERR_CANCELLED) {
        struct err db_why = { 0 };
        if (recorder_cell(&b->recorder, &cell, &db_why)) {
            if (!rc) *why = db_why;
            rc = rc ? rc : db_why.code;
        }
    }
    const bool disturbed = !rc && *contamination_reason(b->window, n, answer, NAN, reason, sizeof reason);
    if (disturbed) log_write(&b->g->log, LOG_INFO, "%s %s: %s", b->line, b->label, reason);
    if (!rc) rc = tally_add(t, answer, cell.energy_j, disturbed, why);
    json_decref(answer);
    return rc;
}

/* False: nothing can be said. */
static bool foretell(struct prediction *p, struct bench *b, const struct workload *w)
{
    struct gguf *file = NULL;
    if (!b->ceilings_known || gguf_open(&file, b->model, NULL)) return false;
    const struct predict_for what = predict_for_workload(w);
    const enum err_code rc = predict(p, file, &b->configs[b->config_i], &b->machine, &b->ceilings, &what,
                                     NULL);
    gguf_close(file);
    return !rc;
}

static void put_shares(json_t *row, const struct prediction *p, double prefill, double decode)
{
    json_put_num(row, METRICS[METRIC_LIMIT_SHARE_PREFILL].name, prefill / p->prefill_limit_tok_s);
    json_put_num(row, METRICS[METRIC_LIMIT_SHARE_DECODE].name, decode / p->decode_limit_tok_s);
}

/* By the threads that do the work: of a model that one thread decodes alone the others' processors say
 * nothing. */
static void watch_conditions(struct bench *b, const struct prediction *p, const struct workload *w)
{
    const int threads = w->prompt ? p->prefill_work.threads : p->decode_threads;
    struct err unseen; /* a figure more or less: what was asked for runs without it */
    if (conditions_probe_open(&b->conditions, threads, &b->ceilings, &unseen))
        log_write(&b->g->log, LOG_WARN, "memory_ratio and core_ratio stay unknown: %s", unseen.message);
}

static void put_conditions(const struct bench *b, json_t *row)
{
    const struct conditions now = conditions_probe_result(&b->conditions);
    json_put_num(row, "memory_ratio", now.memory_ratio > 0 ? now.memory_ratio : NAN);
    json_put_num(row, "core_ratio", now.core_ratio > 0 ? now.core_ratio : NAN);
}

/* p: what was foretold; NULL: nothing. */
static void put_tally(struct bench *b, json_t *row, struct tally *t, const struct workload *w,
                      const struct prediction *p)
{
    const struct sums *all = &t->all;
    const double prefill = sums_prefill_rate(all), decode = sums_decode_rate(all);
    json_put_num(row, "prefill_tok_s", prefill);
    json_put_num(row, "prefill_sd_tok_s", stats_sd(all->prefill, sums_kept(all)));
    json_put_num(row, "decode_tok_s", decode);
    json_put_num(row, "decode_sd_tok_s", stats_sd(all->decode, sums_kept(all)));
    if (b->side_by_side) json_put_num(row, "decode_seq_tok_s", decode / workload_sequences(w));
    json_put_num(row, "ttft_s", all->ttft_s / all->n);
    json_put_num(row, "itl_p50_s", stats_latency_quantile(t->itl, t->n_itl, 0.50));
    json_put_num(row, "itl_p95_s", stats_latency_quantile(t->itl, t->n_itl, 0.95));
    json_put_num(row, "itl_p99_s", stats_latency_quantile(t->itl, t->n_itl, 0.99));
    if (all->peak > 0) json_put_int(row, "peak_rss_bytes", (int64_t)all->peak);
    json_put_num(row, "energy_j", all->energy_j / all->n);
    put_conditions(b, row);
    json_put_int(row, "disturbed", all->n - t->quiet.n);
    if (p) put_shares(row, p, prefill, decode);
}

/* Opening that quantized first says nothing about opening. */
static bool made_recipe(const json_t *about)
{
    const json_t *spans = json_object_get(about, "spans");
    for (size_t i = 0; i < json_array_size(spans); i++)
        if (!strcmp(json_get_str(json_array_get(spans, i), "name", ""), "quantize")) return true;
    return false;
}

/* What this teaches the next prediction. Repetitions that were disturbed, or that QDYNO_ISA held back, teach
 * nothing; where they are more than half, what was looked at between them is not of the others. */
static enum err_code learn(struct bench *b, const struct tally *t, const struct workload *w,
                           const json_t *about, struct err *why)
{
    const struct sums *q = &t->quiet;
    uint32_t usable;
    if (!b->ceilings_known || 2 * q->n < t->all.n || isa_usable(&usable, why) || usable != isa_detect())
        return ERR_OK;
    const int64_t batch = config_int(&b->configs[b->config_i], KNOB_BATCH);
    const bool decodes = q->gen_tokens > 0 && !q->prompt_tokens && !w->depth; /* and nothing else */
    const struct run_observation l = { .machine = &b->machine,
                                       .ceilings = &b->ceilings,
                                       .model = b->model,
                                       .config = &b->configs[b->config_i],
                                       .workload = w,
                                       .decode_tok_s = sums_decode_rate(q),
                                       .prefill_tok_s = sums_prefill_rate(q),
                                       /* buffers that were not filled are not there yet */
                                       .peak_bytes = w->prompt + w->depth >= batch ? q->peak : NAN,
                                       .load_s = made_recipe(about) ? NAN
                                                                    : json_get_num(about, "load_s", NAN),
                                       .token_j = decodes ? q->energy_j / q->gen_tokens : NAN,
                                       .decode_noise = rates_noise(q->decode, sums_kept(q)),
                                       .prefill_noise = rates_noise(q->prefill, sums_kept(q)),
                                       .conditions = conditions_probe_result(&b->conditions),
                                       .run_id = b->recorder.run.id };
    return residuals_record(b->recorder.db, &l, why);
}

static json_t *new_row(struct bench *b)
{
    json_t *row = table_row(&b->table);
    json_put_str(row, "model", cli_base_name(b->model));
    json_put_str(row, "config", b->line);
    json_put_str(row, "workload", b->label);
    json_put_int(row, "sequences", workload_sequences(&b->workload[b->workload_i]));
    return row;
}

static void failed(struct bench *b, const struct err *why)
{
    json_put_str(new_row(b), "error", why->message);
    if (!b->first.code) b->first = *why;
}

/* What the kernel gave, not what was asked for. */
static void put_memory(json_t *row, const json_t *memory)
{
    const int64_t huge = json_get_int(memory, "huge_bytes", -1);
    if (huge >= 0) json_put_int(row, "huge_bytes", huge);
    json_put_num(row, "prefetch_s", json_get_num(memory, "prefetch_s", NAN));
}

static enum err_code one_workload(struct bench *b, struct arm *arm, const struct workload *w, struct err *why)
{
    struct tally t = { 0 };
    const json_t *about = arm_description(arm);
    enum err_code rc = ERR_OK;
    struct prediction p;
    const bool foretold = foretell(&p, b, w);
    b->repetition = 0;
    if (!args_has(b->a, "--no-warmup")) rc = one_cell(b, arm, &t, true, why);
    if (foretold) watch_conditions(b, &p, w);
    conditions_probe_run(&b->conditions, arm_pid(arm));
    for (b->repetition = 1; b->repetition <= b->repetitions && !rc; b->repetition++) {
        rc = one_cell(b, arm, &t, false, why);
        conditions_probe_run(&b->conditions, arm_pid(arm));
    }
    if (t.all.n) {
        json_t *row = new_row(b);
        json_put_int(row, "repetitions", t.all.n);
        put_tally(b, row, &t, w, foretold ? &p : NULL);
        json_put_num(row, "load_s", json_get_num(about, "load_s", NAN));
        int64_t plan = json_get_int(json_object_get(about, "plan"), "total", -1);
        if (plan >= 0) json_put_int(row, "plan_bytes", plan);
        put_memory(row, json_object_get(about, "memory"));
        json_put_bool(row, "random_weights", json_get_bool(about, "random_weights", false));
        if (rc) json_put_str(row, "error", why->message);
        b->ok++;
        if (!rc) rc = learn(b, &t, w, about, why);
        if (rc && !b->first.code) b->first = *why;
    } else if (rc) {
        failed(b, why);
    }
    conditions_probe_close(&b->conditions);
    tally_free(&t);
    return rc;
}

static enum err_code start_run(struct bench *b, struct arm *arm, struct err *why)
{
    struct str work = { 0 }, label = { 0 };
    char buf[640], line[2048];
    for (int i = 0; i < b->n_workloads; i++)
        str_printf(&work, "%s%s", i ? " " : "", workload_line(&b->workload[i], buf, sizeof buf));
    for (int i = 0; i < b->n_configs; i++)
        str_printf(&label, "%s%s", i ? " | " : "", config_line(&b->configs[i], line, sizeof line));
    enum err_code rc = recorder_start(&b->recorder, &b->machine, arm_description(arm), b->model,
                                      str_text(&work), str_text(&label), b->g->seed, why);
    str_free(&work);
    str_free(&label);
    return rc;
}

/* The workloads from b->workload_i on that run in the same number of sequences: a worker of their own, so
 * that memory is that of this number. */
static enum err_code one_arm(struct bench *b, struct err *why)
{
    struct config *c = &b->configs[b->config_i];
    struct arm *arm = NULL;
    char buf[640];
    const int sequences = workload_sequences(&b->workload[b->workload_i]);
    int last = b->workload_i;
    while (last < b->n_workloads && workload_sequences(&b->workload[last]) == sequences) last++;
    /* 0: the config names a context of its own, and memory and speed are to be those of that one */
    struct arm_spec spec = { .model = b->model,
                             .config = c,
                             .ctx = config_int(c, KNOB_CTX) ? 0 : b->ctx,
                             .sequences = sequences,
                             .log = &b->g->log };
    b->label = "load";
    const struct moment begun = moment_now();
    enum err_code rc = arm_open(&arm, &spec, on_event, b, why);
    const double load_s = (double)(clock_ns() - begun.clock_ns) * 1e-9;
    if (rc == ERR_CANCELLED) return rc;
    if (rc) {
        failed(b, why);
        b->workload_i = last;
        return ERR_OK;
    }
    arm_watch(arm, b->sampler);
    rc = start_run(b, arm, why);
    if (!rc)
        rc = spans_store_load(b->recorder.db, b->recorder.run.id, b->config_i,
                              &(struct span_load){ begun, load_s, arm_description(arm), "" }, why);
    for (; b->workload_i < last && !rc; b->workload_i++) {
        const struct workload *w = &b->workload[b->workload_i];
        b->label = workload_line(w, buf, sizeof buf);
        if (one_workload(b, arm, w, why) == ERR_CANCELLED || cli_is_interrupted(b->g))
            rc = err_set(why, ERR_CANCELLED, "interrupted");
    }
    arm_close(arm);
    return rc;
}

/* Only a broken database or Ctrl-C ends the whole grid: everything else is a row. */
static enum err_code one_config(struct bench *b, struct err *why)
{
    struct config *c = &b->configs[b->config_i];
    char *path = NULL;
    config_line(c, b->line, sizeof b->line);
    enum err_code rc = cli_config_model(&path, b->a, c, why);
    if (rc) return rc;
    snprintf(b->model, sizeof b->model, "%s", path);
    free(path);
    for (b->workload_i = 0; b->workload_i < b->n_workloads && !rc;) rc = one_arm(b, why);
    return rc;
}

static int finish(struct bench *b, enum err_code rc, struct err *why)
{
    struct err db_why = { 0 };
    progress_clear(&b->progress);
    bool random = false, beyond = false, some = json_array_size(b->table.rows) > 0;
    double memory = 1, cores = 1;
    for (size_t i = 0; i < json_array_size(b->table.rows); i++) {
        const json_t *row = json_array_get(b->table.rows, i);
        random |= json_get_bool(row, "random_weights", false);
        memory = fmin(memory, json_get_num(row, "memory_ratio", NAN));
        cores = fmin(cores, json_get_num(row, "core_ratio", NAN));
        beyond |= json_get_num(row, METRICS[METRIC_LIMIT_SHARE_PREFILL].name, 0) > LIMIT_SLACK ||
                  json_get_num(row, METRICS[METRIC_LIMIT_SHARE_DECODE].name, 0) > LIMIT_SLACK;
    }
    if (b->recorder.started) {
        json_put_int(b->table.extra, "run", b->recorder.run.id);
        table_note(&b->table, "run %lld; again: qdyno show %lld", (long long)b->recorder.run.id,
                   (long long)b->recorder.run.id);
    }
    if (!b->ceilings_known)
        table_note(&b->table, "share of the machine's limit: run `qdyno detect --probe` once");
    if (beyond)
        table_note(&b->table,
                   "a rate lies above the machine's limit: the weights stay in a cache, or the limit was "
                   "measured while the machine was busy (qdyno detect --probe)");
    if (memory < CONDITIONS_SLACK)
        table_note(
            &b->table,
            "weights came from memory at %.0f %% of the speed that was usual when kernels were timed: what "
            "waits for them was slower by as much",
            100 * memory);
    if (cores < CONDITIONS_SLACK)
        table_note(&b->table,
                   "the cores multiplied at %.0f %% of the speed they had when kernels were timed: something "
                   "else ran on them, or their clock is lower",
                   100 * cores);
    if (random) table_note(&b->table, "%s", RANDOM_WEIGHTS);
    json_put_str(b->table.extra, "machine", b->machine.id);
    if (recorder_finish(&b->recorder,
                        rc      ? "stopped"
                        : b->ok ? "done"
                                : "failed",
                        &b->table, &db_why) &&
        !rc) {
        rc = db_why.code;
        *why = db_why;
    }
    if (some && b->ok) cli_print(b->g, b->a, &b->table, EXIT_DONE);
    if (rc) return cli_fail(b->a, why);
    return b->ok ? EXIT_DONE : cli_fail(b->a, &b->first);
}

int command_bench(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return cli_fail_memory(a);
    b->g = g;
    b->a = a;
    table_init(&b->table, "qdyno.bench/1", BENCH_COLUMNS, (int)BENCH_COLUMN_COUNT);
    progress_init(&b->progress, g);
    enum err_code rc = plan_work(b, &why);
    if (!rc) rc = cli_machine(g, PROBE_CACHED, &b->machine, &b->ceilings, &b->ceilings_known, &why);
    if (!rc) rc = cli_sampler(&b->sampler, a, &why);
    if (!rc) rc = recorder_open(&b->recorder, g, "bench", &why);
    b->window = calloc(SAMPLES_MAX, sizeof *b->window);
    if (!rc && !b->window) rc = err_set(&why, ERR_NOMEM, "no memory for samples");
    for (b->config_i = 0; b->config_i < b->n_configs && !rc; b->config_i++) rc = one_config(b, &why);
    int status = finish(b, rc, &why);
    sampler_stop(b->sampler);
    recorder_close(&b->recorder);
    table_done(&b->table);
    free(b->window);
    free(b->configs);
    free(b);
    return status;
}
