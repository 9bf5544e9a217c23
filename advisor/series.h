/* advisor/series.h - what a series of results over weeks says: is this value unusual, did the level change,
 * when, by how much, and how urgent is that? Pure functions over numbers; docs/history.md is the page.
 *
 *   series.c            moving average, robust z, CUSUM, two-sample test, urgency
 *   series_changes.c    change points (E-divisive)
 *   series_isolation.c  outliers among vectors of metrics (isolation forest)
 *
 * A value that was not measured is NAN: averages leave it out, its z is NAN, a CUSUM does not move; change
 * points are asked of known values only. */
#ifndef QDYNO_ADVISOR_SERIES_H
#define QDYNO_ADVISOR_SERIES_H

#include <stdint.h>

#include "advisor/stats.h"
#include "base/base.h"

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

#endif
