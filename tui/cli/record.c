/* record.c - see record.h. */
#include "tui/cli/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "advisor/stats/stats.h"
#include "db/db.h"
#include "engine/config/config.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"

enum err_code recorder_open(struct recorder *r, const struct cli_global *g, const char *kind, struct err *why)
{
    *r = (struct recorder){ .run = { .effect_ratio = NAN } };
    snprintf(r->run.kind, sizeof r->run.kind, "%s", kind);
    snprintf(r->run.state, sizeof r->run.state, "running");
    return db_open(&r->db, g->db_path, why);
}

static enum err_code put_identities(struct recorder *r, const struct machine *m, const json_t *description,
                                    const char *model_path, struct err *why)
{
    const char *sha = json_get_str(description, "sha256", "");
    json_t *about = machine_to_json(m);
    char *line = json_line(about);
    enum err_code rc = db_machine_put(r->db, m->id, line ? line : "{}", why);
    json_decref(about);
    free(line);
    if (rc) return rc;
    snprintf(r->run.machine, sizeof r->run.machine, "%s", m->id);
    snprintf(r->run.model_name, sizeof r->run.model_name, "%s", cli_base_name(model_path));
    if (!*sha) return ERR_OK;
    char *described = json_line(description);
    rc = db_model_put(r->db, sha, r->run.model_name, model_path, described ? described : "{}", why);
    free(described);
    snprintf(r->run.model_sha256, sizeof r->run.model_sha256, "%s", sha);
    return rc;
}

/* What the run is made of. Of a grid of configs only the first has answered by now, so its keys stand for
 * nobody's line. */
static enum err_code put_capsule(struct recorder *r, const struct machine *m, const json_t *description,
                                 const char *model_path, struct err *why)
{
    struct config resolved;
    const json_t *keys = json_object_get(description, "config");
    const bool alone = !strstr(r->run.label, " | ");
    struct capsule_arm arm = { .line = r->run.label,
                               .model_path = model_path,
                               .model_name = r->run.model_name,
                               .sha256 = r->run.model_sha256 };
    if (alone && keys && !config_from_json(&resolved, keys, NULL)) arm.resolved = &resolved;
    return capsule_store(r->db, r->run.id, &(struct capsule_of){ m, "", NULL, &arm, 1 }, why);
}

static bool is_timed(const struct recorder *r)
{
    return strcmp(r->run.kind, "eval") != 0; /* a perplexity is the same on a slow day */
}

enum err_code recorder_start(struct recorder *r, const struct machine *m, const json_t *description,
                             const char *model_path, const char *workload, const char *label, uint64_t seed,
                             struct err *why)
{
    if (r->started) return ERR_OK;
    enum err_code rc = put_identities(r, m, description, model_path, why);
    if (rc) return rc;
    snprintf(r->run.workload, sizeof r->run.workload, "%s", workload);
    snprintf(r->run.label, sizeof r->run.label, "%s", label);
    r->run.seed = seed;
    rc = db_run_insert(r->db, &r->run, why);
    r->started = !rc;
    if (!rc) rc = put_capsule(r, m, description, model_path, why);
    if (!rc && is_timed(r)) rc = canary_record(r->db, r->run.id, CANARY_START, why);
    return rc;
}

struct measure_list {
    struct measurement m[16];
    int n;
};

static void add(struct measure_list *l, enum metric_id id, double value)
{
    if (isfinite(value)) l->m[l->n++] = (struct measurement){ METRICS[id].name, METRICS[id].unit, value };
}

static void measure(struct measure_list *l, const json_t *answer, float *itl, int n_itl, double energy_j)
{
    add(l, METRIC_PREFILL_RATE, answer_prefill_rate(answer));
    add(l, METRIC_DECODE_RATE, answer_decode_rate(answer));
    add(l, METRIC_TTFT, json_get_num(answer, "ttft_s", NAN));
    add(l, METRIC_PERPLEXITY, json_get_num(answer, "perplexity", NAN));
    add(l, METRIC_KLD, json_get_num(answer, METRICS[METRIC_KLD].name, NAN));
    add(l, METRIC_PEAK_MEMORY, json_get_num(answer, "peak_rss_bytes", NAN));
    add(l, METRIC_ENERGY, energy_j);
    add(l, METRIC_ITL_P50, stats_latency_quantile(itl, n_itl, 0.50));
    add(l, METRIC_ITL_P95, stats_latency_quantile(itl, n_itl, 0.95));
    add(l, METRIC_ITL_P99, stats_latency_quantile(itl, n_itl, 0.99));
}

/* The samples of the cell, one row per value that was due; *rows owned. */
static int sample_rows(struct sample_row **rows, const struct recorded_cell *c)
{
    int n = 0;
    *rows = c->n_samples ? calloc((size_t)c->n_samples * METRIC_SENSOR_COUNT, sizeof **rows) : NULL;
    for (int i = 0; *rows && i < c->n_samples; i++)
        for (int k = 0; k < METRIC_SENSOR_COUNT; k++)
            if (isfinite(c->samples[i].value[k]))
                (*rows)[n++] = (struct sample_row){ .t_ns = c->samples[i].t_ns - c->start_ns,
                                                    .metric = METRICS[k].name,
                                                    .value = c->samples[i].value[k] };
    return n;
}

/* What the worker said about itself, without the raw latencies (they have their own table). */
static void echo(struct cell_row *row, const json_t *answer)
{
    json_t *short_answer = json_copy((json_t *)answer);
    json_object_del(short_answer, "itl_s");
    char *line = json_line(short_answer);
    if (line && strlen(line) < sizeof row->worker_json)
        snprintf(row->worker_json, sizeof row->worker_json, "%s", line);
    json_decref(short_answer);
    free(line);
}

enum err_code recorder_cell(struct recorder *r, const struct recorded_cell *c, struct err *why)
{
    struct measure_list l = { .n = 0 };
    struct sample_row *samples = NULL;
    struct cell_row row = {
        .run_id = r->run.id, .arm = c->arm, .block = -1, .started_ms = c->started_ms, .seconds = c->seconds
    };
    float *itl = NULL;
    int n_itl = 0;
    struct request_figures figures;
    struct request_rows requests = { .figures = &figures };
    snprintf(row.phase, sizeof row.phase, "%s", r->run.kind);
    snprintf(row.config, sizeof row.config, "%s", c->config);
    snprintf(row.error, sizeof row.error, "%s", c->error ? c->error : "");
    enum err_code rc = ERR_OK;
    if (c->answer) {
        snprintf(row.work_hash, sizeof row.work_hash, "%s", json_get_str(c->answer, "work_hash", ""));
        snprintf(row.output_hash, sizeof row.output_hash, "%s", json_get_str(c->answer, "output_hash", ""));
        echo(&row, c->answer);
        requests.n = request_read(&requests, &figures, c->answer);
        row.requests = &requests;
        rc = answer_itl(c->answer, &itl, &n_itl, why);
        float *sorted = n_itl ? malloc((size_t)n_itl * sizeof *sorted) : NULL; /* the raw order is stored */
        if (sorted) memcpy(sorted, itl, (size_t)n_itl * sizeof *sorted);
        measure(&l, c->answer, sorted, sorted ? n_itl : 0, c->energy_j);
        free(sorted);
    }
    int n_samples = sample_rows(&samples, c);
    if (!rc) rc = db_cell_insert(r->db, &row, l.m, l.n, samples, n_samples, itl, n_itl, why);
    if (!rc && c->start_ns)
        rc = spans_store_cell(r->db, &row, c->answer, (struct moment){ c->started_ms * 1000000, c->start_ns },
                              why);
    free(samples);
    free(itl);
    return rc;
}

enum err_code recorder_finish(struct recorder *r, const char *state, const struct table *t, struct err *why)
{
    if (!r->started) return ERR_OK;
    json_t *outcome = json_object();
    json_put_str(outcome, "schema", t->schema);
    json_object_set(outcome, "rows", t->rows);
    json_object_set(outcome, "extra", t->extra);
    char *line = json_line(outcome);
    json_decref(outcome);
    enum err_code rc = is_timed(r) ? canary_record(r->db, r->run.id, CANARY_END, why) : ERR_OK;
    if (!rc)
        rc = line ? db_run_finish(r->db, r->run.id, state, "", NAN, line, why)
                  : err_set(why, ERR_NOMEM, "no memory for the outcome");
    free(line);
    return rc;
}

void recorder_close(struct recorder *r)
{
    db_close(r->db);
}

enum err_code recorded_table(struct table *t, const struct run_row *run, struct err *why)
{
    json_t *outcome = NULL;
    if (!run->outcome_json)
        return err_set(why, ERR_USAGE, "run %lld (%s) has no table: its state is '%s'", (long long)run->id,
                       run->kind, run->state);
    enum err_code rc = json_parse(&outcome, run->outcome_json, strlen(run->outcome_json), why);
    if (rc) return err_prefix(why, "outcome of run %lld", (long long)run->id);
    json_t *rows = json_object_get(outcome, "rows"), *extra = json_object_get(outcome, "extra");
    if (json_is_array(rows)) json_array_extend(t->rows, rows);
    if (json_is_object(extra)) json_object_update(t->extra, extra);
    json_decref(outcome);
    return ERR_OK;
}

static double rate(const json_t *answer, const char *tokens, const char *seconds)
{
    double n = json_get_num(answer, tokens, NAN), s = json_get_num(answer, seconds, NAN);
    return n > 0 && s > 0 ? n / s : NAN;
}

double answer_prefill_rate(const json_t *answer)
{
    return rate(answer, "prompt_tokens", "prefill_s");
}

double answer_decode_rate(const json_t *answer)
{
    return rate(answer, "gen_tokens", "decode_s");
}

enum err_code answer_itl(const json_t *answer, float **all, int *n, struct err *why)
{
    const json_t *list = json_object_get(answer, "itl_s");
    size_t more = json_is_array(list) ? json_array_size(list) : 0;
    if (!more) return ERR_OK;
    float *grown = realloc(*all, ((size_t)*n + more) * sizeof *grown);
    if (!grown) return err_set(why, ERR_NOMEM, "no memory for %zu latencies", more);
    *all = grown;
    for (size_t i = 0; i < more; i++) grown[(*n)++] = (float)json_number_value(json_array_get(list, i));
    return ERR_OK;
}
