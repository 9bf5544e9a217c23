/* advisor/run/foreign_request.c - requests to the servers of other engines (foreign.h). */
#include "advisor/run/foreign.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/http/http.h"

enum { DOCUMENT_MOST = 64 << 20, LONGEST_S = 24 * 3600 };

/* What a request collects. */
struct exchange {
    struct foreign_wait *wait; /* NULL: nobody waits */
    struct str body;
    size_t most; /* bytes of it */
};

static bool on_data(void *ctx, const char *data, size_t n)
{
    struct exchange *x = ctx;
    if (x->wait && x->wait->process) watchdog_heard(&x->wait->process->watchdog);
    if (x->wait) x->wait->silent_s = 0;
    if (x->wait && x->wait->reply) return reply_take(x->wait->reply, data, n);
    str_append_n(&x->body, data, n);
    return !x->body.failed && x->body.len <= x->most;
}

/* How far a request has come, for people who watch. */
static json_t *progress_event(const struct foreign_wait *w)
{
    const struct reply *r = w->reply;
    const bool decode = r && r->chunks > 0;
    json_t *o = json_object();
    json_put_str(o, "event", "progress");
    json_put_str(o, "phase", decode ? "decode" : w->phase);
    json_put_int(o, "done", decode ? r->chunks - 1 : 0);
    json_put_int(o, "of", decode ? w->gen : w->prompt);
    json_put_num(o, "seconds", decode ? (double)(clock_ns() - r->first_ns) * 1e-9 : (double)NAN);
    return o;
}

/* Counts the time without a byte from a server whose process is not known. A long time between two calls
 * means that this process was stopped, and perhaps the server with it. */
static bool is_silent(struct foreign_wait *w)
{
    static const double LONGEST_STEP_S = 1;
    const int64_t now = clock_ns();
    w->silent_s += fmin((double)(now - w->asked_ns) * 1e-9, LONGEST_STEP_S);
    w->asked_ns = now;
    if (!(w->silence_s > 0) || w->silent_s < w->silence_s) return false;
    err_set(&w->error, ERR_ABSENT, "the server has sent nothing for %.0f s: does it still work?",
            w->silent_s);
    return true;
}

static bool on_wait(void *ctx)
{
    struct foreign_wait *w = ((struct exchange *)ctx)->wait;
    struct foreign_process *p = w->process;
    if (p && !foreign_lives(p)) return false; /* the connection breaks, too: foreign_send says why */
    if (p && watchdog_check(&p->watchdog, p->pid, &w->error)) {
        kill(-p->pid, SIGKILL);
        return false;
    }
    if (!p && is_silent(w)) return false;
    if (!w->event) return true;
    json_t *event = w->phase ? progress_event(w) : NULL;
    const bool on = w->event(w->ctx, event);
    if (p) watchdog_skip(&p->watchdog); /* time of the callback is not the server's */
    w->asked_ns = clock_ns();
    json_decref(event);
    return on;
}

enum err_code foreign_workload(struct workload *w, enum engine_kind engine, const json_t *request,
                               struct err *why)
{
    const char *op = json_get_str(request, "op", "");
    if (strcmp(op, "cell"))
        return err_set(
            why, ERR_USAGE,
            "engine=%s can be timed on workloads only; it has no \"%s\", which needs qdyno's own engine",
            ENGINE_NAMES[engine], op);
    if (json_object_get(request, "turn_steps") || json_object_get(request, "turn_passes"))
        return err_set(why, ERR_USAGE, "engine=%s cannot be interrupted between tokens: use --turns off",
                       ENGINE_NAMES[engine]);
    return workload_parse(w, json_get_str(request, "workload", ""), why);
}

enum err_code foreign_send(json_t **answer, const char *url, const json_t *body, const char *key,
                           struct foreign_wait *w, struct err *why)
{
    struct exchange x = { .wait = w, .most = DOCUMENT_MOST };
    const struct http_auth auth = { .bearer = key,
                                    .timeout_s = w ? LONGEST_S : 10,
                                    .insecure_credentials = http_insecure_credentials() };
    char *text = body ? json_line(body) : NULL;
    if (answer) *answer = NULL;
    if (body && !text) return err_set(why, ERR_NOMEM, "no memory for a request");
    const struct http_request request = { .method = body ? "POST" : "GET",
                                          .url = url,
                                          .content_type = body ? "application/json" : NULL,
                                          .body = text,
                                          .n_body = text ? strlen(text) : 0,
                                          .auth = &auth,
                                          .receive = on_data,
                                          .waiting = w ? on_wait : NULL,
                                          .ctx = &x };
    if (w && w->process) watchdog_begin(&w->process->watchdog, w->phase ? w->phase : "request");
    if (w) w->silent_s = 0;
    if (w) w->asked_ns = clock_ns();
    if (w && w->reply) reply_begin(w->reply);
    enum err_code rc = http_send(&request, NULL, why);
    if (w && w->reply) {
        w->reply->end_ns = clock_ns();
        if (w->reply->error.code) *why = w->reply->error; /* it ended the exchange */
        if (w->reply->error.code) rc = why->code;
    }
    if (w && w->error.code) {
        *why = w->error;
        rc = why->code;
    } else if (rc && w && w->process && !foreign_lives(w->process)) {
        rc = ERR_ABSENT; /* the caller says how it ended */
    }
    if (!rc && answer && x.body.len) rc = json_parse(answer, x.body.data, x.body.len, why);
    free(text);
    str_free(&x.body);
    return rc;
}

enum err_code foreign_get_text(struct str *out, const char *url, const char *key, size_t most,
                               struct err *why)
{
    struct exchange x = { .most = most };
    const struct http_auth auth = { .bearer = key, .insecure_credentials = http_insecure_credentials() };
    const struct http_request request = {
        .method = "GET", .url = url, .auth = &auth, .receive = on_data, .ctx = &x
    };
    const enum err_code rc = http_send(&request, NULL, why);
    *out = x.body;
    if (out->failed) return err_set(why, ERR_NOMEM, "out of memory for %s", url);
    return rc == ERR_CANCELLED ? err_set(why, ERR_FORMAT, "%s: more than %zu bytes", url, most) : rc;
}
