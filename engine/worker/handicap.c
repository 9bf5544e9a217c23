/* A step of a small model takes microseconds, and the system wakes a sleeper tens of microseconds late: most
 * of a wait is slept, so that it costs what waiting for memory or a device would, and the end of it is spun
 * away. */
#include "engine/config/config.h"
#include "engine/worker/handicap.h"

#include "base/base.h"

enum {
    LATE_NS = 200000
}; /* how late a sleeper may wake: timer slack (50 us), and a core that has to wake up */

void handicap_wait(const struct config *c, int64_t started_ns)
{
    const int64_t percent = config_int(c, KNOB_HANDICAP);
    if (percent == 0) return;
    const int64_t now = clock_ns(), until = now + (now - started_ns) * percent / 100;
    clock_sleep_ns(until - now - LATE_NS); /* nothing when that is not positive */
    while (clock_ns() < until) continue;
}
