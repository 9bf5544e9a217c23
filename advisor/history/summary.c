/* advisor/history/summary.c - what happened in a period (history.h): every figure is counted from the stored
 * rows of its runs and cells. Observations are kept with a weight, because parallel sequences of a cell are
 * one request each and have the same times. */
#include "advisor/history/history.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"

enum { HOUR_MS = 3600 * 1000 };
static const double LONGEST_S = 1e9; /* a damaged file must not overflow a time */

const char *const SUMMARY_SUBJECT_NAMES[SUMMARY_SUBJECTS] = { "runs", "cells" };
const char *const SUMMARY_PEAK_NAMES[SUMMARY_PEAKS] = { "runs", "cells", "requests" };
const struct summary_latency_row SUMMARY_LATENCY_ROWS[SUMMARY_LATENCIES] = {
    [SUMMARY_TTFT] = { "ttft_s", "time to first token" },
    [SUMMARY_ITL] = { "itl_s", "time between two tokens" },
    [SUMMARY_TPOT] = { "tpot_s", "mean time between the tokens of a request" },
    [SUMMARY_E2E] = { "e2e_s", "from the request to its last token" },
    [SUMMARY_PREFILL] = { "prefill_s", "prefill of a request" },
    [SUMMARY_DECODE] = { "decode_s", "decode of a request" },
    [SUMMARY_CELL] = { "cell_s", "duration of a cell" },
    [SUMMARY_RUN] = { "run_s", "duration of a run" },
};

static enum err_code no_memory(struct err *why)
{
    return err_set(why, ERR_NOMEM, "out of memory for the summary: choose a shorter time");
}

/* ---------------------------------------------------------------- observations */

struct observation {
    double seconds;
    int64_t times;
};
struct observations {
    struct observation *x;
    int n, cap;
    int64_t total; /* sum of times */
};

/* A value that was not measured is none. */
static enum err_code observation_add(struct observations *o, double seconds, int64_t times, struct err *why)
{
    if (!isfinite(seconds) || times < 1) return ERR_OK;
    if (!array_room(&o->x, &o->cap, o->n + 1, sizeof *o->x)) return no_memory(why);
    o->x[o->n++] = (struct observation){ seconds, times };
    o->total += times;
    return ERR_OK;
}

static int observation_compare(const void *a, const void *b)
{
    const double x = ((const struct observation *)a)->seconds, y = ((const struct observation *)b)->seconds;
    return (x > y) - (x < y);
}

/* The value at this rank (0 .. total-1) if each were written as often as it was observed. */
static double observation_at(const struct observations *o, int64_t rank)
{
    int i = 0;
    while (i + 1 < o->n && rank >= o->x[i].times) rank -= o->x[i++].times;
    return o->x[i].seconds;
}

static double observations_quantile(const struct observations *o, double p)
{
    const double place = p * (double)(o->total - 1);
    const int64_t below = (int64_t)floor(place), above = MIN(below + 1, o->total - 1);
    const double low = observation_at(o, below), high = observation_at(o, above);
    return low + (place - (double)below) * (high - low);
}

static struct summary_quantiles observations_summarize(struct observations *o)
{
    if (!o->n) return (struct summary_quantiles){ 0, NAN, NAN, NAN, NAN };
    qsort(o->x, (size_t)o->n, sizeof *o->x, observation_compare);
    return (struct summary_quantiles){ .n = o->total,
                                       .p50 = observations_quantile(o, 0.50),
                                       .p95 = observations_quantile(o, 0.95),
                                       .p99 = observations_quantile(o, 0.99),
                                       .most = o->x[o->n - 1].seconds };
}

/* ---------------------------------------------------------------- intervals */

struct moment_change {
    int64_t at_ms, run_id;
    int by; /* +1 begins, -1 ends */
};
struct intervals {
    struct moment_change *change;
    int n, cap;
};

static enum err_code interval_add(struct intervals *v, int64_t from_ms, int64_t to_ms, int64_t run_id,
                                  struct err *why)
{
    if (!array_room(&v->change, &v->cap, v->n + 2, sizeof *v->change)) return no_memory(why);
    v->change[v->n++] = (struct moment_change){ from_ms, run_id, 1 };
    v->change[v->n++] = (struct moment_change){ MAX(to_ms, from_ms + 1), run_id, -1 };
    return ERR_OK;
}

/* What ends at a moment is over before what begins then. */
static int moment_compare(const void *a, const void *b)
{
    const struct moment_change *x = a, *y = b;
    if (x->at_ms != y->at_ms) return (x->at_ms > y->at_ms) - (x->at_ms < y->at_ms);
    return x->by - y->by;
}

static struct summary_peak intervals_peak(struct intervals *v)
{
    struct summary_peak peak = { 0, 0, 0 };
    int64_t now = 0;
    if (v->n) qsort(v->change, (size_t)v->n, sizeof *v->change, moment_compare);
    for (int i = 0; i < v->n; i++) {
        now += v->change[i].by;
        if (now > peak.n) peak = (struct summary_peak){ now, v->change[i].at_ms, v->change[i].run_id };
    }
    return peak;
}

/* ---------------------------------------------------------------- collecting */

struct collector {
    const struct summary_want *want;
    struct history_summary *out;
    struct observations latency[SUMMARY_LATENCIES];
    struct intervals runs, cells;
    double *hour_s; /* [hours] seconds of cells in each hour from first_hour on */
    int64_t *hour_cells;
    int64_t first_hour, hours;
    bool limited; /* only these runs count, ascending */
    int64_t *id;
    size_t ids;
};

static int id_compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool counts_run(const struct collector *c, int64_t id)
{
    return !c->limited || (c->ids && bsearch(&id, c->id, c->ids, sizeof id, id_compare));
}

/* The rule that a reason names, without this cell's figures: "12 major page faults: memory was read" and "9
 * major page faults: ..." are one reason. */
static void reason_shorten(char *out, size_t size, const char *reason)
{
    const char *from = reason + strspn(reason, "0123456789. ");
    if (!*from) from = reason;
    snprintf(out, size, "%.*s", (int)MIN(strcspn(from, ":"), size - 1), from);
}

static struct summary_count *count_find(struct history_summary *s, enum summary_subject of,
                                        const char *outcome, const char *reason)
{
    for (int i = 0; i < s->counts; i++)
        if (s->count[i].of == of && !strcmp(s->count[i].outcome, outcome) &&
            !strcmp(s->count[i].reason, reason))
            return &s->count[i];
    return NULL;
}

/* Room is kept for "other" of every outcome: runs have five, cells three. */
static void count_add(struct history_summary *s, enum summary_subject of, const char *outcome,
                      const char *reason)
{
    enum { OUTCOMES = 8 };
    char short_reason[sizeof s->count[0].reason];
    snprintf(short_reason, sizeof short_reason, "%s", reason);
    struct summary_count *c = count_find(s, of, outcome, short_reason);
    if (!c && s->counts >= SUMMARY_COUNTS - OUTCOMES) {
        snprintf(short_reason, sizeof short_reason, "other");
        c = count_find(s, of, outcome, short_reason);
    }
    if (!c && s->counts < SUMMARY_COUNTS) {
        c = &s->count[s->counts++];
        *c = (struct summary_count){ .of = of };
        snprintf(c->outcome, sizeof c->outcome, "%s", outcome);
        snprintf(c->reason, sizeof c->reason, "%s", short_reason);
    }
    if (c) c->n++;
    s->all[of]++;
}

static enum err_code run_collect(void *ctx, const struct period_run *r, struct err *why)
{
    struct collector *c = ctx;
    if (!counts_run(c, r->id)) return ERR_OK;
    count_add(c->out, SUMMARY_RUNS, r->state, *r->error ? r->error : r->verdict);
    c->out->failed[SUMMARY_RUNS] += !strcmp(r->state, "failed") || !strcmp(r->state, "interrupted");
    const int64_t from = MAX(r->started_ms, c->want->from_ms),
                  to = r->ended_ms ? MIN(r->ended_ms, c->want->to_ms) : c->want->to_ms;
    enum err_code rc = interval_add(&c->runs, from, to, r->id, why);
    if (!rc && !strcmp(r->state, "done"))
        rc = observation_add(&c->latency[SUMMARY_RUN], ((double)r->ended_ms - (double)r->started_ms) * 1e-3,
                             1, why);
    return rc;
}

static enum err_code requests_collect(struct collector *c, const struct period_cell *p, struct err *why)
{
    const int sequences = MAX(1, p->sequences);
    const bool in_load = str_starts(p->workload, "load:");
    enum err_code rc = ERR_OK;
    for (int i = 0; i < p->n && !rc; i++) {
        const struct request_parts_s t = request_parts_s(&p->figures[i], sequences, in_load);
        const double seconds[SUMMARY_LATENCIES] = {
            [SUMMARY_TTFT] = t.ttft_s,
            [SUMMARY_ITL] = NAN,
            [SUMMARY_TPOT] = t.tpot_s,
            [SUMMARY_E2E] = t.duration_s,
            [SUMMARY_PREFILL] = t.prefill_s,
            [SUMMARY_DECODE] = t.decode_s,
            [SUMMARY_CELL] = NAN,
            [SUMMARY_RUN] = NAN,
        };
        for (int k = 0; k < SUMMARY_LATENCIES && !rc; k++)
            rc = observation_add(&c->latency[k], seconds[k], sequences, why);
    }
    for (int i = 0; i < p->n_itl && !rc; i++)
        rc = observation_add(&c->latency[SUMMARY_ITL], (double)p->itl[i], sequences, why);
    /* How many requests of a load ran at once is known from its server only, not from its requests. */
    const int64_t at_once = in_load ? p->running_most : p->n ? sequences : 0;
    struct summary_peak *peak = &c->out->peak[SUMMARY_PEAK_REQUESTS];
    if (at_once > peak->n) *peak = (struct summary_peak){ at_once, p->started_ms, p->run_id };
    return rc;
}

/* A cell's time goes to every hour that it ran in. */
static void hours_collect(struct collector *c, const struct period_cell *p)
{
    int64_t hour = p->started_ms / HOUR_MS - c->first_hour;
    double at_ms = (double)p->started_ms, left_s = isnan(p->seconds) ? 0 : p->seconds;
    if (hour >= 0 && hour < c->hours) c->hour_cells[hour]++;
    for (; left_s > 0 && hour >= 0 && hour < c->hours; hour++) {
        const double until_ms = (double)(hour + c->first_hour + 1) * HOUR_MS;
        const double here_s = fmin(left_s, (until_ms - at_ms) * 1e-3);
        c->hour_s[hour] += here_s;
        left_s -= here_s;
        at_ms = until_ms;
    }
}

static enum err_code cell_collect(void *ctx, const struct period_cell *p, struct err *why)
{
    struct collector *c = ctx;
    char reason[sizeof c->out->count[0].reason] = "";
    if (!counts_run(c, p->run_id) || !strcmp(p->phase, CANARY_PHASE)) return ERR_OK;
    const bool failed = *p->error;
    if (failed)
        snprintf(reason, sizeof reason, "%s", p->error);
    else if (p->discarded)
        reason_shorten(reason, sizeof reason, p->discard_reason);
    count_add(c->out, SUMMARY_CELLS, failed ? "failed" : p->discarded ? "discarded" : "kept", reason);
    c->out->failed[SUMMARY_CELLS] += failed;
    hours_collect(c, p);
    enum err_code rc = ERR_OK;
    if (p->seconds >= 0)
        rc = interval_add(&c->cells, p->started_ms,
                          p->started_ms + (int64_t)(1e3 * fmin(p->seconds, LONGEST_S)), p->run_id, why);
    if (!rc && !failed) rc = observation_add(&c->latency[SUMMARY_CELL], p->seconds, 1, why);
    return rc ? rc : requests_collect(c, p, why);
}

/* ---------------------------------------------------------------- the summary */

static enum err_code runs_limit(struct collector *c, struct db *d, struct err *why)
{
    struct run_row *runs = NULL;
    int n = 0;
    c->limited = c->want->filter || (c->want->labels && c->want->labels->n);
    if (!c->limited) return ERR_OK;
    enum err_code rc = db_run_find_labeled(d, c->want->filter, c->want->labels, 0, &runs, &n, why);
    if (!rc && n && !(c->id = malloc((size_t)n * sizeof *c->id))) rc = no_memory(why);
    for (int i = 0; i < n; i++) {
        if (c->id) c->id[c->ids++] = runs[i].id;
        run_row_free(&runs[i]);
    }
    if (c->ids) qsort(c->id, c->ids, sizeof *c->id, id_compare);
    free(runs);
    return rc;
}

static enum err_code hours_open(struct collector *c, struct err *why)
{
    c->first_hour = c->want->from_ms / HOUR_MS;
    c->hours = c->want->to_ms / HOUR_MS - c->first_hour + 1;
    c->hour_s = calloc((size_t)c->hours, sizeof *c->hour_s);
    c->hour_cells = calloc((size_t)c->hours, sizeof *c->hour_cells);
    return c->hour_s && c->hour_cells ? ERR_OK : no_memory(why);
}

static void busiest_find(struct collector *c)
{
    struct history_summary *s = c->out;
    for (int64_t i = 0; i < c->hours; i++) {
        if (!c->hour_cells[i] || !(c->hour_s[i] > s->busiest_s)) continue;
        s->busiest_s = c->hour_s[i];
        s->busiest_ms = (i + c->first_hour) * HOUR_MS;
        s->busiest_cells = c->hour_cells[i];
    }
}

static int count_compare(const void *a, const void *b)
{
    const struct summary_count *x = a, *y = b;
    if (x->of != y->of) return (x->of > y->of) - (x->of < y->of);
    if (x->n != y->n) return (x->n < y->n) - (x->n > y->n);
    const int order = strcmp(x->outcome, y->outcome);
    return order ? order : strcmp(x->reason, y->reason);
}

double summary_error_ratio(const struct history_summary *s, enum summary_subject of)
{
    return s->all[of] ? (double)s->failed[of] / (double)s->all[of] : NAN;
}

enum err_code history_summarize(struct history_summary *out, struct db *d, const struct summary_want *want,
                                struct err *why)
{
    struct collector c = { .want = want, .out = out };
    *out = (struct history_summary){ .from_ms = want->from_ms, .to_ms = want->to_ms, .busiest_ms = -1 };
    if (want->from_ms >= want->to_ms)
        return err_set(why, ERR_USAGE,
                       "a period from %" PRId64 " to %" PRId64 " ms: expected its end after its start",
                       want->from_ms, want->to_ms);
    enum err_code rc = hours_open(&c, why);
    if (!rc) rc = runs_limit(&c, d, why);
    if (!rc) rc = db_period_runs(d, want->from_ms, want->to_ms, run_collect, &c, why);
    if (!rc) rc = db_period_cells(d, want->from_ms, want->to_ms, cell_collect, &c, why);
    if (!rc) {
        busiest_find(&c);
        out->peak[SUMMARY_PEAK_RUNS] = intervals_peak(&c.runs);
        out->peak[SUMMARY_PEAK_CELLS] = intervals_peak(&c.cells);
        qsort(out->count, (size_t)out->counts, sizeof *out->count, count_compare);
    }
    for (int k = 0; k < SUMMARY_LATENCIES; k++) {
        out->latency[k] = observations_summarize(&c.latency[k]);
        free(c.latency[k].x);
    }
    free(c.runs.change);
    free(c.cells.change);
    free(c.hour_s);
    free(c.hour_cells);
    free(c.id);
    return rc;
}

/* ---------------------------------------------------------------- telling */

const char *const SUMMARY_STAT_NAMES[SUMMARY_STATS] = { "p50", "p95", "p99", "max" };

double summary_stat(const struct summary_quantiles *q, int stat)
{
    const double value[SUMMARY_STATS] = { q->p50, q->p95, q->p99, q->most };
    return value[stat];
}

void history_summary_tell(const struct history_summary *day, const struct family_sink *to)
{
    for (int of = 0; of < SUMMARY_SUBJECTS; of++)
        family_value(to, FAMILY_DAY_ERRORS, &(struct label){ "of", SUMMARY_SUBJECT_NAMES[of] }, 1,
                     summary_error_ratio(day, of));
    for (int k = 0; k < SUMMARY_LATENCIES; k++)
        for (int i = 0; i < SUMMARY_STATS; i++)
            family_value(to, FAMILY_DAY_LATENCY,
                         (struct label[]){ { "latency", SUMMARY_LATENCY_ROWS[k].name },
                                           { "stat", SUMMARY_STAT_NAMES[i] } },
                         2, summary_stat(&day->latency[k], i));
    for (int k = 0; k < SUMMARY_PEAKS; k++)
        family_value(to, FAMILY_DAY_MOST_AT_ONCE, &(struct label){ "of", SUMMARY_PEAK_NAMES[k] }, 1,
                     day->peak[k].n ? (double)day->peak[k].n : (double)NAN);
    family_value(to, FAMILY_DAY_BUSIEST_HOUR, NULL, 0,
                 day->busiest_ms < 0 ? (double)NAN : (double)day->busiest_ms * 1e-3);
}
