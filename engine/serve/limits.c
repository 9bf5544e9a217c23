/* Figures of one request, and whether they are within limits (limits.h). */
#include "engine/serve/limits.h"

#include <math.h>
#include <stdlib.h>

double gap_quantile(const double *ascending, int n, double p)
{
    return n > 0 ? ascending[MIN(MAX((int)ceil(p * n) - 1, 0), n - 1)] : 0;
}

double request_figure(const struct request_times *t, enum load_figure f)
{
    switch (f) {
    case LOAD_TTFT: return t->first_s - t->arrived_s;
    case LOAD_TPOT: return t->tokens > 1 ? (t->last_s - t->first_s) / (t->tokens - 1) : 0;
    case LOAD_ITL_P50: return gap_quantile(t->gap_s, t->gaps, 0.50);
    case LOAD_ITL_P95: return gap_quantile(t->gap_s, t->gaps, 0.95);
    case LOAD_ITL_P99: return gap_quantile(t->gap_s, t->gaps, 0.99);
    case LOAD_ITL_MAX: return gap_quantile(t->gap_s, t->gaps, 1);
    case LOAD_E2E: return t->last_s - t->arrived_s;
    case LOAD_QUEUE: return t->admitted_s - t->arrived_s;
    case LOAD_FIGURES: break;
    }
    return (double)NAN;
}

static int by_length(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool limits_are_known(const struct load_limit *limit, int limits, const struct request_times *t)
{
    for (int i = 0; i < limits; i++)
        if (isnan(request_figure(t, limit[i].figure))) return false;
    return true;
}

bool limits_are_met(const struct load_limit *limit, int limits, struct request_times *t)
{
    bool met = true;
    if (limits && t->gaps > 1) qsort(t->gap_s, (size_t)t->gaps, sizeof *t->gap_s, by_length);
    for (int i = 0; i < limits; i++) met = met && request_figure(t, limit[i].figure) < limit[i].seconds;
    return met;
}
