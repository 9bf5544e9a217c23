/* advisor/stats_anytime.c - evidence that may be looked at after every block, and families of claims. People
 * watch a run and want it to end when it is clear; a t interval looked at forty times excludes 0 by chance
 * far more often than once in twenty. */
#include "advisor/stats.h"

#include <math.h>

enum { BEYOND_REASON = 1000000 };

double stats_sign_evalue(int positive, int n)
{
    if (positive < 0 || positive > n) return NAN;
    int sign; /* lgamma_r, because lgamma writes a global */
    return exp(n * M_LN2 + lgamma_r(positive + 1.0, &sign) + lgamma_r(n - positive + 1.0, &sign) -
               lgamma_r(n + 2.0, &sign));
}

double stats_t_evalue(const double *x, int n, double g)
{
    if (!(g > 0)) return NAN;
    if (n < 2) return n == 1 && isnan(x[0]) ? NAN : 1;
    /* With t = sqrt(n) mean / sd, 1 + t^2/(n-1) is `total`/within, and 1 + t^2/((n-1)(1+ng)) is
     * `shrunk`/within: written without within, equal values need no case of their own. */
    const double mean = stats_mean(x, n), sd = stats_sd(x, n);
    const double within = sd * sd * (n - 1), between = n * mean * mean;
    const double total = within + between, shrunk = within + between / (1 + n * g);
    if (total == 0) return 1 / sqrt(1 + n * g); /* t = 0 */
    return exp(0.5 * n * log(total / shrunk) - 0.5 * log1p(n * g));
}

double stats_anytime_factor(int n, double g, double alpha)
{
    if (!(g > 0) || !(alpha > 0 && alpha < 1)) return NAN;
    if (n < 2) return INFINITY;
    /* e < 1/alpha solved for r = t^2/(n-1): (1 + r) < k (1 + r/(1+ng)). */
    const double k = exp((log1p(n * g) - 2 * log(alpha)) / n), room = 1 - k / (1 + n * g);
    return room > 0 ? sqrt((n - 1) * (k - 1) / room) : INFINITY;
}

struct interval stats_anytime_interval(const double *x, int n, double confidence)
{
    struct interval i = { stats_mean(x, n), NAN, NAN };
    const double factor = stats_anytime_factor(n, 1, 1 - confidence);
    if (!isfinite(factor)) return i;
    const double half = factor * stats_sd(x, n) / sqrt(n);
    i.lower = i.estimate - half;
    i.upper = i.estimate + half;
    return i;
}

int stats_anytime_blocks_for(double sd, double effect, double confidence, double power)
{
    if (!(sd >= 0) || !(effect > 0) || !(confidence > 0 && confidence < 1) || !(power > 0 && power < 1))
        return BEYOND_REASON;
    const double alpha = 1 - confidence, z = stats_normal_quantile(power);
    int low = 1, high = 2; /* the half width falls with n: enough at high, not at low */
    while (!((stats_anytime_factor(high, 1, alpha) + z) * sd / sqrt(high) <= effect)) {
        if (high >= BEYOND_REASON) return BEYOND_REASON;
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        const int n = low + (high - low) / 2;
        if ((stats_anytime_factor(n, 1, alpha) + z) * sd / sqrt(n) <= effect)
            high = n;
        else
            low = n;
    }
    return high;
}

double stats_obrien_fleming(double fraction, double alpha)
{
    if (!(fraction > 0 && fraction <= 1)) return NAN;
    return erfc(stats_normal_quantile(1 - 0.5 * alpha) / sqrt(2 * fraction));
}

void stats_holm(const double *p, int k, double *adjusted)
{
    enum { MEMBERS = 64 };
    double own[MEMBERS]; /* adjusted may be p */
    if (k > MEMBERS) k = MEMBERS;
    for (int i = 0; i < k; i++) own[i] = p[i];
    for (int i = 0; i < k; i++) {
        adjusted[i] = own[i]; /* a NAN stays */
        /* The largest of (k - rank) p over the members not above this one. */
        for (int j = 0; j < k; j++) {
            if (!(own[j] <= own[i])) continue;
            int before = 0;
            for (int m = 0; m < k; m++) before += own[m] < own[j];
            adjusted[i] = fmax(adjusted[i], (k - before) * own[j]);
        }
        adjusted[i] = isnan(own[i]) ? NAN : fmin(adjusted[i], 1);
    }
}
