/* tui/frame/levels.c - from which value on a figure of the machine is worth a look, and when it is bad.
 *
 * One table for every view: docs/dashboard.md shows it, and tests/tui/test_docs_page.c compares the two. The
 * limits of steal and other programs are those of contamination (advisor/run), so that a colour and a
 * discarded block mean the same. */
#include "tui/frame/frame.h"

#include <math.h>

#include "advisor/run/run.h"

const struct metric_limits METRIC_LEVELS[] = {
    { .metric = METRIC_OTHERS_BUSY,
      .warn = NAN,
      .bad = 0.5,
      .what = "processor time of other programs (`others`)" },
    { .metric = METRIC_CPU_STEAL,
      .warn = NAN,
      .bad = 0.1,
      .what = "processor time taken by the hypervisor (`steal`)" },
    { .metric = METRIC_PSI_CPU,
      .warn = 0.2,
      .bad = 0.6,
      .what = "time in which a task waited for a processor (`PSI cpu`)" },
    { .metric = METRIC_PSI_MEMORY,
      .warn = 0.05,
      .bad = 0.2,
      .what = "time in which a task waited for memory (`mem`)" },
    { .metric = METRIC_PSI_IO,
      .warn = 0.1,
      .bad = 0.4,
      .what = "time in which a task waited for a disk (`io`)" },
    { .metric = METRIC_MEM_USED, .warn = 0.9, .bad = 0.97, .what = "used share of the memory (`MEM`)" },
    { .metric = METRIC_CPU_TEMPERATURE, .warn = 80, .bad = 95, .what = "temperature of the processor" },
    { .metric = METRIC_GPU_TEMPERATURE, .warn = 80, .bad = 90, .what = "temperature of the GPU" },
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

/* ---------------------------------------------------------------- a busy machine */

/* A moving mean over about three seconds: single samples jump. */
static double mean_move(double mean, double now)
{
    enum { STEPS = 6 };
    if (!isfinite(now)) return mean;
    return isfinite(mean) ? mean + (now - mean) / STEPS : now;
}

/* Busy above a limit of contamination, and until the load is well below both: a banner must not flicker. */
static bool still_busy(const struct busy_state *b)
{
    const double off = b->is_busy ? 0.7 : 1.0;
    return b->others > off * contamination_limit(METRIC_OTHERS_BUSY) ||
           b->steal > off * contamination_limit(METRIC_CPU_STEAL);
}

void busy_state_step(struct busy_state *b, const double *sensor)
{
    b->cpu = mean_move(b->cpu, sensor[METRIC_CPU_BUSY]);
    b->others = mean_move(b->others, sensor[METRIC_OTHERS_BUSY]);
    b->steal = mean_move(b->steal, sensor[METRIC_CPU_STEAL]);
    if (b->others > b->cpu) b->others = b->cpu; /* a part of it, although read at a slightly different time */
    b->is_busy = still_busy(b);
}

void busy_state_show(const struct busy_state *b, double *sensor)
{
    sensor[METRIC_CPU_BUSY] = b->cpu;
    sensor[METRIC_OTHERS_BUSY] = b->others;
    sensor[METRIC_CPU_STEAL] = b->steal;
}
