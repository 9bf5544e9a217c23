/* The thread that computes (serve.h): it alone uses the model. It takes prepared requests, runs steps, and
 * turns tokens into text for the clients. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "advisor/serve/parts.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"

/* What one step adds to the tally, so that the lock is taken once. */
struct step_news {
    int64_t prompt_tokens, cached_tokens, generated_tokens;
    int begun; /* requests with their first rows */
};

enum { LOOK_NS = 100 * 1000 * 1000 };
struct engine {
    struct server *s;
    struct call *calls;   /* that run, linked by next */
    struct call *touched; /* by this step, linked by next_touched */
    struct step_news news;
    int calls_of[SERVE_LEVELS]; /* of `calls`, by level */
    int level;                  /* of new calls */
    bool computed;              /* some rows in this round of steps */
    bool flush;                 /* a static batch need not be full */
    int64_t looked_ns;
};

/* ---------------------------------------------------------------- the end of a request */

static void call_touch(struct engine *e, struct call *c)
{
    if (c->touched) return;
    c->touched = true;
    c->next_touched = e->touched;
    e->touched = c;
}

/* The answers that go on lose their place. */
static void call_cancel_answers(struct engine *e, struct call *c)
{
    for (int i = 0; i < c->answer_count; i++)
        if (!c->answers[i].ended && c->answers[i].id)
            serving_cancel(e->s->serving[c->level], c->answers[i].id);
}

static void calls_remove(struct engine *e, struct call *c)
{
    struct call **at = &e->calls;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    e->calls_of[c->level]--;
}

/* Move what the step wrote to where the connections' thread finds it. With the lock. */
static void call_publish_locked(struct server *s, struct call *c)
{
    if (!c->pending.len && !c->pending.failed) return;
    if (!c->out.len && !c->out.failed) {
        struct str empty = c->out;
        c->out = c->pending;
        c->pending = empty;
    } else {
        str_append_n(&c->out, str_text(&c->pending), c->pending.len);
    }
    if (c->out.failed) memory_short_clear(); /* the stream is cut off, which tells its client */
    str_clear(&c->pending);
    c->streaming = c->ask.stream;
    server_ready_locked(s, c);
}

/* A request that runs ends. */
static void call_end(struct engine *e, struct call *c, enum serve_outcome outcome)
{
    call_cancel_answers(e, c);
    calls_remove(e, c);
    if (c->no.status) str_clear(&c->pending); /* it may be incomplete */
    if (c->no.status && c->streaming) reply_event(&c->pending, refusal_json(&c->no));
    pthread_mutex_lock(&e->s->lock);
    call_publish_locked(e->s, c);
    pthread_mutex_unlock(&e->s->lock);
    server_end(e->s, c, outcome);
}

static void call_fail(struct engine *e, struct call *c, enum serve_outcome outcome, const char *message)
{
    if (outcome == SERVE_STOPPED)
        refuse(&c->no, 503, "stopping", NULL, "the server stopped before the answer was complete");
    else
        refuse(&c->no, 500, "model_failed", NULL, "%s", message);
    call_end(e, c, outcome);
}

/* ---------------------------------------------------------------- tokens */

static bool answer_note(struct answer *a, const struct serving_token *t, size_t bytes)
{
    if (!array_room(&a->notes, &a->note_cap, a->note_count + 1, sizeof *a->notes)) return false;
    struct note *n = &a->notes[a->note_count++];
    *n = (struct note){ .token = t->token, .at = a->bytes, .bytes = bytes, .logprob = t->logprob };
    n->top_count = MIN(t->top_count, SERVING_TOP_MOST);
    memcpy(n->top, t->top, (size_t)n->top_count * sizeof *n->top);
    return true;
}

/* The text ends at a stop string, so tokens behind it were not sent. */
static void answer_drop_notes(struct answer *a)
{
    while (a->note_count && a->notes[a->note_count - 1].at >= a->held.length) a->note_count--;
}

/* The token's text. False: no memory. */
static bool answer_add(struct engine *e, struct answer *a, const struct serving_token *t)
{
    struct str piece = { 0 };
    bool ok = !tokenizer_piece(e->s->tokenizer, t->token, false, &piece, NULL);
    if (ok && !piece.len && a->reader.style) { /* a control token can mark a call */
        ok = !tokenizer_piece(e->s->tokenizer, t->token, true, &piece, NULL);
        if (!tool_style_marks(a->reader.style, str_text(&piece))) {
            tool_reader_control(&a->reader, str_text(&piece));
            str_clear(&piece);
        }
    }
    if (ok && a->call->ask.top >= 0) ok = answer_note(a, t, piece.len);
    a->bytes += piece.len;
    if (a->reader.style) {
        struct str text = { 0 };
        held_push(&a->held, str_text(&piece), piece.len, &text);
        reply_read_calls(a, &text, false);
        ok = ok && !text.failed && !a->reader.kept.failed;
        str_free(&text);
    } else {
        held_push(&a->held, str_text(&piece), piece.len, &a->ready);
    }
    str_free(&piece);
    return ok && !a->ready.failed && !a->held.kept.failed;
}

/* False: no memory. */
static bool answer_time(struct engine *e, struct answer *a, int64_t now)
{
    struct tally *t = &e->s->tally;
    const bool first = !a->first_ns;
    const double gap_s = (double)(now - a->last_ns) * 1e-9,
                 first_s = (double)(now - a->call->arrived_ns) * 1e-9;
    pthread_mutex_lock(&e->s->lock);
    if (first)
        live_times_add(&t->live.first, first_s);
    else
        live_gap_add(&t->live, gap_s);
    if (first)
        histogram_add(&t->all.first_token, &EDGES_FIRST_TOKEN, first_s, 1);
    else
        histogram_add(&t->all.token, &EDGES_TOKEN, gap_s, 1);
    pthread_mutex_unlock(&e->s->lock);
    a->last_ns = now;
    if (!first) return slo_note_gap(e->s, a, gap_s);
    a->first_ns = now;
    return true;
}

static void answer_take(struct engine *e, const struct serving_token *t, int64_t now)
{
    struct answer *a = t->user;
    struct call *c = a->call;
    if (c->no.status) return; /* another answer of this request failed in this step */
    call_touch(e, c);
    if (!a->made) {
        a->cached = t->cached;
        e->news.cached_tokens += t->cached;
        e->news.prompt_tokens += c->prompts[a->prompt].n;
    }
    a->preemptions = t->preemptions;
    if (t->finish == FINISH_FAILED) {
        a->ended = true;
        refuse(&c->no, 500, "model_failed", NULL,
               "the model computed values that are not numbers: its weights may be damaged");
        return;
    }
    if (t->finish != FINISH_END) {
        a->made++;
        e->news.generated_tokens++;
        if (!answer_time(e, a, now) || !answer_add(e, a, t))
            refuse(&c->no, 500, "out_of_memory", NULL, "out of memory for the answer");
    }
    if (a->held.stopped) answer_drop_notes(a);
    if (a->held.stopped || t->finish != FINISH_NONE) {
        a->finish = t->finish == FINISH_LENGTH && !a->held.stopped ? "length" : "stop";
        if (t->finish == FINISH_NONE) serving_cancel(e->s->serving[c->level], a->id);
        struct str rest = { 0 };
        held_finish(&a->held, &rest);
        reply_read_calls(a, &rest, true);
        str_free(&rest);
        if (a->call_count && !strcmp(a->finish, "stop")) a->finish = "tool_calls";
        a->ended = true;
        c->left--;
    }
}

/* ---------------------------------------------------------------- what clients get of a step */

static void call_write(struct engine *e, struct call *c)
{
    if (c->ask.stream) {
        for (int i = 0; i < c->answer_count; i++) reply_stream_answer(e->s, c, &c->answers[i]);
        if (!c->left) reply_stream_end(e->s, c);
    } else if (!c->left) {
        reply_line(&c->pending, "", reply_document(e->s, c), "\n");
    }
    if (c->pending.failed) refuse(&c->no, 500, "out_of_memory", NULL, "out of memory for the answer");
}

static void calls_write(struct engine *e)
{
    for (struct call *c = e->touched, *next; c; c = next) {
        next = c->next_touched;
        c->touched = false;
        if (!c->no.status) call_write(e, c);
        if (c->no.status)
            call_end(e, c, SERVE_FAILED);
        else if (!c->left)
            call_end(e, c, SERVE_COMPLETED);
    }
}

/* Requests whose first rows were computed in this step. */
static void calls_admit(struct engine *e, int level, int64_t begun_ns)
{
    for (struct call *c = e->calls; c; c = c->next)
        for (int i = 0; i < c->answer_count && c->level == level; i++) {
            struct answer *a = &c->answers[i];
            if (a->admitted_ns || a->ended) continue;
            const struct request *r = serving_find(e->s->serving[level], a->id);
            if (r && r->state != REQUEST_RUNNING) continue;
            a->admitted_ns = begun_ns;
            pthread_mutex_lock(&e->s->lock);
            if (c->stage == CALL_WAITING) {
                c->stage = CALL_RUNNING;
                e->s->waiting--;
                histogram_add(&e->s->tally.all.queue, &EDGES_REQUEST,
                              (double)(begun_ns - c->arrived_ns) * 1e-9, 1);
            }
            server_publish_locked(e->s);
            pthread_mutex_unlock(&e->s->lock);
        }
}

/* What screens show. The map of the blocks is looked at now and then only, because it takes longer. */
static void live_publish_locked(struct engine *e, const struct serving_result *r)
{
    struct server *s = e->s;
    const int64_t now = clock_ns();
    if (r->rows) live_step_add(&s->tally.live, r);
    if (e->calls && now - e->looked_ns < LOOK_NS) return;
    e->looked_ns = now;
    live_look(&s->tally.live, s->serving[e->level], (double)(now - s->started_ns) * 1e-9);
    json_decref(s->tally.occupancy);
    s->tally.occupancy = serving_occupancy_to_json(s->serving[e->level]);
}

/* Over all levels. */
static struct scheduler_counts counts_of(const struct server *s)
{
    struct scheduler_counts sum = serving_count(s->serving[0]);
    for (int i = 1; i < s->levels; i++) {
        const struct scheduler_counts c = serving_count(s->serving[i]);
        sum.waiting += c.waiting;
        sum.running += c.running;
        sum.preemptions += c.preemptions;
        sum.found_tokens += c.found_tokens;
        sum.swapped += c.swapped;
        sum.spared += c.spared;
        sum.blocks.blocks += c.blocks.blocks;
        sum.blocks.used += c.blocks.used;
        sum.blocks.cached += c.blocks.cached;
        sum.blocks.free += c.blocks.free;
        sum.blocks.evicted += c.blocks.evicted;
    }
    return sum;
}

static void step_publish(struct engine *e, int level, const struct serving_result *r)
{
    struct server *s = e->s;
    bool any = false;
    pthread_mutex_lock(&s->lock);
    for (struct call *c = e->calls; c; c = c->next) {
        any |= c->pending.len > 0;
        call_publish_locked(s, c);
    }
    s->tally.all.prompt_tokens += e->news.prompt_tokens;
    s->tally.all.cached_tokens += e->news.cached_tokens;
    s->tally.all.generated_tokens += e->news.generated_tokens;
    s->tally.all.steps += r->rows > 0;
    s->tally.all.rows += r->rows;
    s->tally.all.busy_s += r->seconds;
    s->tally.at[level].busy_s += r->seconds;
    s->tally.at[level].tokens += e->news.generated_tokens;
    s->tally.now = counts_of(s);
    live_publish_locked(e, r);
    server_publish_locked(s);
    pthread_mutex_unlock(&s->lock);
    e->news = (struct step_news){ 0 };
    if (any) connections_wake(s->connections);
}

/* ---------------------------------------------------------------- the thread */

/* Its answers begin at its level. */
static enum err_code call_begin(struct engine *e, struct call *c, struct err *why)
{
    const struct ask *q = &c->ask;
    enum err_code rc = ERR_OK;
    for (int i = 0; i < c->answer_count && !rc; i++) {
        struct answer *a = &c->answers[i];
        const struct token_list *prompt = &c->prompts[a->prompt];
        const struct serving_request r = {
            .prompt = prompt->ids,
            .n = (int)prompt->n,
            .generate = (int)q->most,
            .least = (int)q->least,
            .priority = (int)q->priority,
            .ignore_end = q->ignore_end,
            .top = (int)q->top,
            .user = a,
            .sampling = { .temperature = (float)q->temperature,
                          .top_k = (int)MAX(q->top_k, 0),
                          .top_p = (float)q->top_p,
                          .min_p = (float)q->min_p,
                          .repeat_penalty = (float)q->repeat_penalty,
                          .repeat_last = (int)q->repeat_last,
                          .seed = (uint64_t)q->seed + (uint64_t)(i % q->choices) },
        };
        rc = serving_submit(e->s->serving[c->level], &r, &a->id, why);
    }
    return rc;
}

/* The call cannot be computed, for a reason of the scheduler. */
static void call_refuse(struct engine *e, struct call *c, enum err_code rc, const struct err *why)
{
    refuse(&c->no, rc == ERR_USAGE || rc == ERR_FIT ? 400 : 500,
           rc == ERR_FIT ? "context_length_exceeded" : "invalid_prompt", "prompt", "%s", why->message);
    call_end(e, c, c->no.status < 500 ? SERVE_REFUSED : SERVE_FAILED);
}

static void call_submit(struct engine *e, struct call *c)
{
    struct err why = { 0 };
    c->next = e->calls;
    e->calls = c;
    c->level = e->level;
    e->calls_of[c->level]++;
    const enum err_code rc = call_begin(e, c, &why);
    if (rc) call_refuse(e, c, rc, &why);
}

/* After a change of the level, which is the config that computes new requests: requests of which the old
 * level has computed nothing yet are taken back and submitted to the new one, the oldest first. */
static void calls_move_to_level(struct engine *e)
{
    struct call *oldest = NULL;
    struct err why = { 0 };
    for (struct call *c = e->calls; c; c = c->next) { /* the newest first */
        bool stays = c->level == e->level;
        for (int i = 0; i < c->answer_count; i++) stays |= c->answers[i].admitted_ns || c->answers[i].ended;
        if (stays) continue;
        c->next_touched = oldest;
        oldest = c;
    }
    for (struct call *c = oldest, *next; c; c = next) {
        next = c->next_touched;
        call_cancel_answers(e, c);
        for (int i = 0; i < c->answer_count; i++) c->answers[i].id = 0;
        e->calls_of[c->level]--;
        c->level = e->level;
        e->calls_of[c->level]++;
        const enum err_code rc = call_begin(e, c, &why);
        if (rc) call_refuse(e, c, rc, &why);
    }
}

/* Look for clients that went away. */
static void calls_cancel_gone(struct engine *e)
{
    for (struct call *c = e->calls, *next; c; c = next) {
        next = c->next;
        pthread_mutex_lock(&e->s->lock);
        const bool gone = c->gone, cut = c->out.failed;
        pthread_mutex_unlock(&e->s->lock);
        if (gone) call_end(e, c, cut ? SERVE_FAILED : SERVE_CANCELLED);
    }
}

/* Nothing more can be computed. */
static void engine_fail(struct engine *e, const struct err *why)
{
    pthread_mutex_lock(&e->s->lock);
    e->s->failed = true;
    e->s->failure = *why;
    pthread_mutex_unlock(&e->s->lock);
    while (e->calls) call_fail(e, e->calls, SERVE_FAILED, why->message);
}

static struct model *level_model(const struct server *s, int level)
{
    return level ? s->o.more[level - 1] : s->o.model;
}

/* A step of one level. */
static void level_step(struct engine *e, int level)
{
    struct server *s = e->s;
    struct serving_result r;
    struct err why = { 0 };
    const int64_t begun = clock_ns();
    /* no requests come to an old level, so none can fill its batch */
    enum err_code rc = serving_step(s->serving[level], e->flush || level != e->level, &r, &why);
    if (!rc && r.tokens)
        rc = gguf_check_unchanged(model_gguf(level_model(s, level)), &why); /* before anybody sees them */
    if (rc) {
        engine_fail(e, &why);
        return;
    }
    const int64_t now = clock_ns();
    calls_admit(e, level, begun);
    e->touched = NULL;
    for (int i = 0; i < r.tokens; i++) answer_take(e, &r.token[i], now);
    calls_write(e);
    step_publish(e, level, &r);
    e->computed |= r.rows > 0;
}

/* A step of each level that has something to compute: after a change of level, calls of the old one end
 * beside those of the new one. */
static void engine_step(struct engine *e)
{
    e->computed = false;
    for (int i = 0; i < e->s->levels; i++)
        if (e->calls_of[i]) level_step(e, i);
    e->flush = !e->computed; /* it waits for a full batch, which may never come */
}

/* A batch that is not full waits a little for more requests. With the lock. */
static void engine_wait_for_batch(struct engine *e)
{
    enum { WAIT_NS = 100 * 1000 * 1000, SECOND_NS = 1000 * 1000 * 1000 };
    struct server *s = e->s;
    struct timespec until;
    if (!e->flush || !e->calls || s->to_run.first || s->stopping || s->draining) return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    if (pthread_cond_timedwait(&s->engine_wake, &s->lock, &until) != ETIMEDOUT) e->flush = false;
}

/* What an engine_wait ended for. */
struct engine_work {
    struct call *calls; /* new ones, linked by next */
    bool gone, stopping, changes;
    int level;
    struct config change;
};

/* False: the thread has to end. */
static bool engine_wait(struct engine *e, struct engine_work *w)
{
    struct server *s = e->s;
    pthread_mutex_lock(&s->lock);
    while (!s->to_run.first && !s->any_gone && !s->stopping && !s->change_wanted && !e->calls)
        pthread_cond_wait(&s->engine_wake, &s->lock);
    engine_wait_for_batch(e);
    *w = (struct engine_work){ .calls = s->to_run.first,
                               .gone = s->any_gone,
                               .stopping = s->stopping,
                               .changes = s->change_wanted,
                               .level = s->level,
                               .change = s->change };
    s->change_wanted = false;
    s->to_run = (struct call_list){ NULL, NULL };
    s->any_gone = false;
    pthread_mutex_unlock(&s->lock);
    return w->calls || e->calls || !w->stopping;
}

/* Requests that are computed in this step: all, unless there is a reason to end them. */
static void engine_accept(struct engine *e, const struct engine_work *w)
{
    struct err why;
    for (int i = 0; i < e->s->levels && w->changes; i++)
        if (serving_change(e->s->serving[i], &w->change, &why))
            log_write(e->s->o.log, LOG_WARN, "settings were not changed: %s", why.message);
    if (e->level != w->level) {
        e->level = w->level;
        calls_move_to_level(e);
    }
    for (struct call *c = w->calls, *next; c; c = next) {
        next = c->next;
        call_submit(e, c);
    }
    if (w->gone) calls_cancel_gone(e);
    while (w->stopping && e->calls) call_fail(e, e->calls, SERVE_STOPPED, "");
    while (e->s->failed && e->calls) call_fail(e, e->calls, SERVE_FAILED, e->s->failure.message);
}

void *engine_main(void *server)
{
    const struct serving_result nothing = { .rows = 0 };
    struct engine e = { .s = server };
    struct engine_work w;
    while (engine_wait(&e, &w)) {
        engine_accept(&e, &w);
        if (e.calls)
            engine_step(&e);
        else
            step_publish(&e, e.level, &nothing);
    }
    return NULL;
}
