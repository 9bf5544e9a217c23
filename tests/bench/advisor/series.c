/* Histories in noise of a known kind (series.h). */
#include "tests/bench/advisor/series.h"

#include <math.h>

const struct noise SERIES_NOISES[] = {
    { "independent", "normal, nothing else", .normal = 1 },
    { "AR(1) 0.5", "a run remembers half of the last", .ar = 1, .phi = 0.5 },
    { "AR(1) 0.9", "a run remembers nine tenths of the last", .ar = 1, .phi = 0.9 },
    { "heavy tails", "Student's t with 3 degrees of freedom", .heavy = 1 },
    { "history", "memory of 0.5, heavy tails, and one run in ten slower by three times that", .ar = 1,
      .phi = 0.5, .heavy = 0.5, .spikes = 0.1 },
};
const int SERIES_NOISE_COUNT = COUNT_OF(SERIES_NOISES);

void series_simulate(struct simulated_series *out, const struct noise *noise, uint64_t number, int runs,
                     double sd, int at, double step)
{
    static const enum metric_id METRIC[SERIES_METRICS] = { METRIC_DECODE_RATE, METRIC_PREFILL_RATE,
                                                           METRIC_TTFT, METRIC_PEAK_MEMORY,
                                                           METRIC_PERPLEXITY };
    double x[SERIES_RUNS_MOST];
    out->series = (struct history_series){ .metric = METRIC[0], .point = out->point, .n = runs };
    for (int i = 0; i < runs; i++) {
        out->point[i] = (struct history_point){ .run_id = i + 1, .units = 1, .se = NAN };
        for (int m = 0; m < RESULT_METRICS; m++) out->point[i].metric[m] = NAN;
    }
    for (int m = 0; m < SERIES_METRICS; m++) {
        noise_series(noise, 20261127, number * SERIES_METRICS + (uint64_t)m, x, runs);
        for (int i = 0; i < runs; i++) {
            const double y = -sd * x[i] - (m == 0 && i >= at ? sd * step : 0); /* slower is less */
            out->point[i].metric[METRIC[m] - METRIC_SENSOR_COUNT] = y;
            if (m == 0) out->point[i].level = out->point[i].y = y;
        }
    }
}
