/* advisor/outcome/trace_live.c - the traces of what this process does itself: a generation, or the requests
 * to a server (outcome.h). */
#include "advisor/outcome/outcome.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "advisor/outcome/parts.h"
#include "advisor/run/run.h"

enum { PARTS = 6, SERVED_SPANS = 4, ATTRIBUTES = 12 };

/* One trace: span 0 is its root. */
struct live_trace {
    char name[160]; /* of the completion */
    const char *finish[1];
    struct otlp_attribute completion[ATTRIBUTES], run[3];
    struct otlp_span span[PARTS];
};
struct trace_part {
    const char *name;
    int parent; /* of the root: itself */
    struct trace_time time;
};

/* The attributes of a completion. id, cached_tokens: NULL and -1: none. Returns their number. */
struct completion {
    const char *operation, *model, *id, *finish;
    int64_t input_tokens, cached_tokens, output_tokens;
    double first_s;
};

static struct otlp_attribute text_attribute(const char *key, const char *value)
{
    return (struct otlp_attribute){ .key = key, .string = *value ? value : NULL };
}

static struct otlp_attribute count_attribute(const char *key, int64_t value)
{
    return (struct otlp_attribute){ .key = key, .type = OTLP_INT, .integer = value };
}

static int completion_attributes(struct live_trace *t, const struct completion *c)
{
    struct otlp_attribute *a = t->completion;
    int n = 0;
    a[n++] = text_attribute("gen_ai.operation.name", c->operation);
    a[n++] = text_attribute("gen_ai.provider.name", "qdyno");
    a[n++] = text_attribute("gen_ai.request.model", c->model);
    if (c->id) a[n++] = text_attribute("gen_ai.response.id", c->id);
    a[n++] = count_attribute("gen_ai.usage.input_tokens", c->input_tokens);
    if (c->cached_tokens >= 0)
        a[n++] = count_attribute("gen_ai.usage.cache_read.input_tokens", c->cached_tokens);
    a[n++] = count_attribute("gen_ai.usage.output_tokens", c->output_tokens);
    a[n++] = (struct otlp_attribute){ "gen_ai.response.time_to_first_chunk", OTLP_DOUBLE,
                                      .number = c->first_s };
    t->finish[0] = c->finish;
    a[n++] = (struct otlp_attribute){ "gen_ai.response.finish_reasons", OTLP_STRINGS, .strings = t->finish,
                                      .n = *c->finish != 0 };
    return n;
}

static void span_set(struct otlp_span *span, enum otlp_span_kind kind, const struct otlp_attribute *a, int n)
{
    span->kind = kind;
    span->attributes = a;
    span->n_attributes = n;
}

static void span_fail(struct otlp_span *span, const char *error)
{
    span->status = *error ? OTLP_STATUS_ERROR : OTLP_STATUS_UNSET;
    span->message = *error ? error : NULL;
}

/* Names, times and random ids of the spans. False: no random numbers. */
static bool spans_begin(struct live_trace *t, const struct trace_part *parts, int n, struct moment now)
{
    uint8_t ids[OTLP_TRACE_ID + PARTS * OTLP_SPAN_ID];
    if (getrandom(ids, sizeof ids, 0) != (ssize_t)sizeof ids) return false;
    for (int i = 0; i < n; i++) {
        struct otlp_span *span = &t->span[i];
        *span = (struct otlp_span){ .name = parts[i].name, .kind = OTLP_KIND_INTERNAL };
        span->begun_ns = (uint64_t)(now.unix_ns + parts[i].time.from_ns - now.clock_ns);
        span->ended_ns = (uint64_t)(now.unix_ns + parts[i].time.to_ns - now.clock_ns);
        memcpy(span->trace_id, ids, OTLP_TRACE_ID);
        memcpy(span->span_id, ids + OTLP_TRACE_ID + i * OTLP_SPAN_ID, OTLP_SPAN_ID);
        if (parts[i].parent != i) memcpy(span->parent_id, t->span[parts[i].parent].span_id, OTLP_SPAN_ID);
    }
    return true;
}

/* Appends the spans of parts that ran. Returns the new number. */
static int spans_append(struct otlp_span *to, int n, const struct live_trace *t,
                        const struct trace_part *parts, int count)
{
    for (int i = 0; i < count; i++)
        if (parts[i].time.to_ns) to[n++] = t->span[i];
    return n;
}

static enum err_code spans_send(const struct otlp_span *spans, int n, const struct machine *m,
                                const struct trace_target *to, struct trace_sent *sent, struct err *why)
{
    struct otlp_target t = { .url = NULL };
    struct otlp_identity who = { 0 };
    enum err_code rc = otlp_target_find(&t, OTLP_TRACES, to->base, to->auth, why);
    if (!rc && !t.url) rc = err_set(why, ERR_USAGE, "no collector of traces is named");
    t.deadline_ns = to->deadline_ns;
    if (!rc) rc = otlp_identify(&who, m, QDYNO_VERSION, why);
    if (!rc) rc = trace_spans_send(&t, &who.resource, spans, n, sent, why);
    otlp_identity_free(&who);
    otlp_target_done(&t);
    return rc;
}

/* ---------------------------------------------------------------- a generation */

/* The shortest time that contains both. */
static struct trace_time time_union(struct trace_time a, struct trace_time b)
{
    if (!a.to_ns || !b.to_ns) return a.to_ns ? a : b;
    return (struct trace_time){ MIN(a.from_ns, b.from_ns), MAX(a.to_ns, b.to_ns) };
}

static double first_token_s(int64_t first_ns, struct trace_time from)
{
    return first_ns && from.to_ns ? (double)(first_ns - from.from_ns) * 1e-9 : (double)NAN;
}

enum err_code trace_generation_send(const struct trace_generation *g, const struct machine *m,
                                    const struct trace_target *to, struct trace_sent *sent, struct err *why)
{
    enum { RUN, LOAD, QUANTIZE, COMPLETION, PREFILL, DECODE, SPANS };
    struct live_trace t;
    struct otlp_span spans[SPANS];
    const struct trace_time completion = time_union(g->prefill, g->decode),
                            run = time_union(g->load, completion);
    const struct trace_part parts[SPANS] = {
        [RUN] = { "run", RUN, run },
        [LOAD] = { "load", RUN, g->load },
        [QUANTIZE] = { "quantize", LOAD, g->quantize },
        [COMPLETION] = { t.name, RUN, completion },
        [PREFILL] = { "prefill", COMPLETION, g->prefill },
        [DECODE] = { "decode", COMPLETION, g->decode },
    };
    const struct completion c = { .operation = "text_completion",
                                  .model = g->model,
                                  .finish = g->finish,
                                  .input_tokens = g->input_tokens,
                                  .cached_tokens = -1,
                                  .output_tokens = g->output_tokens,
                                  .first_s = first_token_s(g->first_token_ns, g->prefill) };
    *sent = (struct trace_sent){ 0 };
    if (!run.to_ns) return ERR_OK; /* nothing ran */
    snprintf(t.name, sizeof t.name, "text_completion%s%.128s", *g->model ? " " : "", g->model);
    if (!spans_begin(&t, parts, SPANS, moment_now()))
        return err_set(why, ERR_IO, "no random numbers for the ids of a trace");
    span_set(&t.span[COMPLETION], OTLP_KIND_CLIENT, t.completion, completion_attributes(&t, &c));
    t.run[0] = text_attribute("qdyno.config", g->config);
    t.run[1] = text_attribute("gen_ai.request.model", g->model);
    t.run[2] = text_attribute("error.type", *g->error ? "run_failed" : "");
    span_set(&t.span[RUN], OTLP_KIND_INTERNAL, t.run, COUNT_OF(t.run));
    span_fail(&t.span[RUN], g->error);
    return spans_send(spans, spans_append(spans, 0, &t, parts, SPANS), m, to, sent, why);
}

/* ---------------------------------------------------------------- requests */

/* Appends the spans of a request at to[n]. Returns the new number. */
static int served_append(struct otlp_span *to, int n, struct live_trace *t, const struct trace_served *r,
                         struct moment now)
{
    const struct trace_part parts[SERVED_SPANS] = { { t->name, 0, r->whole },
                                                    { "queue", 0, r->queue },
                                                    { "prefill", 0, r->prefill },
                                                    { "decode", 0, r->decode } };
    const struct completion c = { .operation = r->operation,
                                  .model = r->model,
                                  .id = r->id,
                                  .finish = r->finish,
                                  .input_tokens = r->input_tokens,
                                  .cached_tokens = r->cached_tokens,
                                  .output_tokens = r->output_tokens,
                                  .first_s = first_token_s(r->first_token_ns, r->whole) };
    snprintf(t->name, sizeof t->name, "%s %.128s", r->operation, r->model);
    if (!spans_begin(t, parts, COUNT_OF(parts), now)) return n;
    int attributes = completion_attributes(t, &c);
    t->completion[attributes++] = text_attribute("qdyno.outcome", r->outcome);
    t->completion[attributes++] = text_attribute("error.type", *r->error ? "request_failed" : "");
    span_set(&t->span[0], OTLP_KIND_SERVER, t->completion, attributes);
    span_fail(&t->span[0], r->error);
    return spans_append(to, n, t, parts, COUNT_OF(parts));
}

enum err_code trace_served_send(const struct trace_served *r, int n, const struct machine *m,
                                const struct trace_target *to, struct trace_sent *sent, struct err *why)
{
    const struct moment now = moment_now();
    int count = 0;
    *sent = (struct trace_sent){ 0 };
    struct live_trace *t = calloc((size_t)n, sizeof *t);
    struct otlp_span *spans = calloc((size_t)n * SERVED_SPANS, sizeof *spans);
    for (int i = 0; t && spans && i < n; i++) count = served_append(spans, count, &t[i], &r[i], now);
    const enum err_code rc = t && spans ? spans_send(spans, count, m, to, sent, why)
                                        : err_set(why, ERR_NOMEM, "out of memory for traces");
    free(spans);
    free(t);
    return rc;
}
