/* Sends the requests of a load by the clock and records what happens to them (load.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/serve/load.h"

enum { PROGRESS_NS = 100000000 };
static const double NAP_S = 0.02; /* longest sleep between two looks for a cancellation */

const char *const LOAD_OUTCOME_NAMES[LOAD_OUTCOMES] = { [LOAD_OPEN] = "open",
                                                        [LOAD_DONE] = "done",
                                                        [LOAD_FAILED] = "failed",
                                                        [LOAD_REFUSED] = "refused",
                                                        [LOAD_NOT_SENT] = "not sent" };

struct due {
    double at_s;
    int request;
};

/* A run in progress. */
struct runner {
    struct load_result *out;
    struct serving *s;
    const struct load_plan *p;
    struct load_hooks hooks;
    int64_t start_ns, reported_ns;
    struct due *due; /* [n] binary heap of requests with a known time, the next one first */
    int dues;
    int next;     /* the first conversation that has no time yet: a client takes it next */
    int *waiting; /* [n] sent, but nothing computed yet */
    int waits;
    int64_t *id;       /* [n] in the scheduler */
    int32_t *token;    /* [as token_s] generated */
    int32_t **context; /* [conversations] prompt and answers so far; NULL: not begun, or ended */
    int *length;       /* [conversations] tokens in it */
    int ended;
    int clients, leaving; /* closed loop: clients; of these, the ones that end with their request */
    struct live live;
    double *scratch; /* [most tokens of an answer] */
    double kv_time;  /* share of used blocks, times seconds, summed over steps */
};

static double seconds_at(const struct runner *r, int64_t ns)
{
    return (double)(ns - r->start_ns) * 1e-9;
}

/* ---------------------------------------------------------------- times */

static bool due_before(const struct due *a, const struct due *b)
{
    return a->at_s < b->at_s || (a->at_s == b->at_s && a->request < b->request);
}

static void due_push(struct runner *r, int request, double at_s)
{
    int i = r->dues++;
    const struct due d = { at_s, request };
    for (; i > 0 && due_before(&d, &r->due[(i - 1) / 2]); i = (i - 1) / 2) r->due[i] = r->due[(i - 1) / 2];
    r->due[i] = d;
    r->out->record[request].scheduled_s = at_s;
}

static int due_pop(struct runner *r)
{
    const int first = r->due[0].request;
    const struct due d = r->due[--r->dues];
    int i = 0;
    for (int child; (child = 2 * i + 1) < r->dues; i = child) {
        if (child + 1 < r->dues && due_before(&r->due[child + 1], &r->due[child])) child++;
        if (!due_before(&r->due[child], &d)) break;
        r->due[i] = r->due[child];
    }
    r->due[i] = d;
    return first;
}

/* ---------------------------------------------------------------- ends */

static void conversation_forget(struct runner *r, int conversation)
{
    free(r->context[conversation]);
    r->context[conversation] = NULL;
}

/* The client of an ended conversation begins the next one that has no time. */
static void client_goes_on(struct runner *r, double at_s)
{
    if (r->next == r->p->conversations) return;
    if (r->leaving) {
        r->leaving--;
        r->live.clients = --r->clients;
        return;
    }
    const int i = r->next++ * r->p->turns;
    due_push(r, i, at_s + r->p->request[i].think_s / r->live.speed);
}

static void live_count_end(struct runner *r, int i, enum load_outcome outcome)
{
    const struct load_record *record = &r->out->record[i];
    struct request_times t = { .arrived_s = record->scheduled_s,
                               .admitted_s = record->admitted_s,
                               .first_s = record->first_s,
                               .last_s = record->end_s,
                               .tokens = record->tokens,
                               .gap_s = r->scratch,
                               .gaps = MAX(record->tokens - 1, 0) };
    const double *at = r->out->token_s + record->token;
    for (int k = 0; k < t.gaps; k++) r->scratch[k] = at[k + 1] - at[k];
    r->live.done += outcome == LOAD_DONE;
    r->live.not_done += outcome != LOAD_DONE;
    if (!r->live.limits) return;
    if (outcome == LOAD_DONE && limits_are_met(r->live.limit, r->live.limits, &t))
        r->live.met++;
    else
        r->live.missed++;
}

/* A request has ended: what follows gets its time. */
static void request_end(struct runner *r, int i, enum load_outcome outcome, double at_s)
{
    const struct load_request *q = &r->p->request[i];
    r->out->record[i].outcome = outcome;
    r->ended++;
    live_count_end(r, i, outcome);
    if (outcome == LOAD_DONE && q->turn + 1 < r->p->turns) {
        due_push(r, i + 1, at_s + r->p->request[i + 1].think_s / r->live.speed);
        return;
    }
    for (int k = q->turn + 1; k < r->p->turns; k++, r->ended++)
        r->out->record[i + k - q->turn].outcome = LOAD_NOT_SENT;
    conversation_forget(r, q->conversation);
    client_goes_on(r, at_s);
}

/* ---------------------------------------------------------------- sending */

static enum err_code request_send(struct runner *r, int i, struct err *why)
{
    const struct load_request *q = &r->p->request[i];
    struct load_record *record = &r->out->record[i];
    int32_t **context = &r->context[q->conversation];
    int *length = &r->length[q->conversation];
    if (!*context) *context = malloc((size_t)r->p->tokens_most * sizeof **context);
    if (!*context) return err_set(why, ERR_NOMEM, "out of memory for a prompt");
    memcpy(*context + *length, q->prompt, (size_t)q->n * sizeof **context);
    *length += q->n;
    const struct serving_request request = { .prompt = *context,
                                             .n = *length,
                                             .generate = q->generate,
                                             .sampling = SAMPLER_DEFAULTS,
                                             .ignore_end = true,
                                             .top = -1,
                                             .user = record };
    record->prompt = *length;
    record->sent_s = seconds_at(r, clock_ns());
    r->live.arrived++;
    const enum err_code rc = serving_submit(r->s, &request, &r->id[i], why);
    if (rc == ERR_FIT) {
        request_end(r, i, LOAD_REFUSED, record->sent_s);
        return ERR_OK;
    }
    if (!rc) r->waiting[r->waits++] = i;
    return rc;
}

static enum err_code requests_send(struct runner *r, struct err *why)
{
    enum err_code rc = ERR_OK;
    while (!rc && r->dues && r->due[0].at_s <= seconds_at(r, clock_ns()))
        rc = request_send(r, due_pop(r), why);
    return rc;
}

/* ---------------------------------------------------------------- steps */

static void token_take(struct runner *r, const struct serving_token *t, double at_s)
{
    struct load_record *record = t->user;
    const int i = (int)(record - r->out->record), conversation = r->p->request[i].conversation;
    record->preemptions = t->preemptions;
    if (t->finish == FINISH_FAILED) {
        record->end_s = at_s;
        request_end(r, i, LOAD_FAILED, at_s);
        return;
    }
    if (!record->tokens) {
        record->first_s = at_s;
        record->cached = t->cached;
        live_times_add(&r->live.first, at_s - record->scheduled_s);
        r->live.prompt_tokens += record->prompt;
        r->live.cached_tokens += t->cached;
    } else {
        live_gap_add(&r->live, at_s - r->out->token_s[record->token + record->tokens - 1]);
    }
    r->live.tokens++;
    const int64_t at = record->token + record->tokens++;
    r->out->token_s[at] = at_s;
    r->token[at] = t->token;
    r->context[conversation][r->length[conversation]++] = t->token;
    if (t->finish == FINISH_NONE) return;
    record->end_s = at_s;
    request_end(r, i, LOAD_DONE, at_s);
}

/* Requests of which this step, which began at at_s, computed the first tokens. */
static void admissions_note(struct runner *r, double at_s)
{
    int kept = 0;
    for (int k = 0; k < r->waits; k++) {
        const int i = r->waiting[k];
        const struct request *q = serving_find(r->s, r->id[i]);
        if (q && !q->computed && q->state == REQUEST_WAITING)
            r->waiting[kept++] = i;
        else
            r->out->record[i].admitted_s = at_s;
    }
    r->waits = kept;
}

static void step_count(struct runner *r, const struct serving_result *step, double seconds)
{
    const struct scheduler_counts c = serving_count(r->s);
    struct load_result *out = r->out;
    live_step_add(&r->live, step);
    out->steps++;
    out->step_requests += step->requests;
    out->step_s += step->seconds;
    out->model_s += step->model_s;
    r->kv_time += seconds * c.blocks.used / MAX(c.blocks.blocks, 1);
    out->running_most = MAX(out->running_most, c.running);
    out->waiting_most = MAX(out->waiting_most, c.waiting);
}

/* One step, or a short sleep when there is nothing to compute. */
static enum err_code runner_step(struct runner *r, struct err *why)
{
    struct serving_result step;
    const int64_t begun = clock_ns();
    /* Without a request that has a time, none can come before one of the running ones has ended. */
    enum err_code rc = serving_step(r->s, r->dues == 0, &step, why);
    if (rc) return rc;
    if (!step.rows) {
        const double wait_s = r->dues ? r->due[0].at_s - seconds_at(r, clock_ns()) : NAP_S;
        if (wait_s > 0) clock_sleep_ns((int64_t)(fmin(wait_s, NAP_S) * 1e9));
        return ERR_OK;
    }
    if (r->hooks.after_step) r->hooks.after_step(r->hooks.ctx, begun);
    const int64_t now = clock_ns();
    step_count(r, &step, (double)(now - begun) * 1e-9);
    admissions_note(r, seconds_at(r, begun));
    for (int i = 0; i < step.tokens; i++) token_take(r, &step.token[i], seconds_at(r, now));
    return ERR_OK;
}

/* Requests come `by` times as fast from now on. */
static void rate_change(struct runner *r, double by)
{
    const double now_s = seconds_at(r, clock_ns());
    if (r->p->clients) {
        if (by < 1) {
            r->leaving += r->clients - r->leaving > 1;
        } else if (r->leaving) {
            r->leaving--;
        } else if (r->next < r->p->conversations) {
            client_goes_on(r, now_s);
            r->live.clients = ++r->clients;
        }
        return;
    }
    r->live.speed *= by;
    for (int i = 0; i < r->dues; i++) { /* the heap keeps its order */
        if (r->due[i].at_s <= now_s) continue;
        r->due[i].at_s = now_s + (r->due[i].at_s - now_s) / by;
        r->out->record[r->due[i].request].scheduled_s = r->due[i].at_s;
    }
}

static enum err_code runner_report(struct runner *r, struct err *why)
{
    const int64_t now = clock_ns();
    if (!r->hooks.progress || (r->ended < r->p->n && now - r->reported_ns < PROGRESS_NS)) return ERR_OK;
    r->reported_ns = now;
    live_look(&r->live, r->s, seconds_at(r, now));
    struct load_now report = { .serving = r->s,
                               .live = &r->live,
                               .done = r->ended,
                               .of = r->p->n,
                               .seconds = r->live.seconds,
                               .rate_by = 1 };
    if (!r->hooks.progress(r->hooks.ctx, &report)) return err_set(why, ERR_CANCELLED, "cancelled");
    if (report.rate_by > 0 && report.rate_by != 1) rate_change(r, report.rate_by);
    return ERR_OK;
}

/* ---------------------------------------------------------------- the run */

static enum err_code runner_open(struct runner *r, struct err *why)
{
    const size_t n = (size_t)r->p->n, conversations = (size_t)r->p->conversations;
    int64_t tokens = 0;
    int longest = 1;
    for (int i = 0; i < r->p->n; i++) {
        tokens += r->p->request[i].generate;
        longest = MAX(longest, r->p->request[i].generate);
    }
    struct load_result *out = r->out;
    out->record = calloc(n, sizeof *out->record);
    out->token_s = malloc((size_t)tokens * sizeof *out->token_s);
    r->due = malloc(n * sizeof *r->due);
    r->waiting = malloc(n * sizeof *r->waiting);
    r->id = malloc(n * sizeof *r->id);
    r->token = malloc((size_t)tokens * sizeof *r->token);
    r->context = calloc(conversations, sizeof *r->context);
    r->length = calloc(conversations, sizeof *r->length);
    r->scratch = malloc((size_t)longest * sizeof *r->scratch);
    if (!out->record || !out->token_s || !r->due || !r->waiting || !r->id || !r->token || !r->context ||
        !r->length || !r->scratch)
        return err_set(why, ERR_NOMEM, "out of memory for %d requests", r->p->n);
    out->n = r->p->n;
    tokens = 0;
    for (int i = 0; i < r->p->n; i++) {
        out->record[i] = (struct load_record){ NAN, NAN, NAN, NAN, NAN, .token = tokens };
        tokens += r->p->request[i].generate;
    }
    for (int c = 0; c < r->p->conversations; c++) {
        const double at_s = r->p->request[c * r->p->turns].arrival_s;
        if (isnan(at_s)) break;
        due_push(r, c * r->p->turns, at_s);
        r->next = c + 1;
    }
    return ERR_OK;
}

static void runner_close(struct runner *r)
{
    for (int c = 0; r->context && c < r->p->conversations; c++) free(r->context[c]);
    free(r->due);
    free(r->waiting);
    free(r->id);
    free(r->token);
    free(r->context);
    free(r->length);
    free(r->scratch);
}

static enum err_code output_hash(struct runner *r, struct err *why)
{
    struct str s = { 0 };
    char hex[HASH_HEX];
    for (int i = 0; i < r->out->n; i++) {
        const struct load_record *q = &r->out->record[i];
        str_append_n(&s, &q->tokens, sizeof q->tokens);
        str_append_n(&s, r->token + q->token, (size_t)q->tokens * sizeof *r->token);
    }
    const bool failed = s.failed;
    hash_bytes(str_text(&s), s.len, hex);
    memcpy(r->out->output_hash, hex, sizeof r->out->output_hash - 1);
    str_free(&s);
    return failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
}

enum err_code load_run(struct load_result *out, struct serving *s, const struct load_plan *p,
                       const struct load_hooks *hooks, struct err *why)
{
    *out = (struct load_result){ 0 };
    struct runner r = { .out = out, .s = s, .p = p };
    if (hooks) r.hooks = *hooks;
    live_begin(&r.live, s, r.hooks.limit, r.hooks.limits);
    r.clients = r.live.clients = p->clients;
    enum err_code rc = runner_open(&r, why);
    r.start_ns = r.reported_ns = clock_ns();
    while (!rc && r.ended < p->n) {
        rc = requests_send(&r, why);
        if (!rc && r.ended < p->n) rc = runner_step(&r, why);
        if (!rc) rc = runner_report(&r, why);
    }
    for (int i = 0; i < out->n; i++)
        out->seconds = fmax(out->seconds, out->record[i].end_s); /* ignores NAN */
    if (out->seconds > 0) out->kv_use = r.kv_time / out->seconds;
    if (!rc) rc = output_hash(&r, why);
    runner_close(&r);
    return rc;
}

void load_result_free(struct load_result *r)
{
    free(r->record);
    free(r->token_s);
    *r = (struct load_result){ 0 };
}
