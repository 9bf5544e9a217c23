/* advisor/canary.h - a small piece of work that is always the same, run at the start and the end of every
 * run.
 *
 * What changes a machine from one week to the next (clocks, microcode, neighbours in the same house) changes
 * the canary as well; what is left after dividing by it is the program's and the model's. It reads 64 MiB
 * over and over and multiplies from registers, on as many threads as qdyno uses by default, a quarter of a
 * second together. It is no ceiling of the machine: 64 MiB may lie in a cache. */
#ifndef QDYNO_ADVISOR_CANARY_H
#define QDYNO_ADVISOR_CANARY_H

#include "db/db.h"
#include "telemetry/telemetry.h"

#define CANARY_PHASE "canary" /* of its cells: arm and block -1, slot 0 at the start, 1 at the end */

struct canary {
    double read_bytes_s, ops_s; /* NAN: not measured */
    char work[96];              /* what it did: only equal works compare */
    double seconds;
};
void canary_measure(struct canary *out);

enum canary_when { CANARY_START, CANARY_END };
enum err_code canary_store(struct db *d, int64_t run_id, enum canary_when when, const struct canary *c,
                           struct err *why);
/* Measure it now and store it with the run. */
enum err_code canary_record(struct db *d, int64_t run_id, enum canary_when when, struct err *why);

/* What a metric of cells is divided by to be comparable over time: the id of a canary metric, and *sign +1
 * where more of it makes more of the metric (rates), -1 where it makes less (times). METRIC_COUNT: nothing
 * (bytes, perplexities). */
enum metric_id canary_of(enum metric_id metric, int *sign);

#endif
