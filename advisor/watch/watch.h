/* advisor/watch/watch.h - the public header of advisor/watch/. */
#ifndef QDYNO_ADVISOR_WATCH_H
#define QDYNO_ADVISOR_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "advisor/history/history.h"
#include "base/base.h"

/* ---------------------------------------------------------------- alert */

/* ALERTS: what is worth telling somebody about a machine that runs models, in one table,
 * and the state machine that decides when.
 *
 * `qdyno watch` feeds it; the Prometheus rule file and the Grafana board (advisor/alert_export.h) are made
 * from the same rows, so a threshold means the same everywhere. Pure: no clock, no files. A value that is not
 * known (NAN) neither starts nor ends an alert; one that stays unknown is an alert of its own (`blind`). */

/* ---------------------------------------------------------------- what is looked at */

enum signal_id {
    SIGNAL_PERFORMANCE, /* from here on: once a round */
    SIGNAL_ERRORS,
    SIGNAL_CANARY,
    SIGNAL_QUALITY,
    SIGNAL_BUSY, /* from here on: sensors, as often as they are read */
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
    SIGNAL_COUNT
};
/* What one value is about, beside the machine: label `subject` of its alerts. */
enum subject_kind {
    SUBJECT_MACHINE,  /* there is one: "" */
    SUBJECT_WORKLOAD, /* "tg32 q8_0" */
    SUBJECT_GPU,      /* "gpu0" */
    SUBJECT_SIGNAL,   /* name of another signal */
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
    double stands_s;    /* how long a value may be taken to hold until the next: INFINITY for rounds */
    const char *phrase; /* "%s of memory is in use" */
};
extern const struct signal SIGNALS[SIGNAL_COUNT]; /* indexed by enum signal_id */

/* ---------------------------------------------------------------- what is said about it */

enum alert_grade { GRADE_INFO, GRADE_WARNING, GRADE_CRITICAL };
extern const char *const GRADES[]; /* "info" "warning" "critical", NULL */

enum alert_side { SIDE_ABOVE, SIDE_BELOW }; /* of the threshold, where it is bad */

enum {                       /* actions a row allows */
       ACTION_TELL = 1,      /* a line on the screen and in the log */
       ACTION_BELL = 2,      /* the terminal's bell */
       ACTION_NOTIFY = 4,    /* webhook, Alertmanager */
       ACTION_ROLL_BACK = 8, /* the champion's configuration */
       ACTION_SUGGEST = 16,  /* how to scale, as text */
};

struct alert {
    const char *name; /* "memory": --alert memory=95% */
    enum signal_id signal;
    enum alert_side side;
    double threshold, clear; /* the alert ends on the good side of `clear`: hysteresis */
    double for_s;            /* bad for so long before it fires */
    double keep_s;           /* good for so long before it ends */
    enum alert_grade grade;
    unsigned actions;
    const char *meaning, *todo;
};
enum { ALERT_COUNT = 27 };
extern const struct alert ALERTS[ALERT_COUNT];
const struct alert *alert_find(const char *name);

/* The rows as a person set them. */
struct alert_rules {
    struct alert row[ALERT_COUNT]; /* in the order of ALERTS */
    bool off[ALERT_COUNT];
};
void alert_rules_default(struct alert_rules *r);
/* "memory=95%", "memory=95%:2m", "memory=off". `clear` keeps its proportion to the threshold. ERR_USAGE names
 * what is wrong and the nearest name. */
enum err_code alert_rules_set(struct alert_rules *r, const char *text, struct err *why);
/* One such setting a line; # begins a comment. Errors: as file_read and alert_rules_set, with the line. */
enum err_code alert_rules_read(struct alert_rules *r, const char *path, struct err *why);

/* "92.1 %", "812M", "3h 5m": a value in the signal's unit; "n/a". Returns buf. */
const char *alert_value_text(enum signal_id s, double value, char *buf, size_t size);
/* "92.1 % of memory is in use (limit 90 %)". Returns buf. */
const char *alert_text(const struct alert *a, double value, char *buf, size_t size);

/* ---------------------------------------------------------------- when */

enum alert_phase { ALERT_QUIET, ALERT_PENDING, ALERT_FIRING };
struct alert_state { /* {0} is a quiet one */
    enum alert_phase phase;
    bool known;      /* a value was seen, and none unknown since */
    bool held;       /* it was on the side that the phase waits for */
    int64_t last_ns; /* when */
    double held_s;   /* known to be on that side for so long, without a break */
    double value;    /* the last known */
};
enum alert_change {
    CHANGE_NONE,
    CHANGE_PENDING,
    CHANGE_CALM /* was pending */,
    CHANGE_FIRING,
    CHANGE_RESOLVED
};
/* A value at a time of a monotonic clock. Time counts toward for_s and keep_s only between two values that
 * were known, at most stands_s of the signal apart; a clock that steps back counts nothing. */
enum alert_change alert_step(const struct alert *a, struct alert_state *s, int64_t t_ns, double value);

/* ---------------------------------------------------------------- all of them */

struct alert_instance {
    int rule; /* row of alert_rules */
    char subject[160];
    struct alert_state state;
    int64_t since_ms; /* firing since, wall clock; 0 */
    int64_t id;       /* of its row in the database while it fires; 0 */
};
struct alert_event {
    enum alert_change change;
    struct alert_instance *instance; /* until the next feed */
};
enum { ALERT_INSTANCES = 512, SIGNAL_RULES = 2 /* rows of ALERTS for one signal, at most */ };
struct alerts { /* {0} but for `rules` is one that has seen nothing */
    struct alert_rules rules;
    bool at_once; /* one look only: for_s and keep_s do not count */
    struct alert_instance instance[ALERT_INSTANCES];
    int n;
    int64_t known_ns[SIGNAL_COUNT]; /* when a signal had its last known value; 0: never */
};
/* The rule's instance for that subject, made when there is none. NULL when there are too many. */
struct alert_instance *alerts_instance(struct alerts *a, int rule, const char *subject);
/* A value of one signal to all its rules; returns how many changes it made, into out. */
struct alert_feed {
    enum signal_id signal;
    const char *subject; /* "" the machine */
    int64_t t_ns, unix_ms;
    double value;
};
int alerts_feed(struct alerts *a, const struct alert_feed *f, struct alert_event out[SIGNAL_RULES]);
/* For SIGNAL_BLIND: seconds since a sensor that was known once is unknown; NAN for one that never was, and
 * for what is no sensor. */
double alerts_unknown_s(const struct alerts *a, enum signal_id signal, int64_t t_ns);
/* The highest grade that fires, -1 none. */
int alerts_highest(const struct alerts *a);

/* ---------------------------------------------------------------- alert_export */

/* the same alerts for those who have Prometheus and Grafana: a rule file and a
 * board, made from ALERTS and the exported families. What ships in share/monitoring/ is what these write. */

/* "QdynoMemoryCritical": what the alert is called in Prometheus and Alertmanager. Returns buf. */
const char *alert_prometheus_name(const struct alert *a, char *buf, size_t size);

/* The signal in PromQL, from exported families; NULL: Prometheus knows it in its own way. */
const char *signal_promql(enum signal_id s);

/* A rule file: recording rules, then an alerting rule for each row that is not off. */
void alert_rules_write(struct str *out, const struct alert_rules *r);

/* A board's JSON model: panels in rows, a variable for the data source and one for the instance. */
enum err_code board_write(struct str *out, struct err *why);
/* Every expression of the board, as it stands there; NULL past the last. */
const char *board_expression(int index);
/* The rules' own names that the board may use: "instance:qdyno_memory_used:ratio"; NULL past the last. */
const char *recorded_name(int index);

/* ---------------------------------------------------------------- watch */

/* an unattended look at one machine: sensors all the time, measurements now and then,
 * compared with a baseline, and somebody told when it matters (docs/alerts.md).
 *
 * One thread of the caller's: it steps the watch when watch_next_ns says so. What fires, what is yet to be
 * told, and what values are usual here lie in the database, so that a restart neither repeats nor forgets.
 * Never two measurements at once, and none while other programs keep the machine busy. */

/* One config on one workload, measured every round. */
struct watch_item {
    char model[512]; /* "" where the workload trains, or the config names one */
    struct config config;
    struct workload workload;
    bool has_baseline; /* else its own first rounds are what it is compared with */
    struct baseline_row baseline;
};
enum { WATCH_ITEMS = 8 };

struct watch_options {
    const char *db_path; /* NULL: default */
    const char *root;    /* of /proc and /sys: "" */
    const struct machine *machine;
    const char *program; /* worker binary, NULL: self */
    const struct log *log;
    const struct watch_item *item; /* copied, like the strings below */
    int items;
    struct alert_rules rules;
    double every_s;  /* from one round to the next */
    int repetitions; /* cells of a round */
    uint64_t seed;
    bool once;            /* one round, at once; minimum durations of alerts do not count */
    bool even_if_busy;    /* measure although other programs keep the processors busy */
    bool forget;          /* what was usual here is usual no more: learn anew */
    const char *rollback; /* NULL: never; else the file that holds the config line of item 0, as `tune` writes
                             it: when item 0 is too slow and its baseline's champion is faster now, the
                             champion's line is written there and what it held to FILE.previous */
    const char *reference;    /* config line: quality of the items against it is measured, too; NULL: not */
    int quality_chunks;       /* windows of that; 0: 4 */
    const char *webhook;      /* NULL: none. JSON of schema qdyno.alert/1 by POST, in order, until taken */
    const char *alertmanager; /* NULL: none; base address: POST /api/v2/alerts */
    const struct http_auth *auth; /* of both; NULL: {0} */
    /* how often sensors are read, outlives the watch; NULL: defaults */
    const struct sampler_periods *periods;
};

/* What happened. A line for people, a document for programs. */
enum watch_kind {
    WATCH_START,
    WATCH_ROUND,     /* an item was measured */
    WATCH_POSTPONED, /* a round was not begun, or could not be finished for disturbance */
    WATCH_FAILED,    /* a measurement failed */
    WATCH_PENDING,   /* an alert waits for its minimum duration, or calmed down before */
    WATCH_FIRING,
    WATCH_RESOLVED,
    WATCH_ROLLBACK,
    WATCH_NOTICE, /* telling somebody else failed, or works again */
    WATCH_TROUBLE /* of the watch itself: its database, its sensors */
};
extern const char *const WATCH_KINDS[]; /* "start" "round" ... */
struct watch_event {
    enum watch_kind kind;
    int64_t unix_ms;
    enum alert_grade grade; /* of alerts; else info, or warning where something went wrong */
    bool bell;              /* worth a sound */
    char text[768];
    json_t *about; /* object: the same for programs; borrowed */
};
struct watch_host {
    void *ctx;
    void (*tell)(void *ctx, const struct watch_event *e);
    bool (*go_on)(void *ctx); /* asked several times a second while something is measured; false: end it */
};

struct watch;
/* Checks what can be checked now, so that it does not fail at night. Errors: ERR_USAGE (another watch has the
 * database, a rollback without a baseline), those of db_open, sampler_start, model_check, config_parse. */
enum err_code watch_open(struct watch **out, const struct watch_options *o, const struct watch_host *host,
                         struct err *why);
/* Look at the sensors, decide, tell, and measure when a round is due (seconds to minutes). Troubles are
 * events and end nothing. False: go_on said so. */
bool watch_step(struct watch *w);
int64_t watch_next_ns(const struct watch *w); /* on clock_ns: when to step again */
void watch_close(struct watch *w);            /* NULL is fine */

/* How the rounds so far ended, and what fires now. */
struct watch_summary {
    int rounds, measured, unjudged, postponed, failed; /* of items; unjudged: nothing to compare with yet */
    int highest;                                       /* enum alert_grade that fires, -1 none */
};
void watch_summary(const struct watch *w, struct watch_summary *out);
struct sampler_thread *watch_sampler(const struct watch *w); /* borrowed; another one after a step */

/* What a watch on this machine said last, from the database: FAMILY_WATCH_*. {0} says nothing. */
struct watch_told {
    struct watch_value *value; /* owned: watch_told_free */
    struct alert_row *alert;   /* that fire; owned */
    int values, alerts, waiting;
};
/* *t holds something else only when all of it could be read: then what it held is freed. */
enum err_code watch_told_read(struct watch_told *t, struct db *d, const char *machine, struct err *why);
void watch_told_tell(const struct watch_told *t, const struct family_sink *to);
void watch_told_free(struct watch_told *t);

#endif
