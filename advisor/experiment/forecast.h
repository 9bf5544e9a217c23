/* advisor/experiment/forecast.h - what a budget gives where the times of the arms were measured. */
#ifndef QDYNO_ADVISOR_EXPERIMENT_FORECAST_H
#define QDYNO_ADVISOR_EXPERIMENT_FORECAST_H

#include "advisor/run/run.h"

struct experiment_forecast;
struct experiment_spec;

/* Seconds of one arm. */
struct arm_time {
    double start_s;  /* starting its process */
    double settle_s; /* the untimed work of a new process before its first timed cell */
    double cell_s;   /* one run of the workload */
    double prefill_token_s, decode_token_s; /* NAN: unknown */
};
/* The forecast of a resolved specification whose arms take these times, t[arms]. Pure but for the size of the
 * text for quality. */
void forecast_of_arms(struct experiment_forecast *f, const struct experiment_spec *s,
                      const struct arm_time t[]);
/* May a run continue that is stored in this row? Not one with a verdict and a decided gate. */
bool experiment_is_open(const struct run_row *row);

#endif
