/* advisor/history/series.c - moving average, robust z, CUSUM, two-sample test and urgency (history.h). */
#include "advisor/stats/stats.h"
#include "advisor/history/history.h"

#include <math.h>
#include <stdlib.h>

void series_moving_average(const double *x, int n, int window, double *out)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;
        int known = 0;
        for (int k = MAX(0, i - window + 1); k <= i; k++) {
            if (isnan(x[k])) continue;
            sum += x[k];
            known++;
        }
        out[i] = known ? sum / known : NAN;
    }
}

/* Median of the known values of x; overwrites `sorted`. */
static double known_median(const double *x, int n, double *sorted)
{
    int known = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i])) sorted[known++] = x[i];
    stats_sort(sorted, known);
    return stats_quantile_sorted(sorted, known, 0.5);
}

void series_band(const double *x, int n, int window, double alpha, double *low, double *high)
{
    for (int i = 0; i < n; i++) {
        const int k = MIN(i, window);
        low[i] = high[i] = NAN;
        if (k < BAND_LEAST) continue;
        const double middle = stats_mean(x + i - k, k);
        const double half = stats_t_quantile(1 - alpha / 2, k - 1) * stats_sd(x + i - k, k) *
                            sqrt(1 + 1.0 / k);
        low[i] = middle - half;
        high[i] = middle + half;
    }
}

void series_robust_z(const double *x, int n, double *scratch, double *z)
{
    const double center = known_median(x, n, scratch);
    double sum = 0;
    int known = 0;
    for (int i = 0; i < n; i++) {
        z[i] = fabs(x[i] - center);
        if (isnan(z[i])) continue;
        sum += z[i];
        known++;
    }
    double spread = 1.4826 * known_median(z, n, scratch);
    if (spread == 0) spread = 1.2533 * sum / known;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i])) z[i] = spread > 0 ? (x[i] - center) / spread : 0;
}

void series_self_starting_z(const double *x, int n, double *z)
{
    double mean = 0, squares = 0; /* mean and sum of squares of the k known values so far (Welford 1962) */
    int k = 0;
    for (int i = 0; i < n; i++) {
        z[i] = NAN;
        if (isnan(x[i])) continue;
        const double sd = k > 1 ? sqrt(squares / (k - 1)) : 0;
        if (sd > 0) {
            const double t = sqrt(k / (k + 1.0)) * (x[i] - mean) / sd;
            /* computed from the lower tail, where the distribution function keeps its precision */
            z[i] = copysign(stats_normal_quantile(stats_t_cdf(-fabs(t), k - 1)), t);
        }
        k++;
        const double step = x[i] - mean;
        mean += step / k;
        squares += step * (x[i] - mean);
    }
}

struct cusum series_cusum(const double *z, int n)
{
    static const double SLACK = 0.5, ALARM = 5;
    struct cusum c = { .alarm = -1, .since = -1 };
    int up_since = 0, down_since = 0;
    for (int i = 0; i < n; i++) {
        if (isnan(z[i])) continue;
        if (c.up == 0) up_since = i;
        if (c.down == 0) down_since = i;
        c.up = fmax(0, c.up + z[i] - SLACK);
        c.down = fmax(0, c.down - z[i] - SLACK);
        if (c.alarm >= 0 || (c.up < ALARM && c.down < ALARM)) continue;
        c.alarm = i;
        c.direction = c.up >= ALARM ? 1 : -1;
        c.since = c.up >= ALARM ? up_since : down_since;
    }
    return c;
}

/* ---------------------------------------------------------------- two samples */

static double sum_of_squares(const double *x, int n)
{
    const double sd = stats_sd(x, n);
    return n < 2 ? 0 : sd * sd * (n - 1);
}

struct two_samples series_test(const double *a, int na, const double *b, int nb, enum spread spread)
{
    struct two_samples t = { stats_mean(b, nb) - stats_mean(a, na), NAN, NAN, NAN };
    const int least = spread == SPREAD_POOLED ? 1 : 2;
    if (na < least || nb < least || na + nb < 3) return t;
    if (spread == SPREAD_POOLED) {
        t.df = na + nb - 2;
        t.se = sqrt((sum_of_squares(a, na) + sum_of_squares(b, nb)) / t.df * (1.0 / na + 1.0 / nb));
    } else {
        const double va = sum_of_squares(a, na) / (na - 1) / na, vb = sum_of_squares(b, nb) / (nb - 1) / nb;
        t.se = sqrt(va + vb);
        t.df = (va + vb) * (va + vb) / (va * va / (na - 1) + vb * vb / (nb - 1));
        if (va + vb == 0) t.df = na + nb - 2; /* all values are equal */
    }
    if (t.se > 0)
        t.p = 2 * stats_t_cdf(-fabs(t.difference) / t.se, t.df);
    else if (t.se == 0) /* values without noise, such as bytes: any difference is significant */
        t.p = t.difference == 0 ? 1 : 0;
    return t;
}

struct interval two_samples_interval(const struct two_samples *t, double confidence)
{
    const double half = stats_t_quantile(0.5 + 0.5 * confidence, t->df) * t->se;
    return (struct interval){ t->difference, t->difference - half, t->difference + half };
}

/* ---------------------------------------------------------------- urgency */

const char *priority_name(enum priority p)
{
    static const char *const NAMES[] = { "none", "low", "medium", "high" };
    return (size_t)p < COUNT_OF(NAMES) ? NAMES[p] : "none";
}

enum priority repair_priority(double effect, double p)
{
    static const struct {
        double loss; /* smallest loss, as a share */
        enum priority sure, firm, fair;
    } RULES[] = {
        { .loss = 0.10, .sure = PRIORITY_HIGH, .firm = PRIORITY_HIGH, .fair = PRIORITY_MEDIUM },
        { .loss = 0.05, .sure = PRIORITY_HIGH, .firm = PRIORITY_MEDIUM, .fair = PRIORITY_LOW },
        { .loss = 0.00, .sure = PRIORITY_MEDIUM, .firm = PRIORITY_LOW, .fair = PRIORITY_LOW },
    };
    const double loss = -expm1(effect);
    if (!(loss > 0) || isnan(p)) return PRIORITY_NONE;
    size_t i = 0;
    while (loss < RULES[i].loss) i++;
    return p < 1e-6 ? RULES[i].sure : p < 1e-4 ? RULES[i].firm : RULES[i].fair;
}
