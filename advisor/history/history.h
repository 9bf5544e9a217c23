/* advisor/history/history.h - the public header of advisor/history/. */
#ifndef QDYNO_ADVISOR_HISTORY_H
#define QDYNO_ADVISOR_HISTORY_H

#include <stdint.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "base/base.h"
#include "db/db.h"
#include "telemetry/metrics/metrics.h"

/* ---------------------------------------------------------------- series */

/* what a series of results over weeks says: is this value unusual, did the level change,
 * when, by how much, and how urgent is that? Pure functions over numbers; docs/history.md is the page.
 *
 *   series.c            moving average, robust z, CUSUM, two-sample test, urgency
 *   series_changes.c    change points (E-divisive)
 *   series_isolation.c  outliers among vectors of metrics (isolation forest)
 *
 * A value that was not measured is NAN: averages leave it out, its z is NAN, a CUSUM does not move; change
 * points are asked of known values only. */

/* out[i] = mean of the known values among x[i-window+1 .. i]: shorter at the beginning. NAN where none is. */
void series_moving_average(const double *x, int n, int window, double *out);

/* z[i] = (x[i] - median) / (1.4826 * median |x - median|): 1.4826 makes it a standard deviation under normal
 * noise (Iglewicz and Hoaglin 1993; they flag |z| > 3.5). Where over half of the values are equal, 1.2533 *
 * mean |x - median| takes its place; where all are, z is 0. scratch: [n]. */
void series_robust_z(const double *x, int n, double *scratch, double *z);

/* Each value against all known ones before it, as a standard normal deviate under normal noise of one level:
 * Phi^-1(T_(k-1)(sqrt(k / (k+1)) (x - mean) / sd)) with mean and sd of the k before. NAN for the first two,
 * and while those before are all equal. What a CUSUM of few values needs: an estimated mean and spread, taken
 * for the true ones, would alarm on noise every fourth time. Source: Hawkins 1987 (self-starting CUSUM). */
void series_self_starting_z(const double *x, int n, double *z);

/* Two-sided cumulative sums of standardized values: S <- max(0, S + z - 0.5), and the same of -z; alarm where
 * one reaches 5 (Page 1954). In noise of standard deviation 1 about one alarm in 465 values per side. */
struct cusum {
    double up, down; /* sums after the last value */
    int alarm;       /* index of the first value at which a sum reached 5, -1 never */
    int since;       /* where that sum had last been 0: about where the level moved; -1 */
    int direction;   /* of the alarm: +1 up, -1 down, 0 none */
};
struct cusum series_cusum(const double *z, int n);

/* Mean of b minus mean of a, two independent samples. */
enum spread {
    SPREAD_POOLED, /* Student: one spread for both, so that three values may be tested against thirty */
    SPREAD_OWN     /* Welch 1947: each its own; degrees of freedom by Satterthwaite */
};
struct two_samples {
    double difference, se, df, p; /* p two-sided; all but the difference NAN with too few values */
};
struct two_samples series_test(const double *a, int na, const double *b, int nb, enum spread spread);
/* difference +- t * se. */
struct interval two_samples_interval(const struct two_samples *t, double confidence);

/* ---------------------------------------------------------------- change points */

struct change {
    int at;        /* index of the first value of the new level */
    double effect; /* mean after minus mean before, each up to the neighbouring change */
    double p;      /* Student's t test of the two */
};
struct change_rule {
    int min_segment;   /* values on each side; at least 2 */
    double alpha;      /* p below it */
    double min_effect; /* |effect| at least it, in the unit of x */
};
/* 3 values, p < 0.001, and the caller's effect. */
struct change_rule change_rule_default(double min_effect);

/* Energy statistic of cutting x[0..tau) from x[tau..kappa): (tau (kappa-tau) / kappa) * (2 mean|x-y| -
 * mean|x-x'| - mean|y-y'|), means over distinct pairs. Source: Matteson and James 2014, equation 5 up to the
 * factor of both means; statistics.md. NAN for tau < 2 or kappa - tau < 2. */
double series_divergence(const double *x, int tau, int kappa);

/* Change points of x[0..n), all known, in order. The cut with the largest divergence is tested; if it holds
 * both sides are searched, and in the end every point is tested again between its neighbours. *out: free();
 * NULL and 0 when there is none. O(n^2) memory: n up to 2048, else ERR_USAGE. ERR_NOMEM. */
enum err_code series_changes(struct change **out, int *count, const double *x, int n,
                             const struct change_rule *rule, struct err *why);

/* ---------------------------------------------------------------- outliers among vectors */

/* score[i] in (0, 1): how easily vector i is cut off from the others; about 0.5 and less is ordinary, toward
 * 1 is an outlier. x: [n][dims], row-major. A NAN takes the median of its column: it neither isolates nor
 * hides. 200 trees of at most 256 vectors, seeded: same input, same scores. Source: Liu, Ting, Zhou 2008.
 * n < 3: all 0.5. ERR_NOMEM. */
enum err_code series_isolation(double *score, const double *x, int n, int dims, uint64_t seed,
                               struct err *why);
/* Average depth of an unsuccessful search among n: 2 H(n-1) - 2 (n-1)/n, with H(i) = ln i + 0.5772. */
double isolation_depth(double n);

/* ---------------------------------------------------------------- urgency */

enum priority { PRIORITY_NONE, PRIORITY_LOW, PRIORITY_MEDIUM, PRIORITY_HIGH };
const char *priority_name(enum priority p); /* "none" "low" "medium" "high" */
/* By size and confidence, the table in docs/history.md:
 *     loss           p < 1e-6   p < 1e-4   else
 *     10 % and more  high       high       medium
 *     5 %  and more  high       medium     low
 *     less           medium     low        low
 * effect: log ratio, positive is better. NONE when nothing was lost, or when one of them is unknown. */
enum priority repair_priority(double effect, double p);

/* ---------------------------------------------------------------- results */

/* what a run measured, arm by arm, from its stored cells alone.
 *
 * The unit is what may be counted as one observation: the mean of an arm's cells in one block, or one
 * repetition of a bench. Everything is in logs. Discarded and failed cells, warm-up and control are not in
 * it. Independent of how an experiment orders its cells, so runs of any age can be read. */

enum { RESULT_METRICS = METRIC_COUNT - METRIC_SENSOR_COUNT };

struct result_unit {
    int block;    /* -1: no block */
    bool confirm; /* of the blocks that measured the winner of a race again */
    int cells[RESULT_METRICS];
    double y[RESULT_METRICS]; /* mean of ln(value) by enum metric_id - METRIC_SENSOR_COUNT; NAN unknown */
};

/* One config on one workload. */
struct result {
    int arm;
    char config[CONFIG_LINE], workload[576], work_hash[24];
    struct result_unit *unit;
    int units, cap;
};

struct results {
    struct run_row run;
    json_t *capsule;                     /* NULL: the run is older than capsules */
    double canary[RESULT_METRICS];       /* mean ln of its canaries; NAN */
    double canary_drift[RESULT_METRICS]; /* ln(end / start), NAN unless both are there */
    char canary_work[96];                /* "" none */
    struct result *result;
    int n;
};
/* ERR_USAGE: no such run. */
enum err_code results_read(struct results *out, struct db *d, int64_t run_id, struct err *why);
void results_free(struct results *r); /* {0} is fine */

/* Known values of one metric, y[0..return): room for all units. block may be NULL. */
int result_values(const struct result *r, enum metric_id metric, double *y, int *block);
double result_mean(const struct result *r, enum metric_id metric); /* of logs; NAN */

/* What a result is about: decode rate, else prefill rate, else training rate, else perplexity, else
 * METRIC_COUNT. */
enum metric_id result_main_metric(const struct result *r);

/* ln of what divides the metric to be comparable over time, with its sign; 0 for metrics that need nothing,
 * NAN when the run has no canary. */
double results_canary(const struct results *r, enum metric_id metric);

/* The SHA-256 of the model that ran this config line, from the capsule, else from the run; "" unknown. */
const char *results_model(const struct results *r, const char *config);

/* ---------------------------------------------------------------- history */

/* results of one config on one machine over weeks: did the level change, when, by how
 * much, what else changed then, and how urgent is it? Method and limits: docs/history.md.
 *
 * A series is every run of one (machine, model, config, workload). Its values are logs, divided by the canary
 * that ran beside each, and turned so that more is better. */

struct history_point {
    int64_t run_id, started_ms;
    int units;
    double y, se;                  /* mean ln(metric) as measured, standard error (NAN for one unit) */
    double canary;                 /* ln of what divides it, with its sign; 0 nothing, NAN unknown */
    double level;                  /* what is judged: +-(y - canary); NAN when that is unknown */
    double metric[RESULT_METRICS]; /* mean logs of all metrics, divided alike; NAN */
    json_t *capsule;               /* NULL: the run has none */
};
struct history_series {
    char machine[16], model_sha256[65], model_name[128], config[CONFIG_LINE], workload[576], work_hash[24];
    char canary_work[96];
    enum metric_id metric;
    bool canary; /* the machine's own: config is what the canary did, model "", workload "canary" */
    struct history_point *point;
    int n, cap;
};
struct history {
    struct history_series *series;
    int n;
};
struct history_want {
    const char *filter;          /* as db_run_list; NULL all */
    int limit;                   /* newest runs that are looked at */
    const struct metric *metric; /* NULL: of each series its main one */
    bool raw;                    /* do not divide by the canary */
};
/* Oldest first in each series; with no metric asked for, the canaries of each machine are series, too: what
 * they share with the results, dividing takes out of those. A run whose canary did other work than the first
 * of the series (a new qdyno), or has none, has a level only with `raw`. */
enum err_code history_read(struct history *out, struct db *d, const struct history_want *want,
                           struct err *why);
void history_free(struct history *h);

/* Outliers are asked for from so many runs and so many metrics on: of fewer, the farthest is always far. */
enum { HISTORY_LEAST = 6, HISTORY_WINDOW = 5, HISTORY_VECTORS = 8, HISTORY_DIMENSIONS = 3 };
#define HISTORY_OUTLIER 0.65
#define HISTORY_UNUSUAL 3.5

struct history_change {
    struct change change; /* at: index of a point; effect positive: better */
    enum priority priority;
    json_t *what; /* capsule_diff of the runs before and after */
};
struct history_outlier {
    int at;
    enum metric_id metric; /* by which the run differs most from its series */
    double z;              /* robust, of the metric as it is judged; over HISTORY_UNUSUAL either way */
};
/* Arrays run parallel to the series' points. */
struct history_findings {
    bool judged; /* enough known levels: at least HISTORY_LEAST */
    int known;
    double *average, *z,
        *isolation; /* [n] NAN where a level is unknown; isolation NAN where there are too few */
    struct history_outlier *outlier; /* isolated by more than HISTORY_OUTLIER, and unusual in some metric */
    int outliers;
    struct cusum cusum; /* since the last change; indices of points */
    struct history_change *change;
    int changes;
};
/* min_effect: log ratio below which a change does not matter. */
enum err_code history_detect(struct history_findings *out, const struct history_series *s, double min_effect,
                             struct err *why);
void history_findings_free(struct history_findings *f);

/* ---------------------------------------------------------------- compare */

/* two finished runs against each other: what each measured, and whether that differs.
 *
 * Two moments are compared, so whatever else changed between them is in the difference: this is weaker than
 * an experiment, which measures both sides now. Beside the difference as it was measured stands the one
 * divided by the canary of each run, which takes out what slowed the whole machine.
 *
 * Interval: Welch's t over the runs' units in logs (their blocks, or repetitions), 95 %; equivalence by two
 * one-sided tests at 5 %. Several differences are a family: each keeps its own interval, and is claimed only
 * if it holds after Holm's correction, too. Blocks of one run share its process and its hour: the interval
 * does not know of differences that a second run of the same would show. */

/* The words of an experiment, from intervals of a log ratio (positive: better) alone. NAN: inconclusive. */
enum verdict compare_verdict(struct interval effect95, struct interval effect90, double margin);

struct compared {
    const struct result *before, *after; /* NULL: only the other run has it */
    enum metric_id metric;
    int n_before, n_after;
    struct interval rate_before, rate_after; /* of the metric itself: e^(mean of logs), 95 % */
    struct interval effect, effect90;        /* log ratio after / before, positive: better */
    double p, p_family; /* against "no difference"; adjusted for all pairs of the two runs (Holm) */
    double canary;      /* log ratio of what divides the metric, with its sign; 0 nothing, NAN unknown */
    struct interval normalized; /* effect without the canary's share; NAN unknown. The canary's own error is
                                   not in it. */
    enum verdict verdict;       /* of effect; NONE when either is missing */
    char reason[160];           /* why there is none, "" otherwise */
};
/* Every result of `before` with its partner of `after`: the same config line and work, else the same arm and
 * work; what finds none stands alone. metric NULL: of each pair its main one. Borrows from both. *out:
 * free().
 */
enum err_code compare_runs(struct compared **out, int *n, const struct results *before,
                           const struct results *after, const struct metric *metric, double margin,
                           struct err *why);
/* The verdict that decides: worse, else inconclusive, else the first; INVALID when nothing could be compared.
 */
enum verdict compare_worst(const struct compared *c, int n);

/* ---------------------------------------------------------------- was an effect reproduced? */

enum reproduction { REPRODUCTION_UNKNOWN, REPRODUCED, NOT_REPRODUCED };
const char *reproduction_name(enum reproduction r); /* "inconclusive" "reproduced" "not reproduced" */

struct reproduced {
    int arm; /* k against A */
    int n_before, n_after;
    struct interval before, after;            /* effect of k against A, 95 %, log ratio, positive: k better */
    struct interval difference, difference90; /* after - before, two independent estimates (Welch) */
    double p;                                 /* of the difference, adjusted for all arms (Holm) */
    enum reproduction verdict;
};
/* Effects of every arm against arm 0, block by block. REPRODUCED: the difference lies within the margin (two
 * one-sided tests at 5 %); NOT_REPRODUCED: it excludes 0 and is larger than the margin. *out: free(). */
enum err_code compare_effects(struct reproduced **out, int *n, const struct results *before,
                              const struct results *after, const struct metric *metric, double margin,
                              struct err *why);

/* ---------------------------------------------------------------- baseline */

/* a champion kept by name, and the experiment that asks whether it still is one.
 *
 * What is kept is how to measure it (config line, model by hash, workload, metric, margin). The number it had
 * is kept for people; a machine of another day never meets it: the champion is measured anew beside the
 * challenger. */

/* The file is there and is the model it was. want: SHA-256 or "" when that was never known. Errors:
 * ERR_FORMAT with what to do. */
enum err_code model_check(const char *path, const char *want, struct err *why);

/* Name and margin are the caller's. arm -1: the best of a run that ended `better`, else A. workload NULL: the
 * run's; needed where the run has several. Errors: ERR_USAGE when the run has no such result, or does not say
 * which file its model was. */
enum err_code baseline_of_run(struct baseline_row *out, const struct results *r, int arm,
                              const char *workload, struct err *why);

/* A config line's own champion: model, workload and metric (NULL: the workload's main one) are checked now,
 * so that `check` does not fail for them later. model_path "" where the workload trains. Errors: as
 * gguf_open; ERR_USAGE when the workload does not give the metric. */
enum err_code baseline_of_config(struct baseline_row *out, const struct config *c, const char *model_path,
                                 const struct workload *w, const struct metric *metric, struct err *why);

/* Arm A: the champion; arm B: `challenger` on challenger_model (NULL: the champion's). Checks the champion's
 * model. ERR_USAGE when both are the same. */
enum err_code baseline_spec(struct experiment_spec *out, const struct baseline_row *b,
                            const struct config *challenger, const char *challenger_model, struct err *why);

#endif
