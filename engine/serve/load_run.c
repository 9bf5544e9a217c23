/* Sends the requests of a load by the clock and records what happens to them (load.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/serve/load_schedule.h"

enum { PROGRESS_NS = 100000000 };
static const double NAP_S = 0.02; /* longest sleep between two looks for a cancellation */

const char *const LOAD_OUTCOME_NAMES[LOAD_OUTCOMES] = { [LOAD_OPEN] = "open",
                                                        [LOAD_DONE] = "done",
                                                        [LOAD_FAILED] = "failed",
                                                        [LOAD_REFUSED] = "refused",
                                                        [LOAD_NOT_SENT] = "not sent" };

/* A run in progress. */
struct runner {
    struct load_result *out;
    struct serving *s;
    const struct load_plan *p;
    struct load_hooks hooks;
    int64_t start_ns, reported_ns;
    struct load_schedule schedule;
    int *waiting; /* [n] sent, but nothing computed yet */
    int waits;
    int64_t *id;       /* [n] in the scheduler */
    int32_t *token;    /* [as token_s] generated */
    int32_t **context; /* [conversations] prompt and answers so far; NULL: not begun, or ended */
    int *length;       /* [conversations] tokens in it */
    struct live live;
    double *scratch; /* [most tokens of an answer] */
    double kv_time;  /* share of used blocks, times seconds, summed over steps */
};

static double seconds_at(const struct runner *r, int64_t ns)
{
    return (double)(ns - r->start_ns) * 1e-9;
}

/* ---------------------------------------------------------------- ends */

static void conversation_forget(struct runner *r, int conversation)
{
    free(r->context[conversation]);
    r->context[conversation] = NULL;
}

static void request_end(struct runner *r, int i, enum load_outcome outcome, double at_s)
{
    live_end_add(&r->live, &r->out->record[i], r->out->token_s, outcome, r->scratch);
    if (load_schedule_end(&r->schedule, i, outcome, at_s))
        conversation_forget(r, r->p->request[i].conversation);
    r->live.clients = r->schedule.clients;
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
    for (int i; !rc && (i = load_schedule_take(&r->schedule, seconds_at(r, clock_ns()))) >= 0;)
        rc = request_send(r, i, why);
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
    enum err_code rc = serving_step(r->s, r->schedule.dues == 0, &step, why);
    if (rc) return rc;
    if (!step.rows) {
        double wait_s = load_schedule_next_s(&r->schedule) - seconds_at(r, clock_ns());
        if (isnan(wait_s)) wait_s = NAP_S;
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

static enum err_code runner_report(struct runner *r, struct err *why)
{
    const int64_t now = clock_ns();
    if (!r->hooks.progress || (r->schedule.ended < r->p->n && now - r->reported_ns < PROGRESS_NS))
        return ERR_OK;
    r->reported_ns = now;
    live_look(&r->live, r->s, seconds_at(r, now));
    struct load_now report = { .serving = r->s,
                               .live = &r->live,
                               .done = r->schedule.ended,
                               .of = r->p->n,
                               .seconds = r->live.seconds,
                               .rate_by = 1 };
    if (!r->hooks.progress(r->hooks.ctx, &report)) return err_set(why, ERR_CANCELLED, "cancelled");
    if (report.rate_by > 0 && report.rate_by != 1) {
        load_schedule_change(&r->schedule, report.rate_by, seconds_at(r, clock_ns()));
        r->live.clients = r->schedule.clients;
        r->live.speed = r->schedule.speed;
    }
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
    enum err_code rc = load_result_init(out, r->p, why);
    if (!rc) rc = load_schedule_init(&r->schedule, r->p, out->record, why);
    if (rc) return rc;
    r->waiting = malloc(n * sizeof *r->waiting);
    r->id = malloc(n * sizeof *r->id);
    r->token = malloc((size_t)tokens * sizeof *r->token);
    r->context = calloc(conversations, sizeof *r->context);
    r->length = calloc(conversations, sizeof *r->length);
    r->scratch = malloc((size_t)longest * sizeof *r->scratch);
    if (!r->waiting || !r->id || !r->token || !r->context || !r->length || !r->scratch)
        return err_set(why, ERR_NOMEM, "out of memory for %d requests", r->p->n);
    return ERR_OK;
}

static void runner_close(struct runner *r)
{
    for (int c = 0; r->context && c < r->p->conversations; c++) free(r->context[c]);
    load_schedule_done(&r->schedule);
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
    r.live.clients = p->clients;
    enum err_code rc = runner_open(&r, why);
    r.start_ns = r.reported_ns = clock_ns();
    while (!rc && r.schedule.ended < p->n) {
        rc = requests_send(&r, why);
        if (!rc && r.schedule.ended < p->n) rc = runner_step(&r, why);
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
