/* advisor/history/causes.c - which metric moved first: the changes of level of all metrics, sensors included,
 * around a change of the main one (history.h). */
#include "advisor/history/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Many metrics are searched, so one must be surer than the main metric, and move more. */
static const double MOVED_ALPHA = 1e-4, MOVED_LEAST = 0.05;

enum err_code metric_table_open(struct metric_table *t, int n, struct err *why)
{
    *t = (struct metric_table){ .n = n };
    t->value = malloc((size_t)MAX(n, 1) * METRIC_COUNT * sizeof *t->value);
    t->count = calloc((size_t)MAX(n, 1) * METRIC_COUNT, sizeof *t->count);
    if (!t->value || !t->count) {
        metric_table_close(t);
        return err_set(why, ERR_NOMEM, "out of memory for the metrics of %d points", n);
    }
    for (size_t i = 0; i < (size_t)n * METRIC_COUNT; i++) t->value[i] = NAN;
    return ERR_OK;
}

void metric_table_close(struct metric_table *t)
{
    free(t->value);
    free(t->count);
    *t = (struct metric_table){ 0 };
}

static double *table_at(const struct metric_table *t, int metric, int point)
{
    return &t->value[(size_t)metric * (size_t)t->n + (size_t)point];
}

void metric_table_add(struct metric_table *t, enum metric_id metric, int point, double value)
{
    double *mean = table_at(t, (int)metric, point);
    const int n = t->count[(size_t)metric * (size_t)t->n + (size_t)point]++;
    *mean = n ? *mean + (value - *mean) / (n + 1) : value;
}

/* Known values of a metric, divided by a scale that makes them comparable: positive ones as logarithms,
 * others by the largest magnitude. Returns how many; place[k] is the point of value k. */
static int values_scaled(double *x, int *place, const struct metric_table *t, int metric)
{
    double largest = 0;
    bool positive = true;
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        const double v = *table_at(t, metric, i);
        if (!isfinite(v)) continue;
        largest = fmax(largest, fabs(v));
        positive &= v > 0;
        place[n] = i;
        x[n++] = v;
    }
    for (int i = 0; i < n; i++) x[i] = positive ? log(x[i]) : largest > 0 ? x[i] / largest : 0;
    return n;
}

static double mean_between(const struct metric_table *t, int metric, int from, int to)
{
    double sum = 0;
    int n = 0;
    for (int i = from; i < to; i++) {
        const double v = *table_at(t, metric, i);
        if (!isfinite(v)) continue;
        sum += v;
        n++;
    }
    return n ? sum / n : NAN;
}

/* The points from..to, in which a change nearest to `at` is looked for. */
struct stretch {
    int at, from, to;
};
/* The change of one metric nearest to a point. */
static enum err_code nearest_change(struct moved *out, bool *found, const struct metric_table *t, int metric,
                                    struct stretch in, struct err *why)
{
    double *x = malloc((size_t)t->n * sizeof *x);
    int *place = malloc((size_t)t->n * sizeof *place), changes = 0, far = INT32_MAX;
    struct change *c = NULL;
    const struct change_rule rule = { .min_segment = 3, .alpha = MOVED_ALPHA, .min_effect = MOVED_LEAST };
    enum err_code rc = x && place ? ERR_OK
                                  : err_set(why, ERR_NOMEM, "out of memory for the changes of a metric");
    const int n = rc ? 0 : values_scaled(x, place, t, metric);
    if (!rc) rc = series_changes(&c, &changes, x, n, &rule, why);
    *found = false;
    for (int i = 0; i < changes; i++) {
        const int point = place[c[i].at];
        if (point < in.from || point > in.to || abs(point - in.at) >= far) continue;
        const int before = i ? place[c[i - 1].at] : 0, after = i + 1 < changes ? place[c[i + 1].at] : t->n;
        *out = (struct moved){ .metric = (enum metric_id)metric,
                               .at = point,
                               .before = mean_between(t, metric, before, point),
                               .after = mean_between(t, metric, point, after),
                               .p = c[i].p };
        *found = true;
        far = abs(point - in.at);
    }
    free(c);
    free(place);
    free(x);
    return rc;
}

/* Earlier ones first; of those that moved together, the largest first. */
static int moved_compare(const void *x, const void *y)
{
    const struct moved *a = x, *b = y;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    const double ea = fabs(a->after - a->before) / fmax(fabs(a->before), fabs(a->after)),
                 eb = fabs(b->after - b->before) / fmax(fabs(b->before), fabs(b->after));
    return ea > eb ? -1 : ea < eb ? 1 : (int)a->metric - (int)b->metric;
}

/* Figures that follow from the main one by definition say nothing about its cause. */
static bool is_explaining(enum metric_id metric)
{
    static const enum metric_id RESULTS[] = { METRIC_PEAK_MEMORY, METRIC_LOAD_TIME, METRIC_CANARY_READ,
                                              METRIC_CANARY_OPS };
    if (metric < METRIC_SENSOR_COUNT) return true;
    for (size_t i = 0; i < COUNT_OF(RESULTS); i++)
        if (RESULTS[i] == metric) return true;
    return false;
}

enum err_code moved_find(struct moved out[MOVED_MAX], int *n, const struct metric_table *t, int at,
                         int before, int after, struct err *why)
{
    enum err_code rc = ERR_OK;
    const struct stretch in = { at, at - before, at + after };
    struct moved all[METRIC_COUNT];
    int found = 0;
    for (int m = 0; m < METRIC_COUNT && !rc; m++) {
        bool some = false;
        if (!is_explaining((enum metric_id)m)) continue;
        rc = nearest_change(&all[found], &some, t, m, in, why);
        found += some && !rc;
    }
    qsort(all, (size_t)found, sizeof *all, moved_compare);
    *n = rc ? 0 : MIN(found, MOVED_MAX);
    memcpy(out, all, (size_t)*n * sizeof *out);
    return rc;
}

void moved_sentence(struct str *s, const struct moved *m, int n, int at, const char *main, bool fell,
                    const char *unit)
{
    enum { NAMED = 3 };
    if (!n) {
        str_printf(s, "no other metric moved around the time when %s %s", main, fell ? "fell" : "rose");
        return;
    }
    for (int i = 0; i < MIN(n, NAMED); i++) {
        const int early = at - m[i].at;
        str_printf(s, "%s%s %s from %.4g to %.4g", i ? "; " : "", METRICS[m[i].metric].name,
                   m[i].after < m[i].before ? "fell" : "rose", m[i].before, m[i].after);
        if (early > 0)
            str_printf(s, " %d %s%s before %s %s", early, unit, early > 1 ? "s" : "", main,
                       fell ? "fell" : "rose");
        else if (early < 0)
            str_printf(s, " %d %s%s after it", -early, unit, early < -1 ? "s" : "");
        else
            str_append(s, " at the same time");
    }
    if (n > NAMED) str_printf(s, "; and %d more", n - NAMED);
}
