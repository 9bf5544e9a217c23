/* qdyno compare: two finished runs side by side: what changed between them, and whether their results
 * differ. Weaker than an A/B, as the output states: the runs took place at two times. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/history/history.h"
#include "tui/cli/command_compare_configs.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/runs.h"

/* clang-format off */
const struct cli_flag FLAGS_COMPARE[] = {
    { .name = "--metric", .value = "METRIC",
      .help = "metric to compare; default: the decode rate, else the prefill rate, else perplexity" },
    { .name = "--margin", .value = "SHARE", .kind = FLAG_RATIO,
      .help = "smallest difference that matters; default: that of the first run, else 1%" },
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    { .name = "config", .title = "config" },
    { .name = "config_after" },
    { .name = "workload", .title = "workload" },
    { .name = "metric", .title = "metric" },
    { .name = "unit" },
    { .name = "n_before", .kind = COLUMN_INT },
    { .name = "n_after", .kind = COLUMN_INT },
    { .name = "before", .title = "first", .kind = COLUMN_NUM, .digits = 2 },
    { .name = "before_lower", .kind = COLUMN_NUM },
    { .name = "before_upper", .kind = COLUMN_NUM },
    { .name = "before_half_ratio", .title = "+- %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },
    { .name = "after", .title = "second", .kind = COLUMN_NUM, .digits = 2 },
    { .name = "after_lower", .kind = COLUMN_NUM },
    { .name = "after_upper", .kind = COLUMN_NUM },
    { .name = "after_half_ratio", .title = "+- %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },
    { .name = "effect_ratio", .title = "second/first", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "effect_lower_ratio", .title = "from", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "effect_upper_ratio", .title = "to", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "p", .kind = COLUMN_NUM },
    { .name = "p_family", .kind = COLUMN_NUM },
    { .name = "canary_ratio", .title = "canary", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "normalized_ratio", .title = "normalized", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "normalized_lower_ratio", .kind = COLUMN_NUM },
    { .name = "normalized_upper_ratio", .kind = COLUMN_NUM },
    { .name = "verdict", .title = "verdict" },
    { .name = "reason", .title = "reason" },
};

DOCUMENT(COMPARE, "qdyno.compare/1", COLUMNS,
         .members = "run_before run_after margin verdict load changes[].*");

static void put_interval(json_t *row, const char *const names[3], struct interval i)
{
    json_put_num(row, names[0], i.estimate);
    json_put_num(row, names[1], i.lower);
    json_put_num(row, names[2], i.upper);
}

/* Half the width of the interval in logs, as a share. The interval is symmetric in logs. */
static double half_ratio(struct interval rate)
{
    return expm1(0.5 * log(rate.upper / rate.lower));
}

static void put_pair(json_t *row, const struct compared *c)
{
    static const char *const BEFORE[] = { "before", "before_lower", "before_upper" },
                             *const AFTER[] = { "after", "after_lower", "after_upper" },
                             *const EFFECT[] = { "effect_ratio", "effect_lower_ratio", "effect_upper_ratio" },
                             *const NORMALIZED[] = { "normalized_ratio", "normalized_lower_ratio",
                                                     "normalized_upper_ratio" };
    const struct result *present = c->before ? c->before : c->after;
    json_put_str(row, "config", present->config);
    json_put_str(row, "config_after", c->after ? c->after->config : NULL);
    json_put_str(row, "workload", present->workload);
    json_put_str(row, "reason", *c->reason ? c->reason : NULL);
    if (c->metric == METRIC_COUNT) return;
    const int better = metric_sign(&METRICS[c->metric]);
    json_put_str(row, "metric", METRICS[c->metric].name);
    json_put_str(row, "unit", METRICS[c->metric].unit);
    json_put_int(row, "n_before", c->n_before);
    json_put_int(row, "n_after", c->n_after);
    put_interval(row, BEFORE, c->rate_before);
    put_interval(row, AFTER, c->rate_after);
    json_put_num(row, "before_half_ratio", half_ratio(c->rate_before));
    json_put_num(row, "after_half_ratio", half_ratio(c->rate_after));
    put_interval(row, EFFECT, stats_exp(stats_turned(c->effect, better)));
    json_put_num(row, "p", c->p);
    json_put_num(row, "p_family", c->p_family);
    json_put_num(row, "canary_ratio", exp(better * c->canary));
    put_interval(row, NORMALIZED, stats_exp(stats_turned(c->normalized, better)));
    json_put_str(row, "verdict", *verdict_name(c->verdict) ? verdict_name(c->verdict) : NULL);
}

static double compare_margin(const struct cli_args *a, const struct run_row *first)
{
    const double margin = cli_run_margin(first);
    return args_num(a, "--margin", isnan(margin) ? EXPERIMENT_MARGIN : margin);
}

static void note_run(struct table *t, const char *which, const struct results *r)
{
    char when[32];
    table_note(t, "%s: run %lld (%s, %s) of %s, machine %s", which, (long long)r->run.id, r->run.kind,
               r->run.state, clock_iso8601(r->run.started_ms, when, sizeof when),
               *r->run.machine ? r->run.machine : "n/a");
}

/* Notes a canary (fixed reference workload) whose speed changed by more than 10 % during the run. */
static void note_drift(struct table *t, const struct results *r)
{
    static const double MUCH = 0.1;
    static const enum metric_id CANARIES[] = { METRIC_CANARY_READ, METRIC_CANARY_OPS };
    for (size_t i = 0; i < COUNT_OF(CANARIES); i++) {
        const double drift = r->canary_drift[CANARIES[i] - METRIC_SENSOR_COUNT];
        if (fabs(drift) > MUCH)
            table_note(t,
                       "the machine was not steady during run %lld: %s changed by %+.0f %% from start to end",
                       (long long)r->run.id, METRICS[CANARIES[i]].name, stats_percent(drift));
    }
}

/* Notes which of the two ratios in the table to use: `second/first` as measured, or `normalized`, which is
 * divided by the change of the canary. The pair of results whose canary changed most decides. */
static void note_which_ratio(struct table *t, const struct compared *rows, int n, bool loaded)
{
    char reason[160] = "";
    const struct compared *most = NULL;
    for (int i = 0; i < n; i++)
        if (isfinite(rows[i].canary) && (!most || fabs(rows[i].canary) > fabs(most->canary))) most = &rows[i];
    bool paired = false;
    for (int i = 0; i < n; i++) paired |= rows[i].before && rows[i].after;
    if (!paired) return;
    if (loaded) {
        if (most && most->canary != 0)
            snprintf(reason, sizeof reason, ", and gave %.2f times its first figure in the second run",
                     exp(metric_sign(&METRICS[most->metric]) * most->canary));
        table_note(
            t,
            "neither `second/first` nor `normalized` tells the configs apart here: the canary (a fixed "
            "reference workload timed with each run) ran on the loaded machine as well%s",
            reason);
        return;
    }
    if (!most) return;
    const bool changed = compared_machine_changed(most, reason, sizeof reason);
    if (*reason)
        table_note(t, "use `%s`: %s (canary: a fixed reference workload timed with each run)",
                   changed ? "normalized" : "second/first", reason);
}

/* Other metrics of a pair, which --metric compares. */
static void note_other_metrics(struct table *t, const struct compared *rows, int n,
                               const struct results *before, const struct results *after)
{
    static const enum metric_id RATES[] = { METRIC_DECODE_RATE, METRIC_PREFILL_RATE };
    for (size_t k = 0; k < COUNT_OF(RATES); k++)
        for (int i = 0; i < n; i++) {
            const struct compared *c = &rows[i];
            if (!c->before || !c->after || c->metric == RATES[k] || c->metric == METRIC_COUNT) continue;
            if (isnan(result_mean(c->before, RATES[k]) + result_mean(c->after, RATES[k]))) continue;
            table_note(t, "both measured %s, too: qdyno compare %lld %lld --metric %s",
                       METRICS[RATES[k]].name, (long long)before->run.id, (long long)after->run.id,
                       METRICS[RATES[k]].name);
            break;
        }
}

static void table_add_runs(struct table *t, const struct results *before, const struct results *after,
                           double margin, enum verdict verdict)
{
    note_run(t, "first", before);
    note_run(t, "second", after);
    table_note(
        t, "the runs were made at two times, so the difference contains everything that changed in between; "
           "`normalized` removes only what changed the canary, too (intervals: Welch, 95 %%)");
    table_note(
        t,
        "first and second: geometric means over blocks or repetitions, whose ratio the interval belongs "
        "to; `bench` shows all tokens divided by the total time, which is slightly less. +- %% is half of the 95 %% "
        "interval of that mean; +- of `bench` is the standard deviation of its repetitions");
    table_note(t, "margin %.2f %%; verdict for the second run against the first: %s", 100 * margin,
               verdict_name(verdict));
    json_put_int(t->extra, "run_before", before->run.id);
    json_put_int(t->extra, "run_after", after->run.id);
    json_put_num(t->extra, "margin", margin);
    json_put_str(t->extra, "verdict", verdict_name(verdict));
    note_drift(t, before);
    note_drift(t, after);
    cli_run_changes(t, before, after);
}

static enum err_code compare_fill(struct table *t, struct db *d, const struct cli_args *a,
                                  const struct results *before, const struct results *after,
                                  enum verdict *verdict, struct err *why)
{
    const struct metric *metric;
    struct compared *rows = NULL;
    int n;
    const double margin = compare_margin(a, &before->run);
    enum err_code rc = cli_metric(&metric, a, why);
    if (!rc) rc = compare_runs(&rows, &n, before, after, metric, margin, why);
    if (rc) return rc;
    *verdict = compare_worst(rows, n);
    table_init(t, &DOCUMENT_COMPARE);
    for (int i = 0; i < n; i++) put_pair(table_row(t), &rows[i]);
    if (*verdict == VERDICT_INVALID) compare_note_nothing(t, before, after, rows, n);
    char load[192];
    compare_put_configs(t, before, after, rows, n);
    note_which_ratio(t, rows, n, conditions_load(load, sizeof load, &before->conditions, &after->conditions));
    table_add_runs(t, before, after, margin, *verdict);
    note_other_metrics(t, rows, n, before, after);
    compare_put_next(t, d, before, after, rows, n);
    free(rows);
    return ERR_OK;
}

/* Two configs in the place of two runs are the arguments of another command. */
static enum err_code two_configs(const struct cli_args *a, struct err *why)
{
    struct config c;
    if (config_parse(&c, a->arg[0], NULL) || config_parse(&c, a->arg[1], NULL)) return ERR_USAGE;
    return err_set(
        why, ERR_USAGE,
        "'%.100s' is not a run number: expected two numbers that `qdyno history` lists; to compare these "
        "two configs, measure them: qdyno ab %.100s %.100s",
        a->arg[0], a->arg[0], a->arg[1]);
}

int command_compare(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct results run[2] = { { .n = 0 }, { .n = 0 } };
    struct table t = { 0 };
    enum verdict verdict = VERDICT_NONE;
    enum err_code rc = db_open(&d, g->db_path, &why);
    for (int i = 0; i < 2 && !rc; i++) {
        int64_t id;
        rc = cli_run_id(&id, a->arg[i], &why);
        if (rc) rc = two_configs(a, &why);
        if (!rc) rc = results_read(&run[i], d, id, &why);
    }
    if (!rc && run[0].run.id == run[1].run.id)
        rc = err_set(&why, ERR_USAGE,
                     "both numbers name run %lld, and a run does not differ from itself: expected two runs "
                     "that `qdyno history` lists; to print this one: qdyno show %lld",
                     (long long)run[0].run.id, (long long)run[0].run.id);
    if (!rc) rc = compare_fill(&t, d, a, &run[0], &run[1], &verdict, &why);
    const int status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, exit_status_of_verdict(verdict));
    if (t.rows) table_done(&t);
    for (int i = 0; i < 2; i++) results_free(&run[i]);
    db_close(d);
    return status;
}
