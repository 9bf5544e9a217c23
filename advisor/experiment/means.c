/* advisor/experiment/means.c - what one arm does by itself, with an interval: for conditions that name a
 * number ("decode_tok_s >= 30"). Cells of a block share a moment, so blocks are what is counted. No coin
 * stands behind one arm alone: its interval is of Student's t model, but valid at every look, since a gate
 * may end the run. */
#include "advisor/experiment/parts.h"

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
        const double half = stats_anytime_factor(n, 1, 0.05) * stats_sd(known, n) / sqrt(n);
        const double middle = isfinite(half) ? stats_mean(known, n) : NAN;
        mean[m].lower = exp(middle - half);
        mean[m].upper = exp(middle + half);
    }
}
