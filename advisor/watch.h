/* advisor/watch.h - an unattended look at one machine: sensors all the time, measurements now and then,
 * compared with a baseline, and somebody told when it matters (docs/alerts.md).
 *
 * One thread of the caller's: it steps the watch when watch_next_ns says so. What fires, what is yet to be
 * told, and what values are usual here lie in the database, so that a restart neither repeats nor forgets.
 * Never two measurements at once, and none while other programs keep the machine busy. */
#ifndef QDYNO_ADVISOR_WATCH_H
#define QDYNO_ADVISOR_WATCH_H

#include "advisor/alert.h"
#include "advisor/baseline.h"

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
