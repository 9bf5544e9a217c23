/* advisor/history/causes_read.c - the metrics of a series' runs and of a run's cells, for the search of what
 * moved first. */
#include "advisor/history/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"

enum { CELLS_BEFORE = 12, CELLS_AFTER = 4 }; /* around a change, in which other metrics are searched */

/* ---------------------------------------------------------------- runs of a series */

struct run_reader {
    struct metric_table *table;
    const struct history_series *s;
    int point;
};

static enum err_code run_value_add(void *ctx, const struct value_row *v, struct err *why)
{
    (void)why;
    struct run_reader *r = ctx;
    const struct metric *m = metric_find(v->metric);
    if (!m || !isfinite(v->value)) return ERR_OK;
    const bool canary = !strcmp(v->phase, CANARY_PHASE);
    const bool of_canary = m == &METRICS[METRIC_CANARY_READ] || m == &METRICS[METRIC_CANARY_OPS];
    if (canary != of_canary) return ERR_OK;
    if (!canary && !r->s->canary &&
        (strcmp(v->config, r->s->config) || strcmp(v->work_hash, r->s->work_hash)))
        return ERR_OK;
    metric_table_add(r->table, (enum metric_id)(m - METRICS), r->point, v->value);
    return ERR_OK;
}

enum err_code series_metrics(struct metric_table *out, struct db *d, const struct history_series *s,
                             struct err *why)
{
    enum err_code rc = metric_table_open(out, s->n, why);
    for (int i = 0; i < s->n && !rc; i++) {
        struct run_reader r = { .table = out, .s = s, .point = i };
        rc = db_value_list(d, s->point[i].run_id, run_value_add, &r, why);
    }
    if (rc) metric_table_close(out);
    return rc;
}

/* ---------------------------------------------------------------- cells of a run */

/* Values arrive cell by cell, in the order in which the cells ran. */
struct cell_reader {
    struct metric_table *table; /* NULL: only counts the cells */
    int64_t *cell;              /* [cells] ids */
    int *arm;                   /* [cells] */
    int cells;
    int64_t last;
    enum metric_id main;
};

static enum err_code cell_value_add(void *ctx, const struct value_row *v, struct err *why)
{
    (void)why;
    struct cell_reader *r = ctx;
    const struct metric *m = metric_find(v->metric);
    if (!strcmp(v->phase, CANARY_PHASE) || !strcmp(v->phase, "warmup")) return ERR_OK;
    if (v->cell_id != r->last) {
        r->last = v->cell_id;
        if (r->table) r->cell[r->cells] = v->cell_id, r->arm[r->cells] = v->arm;
        r->cells++;
    }
    if (r->table && m && isfinite(v->value))
        metric_table_add(r->table, (enum metric_id)(m - METRICS), r->cells - 1, v->value);
    return ERR_OK;
}

/* Removes the arms' differences: each value is divided by its arm's mean and multiplied by that of all.
 * Values near 0 are shifted instead. */
static void arms_level(const struct metric_table *t, const int *arm, enum metric_id metric)
{
    double *v = &t->value[(size_t)metric * (size_t)t->n], mean[EXPERIMENT_ARMS] = { 0 }, all = 0;
    int n[EXPERIMENT_ARMS] = { 0 }, known = 0;
    for (int i = 0; i < t->n; i++) {
        if (isnan(v[i]) || arm[i] < 0 || arm[i] >= EXPERIMENT_ARMS) continue;
        mean[arm[i]] += v[i];
        all += v[i];
        n[arm[i]]++;
        known++;
    }
    all = known ? all / known : NAN;
    for (int a = 0; a < EXPERIMENT_ARMS; a++) mean[a] = n[a] ? mean[a] / n[a] : NAN;
    for (int i = 0; i < t->n; i++) {
        if (isnan(v[i]) || arm[i] < 0 || arm[i] >= EXPERIMENT_ARMS) continue;
        const double own = mean[arm[i]];
        v[i] = own > 0 && all > 0 ? v[i] / own * all : v[i] - own + all;
    }
}

static enum err_code cells_read(struct cell_reader *r, struct db *d, int64_t run_id, struct err *why)
{
    struct cell_reader count = { .last = -1 };
    enum err_code rc = db_value_list(d, run_id, cell_value_add, &count, why);
    if (rc) return rc;
    r->cell = calloc((size_t)MAX(count.cells, 1), sizeof *r->cell);
    r->arm = calloc((size_t)MAX(count.cells, 1), sizeof *r->arm);
    if (!r->cell || !r->arm) return err_set(why, ERR_NOMEM, "out of memory for the cells of a run");
    rc = metric_table_open(r->table, count.cells, why);
    r->last = -1;
    if (!rc) rc = db_value_list(d, run_id, cell_value_add, r, why);
    for (int m = 0; m < METRIC_COUNT && !rc; m++) arms_level(r->table, r->arm, (enum metric_id)m);
    return rc;
}

static enum metric_id main_metric(struct db *d, int64_t run_id, struct err *why, enum err_code *rc)
{
    struct results all;
    enum metric_id main = METRIC_COUNT;
    *rc = results_read(&all, d, run_id, why);
    if (*rc) return main;
    for (int i = 0; i < all.n && main == METRIC_COUNT; i++) main = result_main_metric(&all.result[i]);
    results_free(&all);
    return main;
}

static enum err_code changes_of_cells(struct run_causes *out, const struct cell_reader *r, double min_effect,
                                      struct err *why)
{
    const struct metric_table *t = r->table;
    double *y = malloc((size_t)MAX(t->n, 1) * sizeof *y);
    int *place = malloc((size_t)MAX(t->n, 1) * sizeof *place), n = 0;
    struct change *c = NULL;
    const int better = metric_sign(&METRICS[out->metric]);
    enum err_code rc = y && place ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for the cells of a run");
    for (int i = 0; i < t->n && !rc; i++) {
        const double v = t->value[(size_t)out->metric * (size_t)t->n + (size_t)i];
        if (!(v > 0)) continue;
        place[n] = i;
        y[n++] = better * log(v);
    }
    out->cells = n;
    const struct change_rule rule = change_rule_default(min_effect);
    if (!rc) rc = series_changes(&c, &out->changes, y, n, &rule, why);
    out->change = calloc((size_t)MAX(out->changes, 1), sizeof *out->change);
    if (!rc && !out->change) rc = err_set(why, ERR_NOMEM, "out of memory for the changes of a run");
    for (int i = 0; i < out->changes && !rc; i++) {
        struct run_change *x = &out->change[i];
        *x = (struct run_change){ .change = { place[c[i].at], c[i].effect, c[i].p },
                                  .priority = repair_priority(c[i].effect, c[i].p),
                                  .cell_id = r->cell[place[c[i].at]] };
        rc = moved_find(x->moved, &x->n_moved, t, x->change.at, CELLS_BEFORE, CELLS_AFTER, why);
    }
    free(c);
    free(place);
    free(y);
    return rc;
}

enum err_code run_causes_read(struct run_causes *out, struct db *d, int64_t run_id, double min_effect,
                              struct err *why)
{
    struct metric_table table = { 0 };
    struct cell_reader r = { .table = &table };
    enum err_code rc;
    *out = (struct run_causes){ .metric = METRIC_COUNT };
    out->metric = main_metric(d, run_id, why, &rc);
    if (!rc && out->metric != METRIC_COUNT) rc = cells_read(&r, d, run_id, why);
    if (!rc && out->metric != METRIC_COUNT) rc = changes_of_cells(out, &r, min_effect, why);
    metric_table_close(&table);
    free(r.cell);
    free(r.arm);
    if (rc) run_causes_free(out);
    return rc;
}

void run_causes_free(struct run_causes *c)
{
    free(c->change);
    *c = (struct run_causes){ .metric = METRIC_COUNT };
}
