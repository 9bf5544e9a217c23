/* advisor/history/compare.c - compares two finished runs (history.h). */
#include "advisor/history/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* per side: two values have one degree of freedom, too few for an interval */
enum { LEAST_UNITS = 3 };
static const double ALPHA = 0.05;

static const struct interval UNKNOWN = { (double)NAN, (double)NAN, (double)NAN };

static enum err_code no_memory(struct err *why)
{
    return err_set(why, ERR_NOMEM, "out of memory for a comparison");
}

enum verdict compare_verdict(struct interval effect95, struct interval effect90, double margin)
{
    const bool differs = effect95.lower > 0 || effect95.upper < 0;
    if (differs && fabs(effect95.estimate) > margin)
        return effect95.estimate > 0 ? VERDICT_BETTER : VERDICT_WORSE;
    if (effect90.lower >= -margin && effect90.upper <= margin) return VERDICT_EQUIVALENT;
    return differs ? VERDICT_NEGLIGIBLE : VERDICT_INCONCLUSIVE;
}

static struct interval interval_shifted(struct interval i, double by)
{
    return (struct interval){ i.estimate + by, i.lower + by, i.upper + by };
}

/* ---------------------------------------------------------------- results of two runs */

static bool same_work(const struct result *a, const struct result *b)
{
    /* The hash of the workload. Old or imported cells have none: then its name. */
    return *a->work_hash && *b->work_hash ? !strcmp(a->work_hash, b->work_hash)
                                          : !strcmp(a->workload, b->workload);
}

/* Find the partner of `a` that is not taken yet: the same config line first, otherwise the same arm. */
static int result_partner(const struct result *a, const struct results *of, const bool *taken)
{
    for (int by_line = 1; by_line >= 0; by_line--)
        for (int i = 0; i < of->n; i++) {
            const struct result *b = &of->result[i];
            if (taken[i] || !same_work(a, b)) continue;
            if (by_line ? !strcmp(a->config, b->config) : a->arm == b->arm) return i;
        }
    return -1;
}

static void canary_of_pair(struct compared *c, const struct results *before, const struct results *after,
                           int better)
{
    const bool same = !strcmp(before->canary_work, after->canary_work);
    const double a = results_canary(before, c->metric), b = results_canary(after, c->metric);
    c->canary = a == 0 && b == 0 ? 0 : same ? better * (b - a) : NAN;
    c->normalized = interval_shifted(c->effect, -c->canary);
}

static bool is_imported(const struct results *r)
{
    return !strcmp(r->run.kind, "import");
}

/* Whether the machine's load forbids a verdict on this metric. */
static bool verdict_withheld(enum metric_id metric, const struct results *before, const struct results *after)
{
    static const enum metric_id WITHOUT_TIME[] = { METRIC_PERPLEXITY, METRIC_KLD, METRIC_TRAIN_LOSS,
                                                   METRIC_PEAK_MEMORY, METRIC_MEMORY_AFTER };
    char text[192];
    for (size_t i = 0; i < COUNT_OF(WITHOUT_TIME); i++)
        if (metric == WITHOUT_TIME[i]) return false;
    return conditions_load(text, sizeof text, &before->conditions, &after->conditions);
}

static void compare_pair(struct compared *c, double *scratch, const struct results *before,
                         const struct results *after, double margin)
{
    double *a = scratch, *b = scratch + c->before->units;
    const int better = metric_sign(&METRICS[c->metric]);
    c->n_before = result_values(c->before, c->metric, a, NULL);
    c->n_after = result_values(c->after, c->metric, b, NULL);
    c->rate_before = stats_exp(stats_t_interval(a, c->n_before, 0.95));
    c->rate_after = stats_exp(stats_t_interval(b, c->n_after, 0.95));
    const struct two_samples t = series_test(a, c->n_before, b, c->n_after, SPREAD_OWN);
    c->effect = stats_turned(two_samples_interval(&t, 0.95), better);
    c->effect90 = stats_turned(two_samples_interval(&t, 0.90), better);
    c->p = c->p_family = t.p;
    canary_of_pair(c, before, after, better);
    c->verdict = VERDICT_INCONCLUSIVE;
    if (is_imported(before) || is_imported(after))
        snprintf(
            c->reason, sizeof c->reason,
            "another benchmark measured one of them, perhaps on another machine: no verdict rests on it");
    else if (MIN(c->n_before, c->n_after) < LEAST_UNITS)
        snprintf(c->reason, sizeof c->reason,
                 "the runs have %d and %d values: expected at least %d on each side", c->n_before, c->n_after,
                 LEAST_UNITS);
    else if (verdict_withheld(c->metric, before, after))
        snprintf(c->reason, sizeof c->reason,
                 "other work loaded the machine: that alone can explain a difference");
    else
        c->verdict = compare_verdict(c->effect, c->effect90, margin);
}

static struct compared row_alone(const struct result *before, const struct result *after)
{
    struct compared c = { .before = before, .after = after, .metric = METRIC_COUNT };
    c.rate_before = c.rate_after = c.effect = c.effect90 = c.normalized = UNKNOWN;
    c.p = c.p_family = c.canary = NAN;
    snprintf(c.reason, sizeof c.reason, "only the %s run measured it", before ? "first" : "second");
    return c;
}

static struct compared rows_pair(const struct result *before, const struct result *after,
                                 const struct metric *metric, double *scratch,
                                 const struct results *of_before, const struct results *of_after,
                                 double margin)
{
    struct compared c = row_alone(before, after);
    c.reason[0] = '\0';
    c.metric = metric ? (enum metric_id)(metric - METRICS) : result_main_metric(before);
    const double known = c.metric == METRIC_COUNT
                             ? NAN
                             : result_mean(before, c.metric) + result_mean(after, c.metric);
    if (c.metric == METRIC_COUNT)
        snprintf(c.reason, sizeof c.reason, "the first run measured no metric");
    else if (isnan(known))
        snprintf(c.reason, sizeof c.reason, "%s is missing in at least one of the two runs",
                 METRICS[c.metric].name);
    else
        compare_pair(&c, scratch, of_before, of_after, margin);
    return c;
}

/* Among twenty pairs without a difference, one would be claimed by chance: claims must hold after Holm's
 * correction for all pairs. p: scratch of [n]. */
static void rows_correct(struct compared *c, int n, double *p)
{
    int pairs = 0, k = 0;
    for (int i = 0; i < n; i++) /* a row without a partner is not in the family */
        if (c[i].verdict != VERDICT_NONE) p[pairs++] = c[i].p;
    stats_holm(p, pairs, p);
    for (int i = 0; i < n; i++) {
        if (c[i].verdict == VERDICT_NONE) continue;
        c[i].p_family = p[k++];
        const bool claims = c[i].verdict == VERDICT_BETTER || c[i].verdict == VERDICT_WORSE ||
                            c[i].verdict == VERDICT_NEGLIGIBLE;
        if (!claims || c[i].p_family < ALPHA) continue;
        c[i].verdict = VERDICT_INCONCLUSIVE;
        snprintf(c[i].reason, sizeof c[i].reason, "one of %d differences: p %.2g after Holm's correction",
                 pairs, c[i].p_family);
    }
}

enum err_code compare_runs(struct compared **out, int *n, const struct results *before,
                           const struct results *after, const struct metric *metric, double margin,
                           struct err *why)
{
    int units = 1;
    for (int i = 0; i < before->n; i++) units = MAX(units, before->result[i].units);
    for (int i = 0; i < after->n; i++) units = MAX(units, after->result[i].units);
    struct compared *rows = calloc((size_t)(before->n + after->n) + 1, sizeof *rows);
    bool *taken = calloc((size_t)after->n + 1, sizeof *taken);
    double *scratch = malloc((2 * (size_t)units + (size_t)(before->n + after->n)) * sizeof *scratch);
    enum err_code rc = ERR_OK;
    *out = NULL;
    *n = 0;
    if (rows && taken && scratch) {
        for (int i = 0; i < before->n; i++) {
            const int k = result_partner(&before->result[i], after, taken);
            if (k >= 0) taken[k] = true;
            rows[(*n)++] = k < 0 ? row_alone(&before->result[i], NULL)
                                 : rows_pair(&before->result[i], &after->result[k], metric, scratch, before,
                                             after, margin);
        }
        for (int i = 0; i < after->n; i++)
            if (!taken[i]) rows[(*n)++] = row_alone(NULL, &after->result[i]);
        rows_correct(rows, *n, scratch);
        *out = rows;
        rows = NULL;
    } else {
        rc = no_memory(why);
    }
    free(rows);
    free(taken);
    free(scratch);
    return rc;
}

bool compared_machine_changed(const struct compared *c, char *reason, size_t size)
{
    static const double CANARY_ERROR = 0.05; /* of one value per run, on a busy machine */
    const double change = expm1(c->canary);
    reason[0] = '\0';
    if (!isfinite(c->normalized.estimate) || c->canary == 0) return false; /* 0: the metric needs none */
    const bool changed = fabs(change) > CANARY_ERROR;
    snprintf(reason, size, "the canary was %s%.*f %% %s in the second run, so %s", changed ? "" : "only ",
             changed ? 0 : 1, 100 * fabs(change), change < 0 ? "slower" : "faster",
             !changed ? "the machine was about as fast as before" : "the machine itself changed");
    return changed;
}

enum verdict compare_worst(const struct compared *c, int n)
{
    static const enum verdict BY_RANK[] = { VERDICT_WORSE, VERDICT_INCONCLUSIVE, VERDICT_NEGLIGIBLE,
                                            VERDICT_EQUIVALENT, VERDICT_BETTER };
    for (size_t r = 0; r < COUNT_OF(BY_RANK); r++)
        for (int i = 0; i < n; i++)
            if (c[i].verdict == BY_RANK[r]) return BY_RANK[r];
    return VERDICT_INVALID;
}

/* ---------------------------------------------------------------- effects of two experiments */

const char *reproduction_name(enum reproduction r)
{
    static const char *const NAMES[] = { "inconclusive", "reproduced", "not reproduced" };
    return (size_t)r < COUNT_OF(NAMES) ? NAMES[r] : NAMES[0];
}

static const struct result *arm_result(const struct results *r, int arm)
{
    for (int i = 0; i < r->n; i++)
        if (r->result[i].arm == arm) return &r->result[i];
    return NULL;
}

static bool was_confirmed(const struct result *r)
{
    for (int i = 0; r && i < r->units; i++)
        if (r->unit[i].confirm) return true;
    return false;
}

/* d[i] = ln(arm k) - ln(arm 0) of every block that has both. For a race's winner only the blocks that
 * measured it again count, because the selection biases the others upwards. Returns their number. */
static int block_effects(const struct results *r, int arm, enum metric_id metric, double *d)
{
    const struct result *a = arm_result(r, 0), *k = arm_result(r, arm);
    const int better = metric_sign(&METRICS[metric]), m = (int)metric - METRIC_SENSOR_COUNT;
    const bool confirmed = was_confirmed(k);
    int n = 0;
    for (int i = 0; a && k && i < k->units; i++)
        for (int j = 0; j < a->units; j++) {
            if (k->unit[i].confirm != confirmed || a->unit[j].confirm != confirmed) continue;
            if (k->unit[i].block < 0 || a->unit[j].block != k->unit[i].block) continue;
            const double x = better * (k->unit[i].y[m] - a->unit[j].y[m]);
            if (!isnan(x)) d[n++] = x;
        }
    return n;
}

static void arm_reproduce(struct reproduced *r, const double *before, const double *after, double margin)
{
    r->before = stats_t_interval(before, r->n_before, 0.95);
    r->after = stats_t_interval(after, r->n_after, 0.95);
    const struct two_samples t = series_test(before, r->n_before, after, r->n_after, SPREAD_OWN);
    r->difference = two_samples_interval(&t, 0.95);
    r->difference90 = two_samples_interval(&t, 0.90);
    r->p = t.p;
    if (MIN(r->n_before, r->n_after) < LEAST_UNITS) return;
    const enum verdict v = compare_verdict(r->difference, r->difference90, margin);
    if (v == VERDICT_BETTER || v == VERDICT_WORSE) r->verdict = NOT_REPRODUCED;
    if (v == VERDICT_EQUIVALENT) r->verdict = REPRODUCED;
}

enum err_code compare_effects(struct reproduced **out, int *n, const struct results *before,
                              const struct results *after, const struct metric *metric, double margin,
                              struct err *why)
{
    int arms = 0, units = 1;
    const struct results *both[] = { before, after };
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < both[s]->n; i++) {
            arms = MIN(MAX(arms, both[s]->result[i].arm), EXPERIMENT_ARMS - 1);
            units = MAX(units, both[s]->result[i].units);
        }
    const enum metric_id id = (enum metric_id)(metric - METRICS);
    double *d = malloc(2 * (size_t)units * sizeof *d);
    *n = 0;
    *out = calloc((size_t)arms + 1, sizeof **out);
    for (int k = 1; k <= arms && d && *out; k++) {
        struct reproduced *r = &(*out)[(*n)++];
        r->arm = k;
        r->n_before = block_effects(before, k, id, d);
        r->n_after = block_effects(after, k, id, d + units);
        arm_reproduce(r, d, d + units, margin);
    }
    const bool ok = d && *out;
    const bool withheld = verdict_withheld(id, before, after);
    double p[EXPERIMENT_ARMS];
    for (int i = 0; ok && i < *n; i++) p[i] = (*out)[i].p;
    if (ok) stats_holm(p, *n, p);
    for (int i = 0; ok && i < *n; i++) {
        (*out)[i].p = p[i];
        if ((*out)[i].verdict == NOT_REPRODUCED && (!(p[i] < ALPHA) || withheld))
            (*out)[i].verdict = REPRODUCTION_UNKNOWN;
    }
    free(d);
    if (ok) return ERR_OK;
    free(*out);
    *out = NULL;
    return no_memory(why);
}
