/* advisor/stats/stats.c - distributions and the t interval, without an external library.
 *
 * Student's t is computed through the regularized incomplete beta function (continued fraction), the normal
 * quantile from a rational approximation refined by two Halley steps, and t quantiles by Newton's method on
 * the cdf. */
#include "advisor/stats/stats.h"

#include <math.h>
#include <stdlib.h>

double stats_mean(const double *x, int n)
{
    if (n < 1) return NAN;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum / n;
}

double stats_sd(const double *x, int n)
{
    if (n < 2) return NAN;
    const double mean = stats_mean(x, n);
    double sum = 0; /* two passes, because sum(x^2) - n*mean^2 loses all digits when the mean is large */
    for (int i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sqrt(sum / (n - 1));
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void stats_sort(double *x, int n)
{
    if (n > 1)
        qsort(x, (size_t)n, sizeof *x, by_value); /* without values x may be NULL, which qsort may not get */
}

double stats_quantile_sorted(const double *x, int n, double p)
{
    if (n < 1 || !(p >= 0 && p <= 1)) return NAN;
    const double at = p * (n - 1);
    const int low = (int)floor(at);
    if (low >= n - 1) return x[n - 1];
    return x[low] + (at - low) * (x[low + 1] - x[low]);
}

double stats_normal_cdf(double z)
{
    return 0.5 * erfc(-z / M_SQRT2);
}

double stats_normal_quantile(double p)
{
    if (!(p >= 0 && p <= 1)) return NAN;
    if (p == 0) return -INFINITY;
    if (p == 1) return INFINITY;
    /* Start: Abramowitz & Stegun 26.2.23, |error| < 4.5e-4, for the tail that is below one half. */
    const double q = p < 0.5 ? p : 1 - p;
    const double t = sqrt(-2 * log(q));
    double z = -(t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                         (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
    for (int i = 0; i < 2; i++) { /* Halley: cubic convergence, 4.5e-4 -> below 1e-10 -> machine precision */
        const double density = exp(-0.5 * z * z) / sqrt(2 * M_PI);
        if (!(density > 0)) break; /* so far in the tail that the density underflows */
        const double u = (stats_normal_cdf(z) - q) / density;
        z -= u / (1 + 0.5 * z * u);
    }
    return p < 0.5 ? z : -z;
}

/* Continued fraction of I_x(a,b) by the modified Lentz method. Converges fast for x < (a+1)/(a+b+2). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    if (fabs(d) < tiny) d = tiny;
    d = 1 / d;
    double h = d;
    for (int m = 1; m <= 500; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        const double step[2] = { even, odd };
        double change = 1;
        for (int k = 0; k < 2; k++) {
            d = 1 + step[k] * d;
            c = 1 + step[k] / c;
            if (fabs(d) < tiny) d = tiny;
            if (fabs(c) < tiny) c = tiny;
            d = 1 / d;
            change = c * d;
            h *= change;
        }
        if (fabs(change - 1) < 1e-15) break;
    }
    return h;
}

/* Regularized incomplete beta I_x(a,b). lgamma_r, because lgamma writes a global. */
static double beta_regularized(double a, double b, double x)
{
    if (!(x >= 0 && x <= 1)) return NAN;
    if (x == 0 || x == 1) return x;
    int sign;
    const double front = exp(lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign) + a * log(x) +
                             b * log1p(-x));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double stats_binomial_cdf(int64_t k, int64_t n, double p)
{
    if (n < 0 || !(p >= 0 && p <= 1)) return NAN;
    if (k < 0) return 0;
    if (k >= n) return 1;
    return beta_regularized((double)(n - k), (double)k + 1, 1 - p);
}

double stats_t_cdf(double t, double df)
{
    if (isnan(t) || !(df > 0)) return NAN;
    if (isinf(t)) return t > 0 ? 1 : 0;
    const double tail = 0.5 * beta_regularized(0.5 * df, 0.5, df / (df + t * t));
    return t > 0 ? 1 - tail : tail;
}

double stats_t_quantile(double p, double df)
{
    if (!(p >= 0 && p <= 1) || !(df > 0)) return NAN;
    if (p == 0) return -INFINITY;
    if (p == 1) return INFINITY;
    if (p == 0.5) return 0;
    if (p > 0.5)
        return -stats_t_quantile(1 - p, df); /* small probabilities have more digits than those near 1 */
    /* Below the median the cdf is convex and the normal quantile lies right of t's, so Newton's steps all go
     * left and never overshoot. */
    int sign;
    const double scale = lgamma_r(0.5 * (df + 1), &sign) - lgamma_r(0.5 * df, &sign) - 0.5 * log(df * M_PI);
    double t = stats_normal_quantile(p);
    for (int i = 0; i < 2000; i++) {
        const double density = exp(scale - 0.5 * (df + 1) * log1p(t * t / df));
        const double step = (stats_t_cdf(t, df) - p) / density;
        if (!(step > -1e-15 * t)) break; /* t is negative */
        t -= step;
    }
    return t;
}

struct interval stats_t_interval(const double *x, int n, double confidence)
{
    struct interval i = { stats_mean(x, n), NAN, NAN };
    if (n < 2 || !(confidence > 0 && confidence < 1)) return i;
    const double half = stats_t_quantile(0.5 + 0.5 * confidence, n - 1) * stats_sd(x, n) / sqrt(n);
    i.lower = i.estimate - half;
    i.upper = i.estimate + half;
    return i;
}

double stats_percent(double log_ratio)
{
    return 100 * expm1(log_ratio);
}

struct interval stats_turned(struct interval logs, int better)
{
    return better < 0 ? (struct interval){ -logs.estimate, -logs.upper, -logs.lower } : logs;
}

struct interval stats_exp(struct interval logs)
{
    return (struct interval){ exp(logs.estimate), exp(logs.lower), exp(logs.upper) };
}

double stats_proven(struct interval change)
{
    if (!isfinite(change.lower) || !isfinite(change.upper)) return NAN;
    return change.lower > 0 ? change.lower : change.upper < 0 ? change.upper : 0;
}

bool stats_is_vague(struct interval change, double noise_floor)
{
    const double proven = fabs(stats_proven(change)), size = fabs(change.estimate);
    return proven > 0 && (proven < 0.5 * size || noise_floor > size);
}
