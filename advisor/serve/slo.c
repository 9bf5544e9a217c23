/* Goodput: which requests were answered within the limits of a service-level objective (parts.h). */
#include <math.h>
#include <stdlib.h>

#include "advisor/serve/parts.h"
#include "advisor/stats/stats.h"

bool slo_note_gap(const struct server *s, struct answer *a, double seconds)
{
    if (!s->o.limit_count) return true;
    if (a->gap_count == a->gap_cap) {
        const int cap = MAX(2 * a->gap_cap, 64);
        double *more = realloc(a->gaps, (size_t)cap * sizeof *more);
        if (!more) return false;
        a->gaps = more;
        a->gap_cap = cap;
    }
    a->gaps[a->gap_count++] = seconds;
    return true;
}

/* By nearest rank: with few gaps, the longest. gaps are in ascending order. */
static double gap_quantile(const struct answer *a, double p)
{
    const int n = a->gap_count;
    return n ? a->gaps[MIN(MAX((int)ceil(p * n) - 1, 0), n - 1)] : 0;
}

static double answer_figure(const struct answer *a, enum load_figure f)
{
    const int64_t arrived = a->call->arrived_ns;
    switch (f) {
    case LOAD_TTFT: return (double)(a->first_ns - arrived) * 1e-9;
    case LOAD_TPOT: return a->made > 1 ? (double)(a->last_ns - a->first_ns) * 1e-9 / (a->made - 1) : 0;
    case LOAD_ITL_P50: return gap_quantile(a, 0.50);
    case LOAD_ITL_P95: return gap_quantile(a, 0.95);
    case LOAD_ITL_P99: return gap_quantile(a, 0.99);
    case LOAD_ITL_MAX: return gap_quantile(a, 1);
    case LOAD_E2E: return (double)(a->last_ns - arrived) * 1e-9;
    case LOAD_QUEUE: return (double)(a->admitted_ns - arrived) * 1e-9;
    case LOAD_FIGURES: break;
    }
    return (double)NAN;
}

bool slo_is_met(const struct server *s, const struct call *c)
{
    bool met = true;
    for (int i = 0; i < c->answer_count; i++) {
        const struct answer *a = &c->answers[i];
        if (!a->made) continue; /* it ended at once: nobody waited for a token */
        stats_sort(a->gaps, a->gap_count);
        for (int k = 0; k < s->o.limit_count; k++)
            met = met && answer_figure(a, s->o.limits[k].figure) < s->o.limits[k].seconds;
    }
    return met;
}
