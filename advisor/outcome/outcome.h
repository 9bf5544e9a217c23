/* advisor/outcome/outcome.h - exports runs: outcomes for a Pushgateway, traces for OpenTelemetry, and the
 * scrape page. Public header of advisor/outcome/. */
#ifndef QDYNO_ADVISOR_OUTCOME_H
#define QDYNO_ADVISOR_OUTCOME_H

#include "advisor/experiment/experiment.h"
#include "db/db.h"
#include "telemetry/export/export.h"
#include "telemetry/http/http.h"
#include "telemetry/machine/machine.h"
#include "telemetry/otlp/otlp.h"
#include "telemetry/sensors/sensors.h"

/* ---------------------------------------------------------------- outcome */

/* Outcome: a finished run as metric samples, pushed to a Pushgateway (spooled while the network is down) or
 * exported on a page. */

/* The conclusion of a run, in the units of FAMILIES_OUTCOME. NAN unknown. */
enum { OUTCOME_NAME = 1024, OUTCOMES_MAX = 16 };
struct outcome {
    int64_t run_id;
    struct run_labels labels;
    /* Stable over runs: the same question (model, arms, metric, workload) on the same machine is the same
     * experiment. Files are identified by name, without path. */
    char experiment[OUTCOME_NAME], machine[16];
    char metric[48], workload[576];
    double effect, lower, upper; /* ratios B / A; NAN: undecided */
    double confidence, blocks, discarded, noise_floor;
    double kld_mean, kld_p99;
    enum verdict verdict;
    double last_run, last_success, duration; /* Unix seconds, Unix seconds, seconds */
    int arms;
    struct {
        /* as in struct experiment_arm */
        double value[METRIC_COUNT], joules_per_token, joules_per_token_half, co2_g_per_token;
        char model[128], arch[32], quant[16], quantization[48], recipe[160], sha256_8[9];
    } arm[EXPERIMENT_ARMS];
};
enum err_code outcome_load(struct outcome *out, struct db *d, int64_t run_id, struct err *why);

/* Load the newest finished run of every experiment, newest first, at most OUTCOMES_MAX, into out[0..*n).
 * Loading a run costs milliseconds, so the content of the previous call is reused where it is still valid.
 * Errors: ERR_NOMEM; as db_*. */
enum err_code outcomes_latest(struct outcome out[OUTCOMES_MAX], int *n, struct db *d, struct err *why);

/* Write outcomes to a sink, family by family. grouped: experiment and machine are labels of the pushed group;
 * otherwise of every sample. */
enum outcome_labels { OUTCOME_IN_GROUP, OUTCOME_ALONE };
void outcomes_export(const struct outcome *o, int n, enum outcome_labels labels,
                     const struct family_sink *to);

/* ---------------------------------------------------------------- pushing (push.c) */

/* PUT the run's outcome to a Pushgateway. Its group there has the labels job, experiment and machine (that of
 * the run). machine: the one that pushes, described in the body. The body is spooled first, so a failure
 * loses nothing: on ERR_ABSENT it stays spooled (*spooled true) and the error is still returned; a body that
 * the server refuses permanently is removed. Only one process sends to a gateway at a time. target: url, auth
 * and deadline; job and grouping are set here. Errors: those of http_send; ERR_FIT, ERR_IO when it cannot be
 * spooled (then nothing was sent: a group that is not recorded could never be pruned). */
enum err_code outcome_push(struct db *d, int64_t run_id, const struct machine *machine,
                           struct push_target *target, bool *spooled, struct err *why);

/* Send what is due in the spool; *sent is the number sent. The back-off doubles from 30 s to 1 h. Rows for
 * the gateway auth->url are sent with auth->auth, all others without credentials, as the spool has none. What
 * cannot be sent before auth->deadline_ns stays spooled. auth NULL: no credentials and no deadline. A gateway
 * to which another process is sending is left to that process, which is no error. */
enum err_code outcome_flush(struct db *d, const struct push_target *auth, bool ignore_back_off, int *sent,
                            struct err *why);

/* DELETE every group that this database pushed to the gateway of `target`, the last time before `before_ms`,
 * and forget it. A group that is already gone is fine; groups of others are never touched. dry_run: only
 * report. `said` (may be NULL) is called for each group. Stops at the first error. */
enum prune_fate { PRUNE_KEPT, PRUNE_DELETED, PRUNE_WOULD };
typedef void prune_fn(void *ctx, const struct group_row *group, enum prune_fate fate);
struct prune_spec {
    int64_t before_ms;
    bool dry_run;
    prune_fn *said;
    void *ctx;
};
enum err_code outcome_prune(struct db *d, const struct push_target *target, const struct prune_spec *spec,
                            struct err *why);

/* ---------------------------------------------------------------- trace */

/* Trace: a run as a tree of OpenTelemetry spans: experiment, blocks, cells, and their parts.
 *
 *   experiment ─┬─ load ── quantize            processes that live for the whole run
 *               ├─ text_completion MODEL        warm-up cells
 *               └─ block ─┬─ load ── quantize   processes of the block
 *                         ├─ settle
 *                         └─ text_completion MODEL ─┬─ fill, prefill, decode (of its first repeats)
 *   push                                        a trace of its own, linked to the run: it happens later
 *
 * It is made from the database alone, at any later time: no exporter disturbs a measurement, and runs that
 * were killed, resumed or are years old have a trace, too. A part whose time was not recorded has no span; a
 * parent lasts at least from its first child to its last. Ids are derived from run and machine, so a trace
 * that is sent twice is the same trace. */

struct trace {
    struct otlp_span *spans; /* [n], parents before their children; the first is the run. Owned by memory */
    int n;
    struct otlp_identity who; /* the machine and the program that measured */
    struct arena memory;
};
/* Build the trace of a run. trace_free in any case. Errors: ERR_USAGE (no such run; OTEL_RESOURCE_ATTRIBUTES
 * cannot be parsed); ERR_NOMEM; as db_*. */
enum err_code trace_build(struct trace *out, struct db *d, int64_t run_id, struct err *why);
void trace_free(struct trace *t); /* {0} is fine */

/* ---------------------------------------------------------------- trace_push */

/* Push: sends a run to an OpenTelemetry collector, its trace and its outcome as metrics. */

struct trace_target {
    const char *base;             /* "http://host:4318"; NULL: the environment's (telemetry/otlp) */
    const struct http_auth *auth; /* NULL: only the environment's */
    int64_t deadline_ns;          /* clock_ns; all requests end by then. 0: no common limit */
};
struct trace_sent {
    int spans, points;
    /* the collector is not reachable now: the run is recorded, and the next push sends it, too */
    bool kept;
    char warning[256]; /* warning of a collector that accepted the data; "" */
};
/* Send a run. Addresses follow the rules of OpenTelemetry's environment variables (telemetry/otlp); if only
 * one signal has an address, only that is sent. A run that is no experiment has a trace and no metrics. A run
 * that is pushed again has the same trace. On ERR_ABSENT the run is recorded as waiting (sent->kept) without
 * its payload, which is made again from the database. Errors: ERR_USAGE (no such run, no collector given, or
 * refused: those of otlp_send); ERR_ABSENT; as db_*. */
enum err_code trace_push(struct db *d, int64_t run_id, const struct trace_target *to, struct trace_sent *sent,
                         struct err *why);

/* Send the other runs that wait for this collector, oldest first; *n is the number sent. A run that is
 * refused permanently stops waiting. Returns the first error. */
enum err_code trace_flush(struct db *d, const struct trace_target *to, int *n, struct err *why);

/* ---------------------------------------------------------------- trace_run */

/* The trace of one generation (`qdyno run`): run, load, and a text completion with prefill and decode. It
 * contains no text of prompt or answer. */

/* When a part ran, on clock_ns; to_ns 0: it did not run and has no span. */
struct trace_time {
    int64_t from_ns, to_ns;
};
struct trace_generation {
    const char *model, *config; /* "" unknown */
    struct trace_time load, quantize, prefill, decode;
    int64_t first_token_ns; /* on clock_ns; 0: there was none */
    int64_t input_tokens, output_tokens;
    const char *finish; /* why it ended: "stop" "length"; "" unknown */
    const char *error;  /* "": no error */
};
/* Errors: as trace_push. Nothing is kept for a retry, because the database does not hold generations. */
enum err_code trace_generation_send(const struct trace_generation *g, const struct machine *m,
                                    const struct trace_target *to, struct trace_sent *sent, struct err *why);

/* ---------------------------------------------------------------- trace_served */

/* The traces of requests to `qdyno serve`, one each: the request, and in it queue, prefill and decode. They
 * contain no text. */
struct trace_served {
    const char *operation;  /* "chat" "text_completion" */
    const char *model, *id; /* as the client sees them */
    struct trace_time whole, queue, prefill, decode;
    int64_t first_token_ns; /* on clock_ns; 0: there was none */
    int64_t input_tokens, output_tokens, cached_tokens;
    const char *outcome; /* how it ended */
    const char *finish;  /* of its first answer: "stop" "length"; "" none */
    const char *error;   /* "": no error */
};
enum { TRACE_SERVED_MOST = 256 };
/* n: at most TRACE_SERVED_MOST. Errors: as trace_push. Nothing is kept for a retry. */
enum err_code trace_served_send(const struct trace_served *r, int n, const struct machine *m,
                                const struct trace_target *to, struct trace_sent *sent, struct err *why);

/* ---------------------------------------------------------------- scrape */

/* The scrape page: current state of this machine, totals of everything measured so far, and the latest
 * outcomes. */

struct scrape;
/* sampler and machine are borrowed. Counts all of the database now, however long that takes; later updates
 * are limited to a second. The database may be missing, or of an older or newer version: qdyno_database_up is
 * 0 then. Errors: ERR_NOMEM. */
enum err_code scrape_open(struct scrape **out, const char *db_path, struct sampler_thread *sampler,
                          const struct machine *machine, struct err *why);
void scrape_close(struct scrape *s); /* NULL is fine */
/* Write all samples to the sink. Not thread-safe. If the database does not answer, its previous samples are
 * repeated. */
void scrape_export(struct scrape *s, const struct family_sink *to);
/* Why the database did not answer the last time; "" when it did. Borrowed. */
const char *scrape_absence(const struct scrape *s);
/* A page_fn; ctx is a struct scrape. */
page_fn scrape_page;

#endif
