/* tests/bench/advisor/series.h - histories without a machine: series of runs whose noise is of a known kind,
 * so that it can be counted how often a method of `history --detect` reports something where nothing
 * happened.
 */
#ifndef QDYNO_BENCH_ADVISOR_SERIES_H
#define QDYNO_BENCH_ADVISOR_SERIES_H

#include "advisor/history/history.h"
#include "tests/bench/advisor/simulate.h"

/* Metrics of a simulated run; the first is the one that is examined. */
enum { SERIES_RUNS_MOST = 200, SERIES_METRICS = 5 };

/* Kinds of noise from run to run. The last one is like a history of a machine that also does other work: what
 * slows one run down lasts until the next, tails are heavy, and one run in ten is slower by three times the
 * noise. */
extern const struct noise SERIES_NOISES[];
extern const int SERIES_NOISE_COUNT;

struct simulated_series {
    struct history_series series;
    struct history_point point[SERIES_RUNS_MOST];
};
/* Series `number`: `runs` runs, whose noise has the scale sd (log ratio) in every metric, independent from
 * metric to metric. The level of the examined metric falls by `step` standard deviations at run `at`
 * (>= runs: never). */
void series_simulate(struct simulated_series *out, const struct noise *noise, uint64_t number, int runs,
                     double sd, int at, double step);

#endif
