/* tui/widgets/latency.c - durations counted in bins of equal width on a logarithmic axis. */
#include "tui/widgets/widgets.h"

#include <math.h>
#include <stdlib.h>

#include "advisor/stats/stats.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"

static int latency_by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static int latency_bin(const struct latency_histogram *l, double seconds)
{
    return MAX(0, MIN((int)(log(seconds / l->lo) / log(l->hi / l->lo) * LATENCY_BINS), LATENCY_BINS - 1));
}

void latency_histogram_make(struct latency_histogram *l, float *seconds, int n)
{
    int known = 0;
    *l = (struct latency_histogram){ .p50 = NAN, .p95 = NAN, .p99 = NAN, .max = NAN };
    for (int i = 0; i < n; i++)
        if (isfinite(seconds[i]) && seconds[i] > 0) seconds[known++] = seconds[i];
    if (!known) return;
    qsort(seconds, (size_t)known, sizeof *seconds, latency_by_size);
    l->n = known;
    l->p50 = stats_latency_quantile(seconds, known, 0.50);
    l->p95 = stats_latency_quantile(seconds, known, 0.95);
    l->p99 = stats_latency_quantile(seconds, known, 0.99);
    l->max = seconds[known - 1];
    l->lo = seconds[0] / 1.1;
    l->hi = l->max * 1.1;
    for (int i = 0; i < known; i++) l->bin[latency_bin(l, seconds[i])]++;
}
