/* How many experts of a layer work on a batch. Each of them is read once, so this number decides how many
 * bytes a step with several rows reads. */
#include <math.h>

#include "engine/plan/plan.h"

/* If every row chose `used` of the experts at random, independently of the others. */
static double distinct_at_random(int experts, int used, double rows)
{
    return experts * (1 - pow(1 - (double)used / experts, rows));
}

double experts_distinct(const struct expert_curve *curve, int experts, int used, double rows)
{
    const double least = used, most = fmin(experts, rows * used);
    double from = 1, before = used, distinct = NAN;
    if (!(rows > 1)) return least;
    for (int i = 0; curve && i < EXPERT_BATCHES && !isnan(curve->distinct[i]) && isnan(distinct); i++) {
        const double to = (double)(1 << i), here = curve->distinct[i];
        if (rows <= to) distinct = before + (here - before) * log(rows / from) / log(to / from);
        from = to;
        before = here;
    }
    /* beyond what was measured: the measured number grows as the random one does */
    if (isnan(distinct))
        distinct = before * distinct_at_random(experts, used, rows) / distinct_at_random(experts, used, from);
    return fmin(fmax(distinct, least), most);
}

double plan_step_bytes(const struct memory_plan *p, const struct model_shape *s, double distinct)
{
    if (!s->experts_used) return (double)p->decode_read_bytes;
    return (double)p->decode_read_bytes + (distinct / s->experts_used - 1) * (double)p->expert_read_bytes;
}
