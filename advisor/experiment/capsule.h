/* advisor/experiment/capsule.h - what an experiment leaves beside its cells for later comparisons: its
 * capsule when it starts, a canary at both ends. Inside advisor/ only. */
#ifndef QDYNO_ADVISOR_EXPERIMENT_CAPSULE_H
#define QDYNO_ADVISOR_EXPERIMENT_CAPSULE_H

#include "advisor/run/run.h"
#include "advisor/experiment/parts.h"

/* Once the run has its row and the arms have answered. Errors go to x->why as well. */
enum err_code experiment_capsule(struct experiment *x);

/* Nothing when the machine is not watched (no sampler): what is not observed is not compared over time. */
enum err_code experiment_canary(struct experiment *x, enum canary_when when);

#endif
