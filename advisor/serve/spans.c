/* A thread that sends one trace for each request to an OpenTelemetry collector (serve.h). Requests never wait
 * for it: what does not fit into its queue is dropped, and a collector that does not answer is reported once.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "advisor/outcome/outcome.h"
#include "advisor/serve/parts.h"

enum { QUEUE = 4096, PERIOD_S = 1, LAST_S = 5 };

/* What is kept of a request. */
struct span_record {
    struct trace_served trace; /* its texts are constants, except those below */
    char id[sizeof((struct call *)NULL)->id], error[256];
};

struct spans {
    const struct server *s;
    struct machine machine;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* from here on guarded by lock */
    struct span_record *queue; /* [QUEUE], a ring */
    int first, count;
    int64_t dropped;
    bool stopping;
    /* of the thread */
    bool failing; /* a failure is logged once, then again only after a success */
};

static struct trace_time time_from(int64_t from_ns, int64_t to_ns)
{
    return (struct trace_time){ from_ns, from_ns && to_ns ? to_ns : 0 };
}

static void record_fill(struct span_record *r, const struct server *s, const struct call *c)
{
    const struct call_sums sum = call_sum(c);
    const bool chat = c->ask.endpoint == ENDPOINT_CHAT;
    *r = (struct span_record){
        .trace = { .operation = chat ? "chat" : "text_completion",
                   .model = s->o.name,
                   .whole = time_from(c->arrived_ns, c->ended_ns),
                   .queue = time_from(c->arrived_ns, sum.admitted_ns),
                   .prefill = time_from(sum.admitted_ns, sum.first_ns),
                   .decode = time_from(sum.first_ns, sum.last_ns),
                   .first_token_ns = sum.first_ns,
                   .input_tokens = sum.prompt,
                   .output_tokens = sum.made,
                   .cached_tokens = sum.cached,
                   .finish = c->answer_count && c->answers[0].finish ? c->answers[0].finish : "" }
    };
    snprintf(r->id, sizeof r->id, "%s", c->id);
    snprintf(r->error, sizeof r->error, "%s", c->no.message);
}

void spans_add(struct spans *s, const struct call *c, enum serve_outcome outcome)
{
    struct span_record r;
    if (!s) return;
    record_fill(&r, s->s, c);
    r.trace.outcome = SERVE_OUTCOME_NAMES[outcome];
    pthread_mutex_lock(&s->lock);
    if (s->count < QUEUE)
        s->queue[(s->first + s->count++) % QUEUE] = r;
    else
        s->dropped++;
    pthread_mutex_unlock(&s->lock);
}

static void spans_send(struct spans *s, const struct span_record *records, int n, int64_t deadline_ns)
{
    struct trace_served traces[TRACE_SERVED_MOST];
    struct trace_sent sent;
    struct err why = { 0 };
    const struct log *log = s->s->o.log;
    const struct trace_target to = { .base = s->s->o.otlp, .deadline_ns = deadline_ns };
    for (int i = 0; i < n; i++) {
        traces[i] = records[i].trace;
        traces[i].id = records[i].id;
        traces[i].error = records[i].error;
    }
    const bool failed = trace_served_send(traces, n, &s->machine, &to, &sent, &why) != ERR_OK;
    if (failed && !s->failing) log_write(log, LOG_WARN, "the collector was not reached: %s", why.message);
    if (!failed && s->failing) log_write(log, LOG_WARN, "the collector accepts traces again");
    if (!failed && *sent.warning) log_write(log, LOG_WARN, "the collector reports: %s", sent.warning);
    s->failing = failed;
}

/* Takes the oldest records. Returns their number. */
static int spans_take(struct spans *s, struct span_record *out)
{
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (; n < TRACE_SERVED_MOST && s->count; n++, s->count--) {
        out[n] = s->queue[s->first];
        s->first = (s->first + 1) % QUEUE;
    }
    const int64_t dropped = s->dropped;
    s->dropped = 0;
    pthread_mutex_unlock(&s->lock);
    if (dropped)
        log_write(s->s->o.log, LOG_WARN, "traces of %lld request%s dropped: the collector is too slow",
                  (long long)dropped, dropped == 1 ? " was" : "s were");
    return n;
}

static void *spans_main(void *arg)
{
    struct spans *s = arg;
    struct span_record *records = calloc(TRACE_SERVED_MOST, sizeof *records);
    for (bool stopping = false; records && !stopping;) {
        struct timespec until;
        pthread_mutex_lock(&s->lock);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PERIOD_S;
        while (!s->stopping && pthread_cond_timedwait(&s->wake, &s->lock, &until) != ETIMEDOUT) continue;
        stopping = s->stopping;
        pthread_mutex_unlock(&s->lock);
        const int64_t deadline = stopping ? clock_ns() + LAST_S * INT64_C(1000000000) : 0;
        for (int n; (n = spans_take(s, records)) > 0 && !(stopping && s->failing);)
            spans_send(s, records, n, deadline);
    }
    free(records);
    return NULL;
}

static void spans_free(struct spans *s)
{
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s->queue);
    free(s);
}

enum err_code spans_start(struct spans **out, const struct server *server, struct err *why)
{
    struct otlp_target target = { .url = NULL };
    struct spans *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for traces");
    s->s = server;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    s->queue = calloc(QUEUE, sizeof *s->queue);
    enum err_code rc = s->queue ? machine_detect(&s->machine, "", why)
                                : err_set(why, ERR_NOMEM, "out of memory for traces");
    if (!rc) rc = otlp_target_find(&target, OTLP_TRACES, server->o.otlp, NULL, why);
    otlp_target_done(&target);
    const int cause = rc ? 0 : pthread_create(&s->thread, NULL, spans_main, s);
    if (cause)
        rc = err_set(why, err_of_errno(cause), "cannot start the thread that sends traces: %s",
                     strerror(cause));
    if (rc)
        spans_free(s);
    else
        *out = s;
    return rc;
}

void spans_stop(struct spans *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    spans_free(s);
}
