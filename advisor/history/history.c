/* advisor/history/history.c - collects series of runs from the database and analyses them (history.h). */
#include "advisor/history/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "base/base.h"

/* ---------------------------------------------------------------- reading */

static enum err_code no_memory(struct err *why)
{
    return err_set(why, ERR_NOMEM, "out of memory for the history");
}

/* Imported results have no hash of the model: then its name tells models apart. */
static bool point_belongs(const struct history_series *s, const struct results *r, const struct result *x,
                          const char *sha)
{
    return !s->canary && !strcmp(s->work_hash, x->work_hash) && !strcmp(s->config, x->config) &&
           !strcmp(s->workload, x->workload) && !strcmp(s->machine, r->run.machine) &&
           !strcmp(s->model_sha256, sha) && (*sha || !strcmp(s->model_name, r->run.model_name));
}

static struct history_series *series_new(struct history *h)
{
    if (!array_room(&h->series, &h->room, (int64_t)h->n + 1, sizeof *h->series)) return NULL;
    struct history_series *s = &h->series[h->n++];
    *s = (struct history_series){ .metric = METRIC_COUNT };
    return s;
}

static struct history_series *series_of(struct history *h, const struct results *r, const struct result *x)
{
    const char *sha = results_model(r, x->config);
    for (int i = 0; i < h->n; i++)
        if (point_belongs(&h->series[i], r, x, sha)) return &h->series[i];
    struct history_series *s = series_new(h);
    if (!s) return NULL;
    snprintf(s->machine, sizeof s->machine, "%s", r->run.machine);
    snprintf(s->model_sha256, sizeof s->model_sha256, "%s", sha);
    snprintf(s->model_name, sizeof s->model_name, "%s", r->run.model_name);
    snprintf(s->config, sizeof s->config, "%s", x->config);
    snprintf(s->workload, sizeof s->workload, "%s", x->workload);
    snprintf(s->work_hash, sizeof s->work_hash, "%s", x->work_hash);
    return s;
}

static struct history_point *point_new(struct history_series *s)
{
    return array_room(&s->point, &s->cap, s->n + 1, sizeof *s->point) ? &s->point[s->n++] : NULL;
}

static double standard_error(const struct result *x, enum metric_id metric)
{
    double *y = malloc((size_t)MAX(x->units, 1) * sizeof *y);
    const int n = y ? result_values(x, metric, y, NULL) : 0;
    const double se = n > 1 ? stats_sd(y, n) / sqrt(n) : NAN;
    free(y);
    return se;
}

static enum err_code result_add(struct history *h, const struct results *r, const struct result *x,
                                const struct history_want *want, struct err *why)
{
    struct history_series *s = series_of(h, r, x);
    if (!s) return no_memory(why);
    if (s->metric == METRIC_COUNT)
        s->metric = want->metric ? (enum metric_id)(want->metric - METRICS) : result_main_metric(x);
    if (s->metric == METRIC_COUNT || isnan(result_mean(x, s->metric))) return ERR_OK;
    struct history_point *p = point_new(s);
    if (!p) return no_memory(why);
    if (!*s->canary_work) snprintf(s->canary_work, sizeof s->canary_work, "%s", r->canary_work);
    const bool same_work = !strcmp(s->canary_work, r->canary_work);
    *p = (struct history_point){ .run_id = r->run.id,
                                 .started_ms = r->run.started_ms,
                                 .units = x->units,
                                 .y = result_mean(x, s->metric),
                                 .se = standard_error(x, s->metric),
                                 .capsule = json_incref(r->capsule),
                                 .spec = json_incref(r->spec),
                                 .conditions = r->conditions };
    for (int i = 0; i < RESULT_METRICS; i++) {
        const enum metric_id id = (enum metric_id)(METRIC_SENSOR_COUNT + i);
        const double canary = want->raw ? 0 : same_work ? results_canary(r, id) : NAN;
        p->metric[i] = result_mean(x, id) - (canary_of(id, &(int){ 0 }) == METRIC_COUNT ? 0 : canary);
        if (id == s->metric) p->canary = canary_of(id, &(int){ 0 }) == METRIC_COUNT ? 0 : canary;
    }
    const int better = metric_sign(&METRICS[s->metric]);
    p->level = better * (p->y - p->canary);
    return ERR_OK;
}

/* The machine's own series: the canary of every run, whatever the run measured. */
static enum err_code canary_add(struct history *h, const struct results *r, enum metric_id metric,
                                struct err *why)
{
    const double y = r->canary[metric - METRIC_SENSOR_COUNT];
    struct history_series *s = NULL;
    if (isnan(y)) return ERR_OK;
    for (int i = 0; i < h->n && !s; i++)
        if (h->series[i].canary && h->series[i].metric == metric &&
            !strcmp(h->series[i].machine, r->run.machine) && !strcmp(h->series[i].config, r->canary_work))
            s = &h->series[i];
    if (!s && !(s = series_new(h))) return no_memory(why);
    s->canary = true;
    s->metric = metric;
    snprintf(s->machine, sizeof s->machine, "%s", r->run.machine);
    snprintf(s->config, sizeof s->config, "%s", r->canary_work);
    snprintf(s->workload, sizeof s->workload, CANARY_PHASE);
    struct history_point *p = point_new(s);
    if (!p) return no_memory(why);
    *p = (struct history_point){ .run_id = r->run.id,
                                 .started_ms = r->run.started_ms,
                                 .units = 1,
                                 .y = y,
                                 .se = NAN,
                                 .level = y,
                                 .capsule = json_incref(r->capsule),
                                 .spec = json_incref(r->spec),
                                 .conditions = r->conditions };
    for (int i = 0; i < RESULT_METRICS; i++) p->metric[i] = NAN;
    return ERR_OK;
}

static enum err_code canaries_add(struct history *h, const struct results *r, const struct metric *asked,
                                  struct err *why)
{
    static const enum metric_id CANARIES[] = { METRIC_CANARY_READ, METRIC_CANARY_OPS };
    enum err_code rc = ERR_OK;
    for (size_t i = 0; i < COUNT_OF(CANARIES) && !rc; i++)
        if (!asked || asked == &METRICS[CANARIES[i]]) rc = canary_add(h, r, CANARIES[i], why);
    return rc;
}

static enum err_code run_add(struct history *h, struct db *d, int64_t id, const struct history_want *want,
                             struct err *why)
{
    struct results r;
    enum err_code rc = results_read(&r, d, id, why);
    if (rc) return rc;
    for (int i = 0; i < r.n && !rc; i++) rc = result_add(h, &r, &r.result[i], want, why);
    if (!rc) rc = canaries_add(h, &r, want->metric, why);
    results_free(&r);
    return rc;
}

enum err_code history_read(struct history *out, struct db *d, const struct history_want *want,
                           struct err *why)
{
    struct run_row *runs = NULL;
    int n = 0;
    *out = (struct history){ 0 };
    enum err_code rc = db_run_find_labeled(d, want->filter, want->labels, want->limit, &runs, &n, why);
    for (int i = n - 1; i >= 0 && !rc; i--) rc = run_add(out, d, runs[i].id, want, why); /* oldest first */
    for (int i = 0; i < n; i++) run_row_free(&runs[i]);
    free(runs);
    if (rc) history_free(out);
    return rc;
}

void history_free(struct history *h)
{
    for (int i = 0; i < h->n; i++) {
        for (int k = 0; k < h->series[i].n; k++) {
            json_decref(h->series[i].point[k].capsule);
            json_decref(h->series[i].point[k].spec);
        }
        free(h->series[i].point);
    }
    free(h->series);
    *h = (struct history){ 0 };
}

/* ---------------------------------------------------------------- analysis */

enum err_code known_levels_open(struct known *k, const struct history_series *s, struct err *why)
{
    const size_t n = (size_t)MAX(s->n, 1);
    *k = (struct known){ .level = malloc(3 * n * sizeof *k->level), .place = malloc(n * sizeof *k->place) };
    if (!k->level || !k->place) {
        free(k->level);
        free(k->place);
        return no_memory(why);
    }
    k->z = k->level + n;
    k->scratch = k->z + n;
    for (int i = 0; i < s->n; i++) {
        if (isnan(s->point[i].level)) continue;
        k->place[k->n] = i;
        k->level[k->n++] = s->point[i].level;
    }
    return ERR_OK;
}

void known_levels_close(struct known *k)
{
    free(k->level);
    free(k->place);
    *k = (struct known){ 0 };
}

static struct run_recorded point_recorded(const struct history_point *p)
{
    return (struct run_recorded){ &p->conditions, p->spec, p->capsule };
}

static enum err_code changes_find(struct history_findings *f, const struct history_series *s,
                                  const struct known *k, double min_effect, struct err *why)
{
    struct change *c;
    int n;
    const struct change_rule rule = change_rule_default(min_effect);
    enum err_code rc = series_changes(&c, &n, k->level, k->n, &rule, why);
    if (rc || !n) return rc;
    f->change = calloc((size_t)n, sizeof *f->change);
    if (f->change) f->changes = n;
    for (int i = 0; i < f->changes; i++) {
        const int after = k->place[c[i].at];
        const struct history_point *before = &s->point[k->place[c[i].at - 1]], *now = &s->point[after];
        const struct run_recorded then = point_recorded(before), here = point_recorded(now);
        f->change[i] = (struct history_change){
            .change = { after, c[i].effect, c[i].p },
            .priority = repair_priority(c[i].effect, c[i].p),
            .what = run_changes(&then, &here, s->canary ? "" : s->config),
        };
        conditions_load(f->change[i].load, sizeof f->change[i].load, &before->conditions, &now->conditions);
    }
    free(c);
    return f->change ? ERR_OK : no_memory(why);
}

/* Only from the last change point on: a CUSUM over a change would alarm about it for ever. */
static void alarm_find(struct history_findings *f, const struct known *k)
{
    int from = 0;
    while (f->changes && k->place[from] < f->change[f->changes - 1].change.at) from++;
    series_self_starting_z(k->level + from, k->n - from, k->z);
    f->cusum = series_cusum(k->z, k->n - from);
    if (f->cusum.alarm < 0) return;
    f->cusum.alarm = k->place[from + f->cusum.alarm];
    f->cusum.since = k->place[from + f->cusum.since];
}

/* The metric in which point `at` is farthest from the others, in robust standard deviations. scratch: [3 n].
 */
static struct history_outlier metric_farthest(const struct history_series *s, int at, double *scratch)
{
    struct history_outlier far = { at, METRIC_COUNT, 0 };
    double *x = scratch, *z = x + s->n, *sorted = z + s->n;
    for (int m = 0; m < RESULT_METRICS; m++) {
        for (int i = 0; i < s->n; i++) x[i] = s->point[i].metric[m];
        series_robust_z(x, s->n, sorted, z);
        if (!(fabs(z[at]) > fabs(far.z))) continue;
        far.z = z[at];
        far.metric = (enum metric_id)(METRIC_SENSOR_COUNT + m);
    }
    return far;
}

/* Metrics that differ among the runs; one that no run has, or that never varies, is no dimension. */
static int metrics_varying(const struct history_series *s)
{
    int n = 0;
    for (int m = 0; m < RESULT_METRICS; m++) {
        double low = INFINITY, high = -INFINITY;
        for (int i = 0; i < s->n; i++) {
            low = fmin(low, s->point[i].metric[m]);
            high = fmax(high, s->point[i].metric[m]);
        }
        n += high > low;
    }
    return n;
}

/* The forest detects unusual combinations, but in a few dozen runs of pure noise the farthest is isolated as
 * well: a run also needs a large z in some metric. */
enum err_code outliers_find(struct history_outlier **out, int *count, double *isolation,
                            const struct history_series *s, double min_isolation, struct err *why)
{
    enum { DIMS = RESULT_METRICS };
    *out = NULL;
    *count = 0;
    for (int i = 0; i < s->n; i++) isolation[i] = NAN;
    if (s->n < HISTORY_VECTORS || metrics_varying(s) < HISTORY_DIMENSIONS) return ERR_OK;
    const size_t n = (size_t)s->n;
    double *x = malloc(n * DIMS * sizeof *x), *scratch = malloc(3 * n * sizeof *scratch);
    *out = malloc(n * sizeof **out);
    enum err_code rc = x && scratch && *out ? ERR_OK : no_memory(why);
    for (size_t i = 0; i < n && !rc; i++) memcpy(x + i * DIMS, s->point[i].metric, DIMS * sizeof *x);
    if (!rc) rc = series_isolation(isolation, x, s->n, DIMS, 1, why);
    for (int i = 0; i < s->n && !rc; i++) {
        if (!(isolation[i] > min_isolation)) continue;
        const struct history_outlier far = metric_farthest(s, i, scratch);
        if (fabs(far.z) > HISTORY_UNUSUAL) (*out)[(*count)++] = far;
    }
    free(x);
    free(scratch);
    return rc;
}

enum err_code history_detect(struct history_findings *out, const struct history_series *s, double min_effect,
                             struct err *why)
{
    const size_t n = (size_t)MAX(s->n, 1);
    struct known k;
    *out = (struct history_findings){ .cusum = { .alarm = -1, .since = -1 } };
    enum err_code rc = known_levels_open(&k, s, why);
    if (rc) return rc;
    out->known = k.n;
    out->average = malloc(3 * n * sizeof *out->average);
    if (!out->average) {
        rc = no_memory(why);
    } else {
        out->z = out->average + n;
        out->isolation = out->z + n;
        for (int i = 0; i < s->n; i++) out->average[i] = out->z[i] = NAN;
        series_moving_average(k.level, k.n, HISTORY_WINDOW, k.z);
        for (int i = 0; i < k.n; i++) out->average[k.place[i]] = k.z[i];
        series_robust_z(k.level, k.n, k.scratch, k.z);
        for (int i = 0; i < k.n; i++) out->z[k.place[i]] = k.z[i];
        rc = outliers_find(&out->outlier, &out->outliers, out->isolation, s, HISTORY_OUTLIER, why);
    }
    out->judged = k.n >= HISTORY_LEAST;
    if (!rc && out->judged) rc = changes_find(out, s, &k, min_effect, why);
    if (!rc && out->judged) alarm_find(out, &k);
    known_levels_close(&k);
    if (rc) history_findings_free(out);
    return rc;
}

void history_findings_free(struct history_findings *f)
{
    for (int i = 0; i < f->changes; i++) json_decref(f->change[i].what);
    free(f->change);
    free(f->outlier);
    free(f->average);
    *f = (struct history_findings){ 0 };
}
