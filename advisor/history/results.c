/* advisor/history/results.c - reads a run's results from its cells (history.h). */
#include "advisor/history/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "base/base.h"

struct reader {
    struct results *out;
    int64_t cell_id; /* sums of the canary being read */
    int canaries[RESULT_METRICS];
    double first[RESULT_METRICS], last[RESULT_METRICS];
};

static const char CONFIRM[] = "confirm";

static enum err_code no_memory(struct err *why)
{
    return err_set(why, ERR_NOMEM, "out of memory for the results of a run");
}

static struct result *result_at(struct results *r, const struct value_row *v)
{
    for (int i = 0; i < r->n; i++)
        if (r->result[i].arm == v->arm && !strcmp(r->result[i].config, v->config) &&
            !strcmp(r->result[i].work_hash, v->work_hash))
            return &r->result[i];
    if (!array_room(&r->result, &r->room, (int64_t)r->n + 1, sizeof *r->result)) return NULL;
    struct result *new = &r->result[r->n++];
    *new = (struct result){ .arm = v->arm };
    snprintf(new->config, sizeof new->config, "%s", v->config);
    snprintf(new->workload, sizeof new->workload, "%s", v->workload);
    snprintf(new->work_hash, sizeof new->work_hash, "%s", v->work_hash);
    return new;
}

/* Cells of one block form one unit; a cell outside blocks is a unit of its own, told apart by `id`. */
static struct result_unit *unit_at(struct result *r, const struct value_row *v, bool same_cell)
{
    const bool confirm = !strcmp(v->phase, CONFIRM);
    for (int i = r->units - 1; i >= 0; i--) {
        const struct result_unit *u = &r->unit[i];
        if (v->block >= 0 ? u->block == v->block && u->confirm == confirm : same_cell && i == r->units - 1)
            return &r->unit[i];
    }
    if (!array_room(&r->unit, &r->cap, r->units + 1, sizeof *r->unit)) return NULL;
    struct result_unit *new = &r->unit[r->units++];
    *new = (struct result_unit){ .block = v->block, .confirm = confirm };
    for (int i = 0; i < RESULT_METRICS; i++) new->y[i] = NAN;
    return new;
}

static void canary_add(struct reader *r, const struct value_row *v, int metric)
{
    struct results *out = r->out;
    const double y = log(v->value);
    if (!*out->canary_work) snprintf(out->canary_work, sizeof out->canary_work, "%s", v->config);
    const int n = r->canaries[metric]++;
    if (!n) r->first[metric] = y;
    r->last[metric] = y;
    out->canary[metric] = n ? out->canary[metric] + (y - out->canary[metric]) / (n + 1) : y;
}

static enum err_code unit_add(void *ctx, const struct value_row *v, struct err *why)
{
    struct reader *r = ctx;
    const bool canary = !strcmp(v->phase, CANARY_PHASE);
    if (cell_phase_is(v->phase, PHASE_CONDITIONS)) conditions_add(&r->out->conditions, v->metric, v->value);
    if (!canary && !cell_phase_is(v->phase, PHASE_RESULT)) return ERR_OK;
    const struct metric *m = metric_find(v->metric);
    if (!m || m->kind != METRIC_CELL || !(v->value > 0) || isinf(v->value)) return ERR_OK;
    const int metric = (int)(m - METRICS) - METRIC_SENSOR_COUNT;
    if (canary) {
        canary_add(r, v, metric);
        return ERR_OK;
    }
    struct result *result = result_at(r->out, v);
    struct result_unit *u = result ? unit_at(result, v, r->cell_id == v->cell_id) : NULL;
    if (!u) return no_memory(why);
    r->cell_id = v->cell_id;
    const int n = u->cells[metric]++;
    const double y = log(v->value);
    u->y[metric] = n ? u->y[metric] + (y - u->y[metric]) / (n + 1) : y;
    return ERR_OK;
}

enum err_code results_read(struct results *out, struct db *d, int64_t run_id, struct err *why)
{
    struct reader r = { .out = out, .cell_id = -1 };
    *out = (struct results){ 0 };
    conditions_init(&out->conditions);
    for (int i = 0; i < RESULT_METRICS; i++) out->canary[i] = out->canary_drift[i] = NAN;
    enum err_code rc = db_run_get(d, run_id, &out->run, why);
    if (!rc && out->run.spec_json) /* one that cannot be read counts as none */
        (void)json_parse(&out->spec, out->run.spec_json, strlen(out->run.spec_json), NULL);
    if (!rc) rc = capsule_load(&out->capsule, d, run_id, why);
    if (!rc) rc = db_value_list(d, run_id, unit_add, &r, why);
    for (int i = 0; i < RESULT_METRICS; i++)
        if (r.canaries[i] > 1) out->canary_drift[i] = r.last[i] - r.first[i];
    if (rc) results_free(out);
    return rc;
}

void results_free(struct results *r)
{
    run_row_free(&r->run);
    json_decref(r->capsule);
    json_decref(r->spec);
    for (int i = 0; i < r->n; i++) free(r->result[i].unit);
    free(r->result);
    *r = (struct results){ 0 };
}

struct run_recorded results_recorded(const struct results *r)
{
    return (struct run_recorded){ &r->conditions, r->spec, r->capsule };
}

int result_values(const struct result *r, enum metric_id metric, double *y, int *block)
{
    int n = 0;
    for (int i = 0; i < r->units; i++) {
        const double v = r->unit[i].y[metric - METRIC_SENSOR_COUNT];
        if (isnan(v)) continue;
        if (block) block[n] = r->unit[i].block;
        y[n++] = v;
    }
    return n;
}

double result_mean(const struct result *r, enum metric_id metric)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < r->units; i++) {
        const double v = r->unit[i].y[metric - METRIC_SENSOR_COUNT];
        if (isnan(v)) continue;
        sum += v;
        n++;
    }
    return n ? sum / n : NAN;
}

enum metric_id result_main_metric(const struct result *r)
{
    static const enum metric_id BY_RANK[] = { METRIC_DECODE_RATE, METRIC_PREFILL_RATE, METRIC_TRAIN_RATE,
                                              METRIC_PERPLEXITY, METRIC_OUT_RATE };
    for (size_t i = 0; i < COUNT_OF(BY_RANK); i++)
        if (!isnan(result_mean(r, BY_RANK[i]))) return BY_RANK[i];
    return METRIC_COUNT;
}

double results_canary(const struct results *r, enum metric_id metric)
{
    int sign;
    const enum metric_id canary = canary_of(metric, &sign);
    return sign ? sign * r->canary[canary - METRIC_SENSOR_COUNT] : 0;
}

const char *results_model(const struct results *r, const char *config)
{
    return json_get_str(capsule_model(r->capsule, config), "sha256", r->run.model_sha256);
}
