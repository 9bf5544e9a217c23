/* qdyno audit: does an engine compute the same whatever its batch size, and the same as qdyno?
 *
 * An engine has different kernels for one row and for many, and a wrong one changes answers without a
 * message. Perplexity of the same text at several batch sizes shows it: exact arithmetic would give the same
 * number each time, and rounding changes it by far less than the tolerance. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/run/run.h"
#include "engine/model/model.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/runs.h"

enum { BATCHES_MOST = 16, SIDES = 2, TEXT_LIMIT = 1 << 30 };
static const char BATCHES[] = "1,32,512", BYTES[] = "16k";
static const double TOLERANCE = 0.01;

/* clang-format off */
const struct cli_flag FLAGS_AUDIT[] = {
    { .name = "--engine", .value = "ENGINE|CONFIG",
      .help = "the engine, or a config line with one, e.g. 'engine=llama-perplexity,bin=PATH,args=\"-fa on\"'; "
              "default llama-perplexity; qdyno: only this program" },
    { .name = "-f", .alias = "--file", .value = "TEXT", .help = "text file; default: the text that quality is measured on" },
    { .name = "--bytes", .value = "SIZE", .help = "use the first SIZE bytes of the text; default 16k" },
    { .name = "-c", .alias = "--ctx-size", .value = "N", .kind = FLAG_INT, .min = 16, .max = 1 << 20,
      .help = "tokens per window; default 512" },
    { .name = "--batches", .value = "N,...", .kind = FLAG_INTS, .min = 1, .max = 65536,
      .help = "batch sizes, in rows of a forward pass; default 1,32,512" },
    { .name = "--tolerance", .value = "SHARE", .kind = FLAG_RATIO,
      .help = "perplexities that differ by less agree; default 1%" },
    { .name = NULL },
};

static const struct column COLUMNS[] = {
    { .name = "engine", .title = "engine" },
    { .name = "config", .title = "config" },
    { .name = "batch", .title = "batch", .kind = COLUMN_INT },
    { .name = "perplexity", .title = "perplexity", .kind = COLUMN_NUM, .digits = 5 },
    { .name = "nll_se", .kind = COLUMN_NUM },
    { .name = "own_ratio", .title = "x first batch", .kind = COLUMN_NUM, .digits = 5 },
    { .name = "qdyno_ratio", .title = "x qdyno", .kind = COLUMN_NUM, .digits = 5 },
    { .name = "error", .title = "error" },
};
/* clang-format on */

DOCUMENT(AUDIT, "qdyno.audit/1", COLUMNS,
         .members = "run model agrees_with_itself agrees_with_qdyno largest_ratio");

struct audit {
    const struct cli_global *g;
    const char *model;
    struct config side[SIDES]; /* qdyno, the engine */
    int sides;
    int64_t batch[BATCHES_MOST];
    int batches;
    double ppl[SIDES][BATCHES_MOST];        /* NAN: failed */
    char workload[WORKLOAD_LINE], text[64]; /* a temporary file */
    struct machine machine;
    struct db *db;
    struct run run;
    struct table table;
    struct progress progress;
    struct err first;
};

static bool on_event(void *ctx, const json_t *event)
{
    struct audit *x = ctx;
    (void)event;
    progress_show(&x->progress, "audit %s", x->workload);
    return !cli_is_interrupted(x->g);
}

/* Writes the part of the text that is used to a temporary file: every engine reads the same bytes. */
static enum err_code text_write(struct audit *x, const struct cli_args *a, struct err *why)
{
    const char *given = args_text(a, "-f", NULL), *size = args_text(a, "--bytes", BYTES);
    char *usual = NULL, *text = NULL;
    int64_t most;
    size_t n = 0;
    if (!str_to_bytes(size, &most) || most < 1)
        return err_set(why, ERR_USAGE, "--bytes %s: expected a size, e.g. 64k", size);
    enum err_code rc = given ? ERR_OK : cli_quality_text(&usual, x->g, x->model, why);
    if (!rc) rc = file_read(&text, &n, given ? given : usual, TEXT_LIMIT, why);
    free(usual);
    if (rc) return rc;
    n = MIN(n, (size_t)most);
    n -= str_utf8_unfinished(text, n);
    snprintf(x->text, sizeof x->text, "/tmp/qdyno-audit-XXXXXX");
    const int fd = mkstemp(x->text);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        rc = err_set(why, err_of_errno(errno), "cannot write a copy of the text: %s", strerror(errno));
    if (fd >= 0) close(fd);
    free(text);
    snprintf(x->workload, sizeof x->workload, "eval:%s@c%lld", x->text, (long long)args_int(a, "-c", 512));
    return rc;
}

/* A name of an engine, or a config line that has one. */
static enum err_code engine_read(struct config *c, const struct cli_args *a, struct err *why)
{
    const char *given = args_text(a, "--engine", ENGINE_NAMES[ENGINE_LLAMA_PERPLEXITY]);
    bool name = false;
    for (int i = 0; i < ENGINE_COUNT; i++) name = name || !strcmp(given, ENGINE_NAMES[i]);
    config_default(c);
    enum err_code rc = name ? config_set(c, KNOBS[KNOB_ENGINE].key, given, why) : config_parse(c, given, why);
    if (!rc) rc = config_check(c, why);
    if (rc || ENGINES[config_engine(c)].evaluates) return rc;
    return err_set(why, ERR_USAGE,
                   "--engine %s: it does not give the probabilities of a text's tokens; expected "
                   "llama-perplexity, which is built from the same source as llama-server",
                   config_text(c, KNOB_ENGINE));
}

static enum err_code audit_begin(struct audit *x, struct err *why)
{
    char line[SIDES][CONFIG_LINE];
    struct capsule_arm arm[SIDES] = { 0 };
    enum err_code rc = machine_detect(&x->machine, "", why);
    if (!rc) rc = db_open(&x->db, x->g->db_path, why);
    for (int i = 0; i < x->sides; i++) {
        config_line(&x->side[i], line[i], sizeof line[i]);
        arm[i] = (struct capsule_arm){ .line = line[i],
                                       .model_path = x->model,
                                       .model_name = cli_base_name(x->model) };
    }
    const struct run_spec spec = { .kind = "audit",
                                   .workload = x->workload,
                                   .label = x->sides > 1 ? line[1] : line[0],
                                   .machine = &x->machine,
                                   .arm = arm,
                                   .arms = x->sides };
    return rc ? rc : run_begin(&x->run, x->db, &spec, why);
}

/* One engine at one batch size. Errors of the arm become a row. */
static enum err_code measure(struct audit *x, int side, int b, struct err *why)
{
    struct config c = x->side[side];
    char batch[24], line[CONFIG_LINE];
    struct workload w;
    struct arm *arm = NULL;
    struct measured_cell cell = { 0 };
    snprintf(batch, sizeof batch, "%lld", (long long)x->batch[b]);
    enum err_code rc = config_set(&c, KNOBS[KNOB_BATCH].key, batch, why);
    if (!rc) rc = workload_parse(&w, x->workload, why);
    if (rc) return rc;
    config_line(&c, line, sizeof line);
    const struct arm_spec spec = {
        .model = x->model, .config = &c, .ctx = workload_ctx(&w), .sequences = 1, .log = &x->g->log
    };
    const struct moment begun = moment_now();
    struct err failed = { 0 };
    enum err_code opened = arm_open(&arm, &spec, on_event, x, &failed);
    if (opened == ERR_CANCELLED) return err_set(why, opened, "interrupted");
    if (!opened)
        rc = run_arm_opened(&x->run, side,
                            &(struct span_load){ begun, (double)(clock_ns() - begun.clock_ns) * 1e-9,
                                                 arm_description(arm), "" },
                            why);
    const struct run_cell what = { .arm = arm,
                                   .workload = x->workload,
                                   .event = on_event,
                                   .ctx = x,
                                   .contamination = CONTAMINATION_NOTED,
                                   .control_frequency = NAN,
                                   .place = { .arm = side, .block = -1, .phase = "eval", .config = line } };
    if (!opened && !rc) rc = run_cell(&x->run, &what, &cell, why);
    if (!opened && !rc && cell.failure.code) {
        failed = cell.failure;
        opened = failed.code;
    }
    json_t *row = rc ? NULL : table_row(&x->table);
    if (row) {
        json_put_str(row, "engine", config_text(&c, KNOB_ENGINE));
        json_put_str(row, "config", line);
        json_put_int(row, "batch", x->batch[b]);
        json_put_str(row, "error", opened ? failed.message : NULL);
    }
    if (row && !opened) {
        x->ppl[side][b] = cell.value[METRIC_PERPLEXITY];
        json_put_num(row, "perplexity", x->ppl[side][b]);
        json_put_num(row, "nll_se", cell.field[FIELD_NLL_SE]);
        json_put_num(row, "own_ratio", x->ppl[side][b] / x->ppl[side][0]);
        if (side) json_put_num(row, "qdyno_ratio", x->ppl[side][b] / x->ppl[0][b]);
    }
    if (opened && !x->first.code) x->first = failed;
    cell_done(&cell);
    arm_close(arm);
    return rc;
}

/* The largest difference of logarithms between two perplexities; NAN: one is unknown. */
static double largest(const double *a, const double *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        const double d = fabs(log(a[i] / b[i]));
        if (isnan(d)) return NAN;
        most = fmax(most, d);
    }
    return most;
}

/* Says whether an engine agrees with itself, and with qdyno. Returns whether all that is known agrees. */
static bool conclude(struct audit *x, double tolerance)
{
    const int side = x->sides - 1;
    const char *name = config_text(&x->side[side], KNOB_ENGINE);
    double first[BATCHES_MOST];
    for (int b = 0; b < x->batches; b++) first[b] = x->ppl[side][0];
    const double own = largest(x->ppl[side], first, x->batches),
                 other = side ? largest(x->ppl[side], x->ppl[0], x->batches) : NAN;
    const double limit = log1p(tolerance), most = fmax(own, other);
    if (!isnan(own))
        table_note(&x->table,
                   "%s %s with itself: its perplexities differ by %.3g %% at most (tolerance %.3g %%)", name,
                   own <= limit ? "agrees" : "DISAGREES", stats_percent(own), 100 * tolerance);
    if (!isnan(other))
        table_note(&x->table, "%s %s with qdyno: by %.3g %% at most", name,
                   other <= limit ? "agrees" : "DISAGREES", stats_percent(other));
    if (own > limit)
        table_note(
            &x->table,
            "the kernels of some batch size compute something else: do not use that engine with this file "
            "and these settings before it is explained");
    json_put(x->table.extra, "agrees_with_itself", isnan(own) ? json_null() : json_boolean(own <= limit));
    json_put(x->table.extra, "agrees_with_qdyno", isnan(other) ? json_null() : json_boolean(other <= limit));
    json_put_num(x->table.extra, "largest_ratio", exp(most));
    return !(own > limit) && !(other > limit);
}

static enum err_code audit_run(struct audit *x, struct err *why)
{
    enum err_code rc = audit_begin(x, why);
    for (int s = 0; s < SIDES; s++)
        for (int b = 0; b < BATCHES_MOST; b++) x->ppl[s][b] = NAN;
    for (int s = 0; s < x->sides && !rc; s++)
        for (int b = 0; b < x->batches && !rc; b++) rc = measure(x, s, b, why);
    progress_clear(&x->progress);
    return rc;
}

static int audit_print(struct audit *x, const struct cli_args *a, enum err_code rc, struct err *why)
{
    int status = EXIT_DONE;
    if (!rc && !conclude(x, args_num(a, "--tolerance", TOLERANCE))) status = EXIT_WORSE;
    json_put_str(x->table.extra, "model", cli_base_name(x->model));
    if (x->run.row.id) {
        json_put_int(x->table.extra, "run", x->run.row.id);
        table_note(&x->table, "run %lld; to print its cells again: qdyno show %lld", (long long)x->run.row.id,
                   (long long)x->run.row.id);
    }
    rc = cli_run_finish(&x->run, NULL, x->first.code ? "failed" : "done", rc, why);
    if (rc) return cli_fail(a, why);
    status = cli_print(x->g, a, &x->table, status);
    return x->first.code && status == EXIT_DONE ? cli_fail(a, &x->first) : status;
}

int command_audit(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct audit *x = calloc(1, sizeof *x);
    if (!x) return cli_fail_memory(a);
    x->g = g;
    x->model = a->arg[0];
    x->sides = SIDES;
    progress_init(&x->progress, g);
    table_init(&x->table, &DOCUMENT_AUDIT);
    x->batches = args_ints(a, "--batches", BATCHES, x->batch, BATCHES_MOST);
    config_default(&x->side[0]);
    enum err_code rc = engine_read(&x->side[1], a, &why);
    if (!rc && !config_is_foreign(&x->side[1])) { /* qdyno alone, with the settings that were given */
        x->side[0] = x->side[1];
        x->sides = 1;
    }
    if (!rc) rc = text_write(x, a, &why);
    if (!rc) rc = audit_run(x, &why);
    const int status = rc && !x->run.row.id ? cli_fail(a, &why) : audit_print(x, a, rc, &why);
    if (*x->text) unlink(x->text);
    run_close(&x->run);
    db_close(x->db);
    table_done(&x->table);
    free(x);
    return status;
}
