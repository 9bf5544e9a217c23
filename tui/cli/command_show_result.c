/* qdyno show: the result page of a run that stored no table of its own, such as a search that was stopped:
 * its candidates with their intervals, what was left out, and the conditions. Raw cells: --cells. */
#include "tui/cli/command_show_result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "advisor/stats/stats.h"
#include "telemetry/metrics/metrics.h"

/* What one config measured in the cells that count. */
struct candidate {
    char config[CONFIG_LINE];
    double *rate; /* [cells] logarithms; owned */
    enum metric_id metric;
    int cells, discarded, failed;
    double kld, perplexity, bytes; /* the last known value; NAN unknown */
};

struct candidates {
    struct candidate *list;
    int n;
};

static bool is_of_a_config(const struct cell_row *c)
{
    return c->arm >= 0 && cell_phase_is(c->phase, PHASE_CONFIG);
}

static struct candidate *candidate_of(struct candidates *all, const struct cell_row *c, int cells)
{
    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->list[i].config, c->config)) return &all->list[i];
    struct candidate *new = &all->list[all->n];
    *new = (struct candidate){ .metric = METRIC_COUNT, .kld = NAN, .perplexity = NAN, .bytes = NAN };
    new->rate = malloc((size_t)cells * sizeof *new->rate);
    if (!new->rate) return NULL;
    snprintf(new->config, sizeof new->config, "%s", c->config);
    all->n++;
    return new;
}

static void known_take(double *to, double value)
{
    if (!isnan(value)) *to = value;
}

static void candidate_add(struct candidate *x, struct db *d, const struct cell_row *c)
{
    static const enum metric_id RATES[] = { METRIC_DECODE_RATE, METRIC_PREFILL_RATE, METRIC_TRAIN_RATE };
    x->discarded += c->discarded;
    x->failed += *c->error != '\0';
    if (c->discarded || *c->error) return;
    known_take(&x->kld, db_measurement_get(d, c->id, METRICS[METRIC_KLD].name));
    known_take(&x->perplexity, db_measurement_get(d, c->id, METRICS[METRIC_PERPLEXITY].name));
    known_take(&x->bytes, db_measurement_get(d, c->id, METRICS[METRIC_PEAK_MEMORY].name));
    for (size_t i = 0; i < COUNT_OF(RATES); i++) {
        const double v = db_measurement_get(d, c->id, METRICS[RATES[i]].name);
        if (!(v > 0) || (x->metric != METRIC_COUNT && x->metric != RATES[i])) continue;
        x->metric = RATES[i];
        x->rate[x->cells++] = log(v);
        return;
    }
}

static void candidates_free(struct candidates *all)
{
    for (int i = 0; i < all->n; i++) free(all->list[i].rate);
    free(all->list);
}

/* The fastest first; those without a speed last. */
static int faster_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const double p = x->cells ? stats_mean(x->rate, x->cells) : -INFINITY,
                 q = y->cells ? stats_mean(y->rate, y->cells) : -INFINITY;
    return p > q ? -1 : p < q ? 1 : strcmp(x->config, y->config);
}

static void note_candidate(struct table *t, const struct candidate *x)
{
    struct str line = { 0 };
    char bytes[32];
    str_printf(&line, "  %-44s", *x->config ? x->config : "default");
    if (x->cells) {
        const struct interval i = stats_t_interval(x->rate, x->cells, 0.95);
        str_printf(&line, " %8.1f %s", exp(i.estimate), METRICS[x->metric].unit);
        if (isfinite(i.lower)) str_printf(&line, " [%.1f, %.1f]", exp(i.lower), exp(i.upper));
        str_printf(&line, ", %d measurement%s", x->cells, x->cells == 1 ? "" : "s");
    } else {
        str_append(&line, " speed not measured");
    }
    if (metric_bytes(x->bytes) >= 0)
        str_printf(&line, ", peak memory %s", str_from_bytes(metric_bytes(x->bytes), bytes, sizeof bytes));
    if (!isnan(x->kld)) str_printf(&line, ", KL divergence %.2g nats", x->kld);
    if (!isnan(x->perplexity)) str_printf(&line, ", perplexity %.4g", x->perplexity);
    if (x->discarded) str_printf(&line, ", %d disturbed", x->discarded);
    if (x->failed) str_printf(&line, ", %d failed", x->failed);
    table_note(t, "%s", str_text(&line));
    str_free(&line);
}

static void event_note(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    (void)unix_ms;
    if (strcmp(kind, "confirm"))
        table_note(ctx, "  %s: %s", kind, text);
    else /* its text is a number */
        table_note(ctx, "  its best candidate was compared in run %s: qdyno show %s", text, text);
}

enum err_code show_candidates(struct table *t, struct db *d, const struct run_row *run, struct err *why)
{
    struct cell_row *cells = NULL;
    struct candidates all = { 0 };
    int n = 0;
    enum err_code rc = db_cell_list(d, run->id, &cells, &n, why);
    if (!rc && !(all.list = calloc((size_t)MAX(n, 1), sizeof *all.list)))
        rc = err_set(why, ERR_NOMEM, "out of memory for the cells of run %lld", (long long)run->id);
    for (int i = 0; i < n && !rc; i++) {
        if (!is_of_a_config(&cells[i])) continue;
        struct candidate *x = candidate_of(&all, &cells[i], n);
        if (x)
            candidate_add(x, d, &cells[i]);
        else
            rc = err_set(why, ERR_NOMEM, "out of memory for the cells of run %lld", (long long)run->id);
    }
    if (!rc) {
        qsort(all.list, (size_t)all.n, sizeof *all.list, faster_first);
        table_headline(t, "%s of %s, %s: %s", run->kind, *run->model_name ? run->model_name : "no model",
                       run->workload,
                       strcmp(run->state, "done") ? run->state
                       : *run->verdict            ? run->verdict
                                                  : run->state);
        table_note(t, "%d configuration%s measured, the fastest first (95 %% intervals):", all.n,
                   all.n == 1 ? " was" : "s were");
        for (int i = 0; i < all.n; i++) note_candidate(t, &all.list[i]);
        rc = db_event_list(d, run->id, event_note, t, why);
    }
    if (!rc && n)
        table_note(t, "its %d cell%s: qdyno show %lld --cells", n, str_plural(n), (long long)run->id);
    if (!rc && !n) table_note(t, "the run has no finished cell");
    candidates_free(&all);
    free(cells);
    return rc;
}

void show_next_of_search(struct table *t, const struct run_row *run)
{
    const bool resumable = !strcmp(run->state, "interrupted") || !strcmp(run->state, "stopped");
    json_t *o = NULL;
    if (strcmp(run->kind, "tune") || !resumable) return;
    if (run->outcome_json) json_parse(&o, run->outcome_json, strlen(run->outcome_json), NULL);
    const double enough_s = json_get_num(o, "enough_s", NAN);
    json_decref(o);
    if (isfinite(enough_s))
        table_next(
            t, "next: qdyno tune --resume %lld --budget %.0fs   (continues the search; the budget is in all)",
            (long long)run->id, enough_s);
    else
        table_next(t, "next: qdyno tune --resume %lld   (continues the search)", (long long)run->id);
}

/* ---------------------------------------------------------------- conditions */

static enum err_code condition_add(void *ctx, const struct value_row *v, struct err *why)
{
    (void)why;
    if (cell_phase_is(v->phase, PHASE_CONDITIONS)) conditions_add(ctx, v->metric, v->value);
    return ERR_OK;
}

void show_conditions_text(struct str *text, struct db *d, int64_t run_id)
{
    struct run_conditions c;
    struct err why;
    conditions_init(&c);
    if (!db_value_list(d, run_id, condition_add, &c, &why)) conditions_text(text, &c);
    if (!text->len) str_append(text, "n/a: no sensor was read while its cells ran");
}

void show_conditions(struct table *t, struct db *d, int64_t run_id)
{
    struct str text = { 0 };
    show_conditions_text(&text, d, run_id);
    table_note(t, "conditions: %s", str_text(&text));
    str_free(&text);
}
