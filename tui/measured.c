/* tui/measured.c - values into distributions. */
#include "tui/measured.h"

#include <math.h>
#include <stdlib.h>

void latency_add(struct latency *l, double seconds)
{
    const double part = log(seconds / l->lo) / log(l->hi / l->lo);
    if (isnan(part)) return;
    l->bin[MAX(0, MIN((int)(part * LATENCY_BINS), LATENCY_BINS - 1))]++;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* A percentile needs values beyond it: p99 of ten values is their largest, which says nothing. */
static double percentile(const float *sorted, int n, double p)
{
    if (n < 2 || n * (1 - p) < 1) return NAN;
    const double at = p * (n - 1);
    const int i = MIN((int)at, n - 2);
    return sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]);
}

void latency_of(struct latency *l, float *seconds, int n)
{
    int known = 0;
    *l = (struct latency){ .p50 = NAN, .p95 = NAN, .p99 = NAN, .max = NAN };
    for (int i = 0; i < n; i++)
        if (isfinite(seconds[i]) && seconds[i] > 0) seconds[known++] = seconds[i];
    if (!known) return;
    qsort(seconds, (size_t)known, sizeof *seconds, by_size);
    l->n = known;
    l->max = seconds[known - 1];
    l->lo = seconds[0] * 0.9;
    l->hi = MAX(l->max * 1.1, l->lo * 1.5);
    l->p50 = percentile(seconds, known, 0.50);
    l->p95 = percentile(seconds, known, 0.95);
    l->p99 = percentile(seconds, known, 0.99);
    for (int i = 0; i < known; i++) latency_add(l, seconds[i]);
}
