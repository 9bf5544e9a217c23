/* tui/dashboard/jobs_compare.c - compares two runs and writes the comparison as a text page. */
#include "tui/dashboard/background.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/history/history.h"
#include "advisor/run/run.h"

static const char *compared_unit(const struct compared *c)
{
    return METRICS[c->metric].unit;
}

static const char *units_word(const struct result *r, int n)
{
    const bool blocks = r->units && r->unit[0].block >= 0;
    return n == 1 ? (blocks ? "block" : "repetition") : blocks ? "blocks" : "repetitions";
}

static void page_put_rates(struct text_page *p, const struct compared *c)
{
    text_page_put(p, PAGE_PLAIN, "   first   %s %s  [%s, %s]   %d %s",
                  figure_number(c->rate_before.estimate).text, compared_unit(c),
                  figure_number(c->rate_before.lower).text, figure_number(c->rate_before.upper).text,
                  c->n_before, units_word(c->before, c->n_before));
    text_page_put(p, PAGE_PLAIN, "   second  %s %s  [%s, %s]   %d %s",
                  figure_number(c->rate_after.estimate).text, compared_unit(c),
                  figure_number(c->rate_after.lower).text, figure_number(c->rate_after.upper).text,
                  c->n_after, units_word(c->after, c->n_after));
}

static enum page_tone verdict_tone(enum verdict v)
{
    return v == VERDICT_BETTER                                                      ? PAGE_GOOD
           : v == VERDICT_WORSE                                                     ? PAGE_BAD
           : v == VERDICT_NONE || v == VERDICT_INCONCLUSIVE || v == VERDICT_INVALID ? PAGE_UNSURE
                                                                                    : PAGE_PLAIN;
}

static void page_put_pair(struct text_page *p, const struct compared *c, bool loaded)
{
    const struct result *one = c->before ? c->before : c->after;
    const char *other = c->before && c->after && strcmp(c->before->config, c->after->config)
                            ? c->after->config
                            : NULL;
    enum { EACH = 120 }; /* columns */
    const char *first = one->config[0] ? one->config : "default";
    char line[CONFIG_LINE], line_of_other[CONFIG_LINE], workload[CONFIG_LINE];
    text_page_put(p, PAGE_HEAD, "%s%s%s   %s%s%s",
                  text_shorten(first, &other, other ? 1 : 0, EACH, line, sizeof line), other ? " → " : "",
                  other ? text_shorten(other, &first, 1, EACH, line_of_other, sizeof line_of_other) : "",
                  text_shorten(one->workload, NULL, 0, EACH, workload, sizeof workload),
                  c->metric < METRIC_COUNT ? "   " : "",
                  c->metric < METRIC_COUNT ? METRICS[c->metric].name : "");
    if (!c->before || !c->after || c->metric == METRIC_COUNT) {
        text_page_put(p, PAGE_DIM, "   not compared: %s",
                      c->reason[0] ? c->reason : "only one of the runs measured it");
        return;
    }
    const struct mark m = verdict_mark(c->verdict);
    const int better = METRICS[c->metric].better;
    const struct interval effect = stats_turned(c->effect, better),
                          normalized = stats_turned(c->normalized, better);
    page_put_rates(p, c);
    char reason[160];
    const bool changed = compared_machine_changed(c, reason, sizeof reason);
    text_page_put(p, verdict_tone(c->verdict), "   %s%s [%s, %s]   %s %s%s%s", *reason ? "measured   " : "",
                  figure_change(effect.estimate).text, figure_change(effect.lower).text,
                  figure_change(effect.upper).text, m.glyph, m.word, c->reason[0] ? ": " : "", c->reason);
    if (!*reason || loaded) return; /* the canary ran on the loaded machine, too: it corrects nothing */
    text_page_put(p, PAGE_PLAIN,
                  "   corrected  %s [%s, %s]   by the canary, a fixed workload timed with each run",
                  figure_change(normalized.estimate).text, figure_change(normalized.lower).text,
                  figure_change(normalized.upper).text);
    text_page_put(p, changed ? PAGE_UNSURE : PAGE_PLAIN, "   Use the %s figure: %s.",
                  changed ? "corrected" : "measured", reason);
}

/* What has to be read before any conclusion: the load of the machine, and everything recorded that differs.
 */
static void page_put_changes(struct text_page *p, const struct results *before, const struct results *after)
{
    const struct run_recorded a = results_recorded(before), b = results_recorded(after);
    json_t *diff = run_changes(&a, &b, NULL), *c;
    struct str lead = { 0 };
    char load[192], *save = NULL;
    size_t i;
    const bool loaded = conditions_load(load, sizeof load, &before->conditions, &after->conditions);
    run_changes_lead(&lead, &a, &b, diff);
    for (char *line = lead.len ? strtok_r(lead.data, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        text_page_put(p, loaded && line == lead.data ? PAGE_UNSURE : PAGE_HEAD, "%s", line);
    json_array_foreach(diff, i, c)
    {
        struct str text = { 0 };
        run_change_text(&text, c);
        text_page_put(p, PAGE_PLAIN, "   %s", str_text(&text));
        str_free(&text);
    }
    json_decref(diff);
    str_free(&lead);
}

static double run_margin(const struct run_row *run)
{
    json_t *spec = NULL;
    double margin = NAN;
    if (run->spec_json && !json_parse(&spec, run->spec_json, strlen(run->spec_json), NULL))
        margin = json_get_num(spec, "margin", NAN);
    json_decref(spec);
    return margin > 0 ? margin : EXPERIMENT_MARGIN; /* the default of `qdyno compare` */
}

static void page_put_run(struct text_page *p, const char *which, const struct results *r)
{
    text_page_put(p, PAGE_PLAIN, "%s: run %lld   %s   %s   %s   %s", which, (long long)r->run.id,
                  figure_date(r->run.started_ms).text, r->run.kind, r->run.label, r->run.model_name);
}

static enum err_code page_put_comparison(struct text_page *p, const struct results run[2], struct err *why)
{
    struct compared *rows = NULL;
    int n = 0;
    const double margin = run_margin(&run[0].run);
    enum err_code rc = compare_runs(&rows, &n, &run[0], &run[1], NULL, margin, why);
    if (rc) return rc;
    char load[192];
    const bool loaded = conditions_load(load, sizeof load, &run[0].conditions, &run[1].conditions);
    page_put_run(p, "first ", &run[0]);
    page_put_run(p, "second", &run[1]);
    text_page_put(p, PAGE_PLAIN, "%s", "");
    page_put_changes(p, &run[0], &run[1]);
    text_page_put(p, PAGE_PLAIN, "%s", "");
    for (int i = 0; i < n; i++) page_put_pair(p, &rows[i], loaded);
    if (!n) text_page_put(p, PAGE_UNSURE, "The runs have no measurement in common.");
    text_page_put(p, PAGE_PLAIN, "%s", "");
    text_page_put(
        p, PAGE_DIM,
        "Margin %.3g %%. The runs were made at different times, so the difference includes everything",
        margin * 100);
    text_page_put(p, PAGE_DIM,
                  "else that changed in between. For a decision measure both now: b starts an A/B.");
    free(rows);
    return ERR_OK;
}

void job_compare_runs(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct results run[2] = { { .n = 0 }, { .n = 0 } };
    const int64_t id[2] = { j->id, j->other_id };
    struct text_page *p = calloc(1, sizeof *p);
    enum err_code rc = p ? db_open(&d, b->db_path, &why)
                         : err_set(&why, ERR_NOMEM, "not enough memory for the comparison");
    for (int i = 0; i < 2 && !rc; i++) rc = results_read(&run[i], d, id[i], &why);
    if (!rc) rc = page_put_comparison(p, run, &why);
    for (int i = 0; i < 2; i++) results_free(&run[i]);
    db_close(d);
    if (rc) {
        background_announce(b, true, "compare: %s", why.message);
    } else {
        p->opens = true;
        snprintf(p->title, sizeof p->title, "Run %lld compared with run %lld", (long long)j->other_id,
                 (long long)j->id);
        background_publish_page(b, p);
    }
    free(p);
}
