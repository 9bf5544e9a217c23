/* engine/worker/handicap.h - a slowdown of known size, so that what finds slowdowns can be put to the test.
 * Internal to engine/. */
#ifndef QDYNO_ENGINE_HANDICAP_H
#define QDYNO_ENGINE_HANDICAP_H

#include "engine/config/config.h"

/* Returns when the step that began at started_ns (clock_ns) has taken `handicap` percent longer than it took
 * until this call; at once without one. Late by less than 1 us unless the thread loses its processor. */
void handicap_wait(const struct config *c, int64_t started_ns);

#endif
