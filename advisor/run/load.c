/* advisor/run/load.c - figures of a load (load.h). */
#include "advisor/run/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/stats/stats.h"
#include "db/db.h"
#include "engine/prompts/prompts.h"
#include "engine/serve/serve.h"

enum { MSER_BATCH = 5, TREND_BATCHES = 10 };
static const double TREND_P = 0.01, TREND_CHANGE = 0.2, CONFIDENCE = 0.95;

/* What happened to a request; seconds after the start of the load, NAN: it did not happen. */
struct row {
    double scheduled, sent, admitted, first, end;
    double prompt, cached; /* tokens; NAN: a server that does not count them */
    int tokens, preemptions;
    int class; /* of its prompt; -1: none */
    bool done;
    const double *token_s; /* [tokens] when each token was there */
};

/* A load while its figures are computed. */
struct rows {
    struct row *row; /* [n] in order of the schedule */
    int n;
    double *token_s, *scratch; /* scratch: [max(n, tokens)] */
    int64_t tokens;
};

/* ---------------------------------------------------------------- reading */

static double number_of(const json_t *v)
{
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static double number_at(const json_t *o, const char *key, size_t i)
{
    return number_of(json_array_get(json_object_get(o, key), i));
}

static int count_at(const json_t *o, const char *key, size_t i)
{
    const double v = number_at(o, key, i);
    return v > 0 && v < INT32_MAX ? (int)v : 0;
}

static int class_at(const json_t *o, size_t i)
{
    const double v = number_at(o, "class", i);
    return v >= 0 && v < PROMPT_CLASSES ? (int)v : -1;
}

static int by_schedule(const void *a, const void *b)
{
    const double x = ((const struct row *)a)->scheduled, y = ((const struct row *)b)->scheduled;
    if (isnan(x) || isnan(y)) return isnan(x) - isnan(y); /* those that never came last */
    return (x > y) - (x < y);
}

static enum err_code rows_read(struct rows *r, const json_t *answer, struct err *why)
{
    const json_t *o = json_object_get(answer, "requests"), *times = json_object_get(o, "token_s");
    const size_t n = json_array_size(json_object_get(o, "outcome")), tokens = json_array_size(times);
    if (!n || n > LOAD_REQUESTS_MOST)
        return err_set(why, ERR_FORMAT, "the worker's answer has %zu requests: expected 1 to %d", n,
                       LOAD_REQUESTS_MOST);
    r->row = calloc(n, sizeof *r->row);
    r->token_s = malloc(MAX(tokens, (size_t)1) * sizeof *r->token_s);
    r->scratch = malloc(MAX(tokens, n) * sizeof *r->scratch);
    if (!r->row || !r->token_s || !r->scratch)
        return err_set(why, ERR_NOMEM, "out of memory for the figures of %zu requests", n);
    for (size_t t = 0; t < tokens; t++) r->token_s[t] = number_of(json_array_get(times, t));
    for (size_t i = 0; i < n; i++) {
        const char *outcome = json_string_value(json_array_get(json_object_get(o, "outcome"), i));
        struct row *q = &r->row[r->n++];
        *q = (struct row){ .scheduled = number_at(o, "scheduled_s", i),
                           .sent = number_at(o, "sent_s", i),
                           .admitted = number_at(o, "admitted_s", i),
                           .first = number_at(o, "first_s", i),
                           .end = number_at(o, "end_s", i),
                           .prompt = number_at(o, "prompt", i),
                           .cached = number_at(o, "cached", i),
                           .tokens = count_at(o, "tokens", i),
                           .preemptions = count_at(o, "preemptions", i),
                           .class = class_at(o, i),
                           .done = outcome && !strcmp(outcome, "done"),
                           .token_s = r->token_s + r->tokens };
        r->tokens += q->tokens;
    }
    if (r->tokens != (int64_t)tokens)
        return err_set(why, ERR_FORMAT, "the worker's answer has times of %zu tokens: expected %lld", tokens,
                       (long long)r->tokens);
    qsort(r->row, (size_t)r->n, sizeof *r->row, by_schedule);
    return ERR_OK;
}

/* ---------------------------------------------------------------- one request */

enum row_figure { ROW_TTFT, ROW_TTFT_SENT, ROW_TPOT, ROW_E2E, ROW_QUEUE, ROW_LATE };

static double row_value(const struct row *q, enum row_figure f)
{
    switch (f) {
    case ROW_TTFT: return q->first - q->scheduled;
    case ROW_TTFT_SENT: return q->first - q->sent;
    case ROW_TPOT: return q->tokens > 1 ? (q->end - q->first) / (q->tokens - 1) : (double)NAN;
    case ROW_E2E: return q->end - q->scheduled;
    case ROW_QUEUE: return q->admitted - q->scheduled;
    case ROW_LATE: return q->sent - q->scheduled;
    }
    return NAN;
}

/* scratch: [q->tokens], in use as long as the result */
static struct request_times row_times(const struct row *q, double *scratch)
{
    struct request_times t = { .arrived_s = q->scheduled,
                               .admitted_s = q->admitted,
                               .first_s = q->first,
                               .last_s = q->end,
                               .tokens = q->tokens,
                               .gap_s = scratch,
                               .gaps = MAX(q->tokens - 1, 0) };
    for (int i = 0; i < t.gaps; i++) scratch[i] = q->token_s[i + 1] - q->token_s[i];
    return t;
}

static bool row_is_known(const struct row *q, const struct workload_load *l, double *scratch)
{
    const struct request_times t = row_times(q, scratch);
    return limits_are_known(l->limit, l->limits, &t);
}

static bool row_is_good(const struct row *q, const struct workload_load *l, double *scratch)
{
    struct request_times t = row_times(q, scratch);
    return q->done && limits_are_met(l->limit, l->limits, &t);
}

/* ---------------------------------------------------------------- steady state */

static bool has_trend(const double *x, int n)
{
    double mean[TREND_BATCHES];
    for (int b = 0; b < TREND_BATCHES; b++) {
        const int from = n * b / TREND_BATCHES, to = n * (b + 1) / TREND_BATCHES;
        mean[b] = stats_mean(x + from, to - from);
    }
    const int half = TREND_BATCHES / 2;
    const double change = stats_mean(mean + half, half) - stats_mean(mean, half);
    /* between the middles of the halves lies half of the series */
    return stats_trend_p(mean, TREND_BATCHES) < TREND_P &&
           2 * fabs(change) > TREND_CHANGE * fabs(stats_mean(mean, TREND_BATCHES));
}

enum steady load_steady(const double *ttft, const double *in_system, int n, int *warmup, char *why,
                        size_t size)
{
    *warmup = -1;
    why[0] = '\0';
    if (n < STEADY_LEAST) {
        snprintf(why, size, "%d request%s too few to tell: expected %d or more", n, n == 1 ? " is" : "s are",
                 STEADY_LEAST);
        return STEADY_UNKNOWN;
    }
    const int batches = n / MSER_BATCH;
    double *mean = malloc((size_t)batches * sizeof *mean);
    if (!mean) {
        snprintf(why, size, "out of memory");
        return STEADY_UNKNOWN;
    }
    for (int b = 0; b < batches; b++) mean[b] = stats_mean(ttft + b * MSER_BATCH, MSER_BATCH);
    const int drop = stats_mser(mean, batches);
    free(mean);
    if (drop < 0 || drop >= batches / 2) {
        snprintf(why, size, "the time to the first token had not settled after half of the requests");
        return STEADY_NOT;
    }
    *warmup = drop * MSER_BATCH;
    if (has_trend(ttft + *warmup, n - *warmup)) {
        snprintf(why, size, "the time to the first token kept changing after the first %d request%s", *warmup,
                 str_plural(*warmup));
        return STEADY_NOT;
    }
    if (has_trend(in_system + *warmup, n - *warmup)) {
        snprintf(why, size, "the number of unfinished requests kept changing after the first %d", *warmup);
        return STEADY_NOT;
    }
    return STEADY_REACHED;
}

/* Completed requests are row[0 .. n) after this. Fills the summary's warm-up, counted in completed requests.
 */
static enum err_code steady_find(struct load_summary *out, const struct rows *r,
                                 const struct workload_load *l, struct err *why)
{
    double *ttft = malloc((size_t)r->n * sizeof *ttft), *in = malloc((size_t)r->n * sizeof *in),
           *ends = malloc((size_t)r->n * sizeof *ends);
    int n = 0;
    const bool room = ttft && in && ends;
    bool known = true;
    for (int i = 0; room && i < r->n; i++) {
        if (!r->row[i].done) continue;
        known = known && !isnan(r->row[i].first);
        ttft[n] = row_value(&r->row[i], ROW_TTFT);
        ends[n++] = r->row[i].end;
    }
    if (room) stats_sort(ends, n);
    for (int i = 0, k = 0, ended = 0; room && i < r->n; i++) {
        if (!r->row[i].done) continue;
        while (ended < n && ends[ended] <= r->row[i].scheduled) ended++;
        in[k] = k - ended;
        k++;
    }
    if (room) out->steady = load_steady(ttft, in, n, &out->warmup, out->unsteady, sizeof out->unsteady);
    if (room && !known) {
        out->steady = STEADY_UNKNOWN;
        snprintf(out->unsteady, sizeof out->unsteady,
                 "the server sends several tokens at a time, so the times of first tokens are unknown");
    }
    if (room && l->arrivals == LOAD_RAMP) {
        out->steady = STEADY_NOT;
        snprintf(out->unsteady, sizeof out->unsteady, "with arrivals=ramp the rate never settles");
    }
    free(ttft);
    free(in);
    free(ends);
    return room ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %d requests", r->n);
}

/* ---------------------------------------------------------------- figures */

/* Figures of steady state: mean, and percentiles where there are enough requests. */
static const struct {
    enum row_figure of;
    enum metric_id mean;
    int p50; /* of p50, p95, p99, in this order; METRIC_COUNT: none */
} STEADY[] = {
    { ROW_TTFT, METRIC_TTFT, METRIC_TTFT_P50 },    { ROW_TTFT_SENT, METRIC_TTFT_SENT, METRIC_COUNT },
    { ROW_TPOT, METRIC_TPOT, METRIC_TPOT_P50 },    { ROW_E2E, METRIC_COUNT, METRIC_E2E_P50 },
    { ROW_QUEUE, METRIC_QUEUE, METRIC_QUEUE_P50 },
};
static const double QUANTILES[] = { 0.50, 0.95, 0.99 };

/* The known values of a figure of the completed requests from `skip` on, to scratch. Returns their number. */
static int values_take(const struct rows *r, int skip, enum row_figure of)
{
    int n = 0, k = 0;
    for (int i = 0; i < r->n; i++) {
        if (!r->row[i].done || k++ < skip) continue;
        const double v = row_value(&r->row[i], of);
        if (!isnan(v)) r->scratch[n++] = v;
    }
    return n;
}

static double half_width(const double *x, int n)
{
    const struct interval i = stats_batch_means(x, n, CONFIDENCE);
    return 0.5 * (i.upper - i.lower);
}

static void steady_figures(struct load_summary *out, double *value, const struct rows *r)
{
    for (size_t f = 0; f < COUNT_OF(STEADY); f++) {
        const int n = values_take(r, out->warmup, STEADY[f].of);
        if (STEADY[f].mean != METRIC_COUNT) value[STEADY[f].mean] = stats_mean(r->scratch, n);
        if (STEADY[f].of == ROW_TTFT) out->ttft_half_s = half_width(r->scratch, n);
        if (STEADY[f].of == ROW_TPOT) out->tpot_half_s = half_width(r->scratch, n);
        if (STEADY[f].p50 == METRIC_COUNT) continue;
        stats_sort(r->scratch, n);
        for (size_t q = 0; q < COUNT_OF(QUANTILES); q++)
            value[STEADY[f].p50 + (int)q] = n < stats_samples_for_quantile(QUANTILES[q], 0.99, 0)
                                                ? (double)NAN
                                                : stats_quantile_sorted(r->scratch, n, QUANTILES[q]);
    }
}

/* The gaps between tokens of requests in steady state. */
static enum err_code gaps_take(float **itl, int *n_itl, const struct rows *r, int skip, struct err *why)
{
    float *gap = malloc((size_t)MAX(r->tokens, (int64_t)1) * sizeof *gap);
    int n = 0, k = 0;
    bool known = true;
    if (!gap)
        return err_set(why, ERR_NOMEM, "out of memory for gaps between %lld tokens", (long long)r->tokens);
    for (int i = 0; i < r->n; i++) {
        if (!r->row[i].done || k++ < skip) continue;
        for (int t = 1; t < r->row[i].tokens; t++)
            gap[n++] = (float)(r->row[i].token_s[t] - r->row[i].token_s[t - 1]);
        if (r->row[i].tokens > 1 && isnan(r->row[i].token_s[1])) known = false;
    }
    if (!known) n = 0; /* percentiles of some requests alone would be of those that are easy to time */
    *itl = gap;
    *n_itl = n;
    return ERR_OK;
}

/* Sums over the completed requests. */
struct sums {
    double prompt, cached, tokens, preemptions, longest_gap;
};

static struct sums sums_of(const struct rows *r)
{
    struct sums s = { .longest_gap = NAN };
    bool gaps_known = true;
    for (int i = 0; i < r->n; i++) {
        const struct row *q = &r->row[i];
        s.preemptions += q->preemptions;
        for (int t = 1; t < q->tokens; t++) {
            const double gap = q->token_s[t] - q->token_s[t - 1];
            if (isnan(gap)) gaps_known = false;
            s.longest_gap = fmax(s.longest_gap, gap);
        }
        s.tokens += q->tokens;
        if (!q->done) continue;
        s.prompt += q->prompt;
        s.cached += q->cached;
    }
    if (!gaps_known) s.longest_gap = NAN;
    return s;
}

static double quotient(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

static void run_figures(const struct load_summary *out, double *value, const struct rows *r,
                        const json_t *served)
{
    const struct sums s = sums_of(r);
    const double seconds = json_get_num(served, "seconds", NAN), step_s = json_get_num(served, "step_s", NAN),
                 steps = json_get_num(served, "steps", NAN);
    int n = values_take(r, 0, ROW_E2E);
    value[METRIC_E2E] = stats_mean(r->scratch, n);
    n = values_take(r, 0, ROW_LATE);
    value[METRIC_LATE] = stats_mean(r->scratch, n);
    value[METRIC_ITL_MAX] = s.longest_gap;
    value[METRIC_REQUEST_RATE] = quotient(out->done, seconds);
    value[METRIC_IN_RATE] = quotient(s.prompt, seconds);
    value[METRIC_OUT_RATE] = quotient(s.tokens, seconds);
    value[METRIC_BATCH] = quotient(json_get_num(served, "step_requests", NAN), steps);
    value[METRIC_KV_USE] = json_get_num(served, "kv_use", NAN);
    value[METRIC_PREFIX_HIT] = quotient(s.cached, s.prompt);
    value[METRIC_PREEMPTIONS] = s.preemptions;
    value[METRIC_SCHEDULER] = quotient(step_s - json_get_num(served, "model_s", NAN), step_s);
    value[METRIC_FAILED] = out->requests - out->done;
}

/* Each request within its limits or not. A share of 0 has no logarithm, which comparisons need, so none at
 * all counts as half a request. */
static void goodput_figures(struct load_summary *out, double *value, const struct rows *r,
                            const struct workload_load *l, double *gaps)
{
    for (int i = 0; i < r->n; i++) {
        if (r->row[i].done &&
            !row_is_known(&r->row[i], l, gaps)) { /* a limit for gaps, and chunks that are no tokens */
            out->good = 0;
            return;
        }
        r->scratch[i] = row_is_good(&r->row[i], l, gaps);
        out->good += r->scratch[i] > 0;
    }
    value[METRIC_GOODPUT] = fmax(out->good, 0.5) / out->requests;
    out->goodput_half = half_width(r->scratch, r->n);
}

static void rows_free(struct rows *r)
{
    free(r->row);
    free(r->token_s);
    free(r->scratch);
}

enum err_code load_figures(struct load_summary *out, double *value, float **itl, int *n_itl,
                           const json_t *answer, const struct workload_load *l, struct err *why)
{
    struct rows r = { 0 };
    double *gaps = NULL;
    *out = (struct load_summary){ .warmup = -1, .ttft_half_s = NAN, .tpot_half_s = NAN, .goodput_half = NAN };
    *itl = NULL;
    *n_itl = 0;
    enum err_code rc = rows_read(&r, answer, why);
    const json_t *served = json_object_get(answer, "served");
    out->requests = r.n;
    out->cut = (int)json_get_int(served, "cut", 0);
    snprintf(out->failed, sizeof out->failed, "%s", json_get_str(served, "failed_because", ""));
    for (int i = 0; i < r.n; i++) out->done += r.row[i].done;
    if (!rc) rc = steady_find(out, &r, l, why);
    if (!rc && !(gaps = malloc((size_t)MAX(r.tokens, (int64_t)1) * sizeof *gaps)))
        rc = err_set(why, ERR_NOMEM, "out of memory for gaps between tokens");
    if (!rc) {
        run_figures(out, value, &r, served);
        if (l->limits) goodput_figures(out, value, &r, l, gaps);
        if (out->steady == STEADY_REACHED) {
            steady_figures(out, value, &r);
            rc = gaps_take(itl, n_itl, &r, out->warmup, why);
        }
    }
    free(gaps);
    rows_free(&r);
    return rc;
}

enum err_code load_request_rows(struct request_figures **out, int *n, const json_t *answer, struct err *why)
{
    struct rows r = { 0 };
    *n = 0;
    enum err_code rc = rows_read(&r, answer, why);
    *out = rc ? NULL : malloc((size_t)MAX(r.n, 1) * sizeof **out);
    if (!rc && !*out) rc = err_set(why, ERR_NOMEM, "out of memory for %d requests", r.n);
    for (int i = 0; i < r.n && !rc; i++) {
        const struct row *q = &r.row[i];
        if (!q->done) continue;
        (*out)[(*n)++] = (struct request_figures){ .prompt_tokens = (float)q->prompt,
                                                   .gen_tokens = (float)q->tokens,
                                                   .ttft_s = (float)row_value(q, ROW_TTFT),
                                                   .prefill_s = (float)(q->first - q->admitted),
                                                   .decode_s = q->tokens > 1 ? (float)(q->end - q->first)
                                                                             : NAN };
    }
    rows_free(&r);
    return rc;
}

/* ---------------------------------------------------------------- classes of prompts */

/* Means over the completed requests of one class; with a mean of none, null. */
static json_t *class_json(const struct rows *r, const char *name, int class, const struct workload_load *l,
                          double *gaps)
{
    static const struct {
        const char *key;
        enum row_figure of;
    } MEANS[] = { { "ttft_s", ROW_TTFT }, { "tpot_s", ROW_TPOT }, { "e2e_s", ROW_E2E } };
    json_t *o = json_object();
    double prompt = 0, tokens = 0;
    int requests = 0, done = 0, good = 0;
    for (int i = 0; i < r->n; i++) {
        const struct row *q = &r->row[i];
        if (q->class != class) continue;
        requests++;
        good += l->limits && row_is_good(q, l, gaps);
        if (!q->done) continue;
        done++;
        prompt += q->prompt;
        tokens += q->tokens;
    }
    json_put_str(o, "class", name);
    json_put_int(o, "requests", requests);
    json_put_int(o, "failed_requests", requests - done);
    json_put_num(o, "prompt_tokens", quotient(prompt, done));
    json_put_num(o, "gen_tokens", quotient(tokens, done));
    for (size_t f = 0; f < COUNT_OF(MEANS); f++) {
        int n = 0;
        for (int i = 0; i < r->n; i++)
            if (r->row[i].class == class && r->row[i].done) {
                const double v = row_value(&r->row[i], MEANS[f].of);
                if (!isnan(v)) r->scratch[n++] = v;
            }
        json_put_num(o, MEANS[f].key, stats_mean(r->scratch, n));
    }
    json_put_num(o, "goodput_ratio", l->limits ? quotient(good, requests) : (double)NAN);
    return o;
}

enum err_code load_class_figures(json_t **out, const json_t *answer, const struct workload_load *l,
                                 struct err *why)
{
    const json_t *names = json_object_get(answer, "classes");
    struct rows r = { 0 };
    *out = NULL;
    if (!json_array_size(names)) return ERR_OK;
    enum err_code rc = rows_read(&r, answer, why);
    double *gaps = rc ? NULL : malloc((size_t)MAX(r.tokens, (int64_t)1) * sizeof *gaps);
    if (!rc && !gaps) rc = err_set(why, ERR_NOMEM, "out of memory for gaps between tokens");
    if (!rc) *out = json_array();
    for (size_t c = 0; !rc && c < MIN(json_array_size(names), (size_t)PROMPT_CLASSES); c++) {
        json_t *of = class_json(&r, json_string_value(json_array_get(names, c)), (int)c, l, gaps);
        if (json_get_int(of, "requests", 0))
            json_array_append_new(*out, of);
        else
            json_decref(of);
    }
    free(gaps);
    rows_free(&r);
    return rc;
}

/* ---------------------------------------------------------------- the highest rate */

void rate_search_init(struct rate_search *s, double capacity)
{
    static const double BEYOND = 1.2; /* the capacity is measured, too */
    *s = (struct rate_search){ .high = BEYOND * capacity, .left = RATE_SEARCH_CELLS };
}

double rate_search_next(const struct rate_search *s)
{
    return s->left > 0 ? 0.5 * (s->low + s->high) : (double)NAN;
}

void rate_search_take(struct rate_search *s, double rate, bool meets)
{
    *(meets ? &s->low : &s->high) = rate;
    s->left--;
}

bool load_meets(const struct load_summary *c, const struct workload_load *l)
{
    return c->steady == STEADY_REACHED && c->good >= l->meet * c->requests;
}
