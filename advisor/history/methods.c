/* advisor/history/methods.c - the methods that a user may choose to examine a series with (history.h). A new
 * one is a row of HISTORY_METHOD_LIST, a row of HISTORY_METHODS, and a function of FIND. */
#include "advisor/history/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const HISTORY_METHOD_NAMES[HISTORY_METHOD_COUNT + 1] = {
#define HISTORY_METHOD_NAME(id, name) [HISTORY_METHOD_##id] = name,
    HISTORY_METHOD_LIST(HISTORY_METHOD_NAME)
#undef HISTORY_METHOD_NAME
};

enum { BAND_WINDOW, BAND_ALPHA };
enum { ROBUST_LIMIT };
enum { TEST_WINDOW, TEST_ALPHA };
enum { FOREST_ISOLATION };

/* clang-format off */
const struct history_method HISTORY_METHODS[HISTORY_METHOD_COUNT] = {
    [HISTORY_METHOD_CHANGES] = { .finding = "change", .least = HISTORY_LEAST,
        .what = "changes of level by E-divisive, drifts by CUSUM, outliers by isolation forest",
        .param = { { "min_segment", CHANGE_SEGMENT_DEFAULT }, { "alpha", CHANGE_ALPHA_DEFAULT },
                   { "min_isolation", HISTORY_OUTLIER }, { "min_robust_z", HISTORY_UNUSUAL } } },
    [HISTORY_METHOD_MOVING_AVERAGE] = { .finding = "deviation", .least = HISTORY_LEAST,
        .what = "runs outside the band around the moving average of the runs before them",
        .param = { [BAND_WINDOW] = { "window", 10 }, [BAND_ALPHA] = { "alpha", 0.001 } } },
    [HISTORY_METHOD_ROBUST_Z] = { .finding = "deviation", .least = HISTORY_LEAST,
        .what = "runs whose robust z score (median and MAD of the series) is beyond a limit",
        .param = { [ROBUST_LIMIT] = { "min_robust_z", HISTORY_UNUSUAL } } },
    [HISTORY_METHOD_BASELINE_TEST] = { .finding = "shift", .least = 10,
        .what = "Welch's t test of the last runs against all runs before them",
        .param = { [TEST_WINDOW] = { "window", 5 }, [TEST_ALPHA] = { "alpha", 0.001 } } },
    [HISTORY_METHOD_ISOLATION_FOREST] = { .finding = "outlier", .least = HISTORY_VECTORS,
        .what = "runs that an isolation forest over all metrics separates, and that are unusual in one of them",
        .param = { [FOREST_ISOLATION] = { "min_isolation", 0.60 }, { "min_robust_z", HISTORY_UNUSUAL },
                   { "min_metrics", HISTORY_DIMENSIONS } } },
};
/* clang-format on */

/* ---------------------------------------------------------------- one function a method */

struct examined {
    const struct history_method *method;
    const struct history_series *s;
    const struct known *k;
    double min_effect;
    struct method_findings *out; /* finding has room for every known level */
};

static void finding_add(const struct examined *x, int known_at, struct method_finding f)
{
    f.at = x->k->place[known_at];
    f.metric = x->s->metric;
    x->out->finding[x->out->n++] = f;
}

static enum err_code changes_find(const struct examined *x, struct err *why)
{
    struct change *c;
    int n;
    const struct change_rule rule = change_rule_default(x->min_effect);
    enum err_code rc = series_changes(&c, &n, x->k->level, x->k->n, &rule, why);
    for (int i = 0; i < n && !rc; i++)
        finding_add(
            x, c[i].at,
            (struct method_finding){ .score = NAN, .p = c[i].p, .effect = c[i].effect, .now = i == n - 1 });
    free(c);
    return rc;
}

static enum err_code moving_average_find(const struct examined *x, struct err *why)
{
    const struct known *k = x->k;
    const size_t points = (size_t)x->s->n;
    double *low = k->z, *high = k->scratch;
    x->out->low = malloc(2 * points * sizeof *x->out->low);
    if (!x->out->low) return err_set(why, ERR_NOMEM, "out of memory for the band of %d runs", x->s->n);
    x->out->high = x->out->low + points;
    for (size_t i = 0; i < 2 * points; i++) x->out->low[i] = NAN;
    series_band(k->level, k->n, (int)x->method->param[BAND_WINDOW].value, x->method->param[BAND_ALPHA].value,
                low, high);
    for (int i = 0; i < k->n; i++) {
        x->out->low[k->place[i]] = low[i];
        x->out->high[k->place[i]] = high[i];
        const double effect = k->level[i] - 0.5 * (low[i] + high[i]);
        if (!(k->level[i] < low[i] || k->level[i] > high[i]) || fabs(effect) < x->min_effect) continue;
        finding_add(x, i,
                    (struct method_finding){ .score = effect / (0.5 * (high[i] - low[i])),
                                             .p = NAN,
                                             .effect = effect,
                                             .now = i == k->n - 1 });
    }
    return ERR_OK;
}

static enum err_code robust_z_find(const struct examined *x, struct err *why)
{
    (void)why;
    const struct known *k = x->k;
    series_robust_z(k->level, k->n, k->scratch, k->z);
    memcpy(k->scratch, k->level, (size_t)k->n * sizeof *k->scratch);
    stats_sort(k->scratch, k->n);
    const double middle = stats_quantile_sorted(k->scratch, k->n, 0.5);
    for (int i = 0; i < k->n; i++) {
        const double effect = k->level[i] - middle;
        if (!(fabs(k->z[i]) > x->method->param[ROBUST_LIMIT].value) || fabs(effect) < x->min_effect) continue;
        finding_add(
            x, i,
            (struct method_finding){ .score = k->z[i], .p = NAN, .effect = effect, .now = i == k->n - 1 });
    }
    return ERR_OK;
}

static enum err_code baseline_test_find(const struct examined *x, struct err *why)
{
    (void)why;
    const struct known *k = x->k;
    const int window = (int)x->method->param[TEST_WINDOW].value, before = k->n - window;
    const struct two_samples t = series_test(k->level, before, k->level + before, window, SPREAD_OWN);
    if (!(t.p < x->method->param[TEST_ALPHA].value) || fabs(t.difference) < x->min_effect) return ERR_OK;
    finding_add(x, before,
                (struct method_finding){
                    .score = t.difference / t.se, .p = t.p, .effect = t.difference, .now = true });
    return ERR_OK;
}

static enum err_code isolation_forest_find(const struct examined *x, struct err *why)
{
    struct history_outlier *found = NULL;
    int n = 0;
    double *isolation = malloc((size_t)x->s->n * sizeof *isolation);
    if (!isolation) return err_set(why, ERR_NOMEM, "out of memory for the outliers of %d runs", x->s->n);
    enum err_code rc = outliers_find(&found, &n, isolation, x->s, x->method->param[FOREST_ISOLATION].value,
                                     why);
    for (int i = 0; i < n && !rc; i++)
        x->out->finding[x->out->n++] = (struct method_finding){ .at = found[i].at,
                                                                .score = isolation[found[i].at],
                                                                .p = NAN,
                                                                .effect = NAN,
                                                                .metric = found[i].metric };
    free(found);
    free(isolation);
    return rc;
}

typedef enum err_code method_fn(const struct examined *x, struct err *why);
static method_fn *const FIND[HISTORY_METHOD_COUNT] = {
    [HISTORY_METHOD_CHANGES] = changes_find,
    [HISTORY_METHOD_MOVING_AVERAGE] = moving_average_find,
    [HISTORY_METHOD_ROBUST_Z] = robust_z_find,
    [HISTORY_METHOD_BASELINE_TEST] = baseline_test_find,
    [HISTORY_METHOD_ISOLATION_FOREST] = isolation_forest_find,
};

enum err_code history_method_find(struct method_findings *out, enum history_method_id method,
                                  const struct history_series *s, double min_effect, struct err *why)
{
    struct known k;
    *out = (struct method_findings){ 0 };
    enum err_code rc = known_levels_open(&k, s, why);
    if (rc) return rc;
    const struct examined x = {
        .method = &HISTORY_METHODS[method], .s = s, .k = &k, .min_effect = min_effect, .out = out
    };
    if (k.n >= x.method->least) {
        out->finding = malloc((size_t)s->n * sizeof *out->finding);
        rc = out->finding ? FIND[method](&x, why)
                          : err_set(why, ERR_NOMEM, "out of memory for the findings of %d runs", s->n);
    }
    known_levels_close(&k);
    if (rc) method_findings_free(out);
    return rc;
}

void method_findings_free(struct method_findings *f)
{
    free(f->finding);
    free(f->low);
    *f = (struct method_findings){ 0 };
}
