/* advisor/stats.h - pure functions behind a verdict. Tested on worked numbers; no allocation, no state. NAN
 * in, NAN out. */
#ifndef QDYNO_ADVISOR_STATS_H
#define QDYNO_ADVISOR_STATS_H

#include <stdbool.h>
#include <stdint.h>

double stats_mean(const double *x, int n);
double stats_sd(const double *x, int n);                        /* n-1; NAN for n < 2 */
double stats_quantile_sorted(const double *x, int n, double p); /* linear interpolation (type 7) */
double stats_normal_cdf(double z);
double stats_normal_quantile(double p);
double stats_t_cdf(double t, double df);
double stats_t_quantile(double p, double df);

/* mean +- t * sd / sqrt(n). confidence 0.95. n < 2: bounds NAN. */
struct interval {
    double estimate, lower, upper;
};
struct interval stats_t_interval(const double *x, int n, double confidence);

/* Smallest detectable effect (log scale) with n blocks at power, alpha two-sided. */
double stats_mde(double sd, int n, double alpha, double power);
/* Blocks for a half-width of `half_width` at confidence; at least 2. */
int stats_blocks_for(double sd, double half_width, double confidence);

#endif
