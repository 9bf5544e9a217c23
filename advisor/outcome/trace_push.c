/* advisor/outcome/trace_push.c - sends a run to an OpenTelemetry collector (outcome.h). */
#include "advisor/outcome/outcome.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/outcome/parts.h"
#include "advisor/run/run.h"

/* Spans per request. Collectors limit the size of a body (otelcol: 20 MiB), and one span has less than 2 KiB.
 */
enum { REQUEST_SPANS = 2000 };

static const char ENVIRONMENT_URL[] = ""; /* key of runs that wait for the collector of the environment */

static enum err_code send_body(const struct otlp_target *t, struct str *body, struct trace_sent *sent,
                               struct err *why)
{
    struct otlp_answer answer = { 0 };
    enum err_code rc = body->failed ? err_set(why, ERR_NOMEM, "out of memory")
                                    : otlp_send(t, body, &answer, why);
    if (!rc && *answer.message) snprintf(sent->warning, sizeof(sent->warning), "%s", answer.message);
    str_free(body);
    return rc;
}

enum err_code trace_spans_send(const struct otlp_target *t, const struct otlp_resource *who,
                               const struct otlp_span *spans, int n, struct trace_sent *sent, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < n && !rc; i += REQUEST_SPANS) {
        struct str body = { 0 };
        const int part = MIN(REQUEST_SPANS, n - i);
        otlp_traces_encode(&body, who, spans + i, part);
        rc = send_body(t, &body, sent, why);
        if (!rc) sent->spans += part;
    }
    return rc;
}

/* Selects the requests of one arm from those that the database lists. */
struct arm_requests {
    const struct cell_row *cell; /* [n] cells of the run, sorted by id */
    int n, at, arm;
    struct request_totals *totals;
};

static enum err_code arm_requests_add(void *ctx, const struct cell_requests *c, struct err *why)
{
    struct arm_requests *a = ctx;
    while (a->at < a->n && a->cell[a->at].id < c->cell_id) a->at++;
    if (a->at == a->n) return err_set(why, ERR_CANCELLED, "the remaining requests belong to later runs");
    const struct cell_row *cell = &a->cell[a->at];
    const bool counts = cell->block >= 0 && cell_phase_is(cell->phase, PHASE_SPEED) && !cell->discarded &&
                        !*cell->error;
    if (cell->id == c->cell_id && cell->arm == a->arm && counts) request_totals_add(a->totals, c);
    return ERR_OK;
}

/* Adds request totals and latency histograms of each arm, over the cells that were kept. */
static enum err_code export_requests(struct otlp_batch *b, struct db *d, const struct outcome *o,
                                     struct err *why)
{
    struct cell_row *cells = NULL;
    struct arm_requests a = { .totals = malloc(sizeof(*a.totals)) };
    const struct family_sink sink = otlp_sink(b);
    enum err_code rc = db_cell_list(d, o->run_id, &cells, &a.n, why);
    if (!rc && !a.totals) rc = err_set(why, ERR_NOMEM, "no memory for the requests of a run");
    a.cell = cells;
    for (a.arm = 0; a.arm < o->arms && !rc && a.n; a.arm++) {
        const struct label labels[] = { { "experiment", o->experiment },
                                        { "machine", o->machine },
                                        { "arm", arm_letter(a.arm) } };
        memset(a.totals, 0, sizeof(*a.totals));
        a.at = 0;
        rc = db_request_list(d, cells[0].id - 1, arm_requests_add, &a, why);
        if (rc == ERR_CANCELLED) rc = ERR_OK;
        memcpy(b->common, labels, sizeof(labels));
        b->n_common = COUNT_OF(labels);
        if (!rc) request_totals_tell(a.totals, &sink);
        b->n_common = 0;
    }
    free(a.totals);
    free(cells);
    return rc;
}

/* Sends the outcome with the current time; the time when the run ended is a metric of its own. */
static enum err_code send_metrics(struct db *d, const struct otlp_target *t, const struct outcome *o,
                                  const struct trace *trace, struct trace_sent *sent, struct err *why)
{
    struct str body = { 0 };
    struct otlp_batch b = { .time_ns = (uint64_t)clock_unix_ms() * 1000000 };
    const struct family_sink sink = otlp_sink(&b);
    const struct otlp_resource *who = &trace->who.resource;
    if (trace->n) b.requests_begun_ns = trace->spans[0].begun_ns;
    outcomes_export(o, 1, OUTCOME_ALONE, &sink);
    enum err_code rc = export_requests(&b, d, o, why);
    if (!rc && b.failed) rc = err_set(why, ERR_NOMEM, "out of memory");
    const int points = rc ? 0 : otlp_metrics_encode(&body, who, b.metrics, b.n);
    if (points) rc = send_body(t, &body, sent, why);
    if (points && !rc) sent->points += points;
    str_free(&body);
    otlp_batch_free(&b);
    return rc;
}

/* *out is NULL if the run is not an experiment. */
static enum err_code load_outcome(struct outcome **out, struct db *d, int64_t run_id, struct err *why)
{
    struct run_row run = { 0 };
    *out = NULL;
    enum err_code rc = db_run_get(d, run_id, &run, why);
    const bool is_experiment = !rc && !strcmp(run.kind, "ab");
    run_row_free(&run);
    if (rc || !is_experiment) return rc;
    *out = malloc(sizeof(**out));
    if (!*out) return err_set(why, ERR_NOMEM, "no memory for a run");
    return outcome_load(*out, d, run_id, why);
}

static enum err_code send_run(struct db *d, int64_t run_id, const struct otlp_target to[OTLP_SIGNALS],
                              struct trace_sent *sent, struct err *why)
{
    struct outcome *outcome = NULL;
    struct trace trace = { 0 };
    struct err refused = { 0 };
    enum err_code rc = trace_build(&trace, d, run_id, why), trace_rc = ERR_OK;
    if (!rc) rc = load_outcome(&outcome, d, run_id, why);
    if (!rc && to[OTLP_TRACES].url)
        trace_rc = trace_spans_send(&to[OTLP_TRACES], &trace.who.resource, trace.spans, trace.n, sent,
                                    &refused);
    /* a collector that refuses traces may accept metrics; one that cannot be reached accepts neither */
    if (!rc && outcome && to[OTLP_METRICS].url && trace_rc != ERR_ABSENT)
        rc = send_metrics(d, &to[OTLP_METRICS], outcome, &trace, sent, why);
    if (trace_rc) {
        rc = trace_rc;
        if (why) *why = refused;
    }
    free(outcome);
    trace_free(&trace);
    return rc;
}

static enum err_code find_targets(struct otlp_target to[OTLP_SIGNALS], const struct trace_target *from,
                                  struct err *why)
{
    enum err_code rc = otlp_target_find(&to[OTLP_TRACES], OTLP_TRACES, from->base, from->auth, why);
    if (!rc) rc = otlp_target_find(&to[OTLP_METRICS], OTLP_METRICS, from->base, from->auth, why);
    for (int i = 0; i < OTLP_SIGNALS; i++) to[i].deadline_ns = from->deadline_ns;
    if (!rc && !to[OTLP_TRACES].url && !to[OTLP_METRICS].url)
        rc = err_set(
            why, ERR_USAGE,
            "no collector is named: expected --otlp URL (or OTEL_EXPORTER_OTLP_ENDPOINT), e.g. --otlp "
            "http://localhost:4318");
    return rc;
}

static void targets_done(struct otlp_target to[OTLP_SIGNALS])
{
    for (int i = 0; i < OTLP_SIGNALS; i++) otlp_target_done(&to[i]);
}

enum err_code trace_push(struct db *d, int64_t run_id, const struct trace_target *to, struct trace_sent *sent,
                         struct err *why)
{
    const char *url = to->base ? to->base : ENVIRONMENT_URL;
    struct otlp_target targets[OTLP_SIGNALS] = { 0 };
    struct err bad = { 0 };
    *sent = (struct trace_sent){ 0 };
    enum err_code rc = find_targets(targets, to, &bad);
    if (!rc) {
        rc = send_run(d, run_id, targets, sent, &bad);
        struct err unkept = { 0 };
        if (rc == ERR_ABSENT && !db_trace_due_put(d, run_id, url, bad.message, &unkept)) sent->kept = true;
        if (rc == ERR_ABSENT && !sent->kept)
            err_prefix(&bad, "not sent and not kept (%.100s)", unkept.message);
        if (!rc) rc = db_trace_due_done(d, run_id, url, &bad);
    }
    targets_done(targets);
    if (rc && why) *why = bad;
    return rc;
}

enum err_code trace_flush(struct db *d, const struct trace_target *to, int *n, struct err *why)
{
    int64_t *runs = NULL;
    int count = 0;
    struct trace_sent sent;
    *n = 0;
    enum err_code rc = db_trace_due_list(d, to->base ? to->base : ENVIRONMENT_URL, &runs, &count, why);
    for (int i = 0; i < count && rc != ERR_ABSENT; i++) {
        struct err bad = { 0 }, ignored;
        const enum err_code one = trace_push(d, runs[i], to, &sent, &bad);
        *n += !one;
        if (one == ERR_USAGE)
            (void)db_trace_due_done(d, runs[i], to->base ? to->base : ENVIRONMENT_URL, &ignored);
        if (one && !rc && why) *why = bad;
        if (one && (!rc || one == ERR_ABSENT)) rc = one;
    }
    free(runs);
    return rc;
}
