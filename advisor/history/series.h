/* advisor/history/series.h - statistics of a series of results. Part of history.h. */
#ifndef QDYNO_ADVISOR_HISTORY_SERIES_H
#define QDYNO_ADVISOR_HISTORY_SERIES_H

#include <stdint.h>

#include "advisor/stats/stats.h"
#include "base/base.h"

/* Statistics of a series of results: is a value unusual, did the level change, when, by how much, and how
 * urgent is it? Pure functions; docs/history.md explains the method.
 *
 *   series.c            moving average, robust z, CUSUM, two-sample test, urgency
 *   series_changes.c    change points (E-divisive)
 *   series_isolation.c  outliers among vectors of metrics (isolation forest)
 *
 * A value that was not measured is NAN: averages skip it, its z is NAN, a CUSUM ignores it. Change points are
 * searched among known values only. */

/* out[i] = mean of the known values among x[i-window+1 .. i], fewer at the beginning. NAN if there is none.
 */
void series_moving_average(const double *x, int n, int window, double *out);

/* The band that value i should lie in, from the `window` values before it (fewer at the beginning, at least
 * BAND_LEAST): mean -+ t * sd * sqrt(1 + 1/k), with the quantile t of Student's distribution that a fraction
 * alpha of values lies beyond under normal noise. NAN where fewer values come before. All of x must be known.
 */
enum { BAND_LEAST = 5 };
void series_band(const double *x, int n, int window, double alpha, double *low, double *high);

/* z[i] = (x[i] - median) / (1.4826 * median |x - median|). The factor 1.4826 makes the denominator a standard
 * deviation under normal noise (Iglewicz and Hoaglin 1993, who flag |z| > 3.5). If more than half of the
 * values are equal, 1.2533 * mean |x - median| is the denominator; if all are equal, z is 0. scratch: [n]. */
void series_robust_z(const double *x, int n, double *scratch, double *z);

/* Each value relative to all known ones before it, as a standard normal deviate under normal noise:
 * Phi^-1(T_(k-1)(sqrt(k / (k+1)) (x - mean) / sd)), with mean and sd of the k values before. NAN for the
 * first two values, and while all before are equal. A CUSUM of few values needs this: with the estimated mean
 * and sd taken as the true ones, it would raise false alarms in a quarter of all series. Source: Hawkins
 * 1987, self-starting CUSUM. */
void series_self_starting_z(const double *x, int n, double *z);

/* Two-sided cumulative sums of standardized values: S <- max(0, S + z - 0.5), and the same for -z. Alarm when
 * a sum reaches 5 (Page 1954). In noise with standard deviation 1, each side raises about one false alarm per
 * 465 values. */
struct cusum {
    double up, down; /* sums after the last value */
    int alarm;       /* index of the first value at which a sum reached 5; -1: never */
    int since;       /* where that sum was last 0: about where the level moved; -1 */
    int direction;   /* direction of the alarm: +1 up, -1 down, 0 none */
};
struct cusum series_cusum(const double *z, int n);

/* Test of the difference of two means, b - a, of independent samples. */
enum spread {
    SPREAD_POOLED, /* Student: a pooled variance, so that three values can be tested against thirty */
    SPREAD_OWN     /* Welch 1947: separate variances; degrees of freedom by Satterthwaite */
};
struct two_samples {
    /* p is two-sided; with too few values everything but the difference is NAN */
    double difference, se, df, p;
};
struct two_samples series_test(const double *a, int na, const double *b, int nb, enum spread spread);
/* Confidence interval: difference +- t * se. */
struct interval two_samples_interval(const struct two_samples *t, double confidence);

/* ---------------------------------------------------------------- change points */

struct change {
    int at;        /* index of the first value of the new level */
    double effect; /* mean after minus mean before, each between neighbouring change points */
    double p;      /* of Student's t test between the two */
};
struct change_rule {
    int min_segment;   /* values on each side of a change; at least 2 */
    double alpha;      /* p must be below */
    double min_effect; /* |effect| must be at least this, in the unit of x */
};
#define CHANGE_SEGMENT_DEFAULT 3
#define CHANGE_ALPHA_DEFAULT   0.001
/* These, and the caller's effect. */
struct change_rule change_rule_default(double min_effect);

/* Energy statistic of the split of x[0..kappa) at tau: (tau (kappa-tau) / kappa) * (2 mean|x-y| - mean|x-x'|
 * - mean|y-y'|), with means over distinct pairs. Source: Matteson and James 2014, equation 5, up to the
 * factor of both means; statistics.md. NAN for tau < 2 or kappa - tau < 2. */
double series_divergence(const double *x, int tau, int kappa);

/* Change points of x[0..n), ascending; all values must be known. The split with the largest divergence is
 * tested; if it is significant, both parts are searched. Finally each point is tested again between its
 * neighbours. *out: free(); NULL and 0 when there is none. O(n^2) memory. Errors: ERR_USAGE for n above 2048;
 * ERR_NOMEM. */
enum err_code series_changes(struct change **out, int *count, const double *x, int n,
                             const struct change_rule *rule, struct err *why);

/* ---------------------------------------------------------------- outliers among vectors */

/* score[i] in (0, 1): how few random cuts separate vector i from the others. Ordinary vectors have about 0.5
 * or less, outliers approach 1. x: [n][dims], row-major; a NAN is replaced by the median of its column. 200
 * trees of at most 256 vectors, seeded: the same input gives the same scores. All scores are 0.5 for n < 3.
 * Source: Liu, Ting, Zhou 2008. Errors: ERR_NOMEM. */
enum err_code series_isolation(double *score, const double *x, int n, int dims, uint64_t seed,
                               struct err *why);
/* Expected depth of an unsuccessful search among n: 2 H(n-1) - 2 (n-1)/n, with H(i) = ln i + 0.5772. */
double isolation_depth(double n);

#endif
