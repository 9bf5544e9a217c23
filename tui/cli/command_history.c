/* qdyno history and qdyno show: past runs, from the database alone. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "base/cut/cut.h"
#include "tui/cli/command_show_causes.h"
#include "tui/cli/command_show_result.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/runs.h"

/* clang-format off */
const struct cli_flag FLAGS_HISTORY[] = {
    { .name = "--filter", .value = "TEXT",
      .help = "only runs whose configs, model, workload, kind, verdict or state contain TEXT; !TEXT: runs without "
              "it; /RE/: a regular expression" },
    { .name = "--label", .value = "KEY=VALUE", .many = true,
      .help = "only runs with this label (docs/history.md); given several times: only runs with all these "
              "labels" },
    { .name = "--limit", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1000000,
      .help = "the newest N runs; default 20, with --detect 1000" },
    { .name = "--delete", .exclusive = true, .value = "RUN",
      .help = "delete a run; for 7 days it can be restored, then its rows are removed" },
    { .name = "--undelete", .exclusive = true, .value = "RUN", .help = "restore a deleted run" },
    { .name = "--deleted", .exclusive = true, .help = "list the deleted runs that can be restored" },
    { .name = "--import", .exclusive = true, .value = "FILE",
      .help = "store the results of llama-bench (-o json, jsonl or sql) or LocalScore as foreign runs" },
    { .name = "--summary", .exclusive = true, .value = "TIME", .kind = FLAG_SECONDS,
      .help = "what happened in the last TIME, such as 24h or 7d: runs and cells by outcome and reason, error rate, "
              "latencies, the most at once, the busiest hour" },
    { .name = "--detect", .exclusive = true, .help = "find changes, drifts and outliers in the results of each config" },
    { .name = "--method", .needs = "--detect", .value = "METHOD", .kind = FLAG_CHOICE, .choices = HISTORY_METHOD_NAMES,
      .help = "with --detect: how to search (docs/history.md); default changes" },
    { .name = "--metric", .needs = "--detect", .value = "METRIC",
      .help = "with --detect: metric to examine; default: the decode rate, else the prefill rate, else "
              "perplexity" },
    { .name = "--margin", .needs = "--detect", .value = "SHARE", .kind = FLAG_RATIO,
      .help = "with --detect: smallest change that matters; default 1%" },
    { .name = "--raw", .needs = "--detect", .help = "with --detect: values as measured, not divided by the canary" },
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    COL("run", "run", .kind = COLUMN_INT),
    COL("started", "started (UTC)"),
    COL("kind", "kind"),
    COL("state", "state"),
    COL("model", "model"),
    COL("workload", "workload"),
    COL("label", "configs"),
    KEY("metric"),
    COL("verdict", "verdict"),
    COL("effect_ratio", "B/A", .kind = COLUMN_NUM, .digits = 4),
    KEY("seconds", .kind = COLUMN_NUM),
    KEY("machine"),
    KEY("model_sha256"),
    KEY("seed"),
    COL("labels", "labels"),
    COL("result", "result"),
};

DOCUMENT(HISTORY, "qdyno.history/1", COLUMNS, .members = "deleted restored imported");

/* What a run that is no comparison found: the first sentence of its result, or why a search ended as it did.
 */
static void put_result(json_t *row, const struct run_row *r)
{
    json_t *outcome = NULL;
    if (!r->outcome_json || !strcmp(r->kind, "ab") ||
        json_parse(&outcome, r->outcome_json, strlen(r->outcome_json), NULL))
        return;
    const char *text = json_get_str(outcome, "because", NULL);
    if (!text) text = json_get_str(outcome, "result", NULL);
    const int n = text ? (int)strcspn(text, "\n") : 0;
    struct str line = { 0 };
    if (n) str_printf(&line, "%.*s", n, text);
    if (line.len) json_put_str(row, "result", str_text(&line));
    str_free(&line);
    json_decref(outcome);
}

/* For people: without the config and the workload, where the text begins with those of the columns, and cut
 * to the width of a column. */
static void shorten_result(json_t *row)
{
    enum { SHORT = 52 };
    char text[SHORT];
    const char *whole = json_get_str(row, "result", NULL), *label = json_get_str(row, "label", "");
    const size_t n = strlen(label);
    if (!whole) return;
    if (n && !strncmp(whole, label, n) && whole[n] == ',') {
        const char *rest = strstr(whole, ": ");
        if (rest) whole = rest + 2;
    }
    text_cut(text, sizeof text, whole);
    json_put_str(row, "result", text);
}

static enum err_code put_run(json_t *row, struct db *d, const struct run_row *r, struct err *why)
{
    char when[32], seed[32];
    struct run_labels labels;
    json_put_int(row, "run", r->id);
    json_put_str(row, "started", clock_iso8601(r->started_ms, when, sizeof when));
    json_put_str(row, "kind", r->kind);
    json_put_str(row, "state", r->state);
    json_put_str(row, "model", *r->model_name ? r->model_name : NULL);
    json_put_str(row, "workload", *r->workload ? r->workload : NULL);
    json_put_str(row, "label", *r->label ? r->label : NULL);
    json_put_str(row, "metric", *r->metric ? r->metric : NULL);
    json_put_str(row, "verdict", *r->verdict ? r->verdict : NULL);
    json_put_num(row, "effect_ratio", r->effect_ratio);
    json_put_num(row, "seconds", r->ended_ms ? (double)(r->ended_ms - r->started_ms) * 1e-3 : NAN);
    json_put_str(row, "machine", *r->machine ? r->machine : NULL);
    json_put_str(row, "model_sha256", *r->model_sha256 ? r->model_sha256 : NULL);
    snprintf(seed, sizeof seed, "%" PRIu64, r->seed);
    json_put_str(row, "seed", seed); /* as text, because many JSON readers round 64-bit integers */
    put_result(row, r);
    const enum err_code rc = db_labels_get(d, r->id, &labels, why);
    if (!rc && labels.n) json_put(row, "labels", cli_labels_json(&labels));
    return rc;
}

/* --delete RUN or --undelete RUN. */
static int history_change(const struct cli_global *g, const struct cli_args *a)
{
    const bool restores = args_has(a, "--undelete");
    struct err why = { 0 };
    struct db *d = NULL;
    struct table t;
    int64_t id = 0;
    int removed = 0;
    enum err_code rc = cli_run_id(&id, args_text(a, restores ? "--undelete" : "--delete", ""), &why);
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = restores ? db_run_restore(d, id, &why) : db_run_delete(d, id, &why);
    if (!rc && !restores)
        rc = db_runs_purge(d, clock_unix_ms() - INT64_C(86400000) * RUN_DELETED_KEPT_DAYS, &removed, &why);
    db_close(d);
    if (rc) return cli_fail(a, &why);
    table_init(&t, &DOCUMENT_HISTORY);
    if (restores)
        table_note(&t, "run %" PRId64 " is restored", id);
    else
        table_note(
            &t, "run %" PRId64 " is deleted; for %d days `qdyno history --undelete %" PRId64 "` restores it",
            id, (int)RUN_DELETED_KEPT_DAYS, id);
    json_put_int(t.extra, restores ? "restored" : "deleted", id);
    return cli_finish(g, a, &t, EXIT_DONE);
}

/* --import FILE. */
static int history_read_foreign(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct table t;
    struct import_result got;
    enum err_code rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = history_import(d, args_text(a, "--import", ""), &got, &why);
    db_close(d);
    if (rc) return cli_fail(a, &why);
    table_init(&t, &DOCUMENT_HISTORY);
    table_note(&t, "%d result%s stored in %d run%s, marked as foreign: `qdyno history --filter foreign`",
               got.tests, str_plural(got.tests), got.runs, str_plural(got.runs));
    json_put_int(t.extra, "imported", got.tests);
    return cli_finish(g, a, &t, EXIT_DONE);
}

int command_history(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    if (args_has(a, "--import")) return history_read_foreign(g, a);
    if (args_has(a, "--delete") || args_has(a, "--undelete")) return history_change(g, a);
    if (args_has(a, "--detect")) return history_detect_print(g, a);
    if (args_has(a, "--summary")) return history_summary_print(g, a);
    struct db *d = NULL;
    struct run_row *runs = NULL;
    int n = 0;
    struct run_labels labels;
    enum err_code rc = cli_labels_given(&labels, a, &why);
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc && args_has(a, "--deleted"))
        rc = db_run_list_deleted(d, (int)args_int(a, "--limit", 20), &runs, &n, &why);
    else if (!rc)
        rc = db_run_find_labeled(d, args_text(a, "--filter", NULL), &labels, (int)args_int(a, "--limit", 20),
                                 &runs, &n, &why);
    if (rc) {
        db_close(d);
        return cli_fail(a, &why);
    }
    struct table t;
    table_init(&t, &DOCUMENT_HISTORY);
    for (int i = 0; i < n; i++) {
        json_t *row = rc ? NULL : table_row(&t);
        if (row) rc = put_run(row, d, &runs[i], &why);
        if (row && g->output == OUTPUT_MD) shorten_result(row);
        run_row_free(&runs[i]);
    }
    if (!n)
        table_note(&t, "no%s runs%s in %s", args_has(a, "--deleted") ? " deleted" : "",
                   args_has(a, "--filter") || labels.n ? " match the filter" : " yet", db_path(d));
    int status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, EXIT_DONE);
    table_done(&t);
    free(runs);
    db_close(d);
    return status;
}

/* ---------------------------------------------------------------- show */

/* clang-format off */
const struct cli_flag FLAGS_SHOW[] = {
    { .name = "--capsule",
      .help = "print the provenance record: machine, kernel, program, models, configs" },
    { .name = "--cells", .help = "print the raw cells of the run instead of its result" },
    { .name = "--causes", .help = "print where the run's main metric changed its level, and which metric moved first" },
    { .name = NULL },
};
/* clang-format on */

#define CELL(member) MEMBER(struct cell_row, member)
static const struct column CELL_COLUMNS[] = {
    COL("cell", "cell", CELL(id)),
    COL("phase", "phase", MEMBER_AS(struct cell_row, phase, STRING)),
    COL("block", "block", MEMBER_AS(struct cell_row, block, INT_OR_NULL)),
    COL("slot", "slot", .kind = COLUMN_INT),
    COL("arm", "arm"),
    COL("config", "config", MEMBER_AS(struct cell_row, config, STRING)),
    COL("seconds", "seconds", .digits = 3, CELL(seconds)),
    METRIC_COLUMN(METRIC_PREFILL_RATE),
    METRIC_COLUMN(METRIC_DECODE_RATE),
    METRIC_COLUMN(METRIC_PERPLEXITY),
    METRIC_COLUMN(METRIC_PEAK_MEMORY),
    COL("discarded", "discarded", CELL(discarded)),
    COL("discard_reason", "reason", CELL(discard_reason)),
    COL("error", "error", CELL(error)),
};

DOCUMENT(CELLS, "qdyno.cells/1", CELL_COLUMNS, .members = "run.*");

static void put_cell(struct table *t, struct db *d, const struct cell_row *c)
{
    json_t *row = table_row(t);
    char arm[2] = { (char)('A' + c->arm % 26), 0 };
    document_put(&DOCUMENT_CELLS, row, struct cell_row, c);
    if (c->block >= 0) json_put_int(row, "slot", c->slot);
    json_put_str(row, "arm", c->arm < 0 ? NULL : arm); /* the canary belongs to no arm */
    double value[METRIC_COUNT];
    for (int m = 0; m < METRIC_COUNT; m++) value[m] = (double)NAN;
    for (int i = 0; i < t->n_columns; i++) {
        const struct metric *m = t->columns[i].metric;
        if (m) value[m - METRICS] = db_measurement_get(d, c->id, m->name);
    }
    table_put_metrics(t, row, value);
}

/* The table that a finished run stored as its outcome. ERR_USAGE when it never finished. */
static enum err_code recorded_table(struct table *t, const struct run_row *run, struct err *why)
{
    json_t *outcome = NULL;
    if (!run->outcome_json)
        return err_set(why, ERR_USAGE, "run %lld (%s) has no table: its state is '%s'", (long long)run->id,
                       run->kind, run->state);
    enum err_code rc = json_parse(&outcome, run->outcome_json, strlen(run->outcome_json), why);
    if (rc) return err_prefix(why, "outcome of run %lld", (long long)run->id);
    json_t *rows = json_object_get(outcome, "rows"), *extra = json_object_get(outcome, "extra");
    if (json_is_array(rows)) json_array_extend(t->rows, rows);
    if (json_is_object(extra)) json_object_update(t->extra, extra);
    table_lines(t, table_headline, json_get_str(outcome, "headline", NULL));
    table_lines(t, table_note, json_get_str(outcome, "notes", NULL));
    table_lines(t, table_result, json_get_str(outcome, "result", NULL));
    table_lines(t, table_closing, json_get_str(outcome, "closing", NULL));
    t->skip_absent = t->record;
    json_decref(outcome);
    return ERR_OK;
}

/* A run without a stored table: prints its cells. */
static enum err_code show_cells(struct table *t, struct db *d, const struct run_row *run, struct err *why)
{
    struct cell_row *cells = NULL;
    int n = 0;
    enum err_code rc = db_cell_list(d, run->id, &cells, &n, why);
    table_init(t, &DOCUMENT_CELLS);
    for (int i = 0; i < n && !rc; i++) put_cell(t, d, &cells[i]);
    if (!rc && !n) table_note(t, "the run has no finished cell");
    free(cells);
    return rc;
}

/* Whether the run stored its table: searches of earlier versions and stopped ones stored less. */
static bool has_table(const struct run_row *run)
{
    json_t *outcome = NULL;
    const bool has = run->outcome_json &&
                     !json_parse(&outcome, run->outcome_json, strlen(run->outcome_json), NULL) &&
                     json_is_array(json_object_get(outcome, "rows"));
    json_decref(outcome);
    return has;
}

/* The result of a run: its stored table; otherwise, for people, what each config measured, and for programs
 * the cells. */
static enum err_code show_table(const struct cli_global *g, struct table *t, struct db *d,
                                const struct run_row *run, struct err *why)
{
    static const struct {
        const char *kind;
        const struct document *document;
    } TABLES[] = { { "bench", &DOCUMENT_BENCH },
                   { "eval", &DOCUMENT_EVAL },
                   { "profile", &DOCUMENT_PROFILE },
                   { "tune", &DOCUMENT_TUNE },
                   { "task", &DOCUMENT_EVAL_TASK } };
    for (size_t i = 0; has_table(run) && i < COUNT_OF(TABLES); i++) {
        if (strcmp(run->kind, TABLES[i].kind)) continue;
        table_init(t, TABLES[i].document);
        return recorded_table(t, run, why);
    }
    if (g->output != OUTPUT_MD) return show_cells(t, d, run, why);
    table_init(t, &DOCUMENT_CELLS);
    return show_candidates(t, d, run, why);
}

static enum err_code show_ab(const struct cli_global *g, struct table *t, struct db *d, int64_t id,
                             bool *printed, struct err *why)
{
    struct experiment_state *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for run %" PRId64, id);
    enum err_code rc = experiment_load(s, d, id, why);
    if (!rc && g->output == OUTPUT_JSON) {
        json_t *doc = ab_document(g, s, NULL);
        rc = output_json(doc, stdout, why);
        json_decref(doc);
        *printed = true;
    } else if (!rc) {
        ab_table_fill(t, s);
    }
    free(s);
    return rc;
}

/* Notes that this run was made for another one, e.g. as its replay. */
static void note_link(struct table *t, struct db *d, int64_t id)
{
    struct link_row l;
    bool found;
    if (db_link_get(d, id, &l, &found, NULL) || !found) return;
    if (!strcmp(l.kind, "confirm")) {
        table_closing(t, "quality: measured by the search that this A/B confirms: qdyno show %" PRId64,
                      l.of_run);
        return;
    }
    table_note(t, "%s of run %" PRId64 "%s%s", l.kind, l.of_run, *l.verdict ? ": " : "", l.verdict);
}

static const struct column CAPSULE_COLUMNS[] = {
    COL("group", "group"),
    COL("key", "key"),
    COL("value", "value"),
};

DOCUMENT(CAPSULE, "qdyno.capsule/1", CAPSULE_COLUMNS, .members = "capsule.* run.*");

/* --capsule: lists the provenance record, as its difference from an empty one. */
static enum err_code show_capsule(struct table *t, struct db *d, int64_t id, struct err *why)
{
    json_t *capsule, *nothing = json_object(), *c;
    enum err_code rc = capsule_load(&capsule, d, id, why);
    if (!rc && !capsule)
        rc = err_set(why, ERR_USAGE,
                     "run %" PRId64 " has no provenance record: runs of early versions have none", id);
    json_t *all = capsule_diff(nothing, rc ? NULL : capsule, NULL);
    size_t i;
    table_init(t, &DOCUMENT_CAPSULE);
    json_array_foreach(all, i, c)
    {
        const json_t *value = json_object_get(c, "after");
        char *text = json_is_string(value) ? strdup(json_string_value(value))
                                           : json_write(value, JSON_SPACED, 0);
        json_t *row = table_row(t);
        json_put_str(row, "group", json_get_str(c, "group", NULL));
        json_put_str(row, "key", json_get_str(c, "key", NULL));
        json_put_str(row, "value", text);
        free(text);
    }
    if (capsule) json_put(t->extra, "capsule", capsule);
    json_decref(all);
    json_decref(nothing);
    return rc;
}

static void note_head(struct table *t, struct db *d, const struct run_row *r)
{
    char when[32];
    table_note(t, "run %" PRId64 " (%s, %s) of %s, machine %s, model %.12s", r->id, r->kind, r->state,
               clock_iso8601(r->started_ms, when, sizeof when), *r->machine ? r->machine : "n/a",
               *r->model_sha256 ? r->model_sha256 : "n/a");
    struct run_labels labels;
    struct str text = { 0 };
    struct err why = { 0 };
    if (db_labels_get(d, r->id, &labels, &why)) {
        table_note(t, "the labels are unknown: %s", why.message);
        return;
    }
    if (!labels.n) return;
    cli_labels_text(&text, &labels);
    table_note(t, "labels: %s", str_text(&text));
    str_free(&text);
}

/* -o sql prints the stored rows instead of the table, so that another database can take the run over. */
static enum err_code show_sql(struct db *d, int64_t id, struct err *why)
{
    char *sql;
    const enum err_code rc = db_run_sql(d, id, &sql, why);
    if (!rc) fputs(sql, stdout);
    free(sql);
    return rc;
}

static enum err_code show_run(const struct cli_global *g, struct table *t, struct db *d,
                              const struct run_row *run, bool *printed, struct err *why)
{
    if (g->output == OUTPUT_SQL) {
        *printed = true;
        return show_sql(d, run->id, why);
    }
    return strcmp(run->kind, "ab") ? show_table(g, t, d, run, why) : show_ab(g, t, d, run->id, printed, why);
}

int command_show(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct run_row run = { 0 };
    struct table t = { 0 };
    int64_t id = 0;
    bool printed = false;
    enum err_code rc = cli_run_id(&id, a->arg[0], &why);
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = db_run_get(d, id, &run, &why);
    if (!rc && args_has(a, "--capsule"))
        rc = show_capsule(&t, d, id, &why);
    else if (!rc && args_has(a, "--causes"))
        rc = show_causes(&t, d, id, &why);
    else if (!rc && args_has(a, "--cells"))
        rc = show_cells(&t, d, &run, &why);
    else if (!rc)
        rc = show_run(g, &t, d, &run, &printed, &why);
    int status = EXIT_DONE;
    if (rc) {
        status = cli_fail(a, &why);
    } else if (!printed) {
        show_conditions(&t, d, id);
        note_head(&t, d, &run);
        note_link(&t, d, id);
        show_next_of_search(&t, &run);
        json_t *about = json_object();
        t.recorded = true;
        rc = put_run(about, d, &run, &why);
        json_put(t.extra, "run", about);
        status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, EXIT_DONE);
    }
    if (t.rows) table_done(&t);
    run_row_free(&run);
    db_close(d);
    return status;
}
