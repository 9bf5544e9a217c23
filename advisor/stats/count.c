/* advisor/stats/count.c - percentiles without assuming a distribution, and McNemar's test. A percentile needs
 * enough values: the p99 of 64 tokens is only the slowest of them. */
#include "advisor/stats/stats.h"

#include <math.h>
#include <stdlib.h>

int stats_samples_for_quantile(double p, double confidence, int slow)
{
    enum { BEYOND_REASON = 1000000000 };
    if (!(p > 0 && p < 1) || !(confidence > 0 && confidence < 1) || slow < 0) return BEYOND_REASON;
    /* The cdf falls with n, so bisection finds the smallest n. In binary, 1 - 0.99 is not exactly 0.01; the
     * factor prevents that a bound which is met exactly is missed because of that. */
    const double risk = (1 - confidence) * (1 + 1e-12);
    int64_t low = slow, high = (int64_t)slow + 1;
    while (!(stats_binomial_cdf(slow, high, 1 - p) <= risk)) {
        if (high >= BEYOND_REASON) return BEYOND_REASON;
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        const int64_t n = low + (high - low) / 2;
        if (stats_binomial_cdf(slow, n, 1 - p) <= risk)
            high = n;
        else
            low = n;
    }
    return (int)high;
}

static int float_compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double stats_latency_quantile(float *x, int n, double p)
{
    if (n < stats_samples_for_quantile(p, 0.99, 0)) return NAN;
    qsort(x, (size_t)n, sizeof *x, float_compare);
    const double at = p * (n - 1);
    const int low = (int)at;
    return low + 1 < n ? x[low] + (at - low) * ((double)x[low + 1] - x[low]) : x[low];
}

double stats_mcnemar(int64_t b, int64_t c)
{
    if (b < 0 || c < 0) return NAN;
    return fmin(1, 2 * stats_binomial_cdf(b < c ? b : c, b + c, 0.5));
}

bool stats_dominates(const double *by, const double *than, int n)
{
    bool better = false;
    for (int i = 0; i < n; i++) {
        if (isnan(by[i]) && isnan(than[i])) continue;
        if (!(by[i] >= than[i])) return false; /* also where only one is known */
        better |= by[i] > than[i];
    }
    return better;
}
