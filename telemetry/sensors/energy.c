/* telemetry/sensors/energy.c - energy as the time integral of power, with its uncertainty (sensors.h).
 *
 * A sample is the mean power since the sensor's previous reading. Samples come at the sensor's period, not at
 * the ends of the window, so part of the window has no sample of its own and the first sample reaches back to
 * before the window. How much that matters is computed here, because a short cell may rest on one sample. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

/* An interval between two samples that is longer than so many periods has a gap. */
static const double LATE = 1.5;
/* With fewer samples their spread says nothing about the power between them. */
enum { SPREAD_SAMPLES = 3 };

struct integral {
    enum metric_id power;
    double to, period;                       /* seconds after the start of the window; seconds */
    double covered, joules;                  /* of the time that samples describe */
    double lowest, highest, sum, sum_square; /* of the samples */
    double before, gaps, gaps_square; /* seconds of the first sample before the window; without sample */
    int samples, chains;              /* chain: consecutive samples without gap */
};

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median distance of samples, so that a few late ones do not count; the sensor's own period for one. */
static double period_of(const struct sample *s, int n, enum metric_id power)
{
    const double usual = METRICS[power].period_ms * 1e-3;
    double *gap = malloc((size_t)n * sizeof *gap);
    if (!gap) return usual;
    int gaps = 0;
    int64_t last = -1;
    for (int i = 0; i < n; i++) {
        if (!isfinite(s[i].value[power])) continue;
        if (last >= 0) gap[gaps++] = (double)(s[i].t_ns - last) * 1e-9;
        last = s[i].t_ns;
    }
    qsort(gap, (size_t)gaps, sizeof *gap, compare);
    const double period = gaps ? gap[gaps / 2] : usual;
    free(gap);
    return period;
}

static void add_gap(struct integral *x, double seconds)
{
    if (!(seconds > 0)) return;
    x->gaps += seconds;
    x->gaps_square += seconds * seconds;
}

/* last: time of the sample before, or the start of the window. */
static void add_sample(struct integral *x, double t, double watts, double last)
{
    double begin = x->samples ? last : t - x->period;
    if (t - begin > LATE * x->period) begin = t - x->period;
    x->chains += !x->samples || begin > last;
    if (!x->samples) x->before = fmax(-begin, 0);
    begin = fmax(begin, 0);
    add_gap(x, begin - last);
    x->covered += t - begin;
    x->joules += watts * (t - begin);
    x->lowest = fmin(x->lowest, watts);
    x->highest = fmax(x->highest, watts);
    x->sum += watts;
    x->sum_square += watts * watts;
    x->samples++;
}

/* The standard uncertainty. Power without sample has a rectangular distribution (variance: half range squared
 * / 3): around the mean, as wide as the samples' spread; before the window it may have been anything from 0
 * to twice the mean. A reading may be as old as the sensor's resolution, at both ends of a chain
 * (rectangular, 2/12). A sensor that does not count energy has also the standard error of its samples' mean.
 */
static double uncertainty(const struct integral *x, double mean)
{
    const double half_range = x->samples < SPREAD_SAMPLES ? mean : fmax(x->highest - mean, mean - x->lowest);
    const double stale = mean * METRICS[x->power].least_ms * 1e-3;
    double u2 = (x->gaps_square * half_range * half_range + x->before * x->before * mean * mean) / 3 +
                x->chains * stale * stale / 6;
    const bool counter = !strcmp(METRICS[x->power].source, "rapl_linux");
    if (!counter && x->samples > 1) {
        const double variance = fmax(x->sum_square - x->sum * x->sum / x->samples, 0) / (x->samples - 1);
        u2 += variance / x->samples * x->covered * x->covered;
    } else if (!counter) {
        u2 += mean * mean / 3 * x->covered * x->covered;
    }
    return sqrt(u2);
}

struct energy energy_integral(const struct sample *s, int n, enum metric_id power, int64_t from_ns,
                              int64_t to_ns)
{
    struct integral x = { .power = power,
                          .to = (double)(to_ns - from_ns) * 1e-9,
                          .period = period_of(s, n, power),
                          .lowest = INFINITY,
                          .highest = -INFINITY };
    double last = 0;
    for (int i = 0; i < n; i++) {
        const double t = (double)(s[i].t_ns - from_ns) * 1e-9, watts = s[i].value[power];
        if (!isfinite(watts) || t <= last || t > x.to) continue;
        add_sample(&x, t, watts, last);
        last = t;
    }
    if (!x.samples) return (struct energy){ NAN, NAN };
    add_gap(&x, x.to - last);
    const double mean = x.joules / x.covered;
    return (struct energy){ x.joules + mean * x.gaps, 2 * uncertainty(&x, mean) };
}
