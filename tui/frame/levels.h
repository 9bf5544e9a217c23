/* tui/frame/levels.h - whether a figure of the machine is worth a look, and whether the machine is busy; part
 * of frame.h. */
#ifndef QDYNO_TUI_FRAME_LEVELS_H
#define QDYNO_TUI_FRAME_LEVELS_H

#include "telemetry/metrics/metrics.h"

/* Whether a figure of the machine is worth a look. Views show the level by a colour role and by a mark. */
enum figure_level { LEVEL_GOOD, LEVEL_WARN, LEVEL_BAD };
struct metric_limits {
    enum metric_id metric;
    double warn, bad; /* in the unit of the metric, memory as a share; warn NAN: the limit of contamination */
    const char *what; /* as in docs/dashboard.md */
};
extern const struct metric_limits METRIC_LEVELS[];
extern const int METRIC_LEVEL_COUNT;
double metric_limits_warn(const struct metric_limits *l);
enum figure_level metric_level(enum metric_id metric,
                               double v); /* good for NAN and for metrics without limits */
unsigned level_style(enum figure_level level);
const char *level_mark(enum figure_level level); /* "" "!" "!!" */

/* Whether other programs or the hypervisor disturb measurements: means of a few seconds. */
enum { BUSY_BY = 160 };
struct busy_state {
    bool is_busy;              /* above a limit of contamination */
    double cpu, others, steal; /* share of all processor time; NAN unknown */
    char by[BUSY_BY];          /* "cc1 40 %, ld 12 %"; "" none stands out, or not looked yet */
    int64_t by_ms;             /* unix time when that was seen; nobody looks while a cell is timed */
};

/* Takes in one sample of the sensors (by enum metric_id), every half second. */
void busy_state_step(struct busy_state *b, const double *sensor);
/* Writes the means where the views read the sensors: a sample beside its mean would look like a
 * contradiction. */
void busy_state_show(const struct busy_state *b, double *sensor);

/* How the next A/B or search treats a busy machine. */
enum busy_mode { BUSY_ANYHOW, BUSY_WAIT, BUSY_LOADED };

#endif
