/* advisor/outcome/trace_run.c - sends the trace of one generation (outcome.h). */
#include "advisor/outcome/outcome.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "advisor/run/run.h"

enum { RUN, LOAD, QUANTIZE, COMPLETION, PREFILL, DECODE, SPANS };

struct generation_spans {
    struct otlp_span span[SPANS];
    bool present[SPANS];
    char name[160], identity[128];
    struct otlp_attribute run[4], completion[8];
    const char *finish[1];
};

static void id_derive(const struct generation_spans *s, int which, uint8_t *id, size_t size)
{
    char text[160], hex[HASH_HEX];
    snprintf(text, sizeof(text), "%s %d", s->identity, which);
    hash_bytes(text, strlen(text), hex);
    for (size_t i = 0; i < size; i++) {
        unsigned byte = 0;
        (void)sscanf(hex + 2 * i, "%2x", &byte);
        id[i] = (uint8_t)byte;
    }
}

/* Adds a span, unless its part did not run (t.to_ns 0). parent == which: the root. */
static void generation_add_span(struct generation_spans *s, int which, int parent, const char *name,
                                struct trace_time t, struct moment now)
{
    struct otlp_span *span = &s->span[which];
    if (!t.to_ns) return;
    span->name = name;
    span->kind = OTLP_KIND_INTERNAL;
    span->begun_ns = (uint64_t)(now.unix_ns + t.from_ns - now.clock_ns);
    span->ended_ns = (uint64_t)(now.unix_ns + t.to_ns - now.clock_ns);
    id_derive(s, SPANS, span->trace_id, sizeof(span->trace_id));
    id_derive(s, which, span->span_id, sizeof(span->span_id));
    if (parent != which) id_derive(s, parent, span->parent_id, sizeof(span->parent_id));
    s->present[which] = true;
}

/* The shortest time that contains both. */
static struct trace_time time_union(struct trace_time a, struct trace_time b)
{
    if (!a.to_ns || !b.to_ns) return a.to_ns ? a : b;
    return (struct trace_time){ MIN(a.from_ns, b.from_ns), MAX(a.to_ns, b.to_ns) };
}

static struct otlp_attribute text_attribute(const char *key, const char *value)
{
    return (struct otlp_attribute){ .key = key, .string = *value ? value : NULL };
}

static void generation_set_attributes(struct generation_spans *s, const struct trace_generation *g)
{
    struct otlp_attribute *a = s->completion;
    int n = 0;
    a[n++] = text_attribute("gen_ai.operation.name", "text_completion");
    a[n++] = text_attribute("gen_ai.provider.name", "qdyno");
    a[n++] = text_attribute("gen_ai.request.model", g->model);
    a[n++] = (struct otlp_attribute){ "gen_ai.usage.input_tokens", OTLP_INT, .integer = g->input_tokens };
    a[n++] = (struct otlp_attribute){ "gen_ai.usage.output_tokens", OTLP_INT, .integer = g->output_tokens };
    const double first_s = g->first_token_ns && g->prefill.to_ns
                               ? (double)(g->first_token_ns - g->prefill.from_ns) * 1e-9
                               : (double)NAN;
    a[n++] = (struct otlp_attribute){ "gen_ai.response.time_to_first_chunk", OTLP_DOUBLE, .number = first_s };
    s->finish[0] = g->finish;
    a[n++] = (struct otlp_attribute){ "gen_ai.response.finish_reasons", OTLP_STRINGS, .strings = s->finish,
                                      .n = *g->finish != 0 };
    s->span[COMPLETION].attributes = a;
    s->span[COMPLETION].n_attributes = n;
    s->span[COMPLETION].kind = OTLP_KIND_CLIENT;
    s->run[0] = text_attribute("qdyno.config", g->config);
    s->run[1] = text_attribute("gen_ai.request.model", g->model);
    s->span[RUN].attributes = s->run;
    s->span[RUN].n_attributes = 2;
    if (!*g->error) return;
    s->run[s->span[RUN].n_attributes++] = text_attribute("error.type", "run_failed");
    s->span[RUN].status = OTLP_STATUS_ERROR;
    s->span[RUN].message = g->error;
}

static enum err_code generation_send(struct generation_spans *s, const struct machine *m,
                                     const struct otlp_target *t, struct trace_sent *sent, struct err *why)
{
    struct otlp_span spans[SPANS];
    struct otlp_identity who = { 0 };
    struct otlp_answer answer = { 0 };
    struct str body = { 0 };
    int n = 0;
    for (int i = 0; i < SPANS; i++)
        if (s->present[i]) spans[n++] = s->span[i];
    enum err_code rc = otlp_identify(&who, m, QDYNO_VERSION, why);
    if (!rc) {
        otlp_traces_encode(&body, &who.resource, spans, n);
        rc = body.failed ? err_set(why, ERR_NOMEM, "out of memory") : otlp_send(t, &body, &answer, why);
    }
    if (!rc) sent->spans = n;
    if (!rc) snprintf(sent->warning, sizeof(sent->warning), "%s", answer.message);
    str_free(&body);
    otlp_identity_free(&who);
    return rc;
}

enum err_code trace_generation_send(const struct trace_generation *g, const struct machine *m,
                                    const struct trace_target *to, struct trace_sent *sent, struct err *why)
{
    struct generation_spans s = { .present = { false } };
    struct otlp_target t;
    const struct moment now = moment_now();
    *sent = (struct trace_sent){ 0 };
    const struct trace_time completion = time_union(g->prefill, g->decode),
                            run = time_union(g->load, completion);
    if (!run.to_ns) return ERR_OK; /* nothing ran */
    enum err_code rc = otlp_target_find(&t, OTLP_TRACES, to->base, to->auth, why);
    if (rc) return rc;
    if (!t.url) return err_set(why, ERR_USAGE, "no collector of traces is named");
    snprintf(s.identity, sizeof(s.identity), "qdyno run %s %lld %d", m->id,
             (long long)(now.unix_ns + run.from_ns - now.clock_ns), (int)getpid());
    snprintf(s.name, sizeof(s.name), "text_completion%s%.128s", *g->model ? " " : "", g->model);
    generation_add_span(&s, RUN, RUN, "run", run, now);
    generation_add_span(&s, LOAD, RUN, "load", g->load, now);
    generation_add_span(&s, QUANTIZE, LOAD, "quantize", g->quantize, now);
    generation_add_span(&s, COMPLETION, RUN, s.name, completion, now);
    generation_add_span(&s, PREFILL, COMPLETION, "prefill", g->prefill, now);
    generation_add_span(&s, DECODE, COMPLETION, "decode", g->decode, now);
    generation_set_attributes(&s, g);
    rc = generation_send(&s, m, &t, sent, why);
    otlp_target_done(&t);
    return rc;
}
