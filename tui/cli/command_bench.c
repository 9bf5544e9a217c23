/* qdyno bench: times a grid of configs and workloads. Each config runs in its own worker process, so that
 * the peak memory belongs to one config, and a config that fails becomes a row with its error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/predict/predict.h"
#include "advisor/run/run.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/command_bench_grid.h"
#include "tui/cli/command_endings.h"
#include "tui/cli/command_bench_preset.h"
#include "tui/cli/command_bench_profile.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/measured.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/sampling.h"
#include "tui/cli/lib/trained_context.h"

/* clang-format off */
const struct cli_flag FLAGS_BENCH[] = {
    FLAG_MODEL_ROW,
    { .name = "-p", .alias = "--n-prompt", .value = "N,...", .kind = FLAG_INTS, .max = 1 << 24,
      .help = "prompt lengths to time; 0: none; default 512" },
    { .name = "-n", .alias = "--n-gen", .value = "N,...", .kind = FLAG_INTS, .max = 1 << 24,
      .help = "numbers of tokens to generate; 0: none; default 128" },
    { .name = "-d", .alias = "--n-depth", .value = "N,...", .kind = FLAG_INTS, .max = 1 << 24,
      .help = "tokens already in the context; default 0" },
    { .name = "-npl", .alias = "--n-parallel", .value = "N,...", .kind = FLAG_INTS, .min = 1, .max = 1 << 16,
      .help = "number of parallel sequences; default 1" },
    { .name = "--rows", .value = "N,...", .kind = FLAG_INTS, .min = 1, .max = 1 << 16,
      .help = "time decode steps of so many sequences, in turns with steps of one, and print c(rows): the time "
              "of a step of N rows divided by that of one row; -n is 32 by default" },
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD", .many = true,
      .help = "workload instead of -p, -n, -d, -npl and --rows, e.g. pp512+tg128@d4096@b16" },
    FLAG_PROMPTS_ROW,
    FLAG_CONFIGS_ROW,
    FLAG_WAIT_QUIET_ROW,
    { .name = "-r", .alias = "--repetitions", .value = "N", .kind = FLAG_INT, .min = 1, .max = 10000,
      .help = "timed repetitions; default 5" },
    { .name = "--no-warmup", .help = "no untimed run before each workload" },
    { .name = "--preset", .value = "NAME",
      .help = "quick, main, all, or a folder of scenario files: configs with their workloads; goes on where an "
              "earlier run of it was stopped" },
    { .name = "--again", .needs = "--preset", .help = "with --preset: also scenarios that earlier runs have measured" },
    { .name = "--profile",
      .help = "time, calls, bytes and operations of each operator of the passes of one workload (default "
              "pp512+tg128), and its share of the machine's limit" },
    { .name = "--layers", .needs = "--profile", .help = "with --profile: a row for each layer" },
    { .name = "--folded", .needs = "--profile", .value = "FILE", .help = "with --profile: write folded stacks for flame graph tools" },
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

static const struct column BENCH_COLUMNS[] = {
    KEY("scenario"), /* these two: of a preset */
    KEY("run", .kind = COLUMN_INT),
    COL("model", "model"),
    COL("config", "config"),
    COL("workload", "workload"),
    KEY("sequences", .kind = COLUMN_INT),
    KEY("repetitions", .kind = COLUMN_INT),
    METRIC_COLUMN(METRIC_PREFILL_RATE),
    COL("prefill_sd_tok_s", "+-", .kind = COLUMN_NUM, .digits = 2),
    METRIC_COLUMN(METRIC_DECODE_RATE),
    COL("decode_sd_tok_s", "+-", .kind = COLUMN_NUM, .digits = 2),
    COL("decode_seq_tok_s", "per sequence", .kind = COLUMN_NUM, .digits = 2),
    COL("row_cost", "c(rows)", .kind = COLUMN_NUM, .digits = 2),
    COL("row_cost_sd", "+-", .kind = COLUMN_NUM, .digits = 2),
    METRIC_COLUMN(METRIC_TTFT),
    METRIC_COLUMN(METRIC_ITL_P50),
    METRIC_COLUMN(METRIC_ITL_P95),
    METRIC_COLUMN(METRIC_ITL_P99),
    METRIC_COLUMN(METRIC_SERVER_PREFILL_RATE),
    METRIC_COLUMN(METRIC_SERVER_DECODE_RATE),
    METRIC_COLUMN(METRIC_CHUNK_GAP),
    LOAD_METRIC_COLUMNS,
    KEY("ttft_half_s", .kind = COLUMN_NUM),
    KEY("tpot_half_s", .kind = COLUMN_NUM),
    COL("goodput_half_ratio", "+-", .kind = COLUMN_NUM, .scale = 100, .digits = 1),
    COL("steady", "steady", .kind = COLUMN_INT),
    KEY("warmup_requests", .kind = COLUMN_NUM),
    KEY("unsteady"),
    KEY("failed_because"),
    KEY("server_requests", .kind = COLUMN_INT),
    KEY("server_prompt_tokens", .kind = COLUMN_INT),
    KEY("server_cached_tokens", .kind = COLUMN_INT),
    KEY("server_generated_tokens", .kind = COLUMN_INT),
    KEY("server_preemptions", .kind = COLUMN_INT),
    KEY("server_queue_s", .kind = COLUMN_NUM),
    KEY("server_ttft_s", .kind = COLUMN_NUM),
    KEY("server_itl_s", .kind = COLUMN_NUM),
    KEY("server_e2e_s", .kind = COLUMN_NUM),
    KEY("fill_s", .kind = COLUMN_NUM),
    KEY("filled_tokens", .kind = COLUMN_INT),
    METRIC_COLUMN(METRIC_LOAD_TIME),
    METRIC_COLUMN(METRIC_PEAK_MEMORY),
    KEY("plan_bytes", .kind = COLUMN_BYTES),
    KEY("huge_bytes", .kind = COLUMN_BYTES),
    KEY("prefetch_s", .kind = COLUMN_NUM),
    METRIC_COLUMN(METRIC_ENERGY),
    METRIC_COLUMN(METRIC_ENERGY_HALF),
    METRIC_COLUMN(METRIC_CO2),
    METRIC_COLUMN(METRIC_LIMIT_SHARE_PREFILL),
    METRIC_COLUMN(METRIC_LIMIT_SHARE_DECODE),
    COL("decode_experts", "experts per step", .kind = COLUMN_NUM, .digits = 2),
    COL("step_read_bytes", "weights read per step", .kind = COLUMN_BYTES),
    KEY("memory_ratio", .kind = COLUMN_NUM),
    KEY("core_ratio", .kind = COLUMN_NUM),
    COL("disturbed", "disturbed", .kind = COLUMN_INT),
    CAUTION_KEYS,
    COL("error", "error"),
};

DOCUMENT(BENCH, "qdyno.bench/1", BENCH_COLUMNS,
         .members = "run machine preset beyond_trained_context labels.* prompts[].config prompts[].workload "
                    "prompts[].repeats prompts[].text_tokens prompts[].file prompts[].sha256 prompts[].form "
                    "prompts[].count prompts[].skipped prompts[].used classes[].config classes[].workload "
                    "classes[].class classes[].requests classes[].failed_requests classes[].prompt_tokens "
                    "classes[].gen_tokens classes[].ttft_s classes[].tpot_s classes[].e2e_s "
                    "classes[].goodput_ratio");

struct bench {
    struct measured m;
    bool without_text;
    struct bench_grid grid;
    int repetitions;
    struct trained_context trained;
    struct config *configs;
    bool *measured; /* [config][workload]: its row has no error */
    int workload_i, repetition;
    char model[4096], workload_text[640];
    const char *label;
    json_t *server; /* what a server counted during the last repetition; NULL: nothing */
};

static bool bench_on_event(void *ctx, const json_t *event)
{
    struct bench *b = ctx;
    if (event)
        progress_show(&b->m.progress, "%d/%d %s  %s %d/%d  %s %lld/%lld", b->m.at + 1, b->m.n, b->m.line,
                      b->label, b->repetition, b->repetitions, json_get_str(event, "phase", ""),
                      (long long)json_get_int(event, "done", 0), (long long)json_get_int(event, "of", 0));
    return !cli_is_interrupted(b->m.g);
}

static enum err_code bench_init(struct bench *b, struct err *why)
{
    enum err_code rc = bench_grid_init(&b->grid, b->m.a, why);
    if (!rc) rc = cli_config_grid(&b->configs, &b->m.n, b->m.a, why);
    b->m.configs = b->configs;
    if (!rc) rc = cli_applied_config(&b->configs[0], b->m.g, b->m.a, why);
    b->repetitions = (int)args_int(b->m.a, "-r", 5);
    for (int i = 0; i < b->m.n * b->grid.n && !rc; i++)
        rc = workload_check(&b->grid.workload[i % b->grid.n], &b->configs[i / b->grid.n], why);
    if (rc) return rc;
    b->measured = calloc((size_t)b->m.n * (size_t)b->grid.n, sizeof *b->measured);
    return b->measured ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

static struct run_cell bench_cell_spec(struct bench *b, struct arm *arm)
{
    return (struct run_cell){
        .arm = arm,
        .workload = b->label,
        .seed = b->m.g->seed,
        .event = bench_on_event,
        .ctx = b,
        .contamination = CONTAMINATION_NOTED,
        .control_frequency = NAN,
        .sample_conditions = true,
        .place = { .arm = b->m.at, .block = -1, .phase = b->m.run.row.kind, .config = b->m.line }
    };
}

static enum err_code bench_warm_up(struct bench *b, struct arm *arm, struct tally_totals *all,
                                   struct err *why)
{
    const struct run_cell what = bench_cell_spec(b, arm);
    struct measured_cell c;
    const enum err_code rc = run_measure_cell(&b->m.run, &what, &c, why);
    if (!rc) bench_add_fill(all, &c);
    cell_done(&c);
    return rc;
}

/* Runs one repetition. Errors: those of the arm and of the database. */
static enum err_code bench_cell(struct bench *b, struct arm *arm, struct cell_tally *t, struct err *why)
{
    const struct run_cell what = bench_cell_spec(b, arm);
    struct measured_cell c;
    enum err_code rc = run_cell(&b->m.run, &what, &c, why);
    if (!rc && c.failure.code) {
        *why = c.failure;
        rc = c.failure.code;
    }
    if (!rc && *c.disturbed) log_write(&b->m.g->log, LOG_INFO, "%s %s: %s", b->m.line, b->label, c.disturbed);
    if (!rc) rc = tally_add(t, &c, why);
    if (!rc) bench_add_fill(&t->all, &c);
    if (!rc && b->repetition == b->repetitions) {
        bench_note_ranks(&b->m.table, &b->configs[b->m.at], b->label, c.answer);
        b->server = json_incref(json_object_get(json_object_get(c.answer, "served"), "server"));
        rc = bench_put_prompts(&b->m.table, b->m.line, &b->grid.workload[b->workload_i], c.answer, why);
    }
    cell_done(&c);
    return rc;
}

static struct run_timing bench_timing(const struct bench *b, const struct workload *w,
                                      const struct cell_tally *t, const struct arm *arm)
{
    return (struct run_timing){ .model = b->model,
                                .config = &b->configs[b->m.at],
                                .workload = w,
                                .tally = t,
                                .description = arm_description(arm) };
}

static void put_conditions(const struct bench *b, json_t *row)
{
    const struct conditions now = run_conditions(&b->m.run);
    json_put_num(row, "memory_ratio", now.memory_ratio > 0 ? now.memory_ratio : NAN);
    json_put_num(row, "core_ratio", now.core_ratio > 0 ? now.core_ratio : NAN);
}

/* Of a mixture of experts: how many experts the routers chose for a decode step (mean over layers), and the
 * bytes of weights that it read because of it. */
static void put_experts(json_t *row, const struct tally_totals *all, const struct prediction *p)
{
    const double distinct = all->decode_experts / all->n;
    if (!(distinct > 0)) return;
    json_put_num(row, "decode_experts", distinct);
    if (p) json_put_int(row, "step_read_bytes", (int64_t)p->step_read_bytes);
}

/* The figures of a row. p: the prediction, for the shares of the machine's limit; NULL: none. */
static void put_tally(struct bench *b, json_t *row, struct cell_tally *t, const struct workload *w,
                      const struct prediction *p, const json_t *about)
{
    const struct tally_totals *all = &t->all;
    double value[METRIC_COUNT];
    tally_values(t, value);
    value[METRIC_LOAD_TIME] = json_get_num(about, METRICS[METRIC_LOAD_TIME].name, NAN);
    if (p) {
        value[METRIC_LIMIT_SHARE_PREFILL] = value[METRIC_PREFILL_RATE] / p->prefill_limit_tok_s;
        value[METRIC_LIMIT_SHARE_DECODE] = value[METRIC_DECODE_RATE] / p->decode_limit_tok_s;
    }
    table_put_metrics(&b->m.table, row, value);
    put_experts(row, all, p);
    json_put_num(row, "prefill_sd_tok_s", stats_sd(all->prefill, tally_rates(all)));
    json_put_num(row, "decode_sd_tok_s", stats_sd(all->decode, tally_rates(all)));
    if (workload_is_load(w)) bench_put_load(row, all, w);
    if (b->grid.side_by_side && !workload_is_load(w))
        json_put_num(row, "decode_seq_tok_s", value[METRIC_DECODE_RATE] / workload_sequences(w));
    bench_put_fill(row, all);
    put_conditions(b, row);
    json_put_int(row, "disturbed", all->n - t->undisturbed.n);
}

static json_t *bench_new_row(struct bench *b)
{
    json_t *row = table_row(&b->m.table);
    const struct config *c = &b->configs[b->m.at];
    const bool server = config_is_foreign(c) &&
                        !*config_model_file(c, b->model); /* its own name of a model */
    json_put_str(row, "model", server ? config_text(c, KNOB_MODEL) : cli_base_name(b->model));
    json_put_str(row, "config", b->m.line);
    json_put_str(row, "workload", b->label);
    const struct workload *w = &b->grid.workload[b->workload_i];
    json_put_int(row, "sequences", workload_sequences_for(w, &b->configs[b->m.at]));
    return row;
}

static void bench_add_failure(struct bench *b, const struct err *why)
{
    json_put_str(bench_new_row(b), "error", why->message);
    if (!b->m.first.code) b->m.first = *why;
}

/* Huge pages and prefetching as the kernel provided them, which may differ from the request. */
static void put_memory(json_t *row, const json_t *memory)
{
    const int64_t huge = json_get_int(memory, "huge_bytes", -1);
    if (huge >= 0) json_put_int(row, "huge_bytes", huge);
    json_put_num(row, "prefetch_s", json_get_num(memory, "prefetch_s", NAN));
}

static void put_row_cost(json_t *row, const struct tally_totals *t, const struct tally_totals *one,
                         int sequences)
{
    double sd;
    json_put_num(row, "row_cost", tally_row_cost(t, one, sequences, &sd));
    json_put_num(row, "row_cost_sd", sd);
}

/* A workload of a group while it is measured. */
struct bench_item {
    struct cell_tally tally;
    struct workload asked; /* a load with rate=auto gets its rate while it is measured */
    bool predicted;
    struct prediction p;
    struct err why; /* code not 0: it failed and is not measured any more */
};

/* Adds the row of workload b->workload_i. one: the item of one sequence, for the row's cost; may be NULL. */
static void bench_add_row(struct bench *b, struct arm *arm, struct bench_item *item,
                          const struct bench_item *one)
{
    const json_t *about = arm_description(arm);
    const struct workload *w = &b->grid.workload[b->workload_i];
    const struct run_timing timing = bench_timing(b, w, &item->tally, arm);
    struct err why = { 0 };
    if (!item->tally.all.n) {
        if (item->why.code) bench_add_failure(b, &item->why);
        return;
    }
    if (item->predicted) /* again, with the experts that were really chosen */
        item->predicted = run_predict(&b->m.run, &timing, &item->p);
    json_t *row = bench_new_row(b);
    json_put_int(row, "repetitions", item->tally.all.n);
    if (one) put_row_cost(row, &item->tally.all, &one->tally.all, workload_sequences(w));
    put_tally(b, row, &item->tally, w, item->predicted ? &item->p : NULL, about);
    const int64_t plan = json_get_int(json_object_get(about, "plan"), "total", -1);
    if (plan >= 0) json_put_int(row, "plan_bytes", plan);
    put_memory(row, json_object_get(about, "memory"));
    bench_put_server(row, b->server);
    json_decref(b->server);
    b->server = NULL;
    cli_put_cautions(row, json_get_bool(about, "random_weights", false),
                     json_get_bool(about, "answers_unverified", false));
    b->without_text |= !json_get_bool(about, "reads_text", true);
    if (item->why.code) json_put_str(row, "error", item->why.message);
    b->m.ok++;
    if (!item->why.code && run_residuals(&b->m.run, &timing, &why)) item->why = why;
    if (item->why.code && !b->m.first.code) b->m.first = item->why;
    b->measured[b->m.at * b->grid.n + b->workload_i] = !item->why.code;
}

/* Make workload i of the group the current one. Returns its item. */
static struct bench_item *bench_turn_to(struct bench *b, struct bench_item *items, int first, int i)
{
    b->workload_i = first + i;
    b->label = workload_line(&b->grid.workload[b->workload_i], b->workload_text, sizeof b->workload_text);
    return &items[i];
}

/* Find the rate of a load with rate=auto. */
static void bench_rate(struct bench *b, struct arm *arm, struct bench_item *item)
{
    struct workload *w = &b->grid.workload[b->workload_i];
    item->asked = *w;
    if (!w->load.auto_rate) return;
    const struct run_cell what = bench_cell_spec(b, arm);
    bench_find_rate(w, &b->m.run, &what, &b->configs[b->m.at], &item->why);
    b->label = workload_line(w, b->workload_text, sizeof b->workload_text);
}

static void bench_prepare(struct bench *b, struct arm *arm, struct bench_item *item)
{
    bench_rate(b, arm, item);
    if (item->why.code) return;
    const struct run_timing timing = bench_timing(b, &b->grid.workload[b->workload_i], &item->tally, arm);
    struct err unknown;
    item->predicted = run_predict(&b->m.run, &timing, &item->p);
    b->repetition = 0;
    if (!args_has(b->m.a, "--no-warmup")) bench_warm_up(b, arm, &item->tally.all, &item->why);
    if (run_conditions_open(&b->m.run, &timing, &unknown))
        log_write(&b->m.g->log, LOG_WARN, "memory_ratio and core_ratio stay unknown: %s", unknown.message);
}

/* Measures the workloads of a group, which begins at b->workload_i, in turns: each repetition runs all of
 * them. Afterwards b->workload_i is behind the group. ERR_CANCELLED ends the grid; other errors become rows.
 */
static enum err_code bench_group(struct bench *b, struct arm *arm, struct err *why)
{
    const int first = b->workload_i, n = b->grid.group;
    struct bench_item *items = calloc((size_t)n, sizeof *items), *item;
    if (!items) return err_set(why, ERR_NOMEM, "out of memory for %d workloads", n);
    for (int i = 0; i < n; i++) {
        item = bench_turn_to(b, items, first, i);
        bench_prepare(b, arm, item);
    }
    run_conditions_sample(&b->m.run, arm_pid(arm));
    bool cancelled = false;
    for (b->repetition = 1; b->repetition <= b->repetitions; b->repetition++)
        for (int i = 0; i < n; i++) {
            item = bench_turn_to(b, items, first, i);
            if (!cancelled && !item->why.code) bench_cell(b, arm, &item->tally, &item->why);
            cancelled |= item->why.code == ERR_CANCELLED || cli_is_interrupted(b->m.g);
        }
    for (int i = 0; i < n; i++) {
        item = bench_turn_to(b, items, first, i);
        bench_add_row(b, arm, item, n > 1 ? items : NULL);
        b->grid.workload[b->workload_i] = item->asked;
    }
    for (int i = 0; i < n; i++) tally_free(&items[i].tally);
    free(items);
    b->workload_i = first + n;
    return cancelled ? err_set(why, ERR_CANCELLED, "interrupted") : ERR_OK;
}

/* A config was loaded: begins the run with the first one. */
static enum err_code bench_opened(struct bench *b, struct moment begun, const json_t *about, struct err *why)
{
    struct str work = { 0 }, label = { 0 };
    char buf[CONFIG_LINE];
    for (int i = 0; i < b->grid.n; i++)
        str_printf(&work, "%s%s", i ? " " : "", workload_line(&b->grid.workload[i], buf, sizeof buf));
    for (int i = 0; i < b->m.n; i++)
        str_printf(&label, "%s%s", i ? " | " : "", config_line(&b->configs[i], buf, sizeof buf));
    const struct run_spec what = {
        .kind = "bench", .workload = str_text(&work), .label = str_text(&label), .has_canary = true
    };
    const enum err_code rc = measured_opened(&b->m, &what, begun, about, why);
    str_free(&work);
    str_free(&label);
    return rc;
}

/* Runs the workloads from b->workload_i on that have the same number of sequences, or one group of several.
 * They get their own worker, because its memory depends on this number. */
static enum err_code bench_arm(struct bench *b, struct err *why)
{
    struct config *c = &b->configs[b->m.at];
    struct arm *arm = NULL;
    const struct workload *first = &b->grid.workload[b->workload_i];
    int last = b->workload_i + b->grid.group, sequences = 0;
    for (int i = b->workload_i; i < last; i++)
        sequences = MAX(sequences, workload_sequences_for(&b->grid.workload[i], c));
    for (; b->grid.group == 1 && last < b->grid.n; last++) {
        const struct workload *w = &b->grid.workload[last];
        if (workload_sequences_for(w, c) != sequences || workload_is_load(w) != workload_is_load(first))
            break;
    }
    /* 0: the config sets its own context, and memory and speed belong to that one */
    struct arm_spec spec = { .model = b->model,
                             .config = c,
                             .ctx = config_int(c, KNOB_CTX) ? 0 : b->grid.ctx,
                             .sequences = sequences,
                             .log = &b->m.g->log };
    b->label = "load";
    const struct moment begun = moment_now();
    enum err_code rc = arm_open(&arm, &spec, bench_on_event, b, why);
    if (rc == ERR_CANCELLED) return rc;
    if (rc) {
        bench_add_failure(b, why);
        b->workload_i = last;
        return ERR_OK;
    }
    rc = bench_opened(b, begun, arm_description(arm), why);
    const char *note;
    for (size_t i = 0; (note = arm_note(arm, i)); i++) cli_note(b->m.g, "%s", note);
    while (b->workload_i < last && !rc) rc = bench_group(b, arm, why);
    arm_close(arm);
    return rc;
}

/* Runs one config. Only a database error or Ctrl-C ends the grid; other errors become rows. */
static enum err_code bench_config(struct bench *b, struct err *why)
{
    struct config *c = &b->configs[b->m.at];
    char *path = NULL;
    config_line(c, b->m.line, sizeof b->m.line);
    enum err_code rc = cli_config_model(&path, b->m.a, c, why);
    if (rc) return rc;
    snprintf(b->model, sizeof b->model, "%s", path);
    if (trained_context_add(&b->trained, path, c, b->grid.ctx))
        cli_note(b->m.g, TRAINED_CONTEXT_NOTE, (long long)b->trained.tokens, (long long)b->trained.trained);
    free(path);
    for (b->workload_i = 0; b->workload_i < b->grid.n && !rc;) rc = bench_arm(b, why);
    return rc;
}

/* The first two configs of which one workload was measured. False: there are none. */
static bool bench_find_pair(const struct bench *b, int pair[2], int *workload)
{
    for (int w = 0; w < b->grid.n; w++) {
        int n = 0;
        for (int i = 0; i < b->m.n && n < 2; i++)
            if (b->measured[i * b->grid.n + w]) pair[n++] = i;
        *workload = w;
        if (n == 2) return true;
    }
    return false;
}

/* Several configs were timed one after the other, which an A/B in turn decides better. */
static void bench_put_next(struct bench *b)
{
    char workload[WORKLOAD_LINE], *path[2] = { NULL, NULL };
    int pair[2], w;
    if (bench_find_pair(b, pair, &w) && !measured_model(&path[0], &b->m, &b->configs[pair[0]], NULL) &&
        !measured_model(&path[1], &b->m, &b->configs[pair[1]], NULL))
        close_with_ab(&b->m.table, b->m.run.row.id,
                      &(struct next_ab){
                          .side = { { &b->configs[pair[0]], path[0] }, { &b->configs[pair[1]], path[1] } },
                          .workload = workload_line(&b->grid.workload[w], workload, sizeof workload),
                          .why = "measures both in turn, which decides which is faster" });
    else
        close_with_run(&b->m.table, b->m.run.row.id);
    free(path[0]);
    free(path[1]);
}

/* Completes the table and ends the run. */
static enum err_code bench_finish(struct bench *b, enum err_code rc, struct err *why)
{
    progress_clear(&b->m.progress);
    if (b->m.run.row.id) json_put_int(b->m.table.extra, "run", b->m.run.row.id);
    bench_note_rows(&b->m.table, b->m.ceilings_known, b->without_text);
    table_lines(&b->m.table, table_note, str_text(&b->m.run.prompt_notes));
    bench_close_table(&b->m.table);
    json_put_str(b->m.table.extra, "machine", b->m.machine.id);
    trained_context_put(b->m.table.extra, &b->trained);
    json_put(b->m.table.extra, "labels", cli_labels_json(&b->m.labels));
    rc = cli_run_finish(&b->m.run, &b->m.table, b->m.ok ? "done" : "failed", rc, why);
    if (b->m.run.row.id) bench_put_next(b); /* not stored: `show` names the run itself */
    return rc;
}

static int bench_print(struct bench *b, enum err_code rc, const struct err *why)
{
    const struct summary summary = { .effect = { NAN, NAN, NAN },
                                     .exit_status = rc ? exit_status_of(rc) : EXIT_DONE,
                                     .run = b->m.run.row.id };
    table_summarize(&b->m.table, &summary);
    return measured_print(&b->m, rc, why);
}

static struct bench *bench_new(const struct cli_global *g, const struct cli_args *a)
{
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    measured_init(&b->m, g, a, &DOCUMENT_BENCH);
    return b;
}

static void bench_free(struct bench *b)
{
    measured_close(&b->m);
    free(b->configs);
    free(b->measured);
    free(b);
}

/* Measures everything, as one stored run. */
static enum err_code bench_all(struct bench *b, struct err *why)
{
    enum err_code rc = bench_init(b, why);
    if (!rc) rc = measured_open(&b->m, b->m.a, why);
    if (!rc) cli_wait_quiet(b->m.g, b->m.a, b->m.sampler);
    for (b->m.at = 0; b->m.at < b->m.n && !rc; b->m.at++) rc = bench_config(b, why);
    return bench_finish(b, rc, why);
}

enum err_code bench_measure(json_t **document, const struct cli_global *g, const struct cli_args *a,
                            struct err *why)
{
    struct bench *b = bench_new(g, a);
    *document = NULL;
    if (!b) return err_set(why, ERR_NOMEM, "out of memory");
    const enum err_code rc = bench_all(b, why);
    if (!rc) *document = table_document(&b->m.table);
    bench_free(b);
    return rc;
}

int command_bench(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    if (bench_profile_check(a, &why) || bench_preset_check(a, &why)) return cli_fail(a, &why);
    if (args_has(a, "--profile")) return bench_profile(g, a);
    if (args_has(a, "--preset")) return bench_preset(g, a);
    struct bench *b = bench_new(g, a);
    if (!b) return cli_fail_memory(a);
    const enum err_code rc = bench_all(b, &why);
    const int status = bench_print(b, rc, &why);
    bench_free(b);
    return status;
}
