/* tui/cli/command_doctor_troubles.h - conditions that make runs slow, fail or vary on this machine, and
 * what to do about each. */
#ifndef QDYNO_CLI_TROUBLES_H
#define QDYNO_CLI_TROUBLES_H

#include "db/db.h"
#include "telemetry/machine/machine.h"
#include "tui/cli/lib/devices.h"

struct trouble_case {
    const struct machine *machine;
    const double *row;          /* [METRIC_SENSOR_COUNT], the second of two samples; NAN: unknown */
    const struct run_row *runs; /* from the database, newest first */
    int n_runs;
    const struct devices *devices; /* NULL: unknown */
};
struct trouble {
    char found[256], advice[256];
};
enum { TROUBLES_MAX = 16 };
/* A pure function. Returns the number of troubles found. */
int troubles_find(struct trouble out[TROUBLES_MAX], const struct trouble_case *c);

#endif
