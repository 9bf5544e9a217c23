/* advisor/watch/watch.h - alerts on a machine's signals, their export to Prometheus and Grafana, and the
 * unattended watch. Public header of advisor/watch/. */
#ifndef QDYNO_ADVISOR_WATCH_H
#define QDYNO_ADVISOR_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "advisor/history/history.h"
#include "base/base.h"

/* ---------------------------------------------------------------- alerts */

/* ALERTS: the conditions worth an alert on a machine that runs models, and the state machine that decides
 * when one begins and ends.
 *
 * `qdyno watch` feeds it. The Prometheus rule file is made from the same rows, so a threshold means the same
 * everywhere. Pure: no clock, no files. An unknown value (NAN) neither begins nor
 * ends an alert; a sensor that stays unknown has an alert of its own (`blind`). */

/* ---------------------------------------------------------------- signals */

enum signal_id {
    SIGNAL_PERFORMANCE, /* from here on: one value per round */
    SIGNAL_ERRORS,
    SIGNAL_CANARY,
    SIGNAL_QUALITY,
    SIGNAL_BUSY, /* from here on: sensors, one value per reading */
    SIGNAL_MEMORY,
    SIGNAL_SWAP_USED,
    SIGNAL_SWAP_IN,
    SIGNAL_PSI_MEMORY,
    SIGNAL_STEAL,
    SIGNAL_CPU_THROTTLE,
    SIGNAL_CPU_TEMPERATURE,
    SIGNAL_BATTERY,
    SIGNAL_GPU_BUSY,
    SIGNAL_GPU_MEMORY,
    SIGNAL_GPU_THROTTLE,
    SIGNAL_GPU_POWER_CAP,
    SIGNAL_GPU_TEMPERATURE,
    SIGNAL_GPU_ECC,
    SIGNAL_GPU_LOST,
    SIGNAL_DISK,
    SIGNAL_STALE,
    SIGNAL_BLIND,
    SIGNAL_SERVE_WAITING, /* of servers, not of a watch */
    SIGNAL_COUNT
};
/* What a value belongs to: the label `subject` of its alerts. */
enum subject_kind {
    SUBJECT_MACHINE,  /* "": the machine itself */
    SUBJECT_WORKLOAD, /* "tg32 q8_0" */
    SUBJECT_GPU,      /* "gpu0" */
    SUBJECT_SIGNAL,   /* name of the signal that is missing */
};
enum alert_unit {
    ALERT_UNIT_RATIO,
    ALERT_UNIT_BYTES,
    ALERT_UNIT_BYTES_S,
    ALERT_UNIT_SECONDS,
    ALERT_UNIT_CELSIUS,
    ALERT_UNIT_PER_SECOND,
    ALERT_UNIT_NATS,
    ALERT_UNIT_COUNT,
    ALERT_UNIT_YES
};
struct signal {
    const char *name; /* "memory" */
    enum alert_unit unit;
    enum subject_kind subject;
    double stands_s;    /* seconds that a value may be assumed to hold; INFINITY for values of rounds */
    const char *phrase; /* "%s of memory is in use" */
    const char *promql; /* the same of exported families; NULL: Prometheus detects it by itself */
};
extern const struct signal SIGNALS[SIGNAL_COUNT]; /* indexed by enum signal_id */

/* ---------------------------------------------------------------- the table of alerts */

enum alert_grade { GRADE_INFO, GRADE_WARNING, GRADE_CRITICAL };
extern const char *const GRADES[]; /* "info" "warning" "critical", NULL */

enum alert_side { SIDE_ABOVE, SIDE_BELOW }; /* side of the threshold that is bad */

enum {                       /* what may be done when a row fires */
       ACTION_REPORT = 1,    /* a line on the screen and in the log */
       ACTION_BELL = 2,      /* the terminal's bell */
       ACTION_NOTIFY = 4,    /* webhook, Alertmanager */
       ACTION_ROLL_BACK = 8, /* return to the baseline's configuration */
       ACTION_SUGGEST = 16,  /* suggest how to scale, as text */
       ACTION_SCALE = 32,    /* change the number of processes: `qdyno serve --processes` */
};

struct alert {
    const char *name; /* "memory": --alert memory=95% */
    enum signal_id signal;
    enum alert_side side;
    double threshold, clear; /* hysteresis: the alert ends on the good side of `clear` */
    double for_s;            /* fires after being bad for this long */
    double keep_s;           /* ends after being good for this long */
    enum alert_grade grade;
    unsigned actions;
    const char *meaning, *todo;
};
enum { ALERT_COUNT = 28 };
extern const struct alert ALERTS[ALERT_COUNT];
const struct alert *alert_find(const char *name);

/* The rows with the user's settings. */
struct alert_rules {
    struct alert row[ALERT_COUNT]; /* in the order of ALERTS */
    bool off[ALERT_COUNT];
};
void alert_rules_default(struct alert_rules *r);
/* Parse "memory=95%", "memory=95%:2m" or "memory=off". `clear` keeps its ratio to the threshold. Errors:
 * ERR_USAGE with the invalid part and the nearest name. */
enum err_code alert_rules_set(struct alert_rules *r, const char *text, struct err *why);
/* Parse a file with one setting per line; # begins a comment. Errors: as file_read and alert_rules_set, with
 * the line number. */
enum err_code alert_rules_read(struct alert_rules *r, const char *path, struct err *why);

/* "92.1 %", "812M", "3h 5m": a value in the signal's unit; "n/a". Returns buf. */
const char *alert_value_text(enum signal_id s, double value, char *buf, size_t size);
/* "92.1 % of memory is in use (limit 90 %)". Returns buf. */
const char *alert_text(const struct alert *a, double value, char *buf, size_t size);

/* ---------------------------------------------------------------- state of one alert */

enum alert_phase { ALERT_QUIET, ALERT_PENDING, ALERT_FIRING };
struct alert_state { /* {0} is a quiet alert */
    enum alert_phase phase;
    bool known;      /* the latest value was not NAN */
    bool held;       /* it was on the side that the phase waits for */
    int64_t last_ns; /* time of that value */
    double held_s;   /* seconds on that side without interruption */
    double value;    /* the latest known value */
};
enum alert_change {
    CHANGE_NONE,
    CHANGE_PENDING,
    CHANGE_CALM /* from pending back to quiet */,
    CHANGE_FIRING,
    CHANGE_RESOLVED
};
/* Feed a value at a time of a monotonic clock. The time between two values counts toward for_s and keep_s
 * only if both are known and at most the signal's stands_s apart. A clock that steps back counts nothing. */
enum alert_change alert_step(const struct alert *a, struct alert_state *s, int64_t t_ns, double value);

/* ---------------------------------------------------------------- state of all alerts */

struct alert_instance {
    int rule; /* index into alert_rules */
    char subject[160];
    struct alert_state state;
    int64_t since_ms; /* wall clock; 0: not firing */
    int64_t id;       /* of its row in the database while it fires; 0: none */
    bool restored;    /* it fired already when the watch started */
};
struct alert_event {
    enum alert_change change;
    struct alert_instance *instance; /* valid until the next feed */
};
enum { ALERT_INSTANCES = 512, SIGNAL_RULES = 2 /* largest number of rows of ALERTS per signal */ };
struct alerts { /* {0} with `rules` set is the start */
    struct alert_rules rules;
    bool at_once; /* decide by one value: for_s and keep_s do not apply */
    struct alert_instance instance[ALERT_INSTANCES];
    int n;
    int64_t known_ns[SIGNAL_COUNT]; /* time of the signal's latest known value; 0: never */
};
/* The rule's instance for that subject, created when missing. NULL: ALERT_INSTANCES are in use. */
struct alert_instance *alerts_instance(struct alerts *a, int rule, const char *subject);
/* Feed a value to all rules of its signal. Returns the number of changes written to out. */
struct alert_feed {
    enum signal_id signal;
    const char *subject; /* "": the machine */
    int64_t t_ns, unix_ms;
    double value;
};
int alerts_feed(struct alerts *a, const struct alert_feed *f, struct alert_event out[SIGNAL_RULES]);
/* For SIGNAL_BLIND: seconds since a sensor's latest known value. NAN when it was never known, and for signals
 * that are no sensors. */
double alerts_unknown_s(const struct alerts *a, enum signal_id signal, int64_t t_ns);
/* The highest grade that fires; -1: none. With at_once, alerts without a value of this round do not count:
 * they were stored by an earlier watch, and nothing evaluated them since. */
int alerts_highest(const struct alerts *a);

/* ---------------------------------------------------------------- Prometheus and Grafana */

/* The alert's name in Prometheus and Alertmanager: "QdynoMemoryCritical". Returns buf. */
const char *alert_prometheus_name(const struct alert *a, char *buf, size_t size);
/* Write a rule file: recording rules, then an alerting rule for each enabled row. share/monitoring/ holds the
 * one of ALERTS. */
void alert_rules_write(struct str *out, const struct alert_rules *r);
/* Names of the recording rules, which the board may use: "instance:qdyno_memory_used:ratio"; NULL past the
 * last. */
const char *recorded_name(int index);
/* Append the Grafana board of share/monitoring/. Errors: those of file_share and file_read; ERR_NOMEM. */
enum err_code board_write(struct str *out, struct err *why);

/* ---------------------------------------------------------------- the watch */

/* The watch: monitors one machine unattended. It reads the sensors all the time, measures its items now and
 * then, compares them with a baseline, and sends alerts (docs/alerts.md).
 *
 * It runs in one thread of the caller, which calls watch_step at the time that watch_next_ns returns. Firing
 * alerts, unsent notices and usual values are stored in the database, so that a restart neither repeats nor
 * loses them. It never runs two measurements at once, and none while other programs keep the machine busy. */

/* One config on one workload, measured every round. */
struct watch_item {
    char model[512]; /* "": the workload trains, or the config names a model */
    struct config config;
    struct workload workload;
    bool has_baseline; /* otherwise its own first rounds are the reference */
    struct baseline_row baseline;
};
enum { WATCH_ITEMS = 8 };

struct watch_options {
    const char *db_path;             /* NULL: default */
    const struct run_labels *labels; /* of the runs that it makes; NULL: none. Borrowed until watch_close */
    const char *root;                /* of /proc and /sys: "" */
    const struct machine *machine;
    const char *program; /* worker binary, NULL: self */
    const struct log *log;
    const struct watch_item *item; /* copied, as are the strings below */
    int items;
    struct alert_rules rules;
    double every_s;  /* interval of rounds */
    int repetitions; /* cells per round */
    uint64_t seed;
    bool once; /* one round, now; minimum durations of alerts do not apply */
    /* postpone a round at most so long because of other programs, then count disturbed cells, too; 0: as long
     * as it takes */
    double wait_quiet_s;
    bool even_if_busy; /* measure even while other programs use the CPUs */
    bool forget;       /* discard the usual values and learn them again */
    /* NULL: never. Otherwise the file with the config line of item 0, as `tune` writes it. When item 0 is too
     * slow and its baseline's champion is faster now, the champion's line is written there and the previous
     * content to FILE.previous. */
    const char *rollback;
    /* config line; measure the KL divergence of the items against it, too; NULL: do not */
    const char *reference;
    int quality_chunks; /* windows of text for that; 0: 4 */
    /* NULL: none. POST of qdyno.alert/1 documents, in order, each until it is accepted */
    const char *webhook;
    const char *alertmanager; /* NULL: none. Base address for POST /api/v2/alerts */
    /* Of each receiver, so that a secret of one never reaches the other; NULL: {0}. */
    const struct http_auth *webhook_auth, *alertmanager_auth;
    /* reading intervals of sensors, must outlive the watch; NULL: defaults */
    const struct sampler_periods *periods;
};

/* An event: text for people, a document for programs. */
enum watch_kind {
    WATCH_START,
    WATCH_ROUND,     /* an item was measured */
    WATCH_POSTPONED, /* a round was not started, or not finished because of disturbances */
    WATCH_FAILED,    /* a measurement failed */
    WATCH_PENDING,   /* an alert waits for its minimum duration, or became quiet before */
    WATCH_FIRING,
    WATCH_RESOLVED,
    WATCH_ROLLBACK,
    WATCH_NOTICE, /* sending notices fails, or works again */
    WATCH_TROUBLE /* the watch's own database or sensors fail */
};
extern const char *const WATCH_KINDS[]; /* "start" "round" ... */
struct watch_event {
    enum watch_kind kind;
    int64_t unix_ms;
    enum alert_grade grade; /* of alerts; otherwise info, or warning for failures */
    bool bell;              /* ring the terminal's bell */
    char text[768];
    json_t *about; /* object with the same content for programs; borrowed */
};
struct watch_host {
    void *ctx;
    void (*on_event)(void *ctx, const struct watch_event *e);
    bool (*go_on)(void *ctx); /* called several times a second during a measurement; false: end the watch */
};

struct watch;
/* Open a watch. It checks everything that can be checked now, so that it does not fail later. Errors:
 * ERR_USAGE (another watch uses the database, a rollback without a baseline); those of db_open,
 * sampler_start, model_check, config_parse. */
enum err_code watch_open(struct watch **out, const struct watch_options *o, const struct watch_host *host,
                         struct err *why);
/* Read the sensors, evaluate alerts, send notices, and measure when a round is due (takes seconds to
 * minutes). Failures become events; none ends the watch. False: go_on returned false. */
bool watch_step(struct watch *w);
int64_t watch_next_ns(const struct watch *w); /* time of the next step, on clock_ns */
void watch_close(struct watch *w);            /* NULL is fine */

/* Results of all rounds so far, and the highest firing grade. */
struct watch_summary {
    /* numbers of items; unjudged: without a reference yet */
    int rounds, measured, unjudged, postponed, failed;
    int highest; /* enum alert_grade, as alerts_highest; -1: none fires */
};
void watch_summary(const struct watch *w, struct watch_summary *out);
struct sampler_thread *watch_sampler(const struct watch *w); /* borrowed; may be another one after a step */

/* The latest state of a machine's watch, from the database, for FAMILY_WATCH_*. {0} exports nothing. */
struct watch_export {
    struct watch_value *value; /* owned: watch_export_free */
    struct alert_row *alert;   /* firing; owned */
    int values, alerts, waiting;
};
/* Replaces *t (and frees its previous content) only when everything could be read. Errors: as db_*. */
enum err_code watch_export_read(struct watch_export *t, struct db *d, const char *machine, struct err *why);
void watch_export_write(const struct watch_export *t, const struct family_sink *to);
void watch_export_free(struct watch_export *t);

#endif
