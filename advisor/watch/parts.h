/* advisor/watch/parts.h - what the files of advisor/watch/ share. A watch is one struct watch of parts; each
 * part names the file that writes it. */
#ifndef QDYNO_ADVISOR_WATCH_PARTS_H
#define QDYNO_ADVISOR_WATCH_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "advisor/advise/advise.h"
#include "advisor/run/run.h"
#include "advisor/watch/watch.h"
#include "db/db.h"
#include "telemetry/http/http.h"

enum { TICK_MS = 1000, MEASURE_TICK_MS = 100 }; /* the sampler's interval: between rounds, and during them */
enum { SUBJECT = 160 };
/* Names of values in the database. */
#define ROLLED_BACK "rolled back"
#define USUAL       "usual " /* prefix of usual values */

struct watch_own_item {
    struct watch_item item;
    char subject[SUBJECT]; /* "stories.gguf tg32 q8_0": with its current config */
    const struct metric *metric;
};

enum { WEBHOOK_NAME = HTTP_SHOWN_MAX + 32 };

/* What was asked. Constant after watch_open. */
struct watch_setup {
    struct watch_options o; /* its strings point into `kept` */
    char *kept[8];
    int n_kept;
    struct http_auth webhook_auth, alertmanager_auth;
    char webhook_name[WEBHOOK_NAME]; /* of o.webhook; "" none */
    struct machine machine;
    struct config reference; /* o.reference, parsed */
    struct log log;
};

/* When things happened, and when they are due. Times on clock_ns. Written by watch.c and round.c. */
struct watch_schedule {
    int64_t sensed_ns, next_tick_ns;
    int64_t due_ns, next_round_ns; /* by the schedule; after postponing */
    int postponed_in_row;
    bool measuring, stopped;
    bool wait_reported, found_quiet; /* of this round's wait for a quiet machine */
    int64_t success_ns; /* the last successful measurement, on clock_ns; at first, of the first watch here */
};

/* The failure that was reported last. Written by watch.c. */
struct watch_trouble {
    char text[512];
    int64_t again_ns; /* not repeated before */
};

/* State of the receivers of notices, and the thread that sends during a round. Private to notify.c; watch.c
 * sets alertmanager_ns to 0 to send at once. */
struct watch_receivers {
    bool webhook_down, alertmanager_down;
    _Atomic int64_t alertmanager_ns; /* next repetition; 0: at once */
    pthread_t thread;
    bool sending;     /* the thread runs */
    atomic_bool stop; /* it shall end */
};

struct watch {
    pthread_mutex_t reporting; /* one event at a time; recursive, because reporting a failure is an event */
    struct watch_setup setup;
    struct watch_host host;
    struct watch_own_item item[WATCH_ITEMS]; /* round.c follows the config of item 0 */
    int items;
    struct db *db;
    struct sampler_thread *sampler; /* NULL: no sensors */
    struct alerts alerts;           /* written by watch.c */
    struct watch_summary summary;   /* written by watch.c and round.c */
    struct watch_schedule schedule;
    struct watch_trouble trouble;
    struct watch_receivers receivers;
    double psi_cpu;        /* CPU pressure of the last reading; NAN unknown */
    double rolled_from_ln; /* ln(value) before a rollback that is not yet evaluated; NAN: none. Written by
                              roll.c */
};

/* ---------------------------------------------------------------- watch.c */

/* Send an event to the host; also from the thread that sends notices. about: its reference is taken; NULL: an
 * empty object. */
void watch_report(struct watch *w, enum watch_kind kind, enum alert_grade grade, json_t *about,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Report a failure that the watch survives. */
void watch_report_trouble(struct watch *w, const struct err *why);
/* Feed a value of a signal to its alerts; sends events and notices. */
void watch_feed(struct watch *w, enum signal_id signal, const char *subject, double value);
/* The same for a value of a round, which is also stored for export. */
void watch_feed_stored(struct watch *w, enum signal_id signal, const char *subject, double value);
/* End the firing alerts of a subject for another reason than a good value. */
void watch_end_alerts_of(struct watch *w, const char *subject, const char *ended);
/* Mean of a sensor over the last `seconds`; NAN: no samples. */
double watch_mean(const struct watch *w, enum metric_id metric, double seconds);
double watch_disk_free(const struct watch *w); /* bytes free on the database's file system; NAN unknown */
/* Read the sensors and feed their signals, at most once a second. */
void watch_read_sensors(struct watch *w);
bool watch_continues(struct watch *w); /* false once the host asked to stop */
/* A number stored in the database under a name that no signal has; NAN when there is none. */
double watch_value_get(struct watch *w, const char *what, const char *subject);
void watch_value_put(struct watch *w, const char *what, const char *subject, double value);
/* Restart the sampler with this interval. */
enum err_code watch_sampler_restart(struct watch *w, int tick_ms, struct err *why);

/* ---------------------------------------------------------------- sense.c: pure */

/* One reading of all sensors. */
struct sensor_state {
    double row[METRIC_SENSOR_COUNT];
    const struct gpu_reading *gpu; /* [gpus] */
    int gpus;
    double disk_free_bytes, stale_s; /* NAN unknown */
    bool measuring;                  /* our own work keeps the CPUs busy */
};
struct signal_value {
    enum signal_id signal;
    char subject[24]; /* "": the machine; "gpu0" */
    double value;
};
enum { SIGNAL_VALUES_MAX = SIGNAL_COUNT + 7 * MACHINE_GPUS };
/* Returns the number of values written to out. */
int signals_from_sensors(const struct sensor_state *s, struct signal_value out[SIGNAL_VALUES_MAX]);
/* Text: how much more capacity would reduce the load to 65 %. From the busy share and the share of time that
 * programs wait for CPUs (NAN unknown). Returns buf. */
const char *scale_suggestion(double busy, double waiting, char *buf, size_t size);

/* ---------------------------------------------------------------- measure.c */

enum measured { MEASURED, MEASURE_DISTURBED, MEASURE_FAILED, MEASURE_STOPPED };
struct item_measurement {
    enum measured how;
    int64_t run_id;
    double ln_value; /* mean over the kept cells; NAN unless MEASURED */
    int cells, discarded;
    int disturbed;         /* of `cells`: disturbed, but they count (round_counts_disturbed) */
    char disturbance[160]; /* by what, the last of them; "" none */
    struct canary canary;  /* the faster of the two, figure by figure */
    char reason[512];      /* why it is not MEASURED */
    enum err_code code;    /* of MEASURE_FAILED */
    char sha256[HASH_HEX];
};
/* Measure one config on the item's workload, as a run of kind "watch". */
void measure_item(struct watch *w, const struct watch_own_item *item, const struct config *config,
                  struct item_measurement *out);

/* ---------------------------------------------------------------- round.c */

/* Measure all items, or postpone the round while the machine is not free. */
void round_step(struct watch *w);
/* Whether disturbed cells count now: by even_if_busy, or because the time to wait for a quiet machine is
 * over.
 */
bool round_counts_disturbed(const struct watch *w);
bool round_may_wait(const struct watch *w); /* that time is not over yet */
/* Wait for a quiet machine for what is left of the round's wait, and report it. False: it is not quiet. */
bool round_wait_quiet(struct watch *w);
/* By which share of the reference a value is better; logarithms of both. `0 - gain` is the loss: not `-gain`,
 * which can be -0. */
double gain_ratio(const struct metric *metric, double ln_value, double ln_reference);
/* Set the item's subject from its model, workload and config. */
void subject_set(struct watch_own_item *item);

/* ---------------------------------------------------------------- notify.c */

enum notice_status { NOTICE_FIRING, NOTICE_RESOLVED };
/* The document of one alert, schema qdyno.alert/1. New reference. */
json_t *notice_document(const struct machine *m, const struct alert_row *row, const struct alert *a,
                        enum notice_status s, const char *suggestion);
/* The body of Alertmanager's POST /api/v2/alerts: alerts that fire or ended recently. Firing ones expire a
 * while after now_ms unless they are repeated. New reference. */
json_t *alertmanager_document(const struct machine *m, const struct alert_row *rows, int n, int64_t now_ms);
/* The name of a webhook in the database. The path of a webhook often is its password, so the name has only
 * the host, for people, and a hash that identifies the address. Returns buf. */
const char *webhook_name(const char *url, char buf[WEBHOOK_NAME]);
/* Prepare sending. Errors: as db_*. */
enum err_code notify_open(struct watch *w, struct err *why);
/* Send what is due, as `db` says. */
void notify_step(struct watch *w, struct db *db);
/* Between these calls a thread sends what is due, because a measurement keeps the watch from doing so.
 * notify_end waits for the request that is being sent. */
void notify_begin(struct watch *w);
void notify_end(struct watch *w);
/* Send a notice that the database did not accept (such as on a full disk): now or never. */
void notify_now(struct watch *w, const struct notice_row *n);

/* ---------------------------------------------------------------- roll.c */

/* After item 0 was measured: roll back if it is too slow and its champion is not. In the next round, report
 * whether that helped. */
void roll_step(struct watch *w, double ln_now);
bool is_champion(const struct watch_own_item *item); /* does it run its baseline's config? */

#endif
