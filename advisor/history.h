/* advisor/history.h - results of one config on one machine over weeks: did the level change, when, by how
 * much, what else changed then, and how urgent is it? Method and limits: docs/history.md.
 *
 * A series is every run of one (machine, model, config, workload). Its values are logs, divided by the canary
 * that ran beside each, and turned so that more is better. */
#ifndef QDYNO_ADVISOR_HISTORY_H
#define QDYNO_ADVISOR_HISTORY_H

#include "advisor/results.h"
#include "advisor/series.h"

struct history_point {
    int64_t run_id, started_ms;
    int units;
    double y, se;                  /* mean ln(metric) as measured, standard error (NAN for one unit) */
    double canary;                 /* ln of what divides it, with its sign; 0 nothing, NAN unknown */
    double level;                  /* what is judged: +-(y - canary); NAN when that is unknown */
    double metric[RESULT_METRICS]; /* mean logs of all metrics, divided alike; NAN */
    json_t *capsule;               /* NULL: the run has none */
};
struct history_series {
    char machine[16], model_sha256[65], model_name[128], config[640], workload[576], work_hash[24];
    char canary_work[96];
    enum metric_id metric;
    bool canary; /* the machine's own: config is what the canary did, model "", workload "canary" */
    struct history_point *point;
    int n, cap;
};
struct history {
    struct history_series *series;
    int n;
};
struct history_want {
    const char *filter;          /* as db_run_list; NULL all */
    int limit;                   /* newest runs that are looked at */
    const struct metric *metric; /* NULL: of each series its main one */
    bool raw;                    /* do not divide by the canary */
};
/* Oldest first in each series; with no metric asked for, the canaries of each machine are series, too: what
 * they share with the results, dividing takes out of those. A run whose canary did other work than the first
 * of the series (a new qdyno), or has none, has a level only with `raw`. */
enum err_code history_read(struct history *out, struct db *d, const struct history_want *want,
                           struct err *why);
void history_free(struct history *h);

/* Outliers are asked for from so many runs and so many metrics on: of fewer, the farthest is always far. */
enum { HISTORY_LEAST = 6, HISTORY_WINDOW = 5, HISTORY_VECTORS = 8, HISTORY_DIMENSIONS = 3 };
#define HISTORY_OUTLIER 0.65
#define HISTORY_UNUSUAL 3.5

struct history_change {
    struct change change; /* at: index of a point; effect positive: better */
    enum priority priority;
    json_t *what; /* capsule_diff of the runs before and after */
};
struct history_outlier {
    int at;
    enum metric_id metric; /* by which the run differs most from its series */
    double z;              /* robust, of the metric as it is judged; over HISTORY_UNUSUAL either way */
};
/* Arrays run parallel to the series' points. */
struct history_findings {
    bool judged; /* enough known levels: at least HISTORY_LEAST */
    int known;
    double *average, *z,
        *isolation; /* [n] NAN where a level is unknown; isolation NAN where there are too few */
    struct history_outlier *outlier; /* isolated by more than HISTORY_OUTLIER, and unusual in some metric */
    int outliers;
    struct cusum cusum; /* since the last change; indices of points */
    struct history_change *change;
    int changes;
};
/* min_effect: log ratio below which a change does not matter. */
enum err_code history_detect(struct history_findings *out, const struct history_series *s, double min_effect,
                             struct err *why);
void history_findings_free(struct history_findings *f);

#endif
