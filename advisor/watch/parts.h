/* advisor/watch/parts.h - what the files of one watch share. Inside advisor/ only.
 *
 *   watch.c         open, step, close; telling; what a restart needs
 *   sense.c   sensors into signals (pure)
 *   round.c   a round: when, what, compared with what
 *   measure.c one config on one workload, measured and stored as a run
 *   notify.c  webhook and Alertmanager
 *   roll.c    back to the champion's configuration */
#ifndef QDYNO_ADVISOR_WATCH_PARTS_H
#define QDYNO_ADVISOR_WATCH_PARTS_H

#include "advisor/run/run.h"
#include "advisor/advise/advise.h"
#include "advisor/watch/watch.h"
#include "db/db.h"

enum { TICK_MS = 1000, MEASURE_TICK_MS = 100 }; /* of the sampler: between rounds, and in them */
enum { SUBJECT = 160 };
#define ROLLED_BACK "rolled back"
#define USUAL       "usual " /* opens the names under which usual values are kept */

struct watch_own_item {
    struct watch_item item;
    char subject[SUBJECT]; /* "stories.gguf tg32 q8_0": of the config it has now */
    const struct metric *metric;
};

struct watch {
    struct watch_options o; /* strings point to what is kept below */
    char *kept[8];
    int n_kept;
    struct http_auth auth;
    struct watch_host host;
    struct machine machine;
    struct watch_own_item item[WATCH_ITEMS];
    int items;
    struct config reference;
    struct log log;
    struct db *db;
    struct sampler_thread *sampler; /* NULL: no sensors */
    struct alerts alerts;
    struct watch_summary summary;
    bool measuring, stopped;
    int64_t sensed_ns, next_tick_ns;
    int64_t due_ns, next_round_ns; /* as scheduled; and after postponing */
    char trouble[512];             /* what was said last, and until when not again */
    int64_t trouble_again_ns;
    double success_s; /* Unix time of the last success, or of the first watch here */
    double psi_cpu;   /* as last seen */
    /* of rounds */
    struct sample *window;     /* [WINDOW_SAMPLES] */
    struct sample_row *stored; /* [WINDOW_STORED] */
    int postponed_in_row;
    /* of notices */
    bool notify_down;        /* of the webhook */
    int64_t alertmanager_ns; /* when it is to hear of us again; 0: at once */
    bool alertmanager_down;
    /* of a rollback: what was measured before it, to say whether it helped; NAN: none is open */
    double rolled_from_ln;
};

/* ---------------------------------------------------------------- watch.c */

/* Tells the host. about: the reference is taken; NULL: an empty one. */
void watch_say(struct watch *w, enum watch_kind kind, enum alert_grade grade, json_t *about, const char *fmt,
               ...) __attribute__((format(printf, 5, 6)));
/* The database refused something: said, and gone on. */
void watch_trouble(struct watch *w, const struct err *why);
/* A value of a signal: alerts, events, notices. */
void watch_feed(struct watch *w, enum signal_id signal, const char *subject, double value);
/* The same of a signal of rounds; stored, so that others can tell it. */
void watch_feed_stored(struct watch *w, enum signal_id signal, const char *subject, double value);
/* Those that fire for a subject end, for another reason than a good value. */
void watch_end_alerts_of(struct watch *w, const char *subject, const char *ended);
/* Mean of a sensor over the last seconds, NAN unknown. */
double watch_mean(const struct watch *w, enum metric_id metric, double seconds);
double disk_free(const struct watch *w); /* bytes, where the database lies; NAN unknown */
/* Sensors into alerts, at most once a second. */
void watch_look(struct watch *w);
bool watch_goes_on(struct watch *w);
/* A number kept in the database under a name that is no signal's; NAN when there is none. */
double watch_recall(struct watch *w, const char *what, const char *subject);
void watch_keep(struct watch *w, const char *what, const char *subject, double value);
enum err_code watch_sampler_at(struct watch *w, int tick_ms, struct err *why);

/* ---------------------------------------------------------------- sense.c */

struct senses {
    double row[METRIC_SENSOR_COUNT];
    const struct gpu_reading *gpu;
    int gpus;
    double disk_free_bytes, stale_s; /* NAN unknown */
    bool measuring;                  /* the processors are busy with our own work */
};
struct sense {
    enum signal_id signal;
    char subject[24]; /* "" the machine, "gpu0" */
    double value;
};
enum { SENSES_MAX = SIGNAL_COUNT + 7 * MACHINE_GPUS };
int senses_read(const struct senses *s, struct sense out[SENSES_MAX]);
/* How much more machine would bring a busy one down to 65 %, from busy share and waiting for processors (NAN
 * unknown): text for people. Returns buf. */
const char *scale_suggestion(double busy, double waiting, char *buf, size_t size);

/* ---------------------------------------------------------------- measure.c */

enum measured { MEASURED, MEASURE_DISTURBED, MEASURE_FAILED, MEASURE_STOPPED };
struct measurement_of {
    enum measured how;
    int64_t run_id;
    double ln_value; /* mean over kept cells; NAN */
    int cells, discarded;
    struct canary canary; /* the faster of the two beside it, each figure for itself */
    char reason[512];     /* why it is not MEASURED */
    enum err_code code;   /* MEASURE_FAILED */
    char sha256[HASH_HEX];
};
/* One config on the item's workload, as a run of kind "watch". */
void measure_item(struct watch *w, const struct watch_own_item *item, const struct config *config,
                  struct measurement_of *out);

/* ---------------------------------------------------------------- round.c */

/* Measures all items when it is time and the machine is free. */
void round_step(struct watch *w);
void subject_set(struct watch_own_item *item);

/* ---------------------------------------------------------------- notify.c */

enum notice_status { NOTICE_FIRING, NOTICE_RESOLVED };
/* The document of one alert, schema qdyno.alert/1. New reference. */
json_t *notice_document(const struct machine *m, const struct alert_row *row, const struct alert *a,
                        enum notice_status s, const char *suggestion);
/* What Alertmanager's API takes, of alerts that fire or ended lately; now_ms: those that fire are kept alive
 * until a while later. New reference. */
json_t *alertmanager_document(const struct machine *m, const struct alert_row *rows, int n, int64_t now_ms);
void notify_step(struct watch *w);
/* One that the database did not take (a full disk is when notices matter): sent now or never. */
void notify_now(struct watch *w, const struct notice_row *n);

/* ---------------------------------------------------------------- roll.c */

/* After item 0 was measured: goes back to its champion when it is too slow and the champion is not; says in
 * the round after whether that helped. */
void roll_step(struct watch *w, double ln_now);
/* Writes the champion's line to o.rollback, what was there to .previous. */
enum err_code roll_back(struct watch *w, const char *because, struct err *why);
bool is_champion(const struct watch_own_item *item); /* is its config its baseline's? */

#endif
