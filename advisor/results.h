/* advisor/results.h - what a run measured, arm by arm, from its stored cells alone.
 *
 * The unit is what may be counted as one observation: the mean of an arm's cells in one block, or one
 * repetition of a bench. Everything is in logs. Discarded and failed cells, warm-up and control are not in
 * it. Independent of how an experiment orders its cells, so runs of any age can be read. */
#ifndef QDYNO_ADVISOR_RESULTS_H
#define QDYNO_ADVISOR_RESULTS_H

#include "advisor/stats.h"
#include "db/db.h"
#include "telemetry/telemetry.h"

enum { RESULT_METRICS = METRIC_COUNT - METRIC_SENSOR_COUNT };

struct result_unit {
    int block;    /* -1: no block */
    bool confirm; /* of the blocks that measured the winner of a race again */
    int cells[RESULT_METRICS];
    double y[RESULT_METRICS]; /* mean of ln(value) by enum metric_id - METRIC_SENSOR_COUNT; NAN unknown */
};

/* One config on one workload. */
struct result {
    int arm;
    char config[640], workload[576], work_hash[24];
    struct result_unit *unit;
    int units, cap;
};

struct results {
    struct run_row run;
    json_t *capsule;                     /* NULL: the run is older than capsules */
    double canary[RESULT_METRICS];       /* mean ln of its canaries; NAN */
    double canary_drift[RESULT_METRICS]; /* ln(end / start), NAN unless both are there */
    char canary_work[96];                /* "" none */
    struct result *result;
    int n;
};
/* ERR_USAGE: no such run. */
enum err_code results_read(struct results *out, struct db *d, int64_t run_id, struct err *why);
void results_free(struct results *r); /* {0} is fine */

/* Known values of one metric, y[0..return): room for all units. block may be NULL. */
int result_values(const struct result *r, enum metric_id metric, double *y, int *block);
double result_mean(const struct result *r, enum metric_id metric); /* of logs; NAN */

/* What a result is about: decode rate, else prefill rate, else training rate, else perplexity, else
 * METRIC_COUNT. */
enum metric_id result_main_metric(const struct result *r);

/* ln of what divides the metric to be comparable over time, with its sign; 0 for metrics that need nothing,
 * NAN when the run has no canary. */
double results_canary(const struct results *r, enum metric_id metric);

/* The SHA-256 of the model that ran this config line, from the capsule, else from the run; "" unknown. */
const char *results_model(const struct results *r, const char *config);

#endif
