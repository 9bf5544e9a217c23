/* qdyno history --summary TIME: what happened in the last TIME, one figure a row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/history/history.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"

static const struct column COLUMNS[] = {
    COL("figure", "figure"),
    COL("of", "of"),
    COL("reason", "reason"),
    KEY("value", .kind = COLUMN_NUM),
    KEY("unit"),
    COL("shown", "value"),
    COL("n", "n", .kind = COLUMN_INT),
    COL("at", "when (UTC)"),
    COL("run", "run", .kind = COLUMN_INT),
};

DOCUMENT(HISTORY_SUMMARY, "qdyno.history_summary/1", COLUMNS, .members = "from to seconds");

enum unit { UNIT_COUNT, UNIT_RATIO, UNIT_SECONDS };

/* The value for scripts and for people; NAN: nothing was observed. */
static void put_value(json_t *row, double value, enum unit unit)
{
    static const char *const NAMES[] = { "", "ratio", "s" };
    char text[32] = "n/a";
    json_put_num(row, "value", value);
    if (unit != UNIT_COUNT) json_put_str(row, "unit", NAMES[unit]);
    if (isnan(value)) {
    } else if (unit == UNIT_COUNT) {
        snprintf(text, sizeof text, "%.0f", value);
    } else if (unit == UNIT_RATIO) {
        snprintf(text, sizeof text, "%.2f %%", 100 * value);
    } else if (value < 1) {
        snprintf(text, sizeof text, "%.3g ms", 1e3 * value);
    } else {
        snprintf(text, sizeof text, "%.4g s", value);
    }
    json_put_str(row, "shown", text);
}

static json_t *row_begin(struct table *t, const char *figure, const char *of)
{
    json_t *row = table_row(t);
    json_put_str(row, "figure", figure);
    json_put_str(row, "of", of);
    return row;
}

static void put_counts(struct table *t, const struct history_summary *s)
{
    for (int i = 0; i < s->counts; i++) {
        const struct summary_count *c = &s->count[i];
        json_t *row = row_begin(t, SUMMARY_SUBJECT_NAMES[c->of], c->outcome);
        if (*c->reason) json_put_str(row, "reason", c->reason);
        put_value(row, (double)c->n, UNIT_COUNT);
        json_put_int(row, "n", s->all[c->of]);
    }
    for (int of = 0; of < SUMMARY_SUBJECTS; of++) {
        json_t *row = row_begin(t, "error_rate", SUMMARY_SUBJECT_NAMES[of]);
        put_value(row, summary_error_ratio(s, of), UNIT_RATIO);
        json_put_int(row, "n", s->all[of]);
    }
}

static void put_latencies(struct table *t, const struct history_summary *s)
{
    for (int k = 0; k < SUMMARY_LATENCIES; k++) {
        const struct summary_quantiles *q = &s->latency[k];
        for (int i = 0; i < SUMMARY_STATS; i++) {
            json_t *row = row_begin(t, SUMMARY_LATENCY_ROWS[k].name, SUMMARY_STAT_NAMES[i]);
            put_value(row, summary_stat(q, i), UNIT_SECONDS);
            json_put_int(row, "n", q->n);
        }
    }
}

static void put_time(json_t *row, int64_t at_ms)
{
    char when[32];
    json_put_str(row, "at", clock_iso8601(at_ms, when, sizeof when));
}

static void put_peaks(struct table *t, const struct history_summary *s)
{
    for (int k = 0; k < SUMMARY_PEAKS; k++) {
        const struct summary_peak *p = &s->peak[k];
        json_t *row = row_begin(t, "most_at_once", SUMMARY_PEAK_NAMES[k]);
        put_value(row, p->n ? (double)p->n : (double)NAN, UNIT_COUNT);
        if (!p->n) continue;
        put_time(row, p->at_ms);
        json_put_int(row, "run", p->run_id);
    }
    json_t *row = row_begin(t, "busiest_hour", SUMMARY_SUBJECT_NAMES[SUMMARY_CELLS]);
    put_value(row, s->busiest_ms < 0 ? (double)NAN : s->busiest_s, UNIT_SECONDS);
    if (s->busiest_ms < 0) return;
    json_put_int(row, "n", s->busiest_cells);
    put_time(row, s->busiest_ms);
}

static void put_period(struct table *t, const struct history_summary *s)
{
    char from[32], to[32];
    clock_iso8601(s->from_ms, from, sizeof from);
    clock_iso8601(s->to_ms, to, sizeof to);
    json_put_str(t->extra, "from", from);
    json_put_str(t->extra, "to", to);
    json_put_num(t->extra, "seconds", (double)(s->to_ms - s->from_ms) * 1e-3);
    table_note(t, "from %s to %s (UTC)", from, to);
    for (int i = 0; i < s->counts; i++)
        if (s->count[i].of == SUMMARY_CELLS && !strcmp(s->count[i].outcome, "discarded")) {
            table_note(
                t, "discarded cells: an A/B marks disturbed blocks so while it runs, and counts them again "
                   "if at its end it reports the speed under that load");
            break;
        }
    if (!s->all[SUMMARY_RUNS] && !s->all[SUMMARY_CELLS]) table_note(t, "no run took place in this time");
}

/* For people: columns that few rows fill become part of another. Scripts get them apart. */
static void fold_columns(json_t *rows)
{
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        struct str text = { 0 };
        const char *reason = json_get_str(row, "reason", NULL);
        const int64_t run = json_get_int(row, "run", 0);
        if (reason) {
            str_printf(&text, "%s: %s", json_get_str(row, "of", ""), reason);
            json_put_str(row, "of", str_text(&text));
            json_object_del(row, "reason");
            str_clear(&text);
        }
        if (run) {
            str_printf(&text, "%s (run %lld)", json_get_str(row, "at", ""), (long long)run);
            json_put_str(row, "at", str_text(&text));
            json_object_del(row, "run");
        }
        str_free(&text);
    }
}

int history_summary_print(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct table t;
    struct run_labels labels;
    struct history_summary *s = calloc(1, sizeof *s);
    if (!s) return cli_fail_memory(a);
    const int64_t now = clock_unix_ms(), asked_ms = (int64_t)(1e3 * args_num(a, "--summary", 0));
    const struct summary_want want = { .from_ms = MAX(now - MAX(asked_ms, INT64_C(1)), INT64_C(0)),
                                       .to_ms = now,
                                       .filter = args_text(a, "--filter", NULL),
                                       .labels = &labels };
    table_init(&t, &DOCUMENT_HISTORY_SUMMARY);
    enum err_code rc = cli_labels_given(&labels, a, &why);
    if (!rc && args_has(a, "--limit"))
        rc = err_set(&why, ERR_USAGE, "--limit is not for --summary: it counts every run of its time");
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = history_summarize(s, d, &want, &why);
    if (!rc) {
        put_counts(&t, s);
        put_latencies(&t, s);
        put_peaks(&t, s);
        put_period(&t, s);
        if (g->output == OUTPUT_MD) fold_columns(t.rows);
    }
    const int status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, EXIT_DONE);
    table_done(&t);
    db_close(d);
    free(s);
    return status;
}
