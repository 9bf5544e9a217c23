/* advisor/run/load.h - figures of a load, from what happened to each of its requests. Part of run.h.
 *
 * Two kinds of figures: those of the whole run (requests and tokens per second, e2e_s, goodput, the longest
 * gap, counts), which all requests of the workload's fixed list determine; and those of steady state (times
 * to the first token, per token, in the queue, and all percentiles), from the requests after warm-up. Without
 * a steady state the second kind is unknown. */
#ifndef QDYNO_ADVISOR_RUN_LOAD_H
#define QDYNO_ADVISOR_RUN_LOAD_H

#include <stdbool.h>

#include "base/base.h"
#include "engine/config/config.h"
#include "telemetry/metrics/metrics.h"

enum steady {
    STEADY_UNKNOWN, /* too few requests to tell */
    STEADY_REACHED,
    STEADY_NOT, /* times or queue kept growing or shrinking */
};

/* What is kept of a cell, beside its metrics. */
struct load_summary {
    int requests;   /* 0: the cell is no load */
    int done, good; /* of these: complete; within all limits, 0 without limits */
    int warmup;     /* the first requests, which steady state leaves out; -1 unknown */
    int cut;        /* requests whose lengths were cut to fit into the context */
    enum steady steady;
    char unsteady[160]; /* why there is no steady state; "" */
    char failed[240];   /* over HTTP: why the first request that was not answered as asked was not; "" */
    /* Half width of the 95 % interval by batch means (stats_batch_means); NAN unknown. */
    double ttft_half_s, tpot_half_s, goodput_half;
};

/* Where warm-up ends and whether the rest is stationary. ttft: [n] seconds, in order of arrival; in_system:
 * [n] requests that had arrived and not ended when each one arrived.
 *
 * Warm-up ends where MSER-5 says: the prefix of the means of five requests whose removal minimizes the
 * standard error of the mean of the rest, at most half of all. The rest is stationary unless the means of ten
 * batches of ttft or in_system have a trend (stats_trend_p below 1 %) that changes them by more than a fifth
 * of their mean. why: text for people unless STEADY_REACHED. */
enum { STEADY_LEAST = 40 }; /* requests below which nothing is said */
enum steady load_steady(const double *ttft, const double *in_system, int n, int *warmup, char *why,
                        size_t size);

/* Compute all from the answer to a cell of this load: value[METRIC_COUNT] gets METRIC_TTFT and
 * METRIC_LOAD_FIRST to _LAST (others stay as they are), *itl (owned: free) the gaps between tokens of
 * requests in steady state. Errors: ERR_FORMAT when the answer is not one of a load; ERR_NOMEM. */
enum err_code load_figures(struct load_summary *out, double *value, float **itl, int *n_itl,
                           const json_t *answer, const struct workload_load *l, struct err *why);

/* Complete requests as rows of the database: each with its own tokens; times from the scheduled arrival to
 * the first token, from the first step to the first token, and from there to the last. Requests run side by
 * side, so these times overlap. *out owned: free. Errors: as load_figures. */
struct request_figures;
enum err_code load_request_rows(struct request_figures **out, int *n, const json_t *answer, struct err *why);

/* Figures of the requests of each class of prompts: a list of objects with class, requests, failed_requests,
 * and means of the complete ones: prompt_tokens, gen_tokens, ttft_s, tpot_s, e2e_s; goodput_ratio, null
 * without limits. *out: new reference; NULL: the prompts have no classes. Errors: as load_figures. */
enum err_code load_class_figures(json_t **out, const json_t *answer, const struct workload_load *l,
                                 struct err *why);

/* The highest rate at which requests meet their limits, by bisection. Above the capacity (requests per second
 * of clients that always wait for answers) no rate has a steady state. */
struct rate_search {
    double low;  /* meets the limits; 0: none yet */
    double high; /* does not */
    int left;    /* cells still to measure */
};
enum { RATE_SEARCH_CELLS = 6 };
void rate_search_init(struct rate_search *s, double capacity);
/* The rate to measure next; NAN: the search has ended, and `low` is its result. */
double rate_search_next(const struct rate_search *s);
void rate_search_take(struct rate_search *s, double rate, bool meets);
/* Does a cell meet the limits: in a steady state, and with enough good requests? */
bool load_meets(const struct load_summary *c, const struct workload_load *l);

#endif
