/* advisor/stats/series.c - values that follow each other in time: the correlation of neighbours, and where
 * warm-up ends. */
#include "advisor/stats/stats.h"

#include <math.h>

double stats_lag1(const double *x, int n)
{
    if (n < 3) return NAN;
    const double mean = stats_mean(x, n);
    double products = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
        if (i) products += (x[i] - mean) * (x[i - 1] - mean);
    }
    return squares > 0 ? products / squares : NAN;
}

int stats_mser(const double *x, int n)
{
    for (int i = 0; i < n; i++)
        if (isnan(x[i])) return -1;
    if (n < 4) return 0;
    /* From the end, so that each mean and sum of squares can be updated from the previous one (Welford 1962).
     */
    double mean = 0, squares = 0, least = INFINITY;
    int best = 0;
    for (int d = n - 1; d >= 0; d--) {
        const int kept = n - d;
        const double off = x[d] - mean;
        mean += off / kept;
        squares += off * (x[d] - mean);
        const double score = squares / ((double)kept * kept);
        if (d > n / 2 || score > least)
            continue; /* `>`: of equal scores, the smallest d is kept, because it comes last */
        least = score;
        best = d;
    }
    return best;
}
