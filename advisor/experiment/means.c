/* advisor/experiment/means.c - the mean of each arm with an interval, for gates that compare with a number
 * ("decode_tok_s >= 30"). The independent units are blocks, because cells of a block share the machine's
 * conditions. Randomization says nothing about a single arm, so the interval assumes Student's t model; it is
 * valid at all interim analyses, because a gate may end the run. */
#include "advisor/experiment/parts.h"

#include <math.h>

/* Mean of the logarithms of an arm's cells in this block; NAN when a value is unknown or not positive. */
static double block_mean(const struct block_values *b, int k, int metric)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < b->cells; i++) {
        if (b->place[i] != k) continue;
        const double value = b->value[i][metric];
        sum += value > 0 ? log(value) : NAN;
        n++;
    }
    return sum / n;
}

void means_keep(struct run_totals *l, const struct block_values *b)
{
    if (b->phase != CELL_BLOCK) return;
    for (int k = 0; k < b->arms; k++) {
        struct effects *e = &l->means[b->arm[k]];
        if (e->blocks == EXPERIMENT_BLOCKS) continue;
        for (int m = 0; m < CELL_METRICS; m++) e->d[m][e->blocks] = block_mean(b, k, METRIC_SENSOR_COUNT + m);
        e->disturbed[e->blocks++] = b->disturbed;
    }
}

int effects_select(const struct effects *e, enum estimand use, int metric, double d[EXPERIMENT_BLOCKS])
{
    int n = 0;
    for (int i = 0; i < e->blocks; i++)
        if (!isnan(e->d[metric][i]) && (use == ESTIMAND_LOADED || !e->disturbed[i])) d[n++] = e->d[metric][i];
    return n;
}

void means_bounds(const struct effects *e, enum estimand use, struct interval mean[CELL_METRICS])
{
    for (int m = 0; m < CELL_METRICS; m++) {
        double known[EXPERIMENT_BLOCKS];
        const int n = effects_select(e, use, m, known);
        const double half = stats_anytime_factor(n, 1, 0.05) * stats_sd(known, n) / sqrt(n);
        const double middle = isfinite(half) ? stats_mean(known, n) : NAN;
        mean[m].lower = exp(middle - half);
        mean[m].upper = exp(middle + half);
    }
}
