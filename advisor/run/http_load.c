#include "advisor/run/http_load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/stats/stats.h"
#include "telemetry/http/http.h"

static const double FEW_BUNDLED = 0.05;
enum { PROGRESS_NS = 100000000, LONGEST_S = 24 * 3600 };

/* A request that is being answered. */
struct sent {
    struct client *client;
    int i;
    struct reply reply;
    struct http_auth auth;
    struct http_request request;
    char *body;
    double counted;            /* tokens so far, as far as they are known */
    struct sent *next, **link; /* the list of all that are unanswered */
};

struct client {
    struct http_load_result *out;
    const struct http_load_spec *spec;
    const struct load_plan *p;
    struct load_schedule schedule;
    struct http_many *many;
    struct sent *unanswered;
    struct live live;
    struct float_list {
        float *v;
        int n, room;
    } gaps;              /* between chunks of all answers */
    double *scratch;     /* [most tokens of an answer] */
    bool *first_bundled; /* [n] the first chunk had several tokens, or an unknown number */
    double prefill_s;    /* summed over the answers */
    int64_t start_ns, reported_ns, heard_ns;
    enum err_code rc; /* the first error in a callback */
    struct err *why;
};

static double now_s(const struct client *c)
{
    return (double)(clock_ns() - c->start_ns) * 1e-9;
}

static double at_s(const struct client *c, int64_t ns)
{
    return (double)(ns - c->start_ns) * 1e-9;
}

/* ---------------------------------------------------------------- an answer */

static bool gaps_keep(struct float_list *to, const struct reply *r)
{
    if (!array_room(&to->v, &to->room, (int64_t)to->n + r->gaps, sizeof *to->v)) return false;
    if (r->gaps) memcpy(to->v + to->n, r->gap_s, (size_t)r->gaps * sizeof *to->v);
    to->n += r->gaps;
    return true;
}

static int count_of(double tokens)
{
    return tokens >= 0 && tokens < INT32_MAX ? (int)tokens : -1;
}

/* Is it known which tokens each chunk had? */
static bool tokens_are_placed(const struct reply *r)
{
    double sum = 0;
    if (r->chunks == (int)r->gen_tokens) return true; /* each had one */
    for (int k = 0; k < r->chunks; k++) {
        if (r->chunk_tokens[k] < 0) return false;
        sum += r->chunk_tokens[k];
    }
    return sum == r->gen_tokens;
}

/* Writes when the tokens of a complete answer were there. */
static void times_write(struct client *c, int i, const struct reply *r)
{
    struct load_record *record = &c->out->load.record[i];
    double *token_s = c->out->load.token_s + record->token;
    const bool placed = tokens_are_placed(r), each_one = r->chunks == (int)r->gen_tokens;
    record->tokens = MIN((int)r->gen_tokens, c->p->request[i].generate);
    record->first_s = at_s(c, r->first_ns);
    record->end_s = at_s(c, r->last_ns);
    double at = record->first_s;
    for (int t = 0, k = 0, last = 0; t < record->tokens; t++) { /* last: tokens up to chunk k */
        if (!t) last = each_one ? 1 : r->chunk_tokens[0];
        for (; placed && t >= last && k < r->gaps; last += each_one ? 1 : r->chunk_tokens[k])
            at += (double)r->gap_s[k++];
        token_s[t] = placed ? at : (double)NAN;
    }
    c->out->tokens += record->tokens;
    c->out->bundled += placed ? MAX(record->tokens - r->chunks, 0) : record->tokens;
    c->first_bundled[i] = r->first_count > 1 || (!placed && isnan(r->first_count));
}

/* With too many tokens that came with others, no time of a single token is known. */
static void times_forget(struct client *c)
{
    struct load_result *out = &c->out->load;
    c->out->times_unknown = (double)c->out->bundled > FEW_BUNDLED * (double)c->out->tokens;
    for (int i = 0; c->out->times_unknown && i < out->n; i++) {
        struct load_record *record = &out->record[i];
        for (int t = 0; t < record->tokens; t++) out->token_s[record->token + t] = NAN;
        if (c->first_bundled[i]) record->first_s = NAN;
    }
}

/* The outcome of a request whose exchange ended with rc. */
static enum load_outcome outcome_of(struct client *c, struct sent *q, enum err_code rc, const struct err *bad,
                                    struct err *why)
{
    struct reply *r = &q->reply;
    if (r->error.code)
        *why = r->error;
    else if (r->failed) /* it ended the exchange: rc is ERR_CANCELLED, which nobody asked for */
        err_set(why, ERR_NOMEM, "out of memory for a server's answer");
    else if (rc)
        *why = *bad;
    else if (!c->spec->check(c->spec->ctx, q->i, r, why))
        return LOAD_DONE;
    return LOAD_FAILED;
}

static void sent_free(struct sent *q)
{
    *q->link = q->next;
    if (q->next) q->next->link = q->link;
    reply_done(&q->reply);
    free(q->body);
    free(q);
}

/* http_ended_fn */
static void on_ended(void *ctx, enum err_code rc, int status, const struct err *bad)
{
    struct sent *q = ctx;
    struct client *c = q->client;
    struct load_record *record = &c->out->load.record[q->i];
    struct err why = { 0 };
    (void)status;
    q->reply.end_ns = c->heard_ns = clock_ns();
    const enum load_outcome outcome = outcome_of(c, q, rc, bad, &why);
    record->prompt = count_of(q->reply.prompt_tokens);
    record->cached = count_of(q->reply.cached_tokens);
    if (outcome == LOAD_DONE) {
        times_write(c, q->i, &q->reply);
        c->live.prompt_tokens += MAX(record->prompt, 0);
        c->live.cached_tokens += MAX(record->cached, 0);
        c->live.tokens += record->tokens - (int64_t)q->counted;
        c->prefill_s += q->reply.server_prefill_s;
        c->spec->answered(c->spec->ctx, q->i, str_text(&q->reply.text));
    } else if (!*c->out->failed) {
        snprintf(c->out->failed, sizeof c->out->failed, "%s", why.message);
        c->out->failed_code = why.code;
    }
    if (why.code == ERR_NOMEM || !gaps_keep(&c->gaps, &q->reply))
        c->rc = err_set(c->why, ERR_NOMEM, "out of memory for the answers of a load");
    live_end_add(&c->live, record, c->out->load.token_s, outcome, c->scratch);
    load_schedule_end(&c->schedule, q->i, outcome, at_s(c, q->reply.end_ns));
    c->live.clients = c->schedule.clients;
    if (q->reply.chunks)
        c->live.running--;
    else
        c->live.waiting--;
    sent_free(q);
}

/* Receives a part of an answer. */
static bool on_data(void *ctx, const char *data, size_t n)
{
    struct sent *q = ctx;
    struct client *c = q->client;
    struct reply *r = &q->reply;
    const int before = r->gaps;
    const bool first = !r->chunks;
    c->heard_ns = clock_ns();
    const bool on = reply_take(r, data, n);
    if (!r->chunks) return on;
    if (first) {
        live_times_add(&c->live.first, at_s(c, r->first_ns) - c->out->load.record[q->i].scheduled_s);
        c->live.waiting--;
        c->live.running++;
    }
    for (int g = before; g < r->gaps; g++) live_gap_add(&c->live, (double)r->gap_s[g]);
    const double counted = isnan(r->counted) ? r->chunks : r->counted;
    c->live.tokens += (int64_t)counted - (int64_t)q->counted;
    q->counted = counted;
    return on;
}

/* ---------------------------------------------------------------- sending */

static enum err_code request_send(struct client *c, int i, struct err *why)
{
    struct sent *q = calloc(1, sizeof *q);
    json_t *body = q ? c->spec->body(c->spec->ctx, i) : NULL;
    if (!q || !body || !(q->body = json_line(body))) {
        json_decref(body);
        free(q);
        return err_set(why, ERR_NOMEM, "out of memory for a request");
    }
    json_decref(body);
    q->client = c;
    q->i = i;
    q->link = &c->unanswered;
    q->next = c->unanswered;
    if (q->next) q->next->link = &q->next;
    c->unanswered = q;
    q->auth = (struct http_auth){ .bearer = c->spec->key,
                                  .timeout_s = LONGEST_S,
                                  .insecure_credentials = http_insecure_credentials() };
    q->request = (struct http_request){ .method = "POST",
                                        .url = c->spec->url,
                                        .content_type = "application/json",
                                        .body = q->body,
                                        .n_body = strlen(q->body),
                                        .auth = &q->auth,
                                        .receive = on_data,
                                        .ctx = q };
    reply_begin(&q->reply);
    q->reply.keep_text = true;
    if (!http_many_count(c->many)) c->heard_ns = q->reply.sent_ns;
    c->out->load.record[i].sent_s = at_s(c, q->reply.sent_ns);
    c->live.arrived++;
    c->live.waiting++;
    const enum err_code rc = http_many_start(c->many, &q->request, on_ended, why);
    if (rc) sent_free(q);
    return rc;
}

static enum err_code requests_send(struct client *c, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i; !rc && (i = load_schedule_take(&c->schedule, now_s(c))) >= 0;) rc = request_send(c, i, why);
    struct load_result *out = &c->out->load;
    out->running_most = MAX(out->running_most, c->live.running);
    out->waiting_most = MAX(out->waiting_most, c->live.waiting);
    return rc;
}

/* ---------------------------------------------------------------- the run */

static enum err_code report(struct client *c, struct err *why)
{
    const int64_t now = clock_ns();
    const bool last = c->schedule.ended == c->p->n;
    const double silent_s = (double)(now - c->heard_ns) * 1e-9;
    if (http_many_count(c->many) && c->spec->silence_s > 0 && silent_s > c->spec->silence_s)
        return err_set(why, ERR_ABSENT,
                       "the server has sent nothing for %.0f s, and %d request%s unanswered: does it still "
                       "work?",
                       silent_s, http_many_count(c->many), http_many_count(c->many) == 1 ? " is" : "s are");
    if (!last && now - c->reported_ns < PROGRESS_NS) return ERR_OK;
    c->reported_ns = now;
    live_look(&c->live, NULL, at_s(c, now));
    struct load_now to = {
        .live = &c->live, .done = c->schedule.ended, .of = c->p->n, .seconds = c->live.seconds, .rate_by = 1
    };
    if (!c->spec->progress(c->spec->ctx, &to)) return err_set(why, ERR_CANCELLED, "cancelled");
    if (to.rate_by > 0 && to.rate_by != 1) {
        load_schedule_change(&c->schedule, to.rate_by, now_s(c));
        c->live.clients = c->schedule.clients;
        c->live.speed = c->schedule.speed;
    }
    return ERR_OK;
}

/* Seconds until the next request, at most until the next report. */
static double wait_of(const struct client *c)
{
    const double most = PROGRESS_NS * 1e-9, next = load_schedule_next_s(&c->schedule) - now_s(c);
    return next < most ? fmax(next, 0) : most; /* NAN: none comes before an answer has ended */
}

static void result_finish(struct client *c)
{
    struct http_load_result *out = c->out;
    int done = 0;
    times_forget(c);
    for (int i = 0; i < out->load.n; i++) {
        out->load.seconds = fmax(out->load.seconds, out->load.record[i].end_s); /* ignores NAN */
        done += out->load.record[i].outcome == LOAD_DONE;
    }
    out->chunk_gap_s = c->gaps.n ? stats_latency_quantile(c->gaps.v, c->gaps.n, 0.5) : (double)NAN;
    out->server_prefill_s = done ? c->prefill_s / done : (double)NAN;
}

static enum err_code client_open(struct client *c, struct err *why)
{
    int longest = 1;
    for (int i = 0; i < c->p->n; i++) longest = MAX(longest, c->p->request[i].generate);
    enum err_code rc = load_result_init(&c->out->load, c->p, why);
    if (!rc) rc = load_schedule_init(&c->schedule, c->p, c->out->load.record, why);
    if (!rc) rc = http_many_open(&c->many, why);
    c->scratch = malloc((size_t)longest * sizeof *c->scratch);
    c->first_bundled = calloc((size_t)c->p->n, sizeof *c->first_bundled);
    if (!rc && (!c->scratch || !c->first_bundled)) rc = err_set(why, ERR_NOMEM, "out of memory for a load");
    live_begin(&c->live, NULL, c->spec->limit, c->spec->limits);
    c->live.clients = c->p->clients;
    return rc;
}

enum err_code http_load_run(struct http_load_result *out, const struct http_load_spec *spec, struct err *why)
{
    *out = (struct http_load_result){ .chunk_gap_s = NAN, .server_prefill_s = NAN };
    struct client c = { .out = out, .spec = spec, .p = spec->plan, .why = why };
    enum err_code rc = client_open(&c, why);
    c.start_ns = c.reported_ns = c.heard_ns = clock_ns();
    while (!rc && c.schedule.ended < c.p->n) {
        rc = requests_send(&c, why);
        if (!rc) rc = http_many_run(c.many, wait_of(&c), why);
        if (!rc) rc = c.rc;
        if (!rc) rc = report(&c, why);
    }
    if (!rc) result_finish(&c);
    http_many_close(c.many);
    while (c.unanswered) sent_free(c.unanswered);
    load_schedule_done(&c.schedule);
    free(c.gaps.v);
    free(c.scratch);
    free(c.first_bundled);
    return rc;
}

void http_load_result_free(struct http_load_result *r)
{
    load_result_free(&r->load);
}
