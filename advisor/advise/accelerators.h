/* advisor/advise/accelerators.h - processors for which qdyno has no code, and what their programs compute
 * (internal). Only machine descriptions have them: no telemetry lists them. */
#ifndef QDYNO_ADVISOR_ADVISE_ACCELERATORS_H
#define QDYNO_ADVISOR_ADVISE_ACCELERATORS_H

#include "kernels/kernels.h"
#include "telemetry/machine/machine.h"

struct accelerator {
    const char *vendor;     /* of struct gpu_identity */
    const char *name;       /* in a sentence: "a TPU" */
    const char *formats[6]; /* weights that its programs multiply, NULL ends them */
    const char *advice, *reason, *evidence;
};

/* The accelerator that computes on this machine. NULL: none, or a GPU. */
const struct accelerator *accelerator_of(const struct machine *m);

/* Whether its programs multiply weights of this format. */
bool accelerator_reads(const struct accelerator *x, const struct format *f);

#endif
