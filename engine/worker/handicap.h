/* engine/worker/handicap.h - an artificial slowdown of known size, to test that experiments detect slowdowns.
 */
#ifndef QDYNO_ENGINE_HANDICAP_H
#define QDYNO_ENGINE_HANDICAP_H

#include "engine/config/config.h"

/* Wait until the step that began at started_ns (clock_ns) has taken `handicap` percent longer than it took
 * until this call; handicap=0 returns at once. Late by less than 1 us unless the thread is descheduled. */
void handicap_wait(const struct config *c, int64_t started_ns);

#endif
