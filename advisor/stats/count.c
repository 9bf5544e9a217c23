/* advisor/stats/count.c - what may be said from counts: proportions, and percentiles without assuming a
 * distribution. The p99 of 64 tokens is the slowest token with a grand name; these say how many it takes. */
#include "advisor/stats/stats.h"

#include <math.h>
#include <stdlib.h>

int stats_samples_for_quantile(double p, double confidence, int slow)
{
    enum { BEYOND_REASON = 1000000000 };
    if (!(p > 0 && p < 1) || !(confidence > 0 && confidence < 1) || slow < 0) return BEYOND_REASON;
    /* `enough` is monotone in n: with more values it is less likely that only so few lie beyond. The product
     * makes up for 1 - 0.99 not being 0.01: a bound that is exact (p50 at 99.9 % ...) must not miss by a bit.
     */
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

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double stats_latency_quantile(float *x, int n, double p)
{
    if (n < stats_samples_for_quantile(p, 0.99, 0)) return NAN;
    qsort(x, (size_t)n, sizeof *x, ascending);
    const double at = p * (n - 1);
    const int low = (int)at;
    return low + 1 < n ? x[low] + (at - low) * ((double)x[low + 1] - x[low]) : x[low];
}

struct interval stats_quantile_interval(const double *sorted, int n, double p, double confidence)
{
    struct interval out = { stats_quantile_sorted(sorted, n, p), NAN, NAN };
    if (n < 1 || !(p > 0 && p < 1) || !(confidence > 0 && confidence < 1)) return out;
    const double tail = 0.5 * (1 - confidence);
    /* The k-th smallest lies above the quantile when fewer than k values are below it: P(X <= k-1), X
     * binomial. lower: the last k with P(X <= k-1) <= tail; upper: the first k with P(X >= k) <= tail. */
    int low = 0, high = n + 1;
    while (low < high) {
        const int k = low + (high - low + 1) / 2;
        if (stats_binomial_cdf(k - 1, n, p) <= tail)
            low = k;
        else
            high = k - 1;
    }
    if (low >= 1 && low <= n) out.lower = sorted[low - 1];
    low = 1;
    high = n + 1;
    while (low < high) {
        const int k = low + (high - low) / 2;
        if (stats_binomial_cdf(n - k, n, 1 - p) <= tail) /* P(X >= k), by its mirror image: no 1 - almost 1 */
            high = k;
        else
            low = k + 1;
    }
    if (high <= n) out.upper = sorted[high - 1];
    return out;
}

double stats_mcnemar(int64_t b, int64_t c)
{
    if (b < 0 || c < 0) return NAN;
    return fmin(1, 2 * stats_binomial_cdf(b < c ? b : c, b + c, 0.5));
}

struct interval stats_wilson(int64_t k, int64_t n, double confidence)
{
    if (n < 1 || k < 0 || k > n) return (struct interval){ NAN, NAN, NAN };
    const double z = stats_normal_quantile(0.5 + 0.5 * confidence), count = (double)n, p = (double)k / count;
    const double scale = 1 + z * z / count, middle = (p + z * z / (2 * count)) / scale;
    const double half = z / scale * sqrt(p * (1 - p) / count + z * z / (4 * count * count));
    /* The ends are exact: rounding must not leave a bound of 1e-17 where there is none. */
    return (struct interval){ p, k == 0 ? 0 : middle - half, k == n ? 1 : middle + half };
}
