/* advisor/experiment_means.c - what one arm does by itself, with an interval: for conditions that name a
 * number
 * ("decode_tok_s >= 30"). Cells of a block share a moment, so blocks are what is counted. */
#include "advisor/experiment_parts.h"

#include <math.h>

/* The mean of the logs of an arm's cells of this block; NAN when one is unknown or not positive. */
static double block_mean(const struct block_values *b, int k, int metric)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < 2 * b->arms; i++) {
        if (b->place[i] != k) continue;
        const double value = b->value[i][metric];
        sum += value > 0 ? log(value) : NAN;
        n++;
    }
    return sum / n;
}

void means_keep(struct ledger *l, const struct block_values *b)
{
    if (b->phase != CELL_BLOCK) return;
    for (int k = 0; k < b->arms; k++) {
        struct effects *e = &l->means[b->arm[k]];
        if (e->blocks == EXPERIMENT_BLOCKS) continue;
        for (int m = 0; m < CELL_METRICS; m++) e->d[m][e->blocks] = block_mean(b, k, METRIC_SENSOR_COUNT + m);
        e->blocks++;
    }
}

void means_bounds(const struct effects *e, struct interval mean[CELL_METRICS])
{
    for (int m = 0; m < CELL_METRICS; m++) {
        double known[EXPERIMENT_BLOCKS];
        int n = 0;
        for (int i = 0; i < e->blocks; i++)
            if (!isnan(e->d[m][i])) known[n++] = e->d[m][i];
        const struct interval i = stats_t_interval(known, n, 0.95);
        mean[m].lower = exp(i.lower);
        mean[m].upper = exp(i.upper);
    }
}
