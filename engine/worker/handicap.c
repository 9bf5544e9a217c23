/* Waits with microsecond precision. A step of a small model takes microseconds, but a sleeping thread wakes
 * tens of microseconds late. So most of the wait is a sleep, which uses no CPU, and the end is a busy loop */
#include "engine/worker/handicap.h"

#include "base/base.h"
#include "engine/config/config.h"

enum {
    LATE_NS = 200000
}; /* how late a sleep can end: timer slack (50 us) plus the wake-up time of an idle core */

void handicap_wait(const struct config *c, int64_t started_ns)
{
    const int64_t percent = config_int(c, KNOB_HANDICAP);
    if (percent == 0) return;
    const int64_t now = clock_ns(), until = now + (now - started_ns) * percent / 100;
    clock_sleep_ns(until - now - LATE_NS); /* does nothing for a negative time */
    while (clock_ns() < until) continue;
}
