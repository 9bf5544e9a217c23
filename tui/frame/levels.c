/* tui/frame/levels.c - from which value on a figure of the machine is worth a look, and when it is bad.
 *
 * One table for every view: docs/dashboard.md shows it, and tests/tui/test_docs_page.c compares the two. The
 * limits of steal and other programs are those of contamination (advisor/run), so that a colour and a
 * discarded block mean the same. */
#include "tui/frame/frame.h"

#include <math.h>

#include "advisor/run/run.h"

const struct metric_limits METRIC_LEVELS[] = {
    { METRIC_OTHERS_BUSY, NAN, 0.5, "processor time of other programs (`others`)" },
    { METRIC_CPU_STEAL, NAN, 0.1, "processor time taken by the hypervisor (`steal`)" },
    { METRIC_PSI_CPU, 0.2, 0.6, "time in which a task waited for a processor (`PSI cpu`)" },
    { METRIC_PSI_MEMORY, 0.05, 0.2, "time in which a task waited for memory (`mem`)" },
    { METRIC_PSI_IO, 0.1, 0.4, "time in which a task waited for a disk (`io`)" },
    { METRIC_MEM_USED, 0.9, 0.97, "used share of the memory (`MEM`)" },
    { METRIC_CPU_TEMPERATURE, 80, 95, "temperature of the processor" },
    { METRIC_GPU_TEMPERATURE, 80, 90, "temperature of the GPU" },
};
const int METRIC_LEVEL_COUNT = COUNT_OF(METRIC_LEVELS);

double metric_limits_warn(const struct metric_limits *l)
{
    return isnan(l->warn) ? contamination_limit(l->metric) : l->warn;
}

enum figure_level metric_level(enum metric_id metric, double v)
{
    for (int i = 0; i < METRIC_LEVEL_COUNT; i++) {
        const struct metric_limits *l = &METRIC_LEVELS[i];
        if (l->metric != metric || isnan(v)) continue;
        return v > l->bad ? LEVEL_BAD : v > metric_limits_warn(l) ? LEVEL_WARN : LEVEL_GOOD;
    }
    return LEVEL_GOOD;
}

unsigned level_style(enum figure_level level)
{
    static const unsigned STYLES[] = {
        [LEVEL_GOOD] = ROLE_TEXT, [LEVEL_WARN] = ROLE_WARN, [LEVEL_BAD] = ROLE_ERROR
    };
    return STYLES[level];
}

const char *level_mark(enum figure_level level)
{
    static const char *const MARKS[] = { [LEVEL_GOOD] = "", [LEVEL_WARN] = "!", [LEVEL_BAD] = "!!" };
    return MARKS[level];
}
