/* Sends the traces of requests to a server (outcome.h). */
#include "advisor/outcome/outcome.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "advisor/run/run.h"

enum { PARTS = 4, ATTRIBUTES = 12 };

/* One request: its own span first, then those of its parts. */
struct served_spans {
    char name[160];
    const char *finish[1];
    struct otlp_attribute attribute[ATTRIBUTES];
    struct otlp_span span[PARTS];
};

static struct otlp_attribute text_attribute(const char *key, const char *value)
{
    return (struct otlp_attribute){ .key = key, .string = *value ? value : NULL };
}

static struct otlp_attribute count_attribute(const char *key, int64_t value)
{
    return (struct otlp_attribute){ .key = key, .type = OTLP_INT, .integer = value };
}

static void served_set_attributes(struct served_spans *s, const struct trace_served *r)
{
    struct otlp_attribute *a = s->attribute;
    int n = 0;
    const double first_s = r->first_token_ns ? (double)(r->first_token_ns - r->whole.from_ns) * 1e-9
                                             : (double)NAN;
    a[n++] = text_attribute("gen_ai.operation.name", r->operation);
    a[n++] = text_attribute("gen_ai.provider.name", "qdyno");
    a[n++] = text_attribute("gen_ai.request.model", r->model);
    a[n++] = text_attribute("gen_ai.response.id", r->id);
    a[n++] = count_attribute("gen_ai.usage.input_tokens", r->input_tokens);
    a[n++] = count_attribute("gen_ai.usage.cache_read.input_tokens", r->cached_tokens);
    a[n++] = count_attribute("gen_ai.usage.output_tokens", r->output_tokens);
    a[n++] = (struct otlp_attribute){ "gen_ai.response.time_to_first_chunk", OTLP_DOUBLE, .number = first_s };
    s->finish[0] = r->finish;
    a[n++] = (struct otlp_attribute){ "gen_ai.response.finish_reasons", OTLP_STRINGS, .strings = s->finish,
                                      .n = *r->finish != 0 };
    a[n++] = text_attribute("qdyno.outcome", r->outcome);
    if (*r->error) a[n++] = text_attribute("error.type", "request_failed");
    s->span[0].attributes = a;
    s->span[0].n_attributes = n;
    s->span[0].kind = OTLP_KIND_SERVER;
    if (!*r->error) return;
    s->span[0].status = OTLP_STATUS_ERROR;
    s->span[0].message = r->error;
}

/* Writes the spans of one request to `to`. Returns their number; 0: no random numbers for their ids. */
static int served_spans_fill(struct served_spans *s, const struct trace_served *r, struct moment now,
                             struct otlp_span *to)
{
    const struct {
        const char *name;
        struct trace_time time;
    } parts[PARTS] = {
        { s->name, r->whole }, { "queue", r->queue }, { "prefill", r->prefill }, { "decode", r->decode }
    };
    uint8_t ids[OTLP_TRACE_ID + PARTS * OTLP_SPAN_ID];
    int n = 0;
    if (getrandom(ids, sizeof ids, 0) != (ssize_t)sizeof ids) return 0;
    snprintf(s->name, sizeof s->name, "%s %.128s", r->operation, r->model);
    for (int i = 0; i < PARTS; i++) {
        struct otlp_span *span = &s->span[i];
        *span = (struct otlp_span){ .name = parts[i].name, .kind = OTLP_KIND_INTERNAL };
        span->begun_ns = (uint64_t)(now.unix_ns + parts[i].time.from_ns - now.clock_ns);
        span->ended_ns = (uint64_t)(now.unix_ns + parts[i].time.to_ns - now.clock_ns);
        memcpy(span->trace_id, ids, OTLP_TRACE_ID);
        memcpy(span->span_id, ids + OTLP_TRACE_ID + i * OTLP_SPAN_ID, OTLP_SPAN_ID);
        if (i) memcpy(span->parent_id, s->span[0].span_id, OTLP_SPAN_ID);
        if (!i) served_set_attributes(s, r);
        if (parts[i].time.to_ns) to[n++] = *span;
    }
    return n;
}

enum err_code trace_served_send(const struct trace_served *r, int n, const struct machine *m,
                                const struct trace_target *to, struct trace_sent *sent, struct err *why)
{
    struct otlp_target t = { .url = NULL };
    struct otlp_identity who = { 0 };
    struct otlp_answer answer = { 0 };
    struct str body = { 0 };
    const struct moment now = moment_now();
    int count = 0;
    *sent = (struct trace_sent){ 0 };
    struct served_spans *s = calloc((size_t)n, sizeof *s);
    struct otlp_span *spans = calloc((size_t)n * PARTS, sizeof *spans);
    enum err_code rc = s && spans ? otlp_target_find(&t, OTLP_TRACES, to->base, to->auth, why)
                                  : err_set(why, ERR_NOMEM, "out of memory for traces");
    if (!rc && !t.url) rc = err_set(why, ERR_USAGE, "no collector of traces is named");
    if (!rc) {
        for (int i = 0; i < n; i++) count += served_spans_fill(&s[i], &r[i], now, spans + count);
        rc = otlp_identify(&who, m, QDYNO_VERSION, why);
    }
    if (!rc) {
        t.deadline_ns = to->deadline_ns;
        otlp_traces_encode(&body, &who.resource, spans, count);
        rc = body.failed ? err_set(why, ERR_NOMEM, "out of memory for traces")
                         : otlp_send(&t, &body, &answer, why);
    }
    if (!rc) sent->spans = count;
    if (!rc) snprintf(sent->warning, sizeof sent->warning, "%s", answer.message);
    str_free(&body);
    otlp_identity_free(&who);
    otlp_target_done(&t);
    free(spans);
    free(s);
    return rc;
}
