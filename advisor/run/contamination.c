/* advisor/run/contamination.c - the rules that say when the machine disturbed a cell.
 *
 * They were fixed before any result was seen and are about the machine only: a cell is never discarded
 * because it was slow. A sensor that this machine lacks makes no rule. */
#include "advisor/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "advisor/stats/stats.h"

enum statistic { MEAN, MEDIAN, MAXIMUM, SPREAD /* maximum - minimum */ };

/* A cell is disturbed when the statistic of the metric over its samples is above `above`, or, for the clock,
 * below `below_control` times the median of the control cells. */
static const struct rule {
    enum metric_id metric;
    enum statistic statistic;
    double above;         /* NAN: no upper limit */
    double below_control; /* NAN: no lower limit */
    bool gpu;             /* only for cells that ran on one */
    bool ticks;           /* the kernel counts it in whole clock ticks: one tick more is allowed */
    const char *text;     /* message; value and limit are appended */
    double shown_times;   /* factor on value and limit in the message: 100 for %, 1e-9 for GHz */
    const char *unit;
} CONTAMINATION[] = {
    /* clang-format off */
    /* time of virtual CPUs taken by the hypervisor: 1 % of a cell is as much as the default margin */
    { METRIC_CPU_STEAL, MEAN, 0.01, NAN, .ticks = true, .text = "the hypervisor took processor time", .shown_times = 100, .unit = " %" },
    { METRIC_CPU_FREQUENCY, MEDIAN, NAN, 0.95, .text = "the clock dropped", .shown_times = 1e-9, .unit = " GHz" },
    { METRIC_CPU_THROTTLE, MAXIMUM, 0, NAN, .text = "a processor slowed down for heat", .shown_times = 1, .unit = "/s" },
    { METRIC_SWAP_IN, MAXIMUM, 0, NAN, .text = "memory came back from swap", .shown_times = 1, .unit = "/s" },
    { METRIC_OTHERS_BUSY, MEAN, 0.10, NAN, .ticks = true, .text = "other programs kept the processors busy", .shown_times = 100, .unit = " %" },
    /* In a container a tenth of the machine may be all there is: the others in it count against its quota.
     * What throttling the cell's own work brings about is part of its config, and no rule. */
    { METRIC_CGROUP_OTHERS, MEAN, 0.10, NAN, .ticks = true, .text = "other programs used the control group's quota", .shown_times = 100, .unit = " %" },
    { METRIC_ON_BATTERY, SPREAD, 0, NAN, .text = "the power source changed", .shown_times = 1, .unit = "" },
    { METRIC_GPU_THROTTLE, MAXIMUM, 0, NAN, .gpu = true, .text = "the GPU throttled", .shown_times = 1, .unit = "" },
    /* clang-format on */
};

double contamination_limit(enum metric_id metric)
{
    for (size_t i = 0; i < COUNT_OF(CONTAMINATION); i++)
        if (CONTAMINATION[i].metric == metric) return CONTAMINATION[i].above;
    return NAN;
}

const char *contamination_text(enum metric_id metric)
{
    for (size_t i = 0; i < COUNT_OF(CONTAMINATION); i++)
        if (CONTAMINATION[i].metric == metric) return CONTAMINATION[i].text;
    return NULL;
}

/* The statistic of a metric over the samples; NAN when no sample has it. */
static double over_samples(const struct sample *s, int n, enum metric_id metric, enum statistic what)
{
    double *v = malloc((size_t)MAX(n, 1) * sizeof(*v));
    if (!v) return NAN;
    int k = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(s[i].value[metric])) v[k++] = s[i].value[metric];
    double r = NAN;
    if (k) {
        stats_sort(v, k);
        r = what == MEAN      ? stats_mean(v, k)
            : what == MEDIAN  ? stats_quantile_sorted(v, k, 0.5)
            : what == MAXIMUM ? v[k - 1]
                              : v[k - 1] - v[0];
    }
    free(v);
    return r;
}

/* The share of one clock tick of one CPU in all CPU time of the window. In a short cell on a small machine a
 * single tick is already several percent. */
static double one_tick(const struct sample *s, int n)
{
    const double ticks_a_second = (double)sysconf(_SC_CLK_TCK) * (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (n < 2) return ticks_a_second > 0 ? 1 / (0.1 * ticks_a_second) : 0;
    const double seconds = (double)(s[n - 1].t_ns - s[0].t_ns) * 1e-9 * n / (n - 1);
    return seconds > 0 && ticks_a_second > 0 ? 1 / (seconds * ticks_a_second) : 0;
}

const char *contamination_reason(const struct sample *samples, int n, const struct contamination_of *of,
                                 char *buf, size_t size)
{
    buf[0] = 0;
    /* the worker counts its own faults exactly, also in cells shorter than a tick */
    if (of->major_faults > 0) {
        snprintf(buf, size, "%.0f major page faults: memory was read from disk", of->major_faults);
        return buf;
    }
    for (size_t i = 0; i < COUNT_OF(CONTAMINATION); i++) {
        const struct rule *r = &CONTAMINATION[i];
        if (r->gpu && !of->on_gpu) continue;
        const double got = over_samples(samples, n, r->metric, r->statistic);
        const bool low = !isnan(r->below_control);
        const double limit = low        ? r->below_control * of->control_frequency
                             : r->ticks ? r->above + one_tick(samples, n)
                                        : r->above;
        if (low ? !(got < limit) : !(got > limit)) continue; /* not exceeded, or one side is NAN */
        snprintf(buf, size, "%s: %.3g%s, limit %.3g%s", r->text, got * r->shown_times, r->unit,
                 limit * r->shown_times, r->unit);
        return buf;
    }
    return buf;
}
