/* advisor/outcome/outcome.h - the public header of advisor/outcome/. */
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

/* a finished run as monitoring systems see it, told to a Pushgateway (spooled when the
 * network is down) or to whoever asks. */

/* What a run concluded, in the units of FAMILIES_OUTCOME. NAN unknown. */
enum { OUTCOME_NAME = 1024, OUTCOMES_MAX = 16 };
struct outcome {
    int64_t run_id;
    /* Stable over runs: the same question (model, arms, metric, workload) on the same machine is the same
     * experiment. Files by their names, never their paths. */
    char experiment[OUTCOME_NAME], machine[16];
    char metric[48], workload[576];
    double effect, lower, upper; /* ratios B / A; NAN undecided yet */
    double confidence, blocks, discarded, noise_floor;
    double kld_mean, kld_p99;
    enum verdict verdict;
    double last_run, last_success, duration; /* Unix seconds, Unix seconds, seconds */
    int arms;
    struct {
        double joules_per_token, prefill_tok_s, decode_tok_s, ttft_s, peak_bytes;
        char model[128], arch[32], quant[16], recipe[160], sha256_8[9];
    } arm[EXPERIMENT_ARMS];
};
enum err_code outcome_load(struct outcome *out, struct db *d, int64_t run_id, struct err *why);

/* The newest finished run of every experiment, newest first, at most OUTCOMES_MAX; *n of them. What
 * out[0..*n) holds from the call before is taken over where it still stands: loading a run costs
 * milliseconds. */
enum err_code outcomes_latest(struct outcome out[OUTCOMES_MAX], int *n, struct db *d, struct err *why);

/* Hand them over, family by family. grouped: the experiment and the machine are labels of the group that is
 * pushed; else they are labels of every sample. */
enum outcome_labels { OUTCOME_IN_GROUP, OUTCOME_ALONE };
void outcomes_tell(const struct outcome *o, int n, enum outcome_labels labels, const struct family_sink *to);

/* The exposition body of a run (names: docs/monitoring.md). free(). */
enum err_code outcome_exposition(char **out, struct db *d, int64_t run_id, const struct machine *machine,
                                 struct err *why);

/* ---------------------------------------------------------------- pushing (push.c) */

/* PUT the run's outcome; grouping key job + experiment + machine. The body waits in the spool first, so
 * whatever happens on the way loses nothing: on ERR_ABSENT it stays there (*spooled true) and the error is
 * still returned; what is refused for good is taken out. One process sends at a time. target: url and auth;
 * job and grouping are filled here. Errors: those of http_send; ERR_FIT, ERR_IO when it cannot be spooled
 * (then nothing was sent: a group that we cannot note could never be pruned). */
enum err_code outcome_push(struct db *d, int64_t run_id, const struct machine *machine,
                           struct push_target *target, bool *spooled, struct err *why);

/* Try what is due in the spool; *sent counts. Back-off doubles from 30 s to 1 h. Secrets come from `auth`
 * (the spool has none). Another process at it: nothing is left to do here, and that is no error. */
enum err_code outcome_flush(struct db *d, const struct push_target *auth, bool ignore_back_off, int *sent,
                            struct err *why);

/* Groups that we pushed to the gateway of `target` and last pushed before `before_ms`: DELETE each, and
 * forget it. A group that is gone already is fine; what others pushed is never touched. dry_run: only say
 * which. `said` (may be NULL) is called for each of our groups there. Ends at the first error. */
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

/* a run as a tree of spans, for OpenTelemetry: experiment, its blocks, their cells, and
 * what ran in them.
 *
 *   experiment ─┬─ load ── quantize            processes that live for the whole run
 *               ├─ text_completion MODEL        warm-up cells
 *               └─ block ─┬─ load ── quantize   processes of the block
 *                         ├─ settle
 *                         └─ text_completion MODEL ─┬─ fill, prefill, decode (of its first repeats)
 *   push                                        a trace of its own, linked to the run: it comes later
 *
 * Made from the database alone, at any time later: no exporter disturbs a measurement, and a run that was
 * killed, resumed or is years old has its trace, too. A time that was not recorded has no span; a parent
 * lasts from its first child to its last, at least. Ids follow from run and machine: sent twice it is the
 * same trace. */

struct trace {
    struct otlp_span *spans; /* [n], parents before their children; the first is the run. Owned by memory */
    int n;
    struct otlp_identity who; /* the machine and the program that measured */
    struct arena memory;
};
/* Errors: ERR_USAGE (no such run; OTEL_RESOURCE_ATTRIBUTES cannot be read), ERR_NOMEM, those of the database.
 */
enum err_code trace_build(struct trace *out, struct db *d, int64_t run_id, struct err *why);
void trace_free(struct trace *t); /* {0} is fine */

/* ---------------------------------------------------------------- trace_push */

/* a run to an OpenTelemetry collector: its trace, and its outcome as metrics. */

struct trace_target {
    const char *base; /* "http://host:4318"; NULL: what the environment names (telemetry/otlp.h) */
    const struct http_auth *auth; /* NULL: nothing beyond the environment's */
};
struct trace_sent {
    int spans, points;
    bool kept;         /* not reachable now: noted, the next push to this collector sends it */
    char warning[256]; /* of a collector that took it all the same; "" */
};
/* Traces and metrics go to their addresses by the rules of telemetry/otlp.h; where only one is named, only
 * that is sent. A run that is no experiment has a trace and no metrics. One that is pushed again is the same
 * trace. On ERR_ABSENT the run is noted as waiting (sent->kept), without any payload: it is made anew from
 * the database.
 * Errors: ERR_USAGE (no such run, no collector named, or refused: those of otlp_send), ERR_ABSENT, those of
 * the database. */
enum err_code trace_push(struct db *d, int64_t run_id, const struct trace_target *to, struct trace_sent *sent,
                         struct err *why);

/* The other runs that wait for this collector, oldest first; *n were sent. One that is refused for good waits
 * no longer. The first error is returned. */
enum err_code trace_flush(struct db *d, const struct trace_target *to, int *n, struct err *why);

/* ---------------------------------------------------------------- trace_run */

/* one generation (`qdyno run`) as a trace: run, its load, and the text completion with
 * its prefill and decode. Nothing of the text itself is told. */

/* When a part ran, by clock_ns; to_ns 0: it did not, and has no span. */
struct trace_time {
    int64_t from_ns, to_ns;
};
struct trace_generation {
    const char *model, *config; /* "" unknown */
    struct trace_time load, quantize, prefill, decode;
    int64_t first_token_ns; /* clock_ns; 0: there was none */
    int64_t input_tokens, output_tokens;
    const char *finish; /* why it ended: "stop" "length"; "" unknown */
    const char *error;  /* "": it went well */
};
/* Errors: as trace_push; nothing is kept for later: a generation is in no database. */
enum err_code trace_generation_send(const struct trace_generation *g, const struct machine *m,
                                    const struct trace_target *to, struct trace_sent *sent, struct err *why);

/* ---------------------------------------------------------------- scrape */

/* the live page: this machine now, everything measured so far, the latest outcomes. */

struct scrape;
/* sampler and machine are borrowed. What the database holds already is counted now, however long that takes:
 * later looks have a second. It may be missing, or older or newer than we read: qdyno_database_up is 0 then.
 * Errors: ERR_NOMEM. */
enum err_code scrape_open(struct scrape **out, const char *db_path, struct sampler_thread *sampler,
                          const struct machine *machine, struct err *why);
void scrape_close(struct scrape *s); /* NULL is fine */
/* Everything to the sink. Not thread-safe. What the database cannot say now is what it said last. */
void scrape_tell(struct scrape *s, const struct family_sink *to);
/* Why the database did not answer last time; "" when it did. Borrowed. */
const char *scrape_absence(const struct scrape *s);
/* A page_fn; ctx is a struct scrape. */
page_fn scrape_page;

#endif
