/* advisor/run/requests.c - totals and histograms over all requests in the database (run.h).
 *
 * Requests of a load (run/load.c) are rows of their own, whose times overlap; its latencies between tokens
 * are those of steady state. Otherwise the sequences of a cell run side by side. Each counts as a request,
 * and all take the same time: tokens are summed over sequences, seconds are wall-clock time. */
#include "advisor/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool request_read(struct request_rows *rows, struct request_figures *f, const json_t *answer)
{
    const double prefill_s = json_get_num(answer, "prefill_s", NAN),
                 decode_s = json_get_num(answer, "decode_s", NAN);
    const bool scores = json_is_number(
        json_object_get(answer, "scored_tokens")); /* evaluation scores text and generates none */
    if (scores || !(prefill_s > 0 || decode_s > 0)) return false;
    snprintf(rows->model, sizeof(rows->model), "%s", json_get_str(answer, "model", ""));
    snprintf(rows->workload, sizeof(rows->workload), "%s", json_get_str(answer, "workload", ""));
    rows->sequences = (int)json_get_int(answer, "sequences", 1);
    *f = (struct request_figures){ .prompt_tokens = (float)json_get_num(answer, "prompt_tokens", 0),
                                   .gen_tokens = (float)json_get_num(answer, "gen_tokens", 0),
                                   .ttft_s = (float)json_get_num(answer, "ttft_s", NAN),
                                   .prefill_s = (float)prefill_s,
                                   .decode_s = (float)decode_s };
    return true;
}

/* ---------------------------------------------------------------- counting */

static struct request_series *series_of(struct request_totals *t, const char *model, const char *workload)
{
    static const char OTHER[] = "other";
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->series[i].model, model) && !strcmp(t->series[i].workload, workload))
            return &t->series[i];
    const bool full = t->n >= REQUEST_SERIES;
    if (t->n > REQUEST_SERIES) return &t->series[REQUEST_SERIES];
    struct request_series *s = &t->series[t->n++];
    *s = (struct request_series){ .prompt_tokens = 0 };
    snprintf(s->model, sizeof(s->model), "%s", full ? OTHER : model);
    snprintf(s->workload, sizeof(s->workload), "%s", full ? OTHER : workload);
    return s;
}

/* in the order of request_series.histogram */
static const enum family_id HISTOGRAMS[REQUEST_HISTOGRAMS] = {
    FAMILY_TIME_TO_FIRST_TOKEN, FAMILY_INTER_TOKEN_LATENCY, FAMILY_TIME_PER_OUTPUT_TOKEN,
    FAMILY_REQUEST_DURATION,    FAMILY_PREFILL_SECONDS,     FAMILY_DECODE_SECONDS,
};

static void series_add_observation(struct request_series *s, enum family_id family, double seconds, int times)
{
    for (int i = 0; i < REQUEST_HISTOGRAMS; i++)
        if (HISTOGRAMS[i] == family)
            histogram_add(&s->histogram[i], FAMILIES[family].edges, seconds, (uint64_t)times);
}

static double or_zero(double v)
{
    return isnan(v) ? 0 : v;
}

struct request_parts_s request_parts_s(const struct request_figures *f, int sequences, bool in_load)
{
    const double tokens_each = (double)f->gen_tokens / sequences - in_load;
    return (struct request_parts_s){
        .ttft_s = f->ttft_s,
        .tpot_s = tokens_each > 0 ? f->decode_s / tokens_each : NAN,
        .duration_s = or_zero(f->ttft_s) + or_zero(f->decode_s),
        .prefill_s = f->prefill_s,
        .decode_s = f->decode_s,
    };
}

static void add_request(struct request_series *s, const struct request_figures *f, int sequences,
                        bool in_load)
{
    const struct request_parts_s t = request_parts_s(f, sequences, in_load);
    s->prompt_tokens += or_zero((double)f->prompt_tokens);
    s->prompt_seconds += or_zero(t.prefill_s);
    s->generated_tokens += (double)f->gen_tokens;
    s->generate_seconds += or_zero(t.decode_s);
    series_add_observation(s, FAMILY_TIME_TO_FIRST_TOKEN, t.ttft_s, sequences);
    series_add_observation(s, FAMILY_PREFILL_SECONDS, t.prefill_s, sequences);
    series_add_observation(s, FAMILY_DECODE_SECONDS, t.decode_s, sequences);
    series_add_observation(s, FAMILY_REQUEST_DURATION, t.duration_s, sequences);
    series_add_observation(s, FAMILY_TIME_PER_OUTPUT_TOKEN, t.tpot_s, sequences);
}

void request_totals_add(struct request_totals *t, const struct cell_requests *c)
{
    const int sequences = MAX(1, c->requests.sequences);
    const bool in_load = str_starts(c->requests.workload, "load:");
    struct request_series *s = series_of(t, c->requests.model, c->requests.workload);
    for (int i = 0; i < c->requests.n; i++) add_request(s, &c->requests.figures[i], sequences, in_load);
    for (int i = 0; i < c->n_itl; i++)
        series_add_observation(s, FAMILY_INTER_TOKEN_LATENCY, (double)c->itl[i], sequences);
    t->last_cell = c->cell_id;
}

static enum err_code count_cell(void *ctx, const struct cell_requests *c, struct err *why)
{
    (void)why;
    request_totals_add(ctx, c);
    return ERR_OK;
}

enum err_code request_totals_update(struct request_totals *t, struct db *d, struct err *why)
{
    return db_request_list(d, t->last_cell, count_cell, t, why);
}

/* ---------------------------------------------------------------- telling */

static const struct {
    enum family_id family;
    size_t offset;
} COUNTERS[] = {
    { FAMILY_PROMPT_TOKENS, offsetof(struct request_series, prompt_tokens) },
    { FAMILY_PROMPT_SECONDS, offsetof(struct request_series, prompt_seconds) },
    { FAMILY_GENERATED_TOKENS, offsetof(struct request_series, generated_tokens) },
    { FAMILY_GENERATE_SECONDS, offsetof(struct request_series, generate_seconds) },
};

void request_totals_tell(const struct request_totals *t, const struct family_sink *to)
{
    for (size_t k = 0; k < COUNT_OF(COUNTERS); k++)
        for (int i = 0; i < t->n; i++) {
            const struct request_series *s = &t->series[i];
            double v;
            memcpy(&v, (const char *)s + COUNTERS[k].offset, sizeof(v));
            family_value(to, COUNTERS[k].family,
                         (struct label[]){ { "model", s->model }, { "workload", s->workload } }, 2, v);
        }
    for (int k = 0; k < REQUEST_HISTOGRAMS; k++)
        for (int i = 0; i < t->n; i++) {
            const struct request_series *s = &t->series[i];
            if (s->histogram[k].count)
                to->histogram(to->ctx, HISTOGRAMS[k],
                              (struct label[]){ { "model", s->model }, { "workload", s->workload } }, 2,
                              &s->histogram[k]);
        }
}
