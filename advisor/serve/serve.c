/* Starts and stops the threads of the server, and counts what becomes of requests (serve.h). */
#include "advisor/serve/serve.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "advisor/serve/parts.h"
#include "engine/arch/arch.h"
#include "engine/chat/chat.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "telemetry/http/http.h"

const char *const SERVE_OUTCOME_NAMES[SERVE_OUTCOMES] = {
    [SERVE_COMPLETED] = "completed",   [SERVE_CANCELLED] = "cancelled", [SERVE_REFUSED] = "refused",
    [SERVE_OVERLOADED] = "overloaded", [SERVE_STOPPED] = "stopped",     [SERVE_FAILED] = "failed",
};

/* ---------------------------------------------------------------- calls */

void call_list_add(struct call_list *l, struct call *c)
{
    c->next = NULL;
    if (l->last)
        l->last->next = c;
    else
        l->first = c;
    l->last = c;
}

struct call *call_list_take(struct call_list *l)
{
    struct call *c = l->first;
    if (!c) return NULL;
    l->first = c->next;
    if (!l->first) l->last = NULL;
    return c;
}

static bool call_name(struct call *c, const char *begin)
{
    uint8_t random[12];
    int n = snprintf(c->id, sizeof c->id, "%s", begin);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return false;
    for (size_t i = 0; i < sizeof random; i++)
        n += snprintf(c->id + n, sizeof c->id - (size_t)n, "%02x", random[i]);
    return true;
}

struct call *call_open(const char *begin)
{
    struct call *c = calloc(1, sizeof *c);
    if (c && !call_name(c, begin)) {
        free(c);
        return NULL;
    }
    if (c) c->created = time(NULL);
    return c;
}

void call_free(struct call *c)
{
    if (!c) return;
    for (int i = 0; i < c->answer_count; i++) {
        held_free(&c->answers[i].held);
        str_free(&c->answers[i].ready);
        free(c->answers[i].notes);
        free(c->answers[i].gaps);
        tool_reader_free(&c->answers[i].reader);
        json_decref(c->answers[i].calls);
    }
    for (int i = 0; i < c->prompt_count; i++) token_list_free(&c->prompts[i]);
    free(c->answers);
    free(c->prompts);
    ask_free(&c->ask);
    str_free(&c->body);
    str_free(&c->pending);
    str_free(&c->out);
    free(c);
}

void server_ready_locked(struct server *s, struct call *c)
{
    if (c->is_ready) return;
    c->is_ready = true;
    c->next_ready = s->ready;
    s->ready = c;
}

/* Half of those that wait have to end first, a few at a time, so this is a guess of the right order. */
static int server_retry_after(const struct server *s)
{
    enum { MOST_S = 60 };
    const struct histogram_counts *h = &s->tally.all.duration;
    const double mean_s = h->count ? h->sum / (double)h->count : 1;
    const double at_a_time = MAX(s->open - s->waiting, 1);
    return (int)fmax(1, fmin(ceil(mean_s * s->waiting / at_a_time / 2), MOST_S));
}

/* With the lock. SERVE_OUTCOMES: there is room for it. */
static enum serve_outcome server_refusal(const struct server *s, const struct call *c, struct refusal *no)
{
    if (s->failed) {
        refuse(no, 500, "model_failed", NULL, "the server has stopped computing: %s", s->failure.message);
        return SERVE_FAILED;
    }
    if (s->stopping || (s->draining && c->generates)) {
        refuse(no, 503, "stopping", NULL, "the server is stopping and takes no new requests");
        return SERVE_STOPPED;
    }
    if (c->generates && s->waiting >= s->o.queue) {
        refuse(no, 429, "too_many_requests", NULL,
               "%d request%s already, which is the limit: try again later", s->waiting,
               s->waiting == 1 ? " waits" : "s wait");
        no->retry_after_s = server_retry_after(s);
        return SERVE_OVERLOADED;
    }
    return SERVE_OUTCOMES;
}

bool server_take(struct server *s, struct call *c, struct refusal *no)
{
    pthread_mutex_lock(&s->lock);
    const enum serve_outcome refused = server_refusal(s, c, no);
    if (c->generates) s->tally.all.accepted++;
    if (refused != SERVE_OUTCOMES) {
        if (c->generates) s->tally.all.outcome[refused]++;
    } else {
        s->open += c->generates;
        s->waiting += c->generates;
        call_list_add(&s->to_prepare, c);
        pthread_cond_signal(&s->prepare_wake);
    }
    server_publish_locked(s);
    pthread_mutex_unlock(&s->lock);
    return refused == SERVE_OUTCOMES;
}

void server_end(struct server *s, struct call *c, enum serve_outcome outcome)
{
    char id[sizeof c->id];
    struct refusal no = c->no;
    const bool generates = c->generates;
    snprintf(id, sizeof id, "%s", c->id);
    const bool met = outcome == SERVE_COMPLETED && generates && slo_is_met(s, c);
    c->ended_ns = clock_ns();
    if (c->generates) spans_add(s->spans, c, outcome);
    pthread_mutex_lock(&s->lock);
    if (c->generates) {
        const double seconds = (double)(c->ended_ns - c->arrived_ns) * 1e-9;
        s->open--;
        if (c->stage < CALL_RUNNING) s->waiting--;
        s->tally.all.outcome[outcome]++;
        s->tally.all.met += met;
        s->tally.all.missed += (outcome == SERVE_COMPLETED && !met) || outcome == SERVE_FAILED;
        s->tally.at[c->level].requests += outcome == SERVE_COMPLETED;
        if (outcome == SERVE_COMPLETED) histogram_add(&s->tally.all.duration, &EDGES_REQUEST, seconds, 1);
        server_publish_locked(s); /* before its client has the answer */
    }
    c->stage = CALL_ENDED;
    server_ready_locked(s, c);
    pthread_mutex_unlock(&s->lock);
    /* from here on the call may be gone */
    log_write(s->o.log, LOG_INFO, "%s %s%s%s", id, generates ? SERVE_OUTCOME_NAMES[outcome] : "answered",
              no.status ? ": " : "", no.message);
    connections_wake(s->connections);
}

void server_count_refused(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    s->tally.all.accepted++;
    s->tally.all.outcome[SERVE_REFUSED]++;
    server_publish_locked(s);
    pthread_mutex_unlock(&s->lock);
}

/* ---------------------------------------------------------------- threads */

void thread_asks_for_short_slices(void)
{
    enum { SLICE_NS = 100 * 1000 };
    struct { /* struct sched_attr of Linux, version 0 */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = { .size = sizeof attributes };
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0)) return;
    if (attributes.policy != SCHED_OTHER) return; /* somebody decided otherwise */
    attributes.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* ---------------------------------------------------------------- start */

enum err_code server_address_check(const char *address, bool has_key, struct err *why)
{
    if (has_key || http_address_is_loopback(address)) return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "%s is not an address of this machine only: give an API key with --api-key-file or QDYNO_API_KEY, or "
        "listen on 127.0.0.1",
        address);
}

/* A model without a template can be served: only chat is refused then. */
static enum err_code server_open_chat(struct server *s, struct err *why)
{
    const struct gguf *g = model_gguf(s->o.model);
    if (!s->o.template_file && !chat_has_template(g)) return ERR_OK;
    return chat_open(&s->chat, g, s->tokenizer, s->o.template_file, why);
}

static bool server_token_ends(void *ctx, int32_t token)
{
    const struct server *s = ctx;
    return tokenizer_ends(s->tokenizer, token);
}

/* All levels get the same tokens and have the same context. */
static enum err_code level_open(struct server *s, int level, struct err *why)
{
    struct model *m = level ? s->o.more[level - 1] : s->o.model;
    const struct serving_options o = { .model = m, .ends = server_token_ends, .ends_ctx = s };
    if (model_shape(m)->vocab != model_shape(s->o.model)->vocab || model_ctx(m) != s->ctx)
        return err_set(
            why, ERR_USAGE,
            "config %d has a vocabulary of %lld and a context of %d tokens: expected %lld and %d, as "
            "config 1",
            level + 1, (long long)model_shape(m)->vocab, model_ctx(m),
            (long long)model_shape(s->o.model)->vocab, s->ctx);
    return serving_open(&s->serving[level], &o, why);
}

/* A request that fits into one level fits into all: it may move to another one before it begins. One block of
 * the KV cache must remain for a copy of a shared one. */
static void server_limit_context(struct server *s)
{
    const int ctx = s->ctx;
    for (int i = 0; i < s->levels; i++)
        s->ctx = MIN(s->ctx, (model_blocks(i ? s->o.more[i - 1] : s->o.model) - 1) * KV_BLOCK_TOKENS);
    if (s->ctx < ctx)
        log_write(s->o.log, LOG_INFO,
                  "a request may have %d tokens, which the KV cache has room for, of a context of %d", s->ctx,
                  ctx);
}

/* The counters of this process go on from those of the process that had its slot before. */
static enum err_code server_join(struct server *s, struct err *why)
{
    s->base = calloc(1, sizeof *s->base);
    if (!s->base) return err_set(why, ERR_NOMEM, "out of memory for the figures of the server");
    share_slot_read(s->o.share, s->o.slot, s->base);
    figures_clear_gauges(s->base);
    return ERR_OK;
}

/* From now on the other processes count on this one. */
static void server_announce(struct server *s)
{
    const struct memory_plan *p = model_plan(s->o.model);
    pthread_mutex_lock(&s->lock);
    server_publish_locked(s);
    pthread_mutex_unlock(&s->lock);
    share_ready(s->o.share, s->o.slot, (int)config_int(model_config(s->o.model), KNOB_MAX_SEQUENCES),
                p->host - p->on_disk);
}

static enum err_code server_open(struct server *s, int *port, struct err *why)
{
    s->tokenizer = model_tokenizer(s->o.model);
    s->ctx = model_ctx(s->o.model);
    s->started = time(NULL);
    s->started_ns = clock_ns();
    tokenizer_describe(s->tokenizer, &s->vocabulary);
    enum err_code rc = s->o.share ? server_join(s, why) : ERR_OK;
    if (!rc) rc = server_open_chat(s, why);
    if (!rc && s->chat) s->tool_style = tool_style_find(chat_template_for_tools(s->chat));
    s->levels = 1 + s->o.more_count;
    for (int i = 0; i < s->levels && !rc; i++) rc = level_open(s, i, why);
    if (!rc) {
        server_limit_context(s);
        s->tally.now = serving_count(s->serving[0]);
        live_begin(&s->tally.live, s->serving[0], s->o.limits, s->o.limit_count);
        s->tally.occupancy = serving_occupancy_to_json(s->serving[0]);
    }
    if (!rc && s->o.otlp) rc = spans_start(&s->spans, s, why);
    if (!rc) rc = connections_start(&s->connections, s, port, why);
    if (rc) return rc;
    int cause = pthread_create(&s->prepare_thread, NULL, prepare_main, s);
    s->has_prepare = !cause;
    if (!cause) cause = pthread_create(&s->engine_thread, NULL, engine_main, s);
    s->has_engine = !cause;
    if (!cause && s->o.share) server_announce(s);
    return cause ? err_set(why, err_of_errno(cause), "cannot start the threads of the server: %s",
                           strerror(cause))
                 : ERR_OK;
}

enum err_code server_start(struct server **out, const struct server_options *o, int *port, struct err *why)
{
    *out = NULL;
    enum err_code rc = server_address_check(o->listen, o->key != NULL, why);
    if (!rc && !model_tokenizer(o->model))
        rc = err_set(why, ERR_ABSENT,
                     "the model file has no tokenizer: requests are texts, so it cannot be served");
    if (rc) return rc;
    struct server *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for the server");
    s->o = *o;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->prepare_wake, NULL);
    pthread_cond_init(&s->engine_wake, NULL);
    rc = server_open(s, port, why);
    if (rc) {
        server_stop(s);
        return rc;
    }
    *out = s;
    return ERR_OK;
}

/* ---------------------------------------------------------------- while it runs */

void server_drain(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    pthread_cond_broadcast(&s->engine_wake);
    pthread_mutex_unlock(&s->lock);
}

void server_retire(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    s->retiring = true;
    pthread_mutex_unlock(&s->lock);
    connections_wake(s->connections);
}

void server_set_level(struct server *s, int level)
{
    pthread_mutex_lock(&s->lock);
    s->level = MIN(MAX(level, 0), s->levels - 1);
    pthread_cond_signal(&s->engine_wake);
    pthread_mutex_unlock(&s->lock);
}

struct server_state server_state_of(const struct serve_figures *f)
{
    struct server_state out = { .accepted = f->accepted,
                                .open = (int)(f->waiting + f->running),
                                .waiting = (int)f->waiting,
                                .running = (int)f->running,
                                .blocks = (int)f->blocks,
                                .blocks_used = (int)f->blocks_used,
                                .blocks_cached = (int)f->blocks_cached,
                                .prompt_tokens = f->prompt_tokens,
                                .cached_tokens = f->cached_tokens,
                                .generated_tokens = f->generated_tokens,
                                .preemptions = f->preemptions,
                                .steps = f->steps,
                                .first_token_s = f->first_token.sum,
                                .gap_s = f->token.sum,
                                .first_tokens = (int64_t)f->first_token.count,
                                .gaps = (int64_t)f->token.count };
    memcpy(out.outcome, f->outcome, sizeof out.outcome);
    return out;
}

void server_read(struct server *s, struct server_state *out)
{
    struct serve_figures f;
    pthread_mutex_lock(&s->lock);
    server_figures_locked(s, &f);
    *out = server_state_of(&f);
    out->connections = connections_count(s->connections);
    out->draining = s->draining;
    out->has_chat = s->chat != NULL;
    out->ctx = s->ctx;
    out->level = s->level;
    memcpy(out->at, s->tally.at, sizeof out->at);
    pthread_mutex_unlock(&s->lock);
}

enum err_code server_error(struct server *s, struct err *why)
{
    pthread_mutex_lock(&s->lock);
    const enum err_code rc = s->failed ? s->failure.code : ERR_OK;
    if (rc) *why = s->failure;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void server_end_requests(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    s->draining = s->stopping = true;
    pthread_cond_broadcast(&s->prepare_wake);
    pthread_cond_broadcast(&s->engine_wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_prepare) pthread_join(s->prepare_thread, NULL);
    if (s->has_engine) pthread_join(s->engine_thread, NULL);
    s->has_prepare = s->has_engine = false;
}

void server_stop(struct server *s)
{
    if (!s) return;
    server_end_requests(s);
    connections_stop(s->connections);
    spans_stop(s->spans);
    for (int i = 0; i < s->levels; i++) serving_close(s->serving[i]);
    json_decref(s->tally.occupancy);
    chat_close(s->chat);
    free(s->base);
    pthread_cond_destroy(&s->prepare_wake);
    pthread_cond_destroy(&s->engine_wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
