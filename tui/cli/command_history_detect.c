/* qdyno history --detect: lists what was found in each series of runs: changes of level with date, size,
 * confidence, priority and what changed on the machine then; an alarm for a drift that may be starting;
 * outliers. The JSON document contains the whole series. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "tui/cli/command_show_causes.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/runs.h"

static const struct column COLUMNS[] = {
    COL("started", "when (UTC)"),
    COL("finding", "finding"),
    COL("model", "model"),
    COL("config", "config"),
    COL("workload", "workload"),
    KEY("machine"),
    COL("metric", "metric"),
    COL("run", "run", .kind = COLUMN_INT),
    COL("effect_ratio", "after/before", .kind = COLUMN_NUM, .digits = 4),
    KEY("p", .kind = COLUMN_NUM),
    COL("confidence", "confidence"),
    COL("priority", "priority"),
    COL("score", "score", .kind = COLUMN_NUM, .digits = 2),
    COL("what", "what changed"),
    KEY("changes"),
    COL("first", "moved first"),
    KEY("moved"),
};

DOCUMENT(HISTORY_DETECT, "qdyno.history_detect/1", COLUMNS,
         .members =
             "method parameters.* judged worse canary_worse margin enough_history longest_series needed_runs "
             "series[].machine series[].model series[].canary series[].model_sha256 "
             "series[].config series[].workload series[].metric series[].unit series[].judged "
             "series[].known series[].cusum_up series[].cusum_down series[].points[].*");

enum { MOVED_BEFORE = 5, MOVED_AFTER = 2 }; /* runs around a change in which other metrics are searched */

struct detector {
    struct table *t;
    enum history_method_id method;
    const struct method_findings *found; /* of a method other than the default */
    bool judged, worse;                  /* enough runs for the method; now at a worse level */
    struct metric_table *metrics;        /* of the series' runs, if it has a change */
    const struct history_series *s;
    const struct history_findings *f;
    int better;
    double canary; /* ln of the canary that gives normalized values their unit */
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
    if (*c->load) str_printf(&text, "%s%s", c->load, json_array_size(c->what) ? "; " : "");
    run_changes_text(&text, c->what, SHOWN);
    if (!text.len) str_append(&text, "nothing that was recorded: program, model, settings, load, clock");
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

/* A finding of a method other than the default, in words. */
static void finding_text(struct str *text, const struct detector *x, const struct method_finding *f)
{
    const char *unit = METRICS[x->s->metric].unit;
    if (x->method == HISTORY_METHOD_ISOLATION_FOREST)
        str_printf(text, "largest deviation: %s", METRICS[f->metric].name);
    else if (x->found->low)
        str_printf(text, "band %.4g to %.4g %s", exp(x->better * x->found->low[f->at] + x->canary),
                   exp(x->better * x->found->high[f->at] + x->canary), unit);
    else if (x->method == HISTORY_METHOD_BASELINE_TEST)
        str_printf(text, "the runs from here on against all runs before: t %+.1f", f->score);
    else
        str_printf(text, "robust z %+.1f", f->score);
}

static void put_finding(const struct detector *x, const struct method_finding *f)
{
    json_t *row = row_at(x, HISTORY_METHODS[x->method].finding, f->at);
    struct str text = { 0 };
    if (!isnan(f->effect)) {
        json_put_num(row, "effect_ratio", exp(x->better * f->effect));
        json_put_str(row, "priority", priority_name(repair_priority(f->effect, isnan(f->p) ? 1 : f->p)));
    }
    json_put_num(row, "p", f->p);
    json_put_num(row, "score", f->score);
    finding_text(&text, x, f);
    history_detect_put_text(row, "what", &text);
}

/* ---------------------------------------------------------------- JSON series */

static json_t *point_json(const struct detector *x, int i)
{
    const double canary = x->canary;
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
    if (x->found->low) {
        const double *one = x->better > 0 ? x->found->low : x->found->high,
                     *other = x->better > 0 ? x->found->high : x->found->low;
        json_put_num(o, "band_low", exp(x->better * one[i] + canary));
        json_put_num(o, "band_high", exp(x->better * other[i] + canary));
    }
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
    json_put_str(o, "machine", *x->s->machine ? x->s->machine : NULL);
    json_put_str(o, "model", *x->s->model_name ? x->s->model_name : NULL);
    json_put_bool(o, "canary", x->s->canary);
    json_put_str(o, "model_sha256", *x->s->model_sha256 ? x->s->model_sha256 : NULL);
    json_put_str(o, "config", x->s->config);
    json_put_str(o, "workload", x->s->workload);
    json_put_str(o, "metric", METRICS[x->s->metric].name);
    json_put_str(o, "unit", METRICS[x->s->metric].unit);
    json_put_bool(o, "judged", x->judged);
    json_put_int(o, "known", x->f->known);
    json_put_num(o, "cusum_up", x->f->judged ? x->f->cusum.up : NAN);
    json_put_num(o, "cusum_down", x->f->judged ? x->f->cusum.down : NAN);
    for (int i = 0; i < x->s->n; i++) json_array_append_new(points, point_json(x, i));
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
    const bool lost = x->worse;
    if (x->s->canary) { /* a series of the canary shows the machine, not a config */
        n->slower += lost;
        return;
    }
    n->judged += x->judged;
    n->short_series += !x->judged;
    n->no_canary += x->s->n - x->f->known;
    n->longest = MAX(n->longest, x->f->known);
    n->worse += lost;
}

struct detect_how {
    enum history_method_id method;
    double min_effect;
};

/* Rows of the default method, which looks for changes, drifts and outliers. */
static enum err_code put_changes(struct detector *x, struct db *d, struct err *why)
{
    const struct history_findings *f = x->f;
    enum err_code rc = f->changes ? series_metrics(x->metrics, d, x->s, why) : ERR_OK;
    if (rc) return rc;
    x->worse = f->changes && f->change[f->changes - 1].priority != PRIORITY_NONE;
    for (int i = 0; i < f->changes; i++) put_change(x, &f->change[i]);
    if (f->cusum.alarm >= 0) put_alarm(x);
    for (int i = 0; i < f->outliers; i++) put_outlier(x, &f->outlier[i]);
    return ERR_OK;
}

static enum err_code detect_series(struct table *t, struct db *d, json_t *all, struct series_counts *n,
                                   const struct history_series *s, const struct detect_how *how,
                                   struct err *why)
{
    struct history_findings f;
    struct method_findings found = { 0 };
    struct metric_table metrics = { 0 };
    const bool usual = how->method == HISTORY_METHOD_CHANGES;
    enum err_code rc = history_detect(&f, s, how->min_effect, why);
    if (rc) return rc;
    if (!usual) rc = history_method_find(&found, how->method, s, how->min_effect, why);
    struct detector x = { .t = t,
                          .method = how->method,
                          .found = &found,
                          .metrics = &metrics,
                          .judged = f.known >= HISTORY_METHODS[how->method].least,
                          .s = s,
                          .f = &f,
                          .better = metric_sign(&METRICS[s->metric]),
                          .canary = unit_canary(s) };
    if (!rc && usual) rc = put_changes(&x, d, why);
    for (int i = 0; i < found.n && !rc; i++) {
        put_finding(&x, &found.finding[i]);
        x.worse |= found.finding[i].now && found.finding[i].effect < 0;
    }
    if (!rc) {
        json_array_append_new(all, series_json(&x));
        series_count(n, &x);
    }
    metric_table_close(&metrics);
    method_findings_free(&found);
    history_findings_free(&f);
    return rc;
}

/* The method and its parameters, for scripts and below the table. */
static void table_add_method(struct table *t, const struct detect_how *how)
{
    const struct history_method *m = &HISTORY_METHODS[how->method];
    struct str text = { 0 };
    json_t *parameters = json_object();
    for (int i = 0; i < METHOD_PARAMS && m->param[i].name; i++) {
        json_put_num(parameters, m->param[i].name, m->param[i].value);
        str_printf(&text, "%s%s %g", i ? ", " : "", m->param[i].name, m->param[i].value);
    }
    table_note(t, "method %s: %s (%s; smallest change %.2f %%)", HISTORY_METHOD_NAMES[how->method], m->what,
               str_text(&text), 100 * how->min_effect);
    json_put_str(t->extra, "method", HISTORY_METHOD_NAMES[how->method]);
    json_put(t->extra, "parameters", parameters);
    json_put_num(t->extra, "margin", how->min_effect);
    str_free(&text);
}

static void table_add_counts(struct table *t, const struct series_counts *n, const struct detect_how *how)
{
    const int needed = HISTORY_METHODS[how->method].least;
    if (!n->judged)
        table_note(t, "not enough history yet (%d of %d): a series needs %d comparable runs", n->longest,
                   needed, needed);
    table_note(t, "%d series examined; %d of them %s now %s", n->judged, n->worse,
               n->worse == 1 ? "is" : "are",
               how->method == HISTORY_METHOD_CHANGES ? "at a worse level than before their last change"
                                                     : "worse than expected");
    if (n->slower)
        table_note(
            t,
            "the machine itself became slower (series of the canary): results divided by the canary hide that, "
            "--raw shows it");
    if (n->short_series)
        table_note(t, "%d series with fewer than %d comparable runs %s not examined", n->short_series, needed,
                   n->short_series == 1 ? "was" : "were");
    if (n->no_canary)
        table_note(
            t,
            "%d result%s left out, because the canary of their run (the fixed reference workload "
            "that results are divided by) is missing or did other work; --raw includes them as measured",
            n->no_canary, n->no_canary == 1 ? " was" : "s were");
    json_put_int(t->extra, "judged", n->judged);
    json_put_int(t->extra, "worse", n->worse);
    json_put_int(t->extra, "canary_worse", n->slower);
    json_put_bool(t->extra, "enough_history", n->judged > 0);
    json_put_int(t->extra, "longest_series", n->longest);
    json_put_int(t->extra, "needed_runs", needed);
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
    const char *name = args_text(a, "--method", HISTORY_METHOD_NAMES[HISTORY_METHOD_CHANGES]);
    struct detect_how how = { .min_effect = args_num(a, "--margin", 0.01) };
    while (strcmp(HISTORY_METHOD_NAMES[how.method], name)) how.method++; /* the parser allows only these */
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
        if (h.series[i].n) rc = detect_series(&t, d, all, &n, &h.series[i], &how, &why);
    table_add_counts(&t, &n, &how);
    table_add_method(&t, &how);
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
