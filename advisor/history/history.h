/* advisor/history/history.h - results over time: series, change points, outliers, comparisons of two runs,
 * and baselines. Public header of advisor/history/. */
#ifndef QDYNO_ADVISOR_HISTORY_H
#define QDYNO_ADVISOR_HISTORY_H

#include <stdint.h>

#include "advisor/experiment/experiment.h"
#include "advisor/history/series.h"
#include "advisor/stats/stats.h"
#include "base/base.h"
#include "db/db.h"
#include "telemetry/export/export.h"
#include "telemetry/metrics/metrics.h"

/* ---------------------------------------------------------------- urgency */

enum priority { PRIORITY_NONE, PRIORITY_LOW, PRIORITY_MEDIUM, PRIORITY_HIGH };
const char *priority_name(enum priority p); /* "none" "low" "medium" "high" */
/* Urgency by size and confidence, the table in docs/history.md:
 *     loss           p < 1e-6   p < 1e-4   else
 *     10 % and more  high       high       medium
 *     5 %  and more  high       medium     low
 *     less           medium     low        low
 * effect: log ratio, positive is better. NONE when nothing was lost, or when an argument is unknown. */
enum priority repair_priority(double effect, double p);

/* ---------------------------------------------------------------- conditions */

/* Under which conditions a run was measured: means of what the sensors read during its cells. Together with
 * the specification (budget, estimand ...) and the capsule this is everything that is recorded about how a
 * run was measured. */

enum condition_id {
    CONDITION_OTHERS,
    CONDITION_CGROUP_OTHERS,
    CONDITION_STEAL,
    CONDITION_WAITING,
    CONDITION_CPU_CLOCK,
    CONDITION_CPU_HEAT,
    CONDITION_CPU_THROTTLE,
    CONDITION_QUOTA,
    CONDITION_BATTERY,
    CONDITION_MEMORY_STALL,
    CONDITION_MEMORY_FREE,
    CONDITION_SWAP,
    CONDITION_GPU_CLOCK,
    CONDITION_GPU_HEAT,
    CONDITION_GPU_THROTTLE,
    CONDITION_COUNT
};
struct run_conditions {
    double value[CONDITION_COUNT]; /* mean over the cells that count; NAN unknown */
    int count[CONDITION_COUNT];    /* cells with a value */
};
void conditions_init(struct run_conditions *c);
/* Adds a measurement of a cell; others than conditions are ignored. */
void conditions_add(struct run_conditions *c, const char *measurement, double value);

/* The groups of changes besides those of capsules (run.h). */
#define CHANGES_CONDITIONS "conditions" /* what the machine did; keys are names of measurements */
#define CHANGES_SPEC       "spec" /* how it was asked to be measured; keys are members of the run's spec */

/* True when other work used more of the machine than a contamination rule allows in at least one of the runs.
 * text: "both runs were measured on a loaded machine (CPU time used by other programs: 76 % and 69 %)", or
 * "".
 */
bool conditions_load(char *text, size_t size, const struct run_conditions *before,
                     const struct run_conditions *after);
/* Appends the known conditions of one run: "CPU time used by other programs 76 %, CPU clock 2.10 GHz". */
void conditions_text(struct str *out, const struct run_conditions *c);

/* All that is recorded about two runs and differs: conditions, specification, capsule, in this order. `line`
 * as for capsule_diff. NULL in a record: unknown. New reference. */
struct run_recorded {
    const struct run_conditions *conditions;
    json_t *spec, *capsule;
};
json_t *run_changes(const struct run_recorded *before, const struct run_recorded *after, const char *line);
/* Appends the first `most` changes as text, and how many more there are. */
void run_changes_text(struct str *out, const json_t *changes, int most);
void run_change_text(struct str *out, const json_t *change); /* one of them */
/* Appends what has to be read before any conclusion, in lines: which load is the first suspicion, what is
 * unknown, and how many things differ; the changes themselves follow after the last line. */
void run_changes_lead(struct str *out, const struct run_recorded *before, const struct run_recorded *after,
                      const json_t *changes);

/* ---------------------------------------------------------------- results */

/* The results of a run, arm by arm, read from its stored cells alone.
 *
 * A unit is one independent observation: the mean of an arm's cells in one block, or one repetition of a
 * bench. All values are logarithms. Discarded and failed cells, warm-up and control cells do not count. This
 * does not depend on the order of cells, so it reads runs of any age. */

enum { RESULT_METRICS = METRIC_COUNT - METRIC_SENSOR_COUNT };

struct result_unit {
    int block;    /* -1: no block */
    bool confirm; /* of the blocks that measured a race's winner again */
    int cells[RESULT_METRICS];
    double y[RESULT_METRICS]; /* mean of ln(value), by enum metric_id - METRIC_SENSOR_COUNT; NAN unknown */
};

/* One config on one workload. */
struct result {
    int arm;
    char config[CONFIG_LINE], workload[576], work_hash[24];
    struct result_unit *unit;
    int units, cap;
};

struct results {
    struct run_row run;
    json_t *capsule; /* NULL: the run is older than capsules */
    json_t *spec;    /* the run's specification; NULL: it has none */
    struct run_conditions conditions;
    double canary[RESULT_METRICS];       /* mean of ln(canary); NAN without one */
    double canary_drift[RESULT_METRICS]; /* ln(canary at the end / at the start); NAN unless both exist */
    char canary_work[96];                /* ""  without a canary */
    struct result *result;               /* [n]; room: how many fit */
    int n, room;
};
/* Read a run's results. Errors: ERR_USAGE when there is no such run; ERR_NOMEM; as db_*. */
enum err_code results_read(struct results *out, struct db *d, int64_t run_id, struct err *why);
void results_free(struct results *r); /* {0} is fine */
/* What it recorded besides results. Borrowed. */
struct run_recorded results_recorded(const struct results *r);

/* Write the known values of one metric to y, which has room for all units; returns their number. block may be
 * NULL. */
int result_values(const struct result *r, enum metric_id metric, double *y, int *block);
/* mean of logarithms; NAN without values */
double result_mean(const struct result *r, enum metric_id metric);

/* The main metric of a result: the first it has of decode rate, prefill rate, training rate, perplexity;
 * otherwise METRIC_COUNT. */
enum metric_id result_main_metric(const struct result *r);

/* ln of the canary figure that normalizes the metric, with its sign; 0 for metrics that need none, NAN when
 * the run has no canary. */
double results_canary(const struct results *r, enum metric_id metric);

/* SHA-256 of the model that ran this config line, from the capsule or the run; "" unknown. */
const char *results_model(const struct results *r, const char *config);

/* ---------------------------------------------------------------- history */

/* The history of one config on one machine: did its level change, when, by how much, what else changed then,
 * and how urgent is it? Method and limits: docs/history.md.
 *
 * A series holds every run of one (machine, model, config, workload). Its values are logarithms, divided by
 * the canary of the same run, with the sign that makes more better. */

struct history_point {
    int64_t run_id, started_ms;
    int units;
    double y, se; /* mean ln(metric) as measured; standard error (NAN for one unit) */
    /* ln of the canary figure that normalizes it, with its sign; 0: none needed, NAN: unknown */
    double canary;
    double level;                  /* what is analysed: +-(y - canary); NAN when that is unknown */
    double metric[RESULT_METRICS]; /* mean ln of all metrics, normalized in the same way; NAN unknown */
    json_t *capsule;               /* NULL: the run has none */
    json_t *spec;                  /* likewise */
    struct run_conditions conditions;
};
struct history_series {
    char machine[16], model_sha256[65], model_name[128], config[CONFIG_LINE], workload[576], work_hash[24];
    char canary_work[96];
    enum metric_id metric;
    /* the machine's own series: config holds the canary's work, model is "", workload "canary" */
    bool canary;
    struct history_point *point;
    int n, cap;
};
struct history {
    struct history_series *series; /* [n]; room: how many fit */
    int n, room;
};
struct history_want {
    const char *filter;              /* as db_run_list; NULL all */
    const struct run_labels *labels; /* only runs with all of these; NULL all */
    int limit;                       /* number of newest runs to read */
    const struct metric *metric;     /* NULL: the main metric of each series */
    bool raw;                        /* do not divide by the canary */
};
/* Collect series, each oldest first. Without a requested metric, the canaries of each machine are series,
 * too: they show what the normalization removed from the others. A run whose canary did other work than the
 * series' first one (another qdyno version), or that has none, has a level only with `raw`. Errors:
 * ERR_NOMEM; as db_*. */
enum err_code history_read(struct history *out, struct db *d, const struct history_want *want,
                           struct err *why);
void history_free(struct history *h);

/* Smallest numbers of runs and metrics for outlier detection: in smaller sets the farthest run is always far.
 */
enum { HISTORY_LEAST = 6, HISTORY_WINDOW = 5, HISTORY_VECTORS = 8, HISTORY_DIMENSIONS = 3 };
#define HISTORY_OUTLIER 0.65
#define HISTORY_UNUSUAL 3.5

struct history_change {
    struct change change; /* index of a point; a positive effect is better */
    enum priority priority;
    json_t *what;   /* run_changes of the runs before and after */
    char load[192]; /* conditions_load of the two; "" neither was measured on a loaded machine */
};
struct history_outlier {
    int at;
    enum metric_id metric; /* the metric in which the run differs most from its series */
    double z;              /* robust z of the analysed metric; beyond HISTORY_UNUSUAL on either side */
};
/* Arrays are parallel to the series' points. */
struct history_findings {
    bool judged; /* there are enough known levels: at least HISTORY_LEAST */
    int known;
    double *average, *z,
        *isolation; /* [n]; NAN where a level is unknown; isolation is NAN with too few runs */
    struct history_outlier *outlier; /* isolation above HISTORY_OUTLIER, and unusual in some metric */
    int outliers;
    struct cusum cusum; /* since the last change; indices of points */
    struct history_change *change;
    int changes;
};
/* Analyse a series. min_effect: log ratio below which a change does not matter. */
enum err_code history_detect(struct history_findings *out, const struct history_series *s, double min_effect,
                             struct err *why);
void history_findings_free(struct history_findings *f);

/* ---------------------------------------------------------------- methods */

/* What `history --detect --method` may look for, one row of HISTORY_METHODS each (methods.c). How often each
 * of them reports something where nothing happened: docs/history.md, counted by ./dev bench detect. */
#define HISTORY_METHOD_LIST(X)                                                                               \
    X(CHANGES, "changes")                                                                                    \
    X(MOVING_AVERAGE, "moving-average")                                                                      \
    X(ROBUST_Z, "robust-z")                                                                                  \
    X(BASELINE_TEST, "baseline-test")                                                                        \
    X(ISOLATION_FOREST, "isolation-forest")
enum history_method_id {
#define HISTORY_METHOD_ENUM(id, name) HISTORY_METHOD_##id,
    HISTORY_METHOD_LIST(HISTORY_METHOD_ENUM)
#undef HISTORY_METHOD_ENUM
        HISTORY_METHOD_COUNT
};
extern const char
    *const HISTORY_METHOD_NAMES[HISTORY_METHOD_COUNT + 1]; /* NULL-terminated: choices of a flag */

struct method_finding {
    int at;                /* index of a point */
    double score, p;       /* the method's statistic; p value, NAN: it has none */
    double effect;         /* log ratio to what was expected, positive is better; NAN: it has none */
    enum metric_id metric; /* the series' metric; of the forest: the one that deviates most */
    bool now;              /* it is about the newest run */
};
struct method_findings {
    struct method_finding *finding;
    int n;
    double *low, *high; /* [points] of a band, log scale as the levels; NULL: the method has none */
};
enum { METHOD_PARAMS = 4 };
struct history_method {
    const char *finding; /* what its findings are called: "change", "deviation", "shift" or "outlier" */
    const char *what;    /* what it does, for people */
    int least;           /* fewest comparable runs */
    struct {
        const char *name; /* for scripts; NULL: no more */
        double value;
    } param[METHOD_PARAMS];
};
extern const struct history_method HISTORY_METHODS[HISTORY_METHOD_COUNT];

/* Apply a method to a series; nothing is found in one with fewer than `least` known levels. min_effect: log
 * ratio below which nothing is reported; the forest ignores it. *out: method_findings_free. Errors:
 * ERR_NOMEM; as series_changes. */
enum err_code history_method_find(struct method_findings *out, enum history_method_id method,
                                  const struct history_series *s, double min_effect, struct err *why);
void method_findings_free(struct method_findings *f); /* {0} is fine */

/* ---------------------------------------------------------------- summary of a period */

/* What happened in a period: counts by outcome and reason, latencies, the most at once, the busiest hour. All
 * figures are counted from stored raw values, never from averages or histograms; docs/history.md defines
 * them. Cells of the canary do not count. */

enum summary_subject { SUMMARY_RUNS, SUMMARY_CELLS, SUMMARY_SUBJECTS };
extern const char *const SUMMARY_SUBJECT_NAMES[SUMMARY_SUBJECTS]; /* "runs" "cells" */

/* How many ended in this way. Runs: outcome is the state, reason the verdict or the error. Cells: outcome is
 * "kept", "discarded" or "failed", reason what disturbed them or the error. reason "": none is stored. */
struct summary_count {
    enum summary_subject of;
    char outcome[16], reason[96];
    int64_t n;
};
/* More pairs of outcome and reason than fit are counted with the reason "other". */
enum { SUMMARY_COUNTS = 64 };

enum summary_latency {
    SUMMARY_TTFT,    /* from the request to its first token */
    SUMMARY_ITL,     /* from one token to the next */
    SUMMARY_TPOT,    /* mean time between the tokens of one request */
    SUMMARY_E2E,     /* from the request to its last token */
    SUMMARY_PREFILL, /* time of a request in prefill */
    SUMMARY_DECODE,  /* time of a request in decode */
    SUMMARY_CELL,    /* duration of a cell without an error */
    SUMMARY_RUN,     /* duration of a run that is done */
    SUMMARY_LATENCIES
};
/* Seconds, type 7 quantiles (stats_quantile_sorted) of n observations; NAN: nothing was observed. Parallel
 * sequences of a cell are one request each. */
struct summary_quantiles {
    int64_t n;
    double p50, p95, p99, most;
};
extern const struct summary_latency_row {
    const char *name, *what; /* "ttft_s" */
} SUMMARY_LATENCY_ROWS[SUMMARY_LATENCIES];

enum summary_peak_of {
    SUMMARY_PEAK_RUNS,     /* runs between their start and their end */
    SUMMARY_PEAK_CELLS,    /* cells, each in a worker process */
    SUMMARY_PEAK_REQUESTS, /* requests that one cell computed at once */
    SUMMARY_PEAKS
};
extern const char *const SUMMARY_PEAK_NAMES[SUMMARY_PEAKS]; /* "runs" "cells" "requests" */
struct summary_peak {
    int64_t n;             /* 0: none was observed */
    int64_t at_ms, run_id; /* when and in which run it was first reached */
};

struct history_summary {
    int64_t from_ms, to_ms;
    int64_t all[SUMMARY_SUBJECTS], failed[SUMMARY_SUBJECTS]; /* failed runs: failed or interrupted */
    struct summary_count count[SUMMARY_COUNTS]; /* runs before cells; by number, the most first */
    int counts;
    struct summary_quantiles latency[SUMMARY_LATENCIES];
    struct summary_peak peak[SUMMARY_PEAKS];
    int64_t busiest_ms, busiest_cells; /* the hour (UTC) in which cells ran longest; -1: none */
    double busiest_s;                  /* how long, all cells together */
};
/* failed / all; NAN for none. */
double summary_error_ratio(const struct history_summary *s, enum summary_subject of);

struct summary_want {
    int64_t from_ms, to_ms;          /* Unix time; cells that started in [from, to), runs that overlap it */
    const char *filter;              /* as db_run_find; NULL all */
    const struct run_labels *labels; /* only runs with all of these; NULL all */
};
/* Errors: ERR_USAGE for from >= to, or an invalid filter; ERR_NOMEM; as db_*. */
enum err_code history_summarize(struct history_summary *out, struct db *d, const struct summary_want *want,
                                struct err *why);

/* The statistics of a latency by name: "p50" "p95" "p99" "max". */
enum { SUMMARY_STATS = 4 };
extern const char *const SUMMARY_STAT_NAMES[SUMMARY_STATS];
double summary_stat(const struct summary_quantiles *q, int stat);

/* Pass the figures of the last day to a sink; what was not observed has no sample. */
void history_summary_tell(const struct history_summary *day, const struct family_sink *to);

/* ---------------------------------------------------------------- causes */

/* Which metric moved first: the changes of level of sensors, memory, load time and canaries around a change
 * of the main metric. What comes first need not be the cause. */

/* Values of every metric at every point (a run of a history, or a cell of a run), in the metrics' own units.
 */
struct metric_table {
    int n;
    double *value; /* [METRIC_COUNT][n] means of what was added; NAN: nothing */
    int *count;    /* [METRIC_COUNT][n] */
};
enum err_code metric_table_open(struct metric_table *t, int n, struct err *why); /* ERR_NOMEM */
void metric_table_add(struct metric_table *t, enum metric_id metric, int point, double value);
void metric_table_close(struct metric_table *t); /* {0} is fine */

enum { MOVED_MAX = 12 };
struct moved {
    enum metric_id metric;
    int at; /* first point of its new level */
    double before, after, p;
};
/* The metrics with a change of level (5 % and more, p < 1e-4, 3 points on each side) at one of the points
 * at-before..at+after, the earliest first. Errors: as series_changes. */
enum err_code moved_find(struct moved out[MOVED_MAX], int *n, const struct metric_table *t, int at,
                         int before, int after, struct err *why);
/* Append "others_busy_ratio rose from 0.1 to 0.9 2 runs before decode_tok_s fell; ...". unit: "run" or
 * "cell". */
void moved_sentence(struct str *s, const struct moved *m, int n, int at, const char *main, bool fell,
                    const char *unit);

/* The metrics of a series' runs, point by point. *out: metric_table_close. Errors: as db_value_list;
 * ERR_NOMEM. */
enum err_code series_metrics(struct metric_table *out, struct db *d, const struct history_series *s,
                             struct err *why);

/* A run in the order of its cells: the level of its main metric, and what moved around each of its changes.
 */
struct run_change {
    struct change change; /* index of a cell; effect: log ratio */
    enum priority priority;
    int64_t cell_id;
    struct moved moved[MOVED_MAX];
    int n_moved;
};
struct run_causes {
    enum metric_id metric;     /* METRIC_COUNT: the run has no results */
    int cells;                 /* with a known value */
    struct run_change *change; /* owned */
    int changes;
};
/* Arms differ in level, so each cell's main metric is divided by its arm's mean. Errors: as results_read. */
enum err_code run_causes_read(struct run_causes *out, struct db *d, int64_t run_id, double min_effect,
                              struct err *why);
void run_causes_free(struct run_causes *c);

/* ---------------------------------------------------------------- compare */

/* Comparison of two finished runs: what did each measure, and does that differ?
 *
 * The runs were measured at different times, so whatever else changed in between is part of the difference:
 * this is weaker than an experiment, which measures both sides now. The difference is given as measured, and
 * divided by each run's canary, which removes what slowed the whole machine.
 *
 * Interval: Welch's t over the runs' units (blocks or repetitions) in logarithms, 95 %; equivalence by two
 * one-sided tests at 5 %. Several differences are a family: each keeps its own interval, and is claimed only
 * if it also holds after Holm's correction. The blocks of one run share its process and its hour, so the
 * interval does not cover differences that a second run would show.
 *
 * Of a metric that depends on the machine's speed no verdict is given when either run was measured on a
 * loaded machine (conditions_load). A wider interval would not do: it would need the spread of the load
 * between runs, and the blocks of one run, which share its load, say nothing about that. The effect is still
 * shown. */

/* The verdict of an experiment from the interval of a log ratio (positive: better). NAN: inconclusive. */
enum verdict compare_verdict(struct interval effect95, struct interval effect90, double margin);

struct compared {
    const struct result *before, *after; /* NULL: only the other run has it */
    enum metric_id metric;
    int n_before, n_after;
    struct interval rate_before, rate_after; /* of the metric itself: exp(mean of logarithms), 95 % */
    struct interval effect, effect90;        /* log ratio after / before, positive: better */
    /* for the hypothesis of no difference; adjusted for all pairs of the two runs (Holm) */
    double p, p_family;
    /* log ratio of the canary figures that normalize the metric, with its sign; 0: none needed, NAN: unknown
     */
    double canary;
    /* effect divided by the canary's; NAN unknown. Does not include the canary's own error. */
    struct interval normalized;
    enum verdict verdict; /* of the effect; NONE when either value is missing */
    char reason[160];     /* why there is no effect or no verdict; "" otherwise */
};
/* Pair every result of `before` with one of `after`: the same config line and workload, otherwise the same
 * arm and workload. Results without a partner have a row of their own. metric NULL: the main one of each
 * pair. Borrows from both. *out: free(). Errors: ERR_NOMEM. */
enum err_code compare_runs(struct compared **out, int *n, const struct results *before,
                           const struct results *after, const struct metric *metric, double margin,
                           struct err *why);
/* Whether the machine itself became so much faster or slower between the runs that `normalized` is the better
 * estimate of what the configs differ by: the canary moved beyond its own error (5 %). False while that is
 * unknown. `reason`: what the canary did, as the end of a sentence; "" when there is nothing to choose
 * between. Pure. */
bool compared_machine_changed(const struct compared *c, char *reason, size_t size);
/* The verdict that sets the exit status: worse, otherwise inconclusive, otherwise the first; INVALID when
 * nothing could be compared. */
enum verdict compare_worst(const struct compared *c, int n);

/* ---------------------------------------------------------------- was an effect reproduced? */

enum reproduction { REPRODUCTION_UNKNOWN, REPRODUCED, NOT_REPRODUCED };
const char *reproduction_name(enum reproduction r); /* "inconclusive" "reproduced" "not reproduced" */

struct reproduced {
    int arm; /* arm k, compared with arm A */
    int n_before, n_after;
    /* effect of k relative to A, 95 %, log ratio, positive: k is better */
    struct interval before, after;
    struct interval difference, difference90; /* after - before, as two independent estimates (Welch) */
    double p;                                 /* of the difference, adjusted for all arms (Holm) */
    enum reproduction verdict;
};
/* Compare the effects of every arm relative to arm 0, block by block. REPRODUCED: the difference lies within
 * the margin (two one-sided tests at 5 %). NOT_REPRODUCED: it excludes 0 and exceeds the margin, and neither
 * run was measured on a loaded machine: the arms took turns, so a load that slows both alike cancels out, but
 * one that slows only one arm (more threads, more memory) does not. *out: free(). Errors: ERR_NOMEM. */
enum err_code compare_effects(struct reproduced **out, int *n, const struct results *before,
                              const struct results *after, const struct metric *metric, double margin,
                              struct err *why);

/* ---------------------------------------------------------------- baseline */

/* Baselines: a named champion, and the experiment that checks whether it still is the best.
 *
 * A baseline stores how to measure the champion (config line, model by hash, workload, metric, margin). The
 * value measured then is only displayed: a check measures the champion again beside the challenger, because
 * the machine may have changed. */

/* Check that the file is the model with this SHA-256 ("": it was never known). Errors: ERR_FORMAT, saying
 * what to do. */
enum err_code model_check(const char *path, const char *want, struct err *why);

/* Make a baseline of a run's result; name and margin are set by the caller. arm -1: the best arm if the
 * verdict was `better`, otherwise A. workload NULL: the run's own; needed if the run has several. Errors:
 * ERR_USAGE when the run has no such result, or does not name its model's file. */
enum err_code baseline_of_run(struct baseline_row *out, const struct results *r, int arm,
                              const char *workload, struct err *why);

/* Make a baseline of a config line. Model, workload and metric (NULL: the workload's main one) are checked
 * now, so that a later check does not fail for them. model_path is "" if the workload trains. Errors: as
 * gguf_open; ERR_USAGE when the workload does not give the metric. */
enum err_code baseline_of_config(struct baseline_row *out, const struct config *c, const char *model_path,
                                 const struct workload *w, const struct metric *metric, struct err *why);

/* The spec of the check: arm A is the champion, arm B `challenger` on challenger_model (NULL: the
 * champion's). Verifies the champion's model. Errors: ERR_USAGE when both are the same; as model_check. */
enum err_code baseline_spec(struct experiment_spec *out, const struct baseline_row *b,
                            const struct config *challenger, const char *challenger_model, struct err *why);

/* ---------------------------------------------------------------- import */

/* Reads results of llama-bench (-o json, jsonl or sql) or LocalScore and stores them as runs of the kind
 * "import", on a machine that is known by the name of its processor only. They are never paired with runs of
 * this program. ERR_FORMAT: the file has no such results, or is damaged; ERR_IO; as db_*. */
struct import_result {
    int runs, tests; /* runs stored; tests in them */
};
enum err_code history_import(struct db *d, const char *path, struct import_result *out, struct err *why);

#endif
