/* advisor/stats/stats.h - the pure functions behind a verdict. They keep no state, and are tested against
 * worked numbers and other programs. A NAN among the inputs makes the result NAN, so a value that was not
 * measured never becomes a claim. docs/statistics.md says which function is used where, and shows by
 * simulation how often the resulting verdicts are wrong. */
#ifndef QDYNO_ADVISOR_STATS_H
#define QDYNO_ADVISOR_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* ---------------------------------------------------------------- distributions, means (stats.c) */

double stats_mean(const double *x, int n); /* NAN for n < 1 */
double stats_sd(const double *x, int n);   /* divides by n - 1; NAN for n < 2 */
void stats_sort(double *x, int n);         /* ascending; no NaN; n may be 0, x then NULL */
/* Quantile p of n ascending values, by linear interpolation (type 7 of Hyndman and Fan 1996). */
double stats_quantile_sorted(const double *x, int n, double p);
double stats_normal_cdf(double z);
double stats_normal_quantile(double p);
double stats_t_cdf(double t, double df);
double stats_t_quantile(double p, double df);
double stats_binomial_cdf(int64_t k, int64_t n, double p); /* P(X <= k) of n trials */

/* An estimate with its bounds. Bounds are NAN where there are too few values for any. */
struct interval {
    double estimate, lower, upper;
};
/* The change in percent that a log ratio stands for. */
double stats_percent(double log_ratio);
/* Log ratios that are positive for better become those of the number itself, and back: where less is better
 * (better < 0) the sign turns, and the bounds change places. */
struct interval stats_turned(struct interval logs, int better);
struct interval stats_exp(struct interval logs); /* log ratios to ratios */
/* What an interval proves of a log ratio: its bound nearer to 0, with its sign; 0 where it contains 0; NAN
 * where a bound is unknown. */
double stats_proven(struct interval change);
/* Does the estimate claim too much to stand alone? The interval excludes 0, but proves less than half of the
 * estimate, or the estimate is within the noise floor (NAN: unknown). */
bool stats_is_vague(struct interval change, double noise_floor);

/* Student's t interval of the mean: mean +- t * sd / sqrt(n). It holds for a single analysis that was planned
 * beforehand. confidence: 0.95 for 95 %. Bounds NAN for n < 2. */
struct interval stats_t_interval(const double *x, int n, double confidence);

/* ---------------------------------------------------------------- interim analyses (anytime.c) */

/* An e-value measures evidence against "no difference". Under "no difference" the chance that it ever reaches
 * 1/alpha is at most alpha, however many interim analyses are made (Ville 1939; Shafer 2021). So 20
 * corresponds to 5 %, and 1 / (the largest value so far) is a p value. */

/* The evidence that decides a comparison. x: block effects, in the order in which the blocks ran.
 *
 * Its only assumption is that a fair random bit, the coin, decided the order of the cells in each block.
 * Then, without a difference between the arms, every sign is as likely as its opposite, whatever the sizes
 * are. It is therefore valid for any noise (drift, correlation, periodic interference, heavy tails). Half of
 * the stake is bet on sizes: before each block Student's t model (g = 1) predicts which sign a difference of
 * that size has, and its odds are the bet, a conditional likelihood ratio and so a martingale. The other half
 * is bet on signs alone (stats_sign_evalue), on which a few disturbed blocks have little influence. 1 for n
 * < 2. */
double stats_coin_evalue(const double *x, int n);
/* 1 / the largest stats_coin_evalue after any of the n blocks, at most 1: a p value that is valid at every
 * interim analysis. */
double stats_anytime_p(const double *x, int n);
/* All effects that stats_coin_evalue does not refute: subtracted from x, they leave it under
 * 1 / (1 - confidence). Valid at all interim analyses together. The interval always contains its estimate,
 * the mean. Bounds NAN for n below stats_anytime_fewest, or where no constant effect fits. */
struct interval stats_anytime_interval(const double *x, int n, double confidence);
/* The same with a stake that is divided between several series of the same run, before the first block: the
 * sum of their evidence, weighted by the shares. If none of the series has an effect, or all have the tested
 * one, it is as valid at every interim analysis as that of one series, also where they share blocks. The
 * estimate of the interval is the mean of the series with the most blocks. */
struct stats_stake {
    const double *x; /* [n] block effects */
    int n;
    double share; /* of the stake; those of all series sum to 1 */
};
double stats_mixed_evalue(const struct stats_stake *part, int parts);
struct interval stats_mixed_interval(const struct stats_stake *part, int parts, double confidence);
/* The smallest number of blocks that can refute "no difference" when all agree: 7 at alpha 0.05, 6 at 0.10.
 */
int stats_anytime_fewest(double alpha);
/* The number of blocks after which an effect of this size is outside the interval with that power, for normal
 * noise of standard deviation sd: the plan of a run that is analysed after every block. At least
 * stats_anytime_fewest. */
int stats_anytime_blocks_for(double sd, double effect, double confidence, double power);

/* Evidence from signs alone: `positive` of n differences are positive; the caller leaves zeros out. The
 * chance of a plus has a uniform prior on [0, 1]: 2^n k! (n-k)! / (n+1)!. NAN unless 0 <= positive <= n. */
double stats_sign_evalue(int positive, int n);
/* E-value of Student's t test of mean 0: unknown scale, normal prior of variance g on the standardized
 * effect. 1 for n < 2. It decides nothing: it holds under normal noise, but with periodic interference, where
 * sizes repeat, it gives 6 false alarms in 100. The simulation compares it with stats_coin_evalue.
 * Source: Rouder et al. 2009; Hendriksen, de Heide, Gruenwald 2021 for optional stopping. */
double stats_t_evalue(const double *x, int n, double g);
/* The factor c for which mean +- c * sd / sqrt(n) contains every mean whose stats_t_evalue is under 1/alpha.
 * INFINITY while that is every mean (n < 5 at alpha 0.05 and g 1). Used for planning: the expected half
 * width of the interval after n blocks. */
double stats_anytime_factor(int n, double g, double alpha);
/* Adjusts the k p values of one declared family, so that each may be compared with alpha (Holm 1979). A NAN
 * stays NAN and counts as a member without evidence. adjusted[k] may be p. */
void stats_holm(const double *p, int k, double *adjusted);

/* ---------------------------------------------------------------- covariates (adjust.c) */

/* Block effects d[n] and what was different beside the two arms in the same blocks, c[n]: NAN unknown. */
struct paired_series {
    const double *d, *c;
    int n;
};
/* out[x->n] = d - beta c, where the coefficient of each block comes from `control` (NULL: none) and earlier
 * blocks of x. The signs of the results without a difference between the arms are fair coins, as those of d
 * (adjust.c has the theorem), and their variance is smaller by the share that c explains. out = d where c is
 * NAN, and as long as no coefficient is convincing. */
void stats_adjust(const struct paired_series *x, const struct paired_series *control, double *out);

/* ---------------------------------------------------------------- companions (robust.c) */

/* Companions are reported beside the verdict and assume less about the noise. Each is valid for a single
 * analysis only. If they disagree with the verdict, it depends on a few blocks. */

/* Median of the n(n+1)/2 averages of pairs (Walsh averages), with the interval of Wilcoxon's signed-rank
 * test: exact up to n = 60, normal beyond. Bounds NAN where n is too small for the confidence (under 6 at 95
 * %). Everything NAN without memory. */
struct interval stats_hodges_lehmann(const double *x, int n, double confidence);
/* Two-sided sign-flip permutation p: the share of all 2^n sign patterns whose |sum| is at least the observed
 * one. Exact up to n = 20, beyond it (k+1)/(N+1) of N = 9999 seeded draws. NAN for n < 1. */
double stats_permutation_p(const double *x, int n, uint64_t seed);
/* The next number of the seeded generator behind those draws: splitmix64 (Steele, Lea, Flood 2014). */
uint64_t stats_random(uint64_t *state);

/* ---------------------------------------------------------------- counts, percentiles (count.c) */

/* The fewest values that allow a one-sided bound on quantile p (0.5 <= p < 1) with this confidence while
 * `slow` of them lie beyond it: the binomial bound of MLPerf Inference. p99 at 99 %: 459, or 662 with one. */
int stats_samples_for_quantile(double p, double confidence, int slow);
/* Quantile p >= 0.5 of n latencies in any order; sorts them. NAN for fewer than
 * stats_samples_for_quantile(p, 0.99, 0): the p99 of 64 tokens would only be the slowest token. */
double stats_latency_quantile(float *x, int n, double p);
/* Exact two-sided p of McNemar's test (1947) for b and c discordant pairs. 1 for none, NAN for negative. */
double stats_mcnemar(int64_t b, int64_t c);

/* ---------------------------------------------------------------- trade-offs (count.c) */

/* Is `by` at least as good as `than` in all n values, and better in one (Pareto dominance)? Larger is better;
 * negate what is better when smaller. NAN is unknown: a value that neither knows is left out; one that only
 * one of them knows cannot be compared, so neither dominates. */
bool stats_dominates(const double *by, const double *than, int n);

/* ---------------------------------------------------------------- values in time (series.c) */

/* Correlation of neighbouring values. NAN for n < 3 or equal values. */
double stats_lag1(const double *x, int n);
/* Where warm-up ends: the length of the prefix to drop, at most n/2, that minimizes
 * sum_(i>d) (x_i - mean)^2 / (n-d)^2; the shortest of several (MSER, White 1997). 0 for n < 4; -1 when a
 * value is NAN. */
int stats_mser(const double *x, int n);
/* Confidence interval of the mean of a stationary series whose neighbours are correlated, by batch means:
 * Student's t over the means of consecutive batches of equal size. There are 32 batches, or half as many
 * repeatedly, until the means of neighbours are no longer correlated (lag-1 correlation below its 5 % point)
 * or fewer than 8 would be left. Bounds NAN: then, for fewer than 32 values, or when all batches are equal.
 */
struct interval stats_batch_means(const double *x, int n, double confidence);
/* Does a series rise or fall? Two-sided p of the test of Mann (1945) and Kendall, by its normal approximation
 * with ties counted. NAN for n < 8. */
double stats_trend_p(const double *x, int n);

#endif
