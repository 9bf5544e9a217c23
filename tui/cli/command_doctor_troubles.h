/* tui/cli/command_doctor_troubles.h - what makes runs slow, fail or vary on this machine right now, each with
 * what to do. */
#ifndef QDYNO_CLI_TROUBLES_H
#define QDYNO_CLI_TROUBLES_H

#include "tui/cli/lib/devices.h"

struct trouble_case {
    const struct machine *machine;
    const double *row;          /* [METRIC_SENSOR_COUNT], of the second look; NAN unknown */
    const struct run_row *runs; /* of the database, newest first */
    int n_runs;
    const struct devices *devices; /* NULL: not known */
};
struct trouble {
    char found[256], advice[256];
};
enum { TROUBLES_MAX = 16 };
/* Pure. Returns how many were filled. */
int troubles_find(struct trouble out[TROUBLES_MAX], const struct trouble_case *c);

#endif
