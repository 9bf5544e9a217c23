/* Means and trends of values that come one after another (stats.h). */
#include "advisor/stats/stats.h"

#include <math.h>

enum { BATCHES_MOST = 32, BATCHES_LEAST = 8 };

static void batch_means(const double *x, int n, int batches, double *mean)
{
    for (int b = 0; b < batches; b++) {
        const int from = (int)((int64_t)n * b / batches), to = (int)((int64_t)n * (b + 1) / batches);
        mean[b] = stats_mean(x + from, to - from);
    }
}

struct interval stats_batch_means(const double *x, int n, double confidence)
{
    double mean[BATCHES_MOST];
    const struct interval unknown = { stats_mean(x, n), NAN, NAN };
    for (int k = BATCHES_MOST; n >= BATCHES_MOST && k >= BATCHES_LEAST; k /= 2) {
        batch_means(x, n, k, mean);
        if (!(stats_sd(mean, k) > 0)) return unknown;
        if (stats_lag1(mean, k) > stats_normal_quantile(0.95) / sqrt(k)) continue;
        const struct interval i = stats_t_interval(mean, k, confidence);
        return (struct interval){ unknown.estimate, i.lower, i.upper };
    }
    return unknown;
}

double stats_trend_p(const double *x, int n)
{
    double s = 0, ties = 0;
    if (n < 8) return NAN;
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) s += (x[k] > x[i]) - (x[k] < x[i]);
    for (int i = 0; i < n; i++) { /* each group of t equal values once, at its first */
        int t = 1;
        bool first = true;
        for (int k = 0; k < n; k++) {
            first = first && !(k < i && x[k] == x[i]);
            t += k > i && x[k] == x[i];
        }
        if (first) ties += (double)t * (t - 1) * (2 * t + 5);
    }
    const double variance = ((double)n * (n - 1) * (2 * n + 5) - ties) / 18;
    if (!(variance > 0)) return 1; /* all are equal */
    const double z = s > 0 ? (s - 1) / sqrt(variance) : s < 0 ? (s + 1) / sqrt(variance) : 0;
    return 2 * stats_normal_cdf(-fabs(z));
}
