/* qdyno history --detect: lists what was found in each series of runs: changes of level with date, size,
 * confidence, priority and what changed on the machine then; an alarm for a drift that may be starting;
 * outliers. The JSON document contains the whole series. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "db/db.h"
#include "telemetry/metrics/metrics.h"
#include "tui/cli/command_show_causes.h"
#include "tui/cli/commands.h"
#include "tui/cli/documents.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/runs.h"

static const struct column COLUMNS[] = {
    { .name = "started", .title = "when (UTC)" },
    { .name = "finding", .title = "finding" },
    { .name = "model", .title = "model" },
    { .name = "config", .title = "config" },
    { .name = "workload", .title = "workload" },
    { .name = "machine" },
    { .name = "metric", .title = "metric" },
    { .name = "run", .title = "run", .kind = COLUMN_INT },
    { .name = "effect_ratio", .title = "after/before", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "p", .kind = COLUMN_NUM },
    { .name = "confidence", .title = "confidence" },
    { .name = "priority", .title = "priority" },
    { .name = "score", .title = "score", .kind = COLUMN_NUM, .digits = 2 },
    { .name = "what", .title = "what changed" },
    { .name = "changes" },
    { .name = "first", .title = "moved first" },
    { .name = "moved" },
};

const struct document DOCUMENT_HISTORY_DETECT = {
    .schema = "qdyno.history_detect/1",
    .columns = COLUMNS,
    .n_columns = COUNT_OF(COLUMNS),
    .members = "judged worse canary_worse margin enough_history longest_series needed_runs "
               "series[].machine series[].model series[].canary series[].model_sha256 "
               "series[].config series[].workload series[].metric series[].unit series[].judged "
               "series[].known series[].cusum_up series[].cusum_down series[].points[].*",
};

enum { MOVED_BEFORE = 5, MOVED_AFTER = 2 }; /* runs around a change in which other metrics are searched */

struct detector {
    struct table *t;
    const struct metric_table *metrics; /* of the series' runs, if it has a change */
    const struct history_series *s;
    const struct history_findings *f;
    int better;
};

static json_t *row_at(const struct detector *x, const char *finding, int point)
{
    char when[32];
    json_t *row = table_row(x->t);
    json_put_str(row, "started", clock_iso8601(x->s->point[point].started_ms, when, sizeof when));
    json_put_str(row, "finding", finding);
    json_put_str(row, "model", *x->s->model_name ? x->s->model_name : NULL);
    json_put_str(row, "config", x->s->config);
    json_put_str(row, "workload", x->s->workload);
    json_put_str(row, "machine", *x->s->machine ? x->s->machine : NULL);
    json_put_str(row, "metric", METRICS[x->s->metric].name);
    json_put_int(row, "run", x->s->point[point].run_id);
    return row;
}

static void history_detect_put_text(json_t *row, const char *key, struct str *text)
{
    json_put_str(row, key, text->len ? str_text(text) : NULL);
    str_free(text);
}

/* Without the memory to search them the change itself is still known. */
static void put_moved(const struct detector *x, json_t *row, const struct history_change *c)
{
    struct moved moved[MOVED_MAX];
    struct str text = { 0 };
    struct err why = { 0 };
    int n = 0;
    if (moved_find(moved, &n, x->metrics, c->change.at, MOVED_BEFORE, MOVED_AFTER, &why))
        str_printf(&text, "unknown: %s", why.message);
    else
        moved_sentence(&text, moved, n, c->change.at, METRICS[x->s->metric].name,
                       x->better * c->change.effect < 0, "run");
    json_put_str(row, "first", str_text(&text));
    json_put(row, "moved", moved_to_json(moved, n, c->change.at));
    str_free(&text);
}

static void put_change(const struct detector *x, const struct history_change *c)
{
    enum { SHOWN = 3 };
    json_t *row = row_at(x, "change", c->change.at);
    struct str text = { 0 };
    json_put_num(row, "effect_ratio", exp(x->better * c->change.effect));
    json_put_num(row, "p", c->change.p);
    if (c->change.p < 1e-6) /* would print as 100 %, which is never true */
        str_append(&text, "> 99.9999 %");
    else
        str_printf(&text, "%.4f %%", 100 * (1 - c->change.p));
    history_detect_put_text(row, "confidence", &text);
    json_put_str(row, "priority", priority_name(c->priority));
    capsule_diff_text(&text, c->what, SHOWN);
    if (!text.len) str_append(&text, "no recorded change");
    history_detect_put_text(row, "what", &text);
    json_put(row, "changes", json_incref(c->what));
    put_moved(x, row, c);
}

/* Mean of the known levels of points [from, to); NAN: none. */
static double mean_level(const struct history_series *s, int from, int to)
{
    double sum = 0;
    int n = 0;
    for (int i = from; i < to; i++) {
        if (isnan(s->point[i].level)) continue;
        sum += s->point[i].level;
        n++;
    }
    return n ? sum / n : NAN;
}

static void put_alarm(const struct detector *x)
{
    const struct cusum *c = &x->f->cusum;
    const int from = x->f->changes ? x->f->change[x->f->changes - 1].change.at : 0;
    json_t *row = row_at(x, "alarm", c->alarm);
    struct str text = { 0 };
    json_put_num(row, "effect_ratio",
                 exp(x->better * (mean_level(x->s, c->since, x->s->n) - mean_level(x->s, from, c->since))));
    str_printf(&text, "drifting %s since run %lld", c->direction > 0 ? "better" : "worse",
               (long long)x->s->point[c->since].run_id);
    history_detect_put_text(row, "what", &text);
}

static void put_outlier(const struct detector *x, const struct history_outlier *o)
{
    json_t *row = row_at(x, "outlier", o->at);
    struct str text = { 0 };
    json_put_num(row, "score", x->f->isolation[o->at]);
    str_printf(&text, "largest deviation: %s, z %+.1f", METRICS[o->metric].name, o->z);
    history_detect_put_text(row, "what", &text);
}

/* ---------------------------------------------------------------- JSON series */

static json_t *point_json(const struct detector *x, int i, double canary)
{
    const struct history_point *p = &x->s->point[i];
    char when[32];
    json_t *o = json_object();
    json_put_int(o, "run", p->run_id);
    json_put_str(o, "started", clock_iso8601(p->started_ms, when, sizeof when));
    json_put_int(o, "units", p->units);
    json_put_num(o, "value", exp(p->y));
    json_put_num(o, "se_log", p->se);
    json_put_num(o, "normalized", exp(x->better * p->level + canary));
    json_put_num(o, "moving_average", exp(x->better * x->f->average[i] + canary));
    json_put_num(o, "robust_z", x->f->z[i]);
    json_put_num(o, "isolation", x->f->isolation[i]);
    return o;
}

/* The canary of the first known point. Values are divided by their own canary and multiplied by this one, so
 * that they keep their unit. */
static double unit_canary(const struct history_series *s)
{
    for (int i = 0; i < s->n; i++)
        if (!isnan(s->point[i].level)) return s->point[i].canary;
    return NAN;
}

static json_t *series_json(const struct detector *x)
{
    json_t *o = json_object(), *points = json_array();
    const double canary = unit_canary(x->s);
    json_put_str(o, "machine", *x->s->machine ? x->s->machine : NULL);
    json_put_str(o, "model", *x->s->model_name ? x->s->model_name : NULL);
    json_put_bool(o, "canary", x->s->canary);
    json_put_str(o, "model_sha256", *x->s->model_sha256 ? x->s->model_sha256 : NULL);
    json_put_str(o, "config", x->s->config);
    json_put_str(o, "workload", x->s->workload);
    json_put_str(o, "metric", METRICS[x->s->metric].name);
    json_put_str(o, "unit", METRICS[x->s->metric].unit);
    json_put_bool(o, "judged", x->f->judged);
    json_put_int(o, "known", x->f->known);
    json_put_num(o, "cusum_up", x->f->judged ? x->f->cusum.up : NAN);
    json_put_num(o, "cusum_down", x->f->judged ? x->f->cusum.down : NAN);
    for (int i = 0; i < x->s->n; i++) json_array_append_new(points, point_json(x, i, canary));
    json_put(o, "points", points);
    return o;
}

/* ---------------------------------------------------------------- summary */

struct series_counts {
    int judged, worse, no_canary, short_series, slower;
    int longest; /* comparable runs of the longest series */
};

static void series_count(struct series_counts *n, const struct detector *x)
{
    const bool lost = x->f->changes && x->f->change[x->f->changes - 1].priority != PRIORITY_NONE;
    if (x->s->canary) { /* a series of the canary shows the machine, not a config */
        n->slower += lost;
        return;
    }
    n->judged += x->f->judged;
    n->short_series += !x->f->judged;
    n->no_canary += x->s->n - x->f->known;
    n->longest = MAX(n->longest, x->f->known);
    n->worse += lost;
}

static enum err_code detect_series(struct table *t, struct db *d, json_t *all, struct series_counts *n,
                                   const struct history_series *s, double min_effect, struct err *why)
{
    struct history_findings f;
    struct metric_table metrics = { 0 };
    enum err_code rc = history_detect(&f, s, min_effect, why);
    if (rc) return rc;
    if (f.changes && (rc = series_metrics(&metrics, d, s, why))) {
        history_findings_free(&f);
        return rc;
    }
    const struct detector x = { t, &metrics, s, &f, METRICS[s->metric].better < 0 ? -1 : 1 };
    for (int i = 0; i < f.changes; i++) put_change(&x, &f.change[i]);
    if (f.cusum.alarm >= 0) put_alarm(&x);
    for (int i = 0; i < f.outliers; i++) put_outlier(&x, &f.outlier[i]);
    json_array_append_new(all, series_json(&x));
    series_count(n, &x);
    metric_table_close(&metrics);
    history_findings_free(&f);
    return ERR_OK;
}

static void table_add_counts(struct table *t, const struct series_counts *n, double min_effect)
{
    if (!n->judged)
        table_note(t, "not enough history yet (%d of %d): a series needs %d comparable runs", n->longest,
                   HISTORY_LEAST, HISTORY_LEAST);
    table_note(t, "%d series examined; %d of them are now at a worse level than before their last change",
               n->judged, n->worse);
    if (n->slower)
        table_note(
            t,
            "the machine itself became slower (series of the canary): results divided by the canary hide that, "
            "--raw shows it");
    if (n->short_series)
        table_note(t, "%d series with fewer than %d comparable runs were not examined", n->short_series,
                   HISTORY_LEAST);
    if (n->no_canary)
        table_note(
            t,
            "%d results were left out, because the canary of their run (the fixed reference workload "
            "that results are divided by) is missing or did other work; --raw includes them as measured",
            n->no_canary);
    table_note(
        t,
        "methods: changes by E-divisive (3 or more runs on each side, p < 0.001, %.2f %% or more); alarms by CUSUM; "
        "outliers by isolation forest (score above %.2f and robust z above %.1f)",
        100 * min_effect, HISTORY_OUTLIER, HISTORY_UNUSUAL);
    json_put_int(t->extra, "judged", n->judged);
    json_put_int(t->extra, "worse", n->worse);
    json_put_int(t->extra, "canary_worse", n->slower);
    json_put_num(t->extra, "margin", min_effect);
    json_put_bool(t->extra, "enough_history", n->judged > 0);
    json_put_int(t->extra, "longest_series", n->longest);
    json_put_int(t->extra, "needed_runs", HISTORY_LEAST);
}

int history_detect_print(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct history h = { 0 };
    struct series_counts n = { 0 };
    struct table t;
    struct run_labels labels;
    json_t *all = json_array();
    const double min_effect = args_num(a, "--margin", 0.01);
    struct history_want want = { .filter = args_text(a, "--filter", NULL),
                                 .labels = &labels,
                                 .limit = (int)args_int(a, "--limit", 1000),
                                 .raw = args_has(a, "--raw") };
    table_init(&t, &DOCUMENT_HISTORY_DETECT);
    enum err_code rc = cli_metric(&want.metric, a, &why);
    if (!rc) rc = cli_labels_given(&labels, a, &why);
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = history_read(&h, d, &want, &why);
    for (int i = 0; i < h.n && !rc; i++)
        if (h.series[i].n) rc = detect_series(&t, d, all, &n, &h.series[i], min_effect, &why);
    table_add_counts(&t, &n, min_effect);
    json_put(t.extra, "series", all);
    const int verdict = n.worse ? EXIT_WORSE : EXIT_DONE;
    struct summary summary = { .effect = { NAN, NAN, NAN }, .exit_status = verdict };
    snprintf(summary.text, sizeof summary.text, "%d series examined; %d of them %s now at a worse level",
             n.judged, n.worse, n.worse == 1 ? "is" : "are");
    table_summarize(&t, &summary);
    const int status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, verdict);
    table_done(&t);
    history_free(&h);
    db_close(d);
    return status;
}
