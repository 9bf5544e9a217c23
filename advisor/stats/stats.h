/* advisor/stats/stats.h - pure functions behind a verdict, one way to compute each thing. Tested on worked
 * numbers and against other programs; no state. NAN in, NAN out: a value that was not measured never becomes
 * a claim. docs/statistics.md says what is used where, and shows by simulation that it holds.
 *
 *   stats.c          distributions, mean and spread, Student's t interval, planning
 *   anytime.c  evidence and intervals that stay honest however often one looks; families of claims
 *   robust.c   companions that assume less: ranks, sign flips, bootstrap
 *   count.c    counts and order statistics: proportions, percentiles
 *   series.c   what follows in time: correlation of neighbours, warm-up */
#ifndef QDYNO_ADVISOR_STATS_H
#define QDYNO_ADVISOR_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* ---------------------------------------------------------------- distributions, means */

double stats_mean(const double *x, int n);
double stats_sd(const double *x, int n);                        /* n-1; NAN for n < 2 */
double stats_quantile_sorted(const double *x, int n, double p); /* linear interpolation (type 7) */
double stats_normal_cdf(double z);
double stats_normal_quantile(double p);
double stats_t_cdf(double t, double df);
double stats_t_quantile(double p, double df);
double stats_binomial_cdf(int64_t k, int64_t n, double p); /* P(X <= k) of n trials */

/* ---------------------------------------------------------------- one look, planned beforehand */

/* Bounds are NAN where there are too few values for any. */
struct interval {
    double estimate, lower, upper;
};
/* mean +- t * sd / sqrt(n). confidence 0.95. n < 2: bounds NAN. */
struct interval stats_t_interval(const double *x, int n, double confidence);

/* Smallest detectable effect (log scale) with n blocks at power, alpha two-sided. */
double stats_mde(double sd, int n, double alpha, double power);
/* Blocks for a half-width of `half_width` at confidence; at least 2. */
int stats_blocks_for(double sd, double half_width, double confidence);

/* ---------------------------------------------------------------- any number of looks */

/* An e-value bets against "no difference": under it, the chance of ever reaching 1/alpha is at most alpha, at
 * whatever blocks one looks (Ville 1939; Shafer 2021). 20 is 5 %; 1 / the largest so far is a p value. */

/* THE evidence of a comparison, for differences in the order of their blocks. Valid for any noise (drift,
 * correlation, interference with a rhythm, heavy tails), because all it assumes is the coin that ordered each
 * block: without a difference every sign is as likely as its opposite, whatever the sizes are. Half the stake
 * is on sizes: before each block, Student's t model (g = 1) is asked which sign a difference of that size
 * should have, and its odds are the bet (a conditional likelihood ratio: a martingale by construction).
 * Half is on signs alone, stats_sign_evalue, which a few disturbed blocks cannot drown. 1 for n < 2. */
double stats_coin_evalue(const double *x, int n);
/* 1 / the largest it has been after any of the n blocks: a p value valid at every look, at most 1. */
double stats_anytime_p(const double *x, int n);
/* Every effect that stats_coin_evalue has not refuted: those that, taken off x, leave it under
 * 1/(1-confidence). Valid at every n at once. Always holds its estimate, the mean. Bounds NAN below
 * stats_anytime_fewest, or where no constant effect fits. */
struct interval stats_anytime_interval(const double *x, int n, double confidence);
/* Blocks from which unanimous ones can be enough: 7 at alpha 0.05, 6 at 0.10. */
int stats_anytime_fewest(double alpha);
/* Blocks until an effect of this size leaves that interval with that power, were noise normal: the plan of a
 * run that looks after every block. At least stats_anytime_fewest. */
int stats_anytime_blocks_for(double sd, double effect, double confidence, double power);

/* Signs alone: `positive` of n differences, zeros left out by the caller. The chance of a plus uniform on
 * [0, 1]: 2^n k! (n-k)! / (n+1)!. NAN unless 0 <= positive <= n. */
double stats_sign_evalue(int positive, int n);
/* Student's t with the scale unknown, a normal prior of variance g on the standardized effect, against mean
 * 0; 1 for n < 2. A companion: it holds under normal noise, and not where sizes repeat (interference with the
 * rhythm of the blocks: 6 of 100 false alarms). Source: Rouder et al. 2009; Hendriksen, de Heide, Gruenwald
 * 2021 for optional stopping. */
double stats_t_evalue(const double *x, int n, double g);
/* c: mean +- c * sd / sqrt(n) holds every mean whose stats_t_evalue is under 1/alpha; INFINITY while every
 * mean is (n < 5 at alpha 0.05 and g 1). For planning: the half width to expect of n blocks. */
double stats_anytime_factor(int n, double g, double alpha);
/* Of a plan with looks at fixed shares of its length: two-sided alpha spent up to `fraction` (0, 1].
 * 2 - 2 Phi(z_(1-alpha/2) / sqrt(fraction)); Lan and DeMets 1983. */
double stats_obrien_fleming(double fraction, double alpha);
/* k p values of one declared family, adjusted so that each may be compared with alpha (Holm 1979). A NAN
 * stays NAN and counts as a member that shows nothing. adjusted may be p. */
void stats_holm(const double *p, int k, double *adjusted);

/* ---------------------------------------------------------------- companions that assume less */

/* Median of the n(n+1)/2 averages of pairs (Walsh), and the interval of Wilcoxon's signed-rank test: exact to
 * n = 60, normal beyond. Bounds NAN where n is too small for the confidence (under 6 at 95 %), and all NAN
 * without memory. */
struct interval stats_hodges_lehmann(const double *x, int n, double confidence);
/* Two-sided: the share of all 2^n sign patterns whose |sum| is at least this one. Exact to n = 20, beyond it
 * (k+1)/(N+1) of N = 9999 seeded draws. NAN for n < 1. */
double stats_permutation_p(const double *x, int n, uint64_t seed);
/* Interval of the mean by bootstrap over blocks, bias-corrected and accelerated, 9999 seeded resamples.
 * Bounds NAN below n = 20, where its coverage is not to be trusted. Source: Efron 1987. */
struct interval stats_bca(const double *x, int n, double confidence, uint64_t seed);
/* The seeded draws of these two: splitmix64 (Steele, Lea, Flood 2014). */
uint64_t stats_random(uint64_t *state);

/* ---------------------------------------------------------------- counts and order statistics */

/* Fewest values for a one-sided bound on quantile p (0.5 <= p < 1) with this confidence while `slow` of them
 * may lie beyond it: the binomial bound of MLPerf Inference. p99 at 99 %: 459, or 662 with one slow. */
int stats_samples_for_quantile(double p, double confidence, int slow);
/* Quantile p >= 0.5 of n latencies in any order (sorts them); NAN for fewer than
 * stats_samples_for_quantile(p, 0.99, 0): of those the largest would be repeated, and a p99 of 64 tokens is
 * only the slowest token. */
double stats_latency_quantile(float *x, int n, double p);
/* Quantile p of n sorted values between order statistics: P(lower <= quantile <= upper) >= confidence for any
 * distribution, each tail at most half of the rest. A bound that n cannot support is NAN. */
struct interval stats_quantile_interval(const double *sorted, int n, double p, double confidence);
/* Exact two-sided p of discordant counts; 1 for none, NAN for negative ones. McNemar 1947. */
double stats_mcnemar(int64_t b, int64_t c);
/* Proportion k of n; estimate k/n. NAN unless 0 <= k <= n, n >= 1. Wilson 1927. */
struct interval stats_wilson(int64_t k, int64_t n, double confidence);

/* ---------------------------------------------------------------- series */

/* Correlation of neighbours. NAN for n < 3 or equal values. */
double stats_lag1(const double *x, int n);
/* How many independent values these are worth for their mean: n (1-r) / (1+r) where neighbours correlate by r
 * > 0, else n; at least 1. NAN where the correlation is. */
double stats_effective_n(const double *x, int n);
/* Warm-up: length of the prefix to drop, at most n/2, that minimizes sum_(i>d) (x_i - mean)^2 / (n-d)^2, the
 * shortest if there are several (MSER, White 1997). 0 for n < 4; -1 when a value is NAN. */
int stats_mser(const double *x, int n);

#endif
