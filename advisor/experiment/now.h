/* advisor/experiment/now.h - what happens now in a run that another process measures: the command line writes
 * it, the dashboard reads it. Included by experiment.h. */
#ifndef QDYNO_ADVISOR_EXPERIMENT_NOW_H
#define QDYNO_ADVISOR_EXPERIMENT_NOW_H

#include "base/base.h"

struct experiment_state;

/* What the rows of a run in the database do not say: the running cell, pauses, what a load does; before the
 * run has rows, also its specification. The object "ab" of a line of progress (docs/documents.md). New
 * reference. */
json_t *experiment_now_to_json(const struct experiment_state *s);

/* Puts it into the state that experiment_load made of the rows, or into a new one where the object has a
 * specification. False: it is none, and nothing was changed. */
bool experiment_now_from_json(struct experiment_state *s, const json_t *object);

#endif
