/* The channel and the loop of a worker. A worker is a separate process, so that an arm that crashes or is
 * killed for its memory use does not end the experiment. worker_requests.c, worker_quality.c and
 * worker_train.c execute requests. */
#include "engine/worker/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/model/model.h"
#include "engine/train/train.h"
#include "engine/worker/worker_internal.h"
#include "kernels/kernels.h"

enum { LINE_LIMIT = 16 << 20, PIECE = 64 << 10 };

/* ---------------------------------------------------------------- channel */

/* Read once from the socket. False: end of file, or an error of the socket. */
static bool channel_receive(struct channel *c)
{
    char piece[PIECE];
    ssize_t n;
    do n = recv(c->fd, piece, sizeof piece, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        str_append_n(&c->in, piece, (size_t)n);
        return !c->in.failed;
    }
    c->closed = true;
    return false;
}

/* Length of the first complete line with its newline; 0: none yet. */
static size_t channel_line_length(struct channel *c)
{
    const size_t from = MAX(c->start, c->scanned);
    const char *end = c->in.len > from ? memchr(c->in.data + from, '\n', c->in.len - from) : NULL;
    if (!end) c->scanned = c->in.len;
    return end ? (size_t)(end - (c->in.data + c->start)) + 1 : 0;
}

/* The bytes before `start` are dropped when they are at least half of all, so that moving the others costs no
 * more than receiving them did. */
static void channel_drop_processed(struct channel *c)
{
    if (2 * c->start < c->in.len) return;
    memmove(c->in.data, c->in.data + c->start, c->in.len - c->start + 1);
    c->in.len -= c->start;
    c->looked = MAX(c->looked, c->start) - c->start;
    c->scanned = MAX(c->scanned, c->start) - c->start;
    c->start = 0;
}

static size_t channel_waiting_bytes(const struct channel *c)
{
    return c->in.len - c->start;
}

enum err_code channel_read(struct channel *c, char **line, struct err *why)
{
    size_t n;
    *line = NULL;
    while (!(n = channel_line_length(c))) {
        if (channel_waiting_bytes(c) > LINE_LIMIT)
            return err_set(why, ERR_FORMAT, "a request is longer than %d bytes", LINE_LIMIT);
        if (channel_receive(c)) continue;
        return c->in.failed ? err_set(why, ERR_NOMEM, "out of memory for a request") : ERR_OK;
    }
    *line = strndup(c->in.data + c->start, n - 1);
    if (!*line) return err_set(why, ERR_NOMEM, "out of memory for a request");
    c->start += n;
    channel_drop_processed(c);
    return ERR_OK;
}

/* Handle a line that concerns the running request: "cancel", "go" or "change". False: it is another request.
 */
static bool channel_handle_signal(struct channel *c, const char *line, size_t n)
{
    json_t *request;
    const enum err_code rc = json_parse(&request, line, n, NULL);
    if (rc == ERR_NOMEM) c->closed = true; /* it may be the "go" for which the worker would wait forever */
    if (rc) return false;
    const char *op = json_get_str(request, "op", "");
    const bool cancel = !strcmp(op, "cancel"), go = !strcmp(op, "go"), change = !strcmp(op, "change");
    c->cancelled = c->cancelled || cancel;
    c->go = c->go || go;
    if (change) {
        json_decref(c->change);
        c->change = json_incref(request);
    }
    json_decref(request);
    return cancel || go || change;
}

json_t *channel_take_change(struct channel *c)
{
    json_t *change = c->change;
    c->change = NULL;
    return change;
}

bool channel_stop(struct channel *c)
{
    struct pollfd p = { .fd = c->fd, .events = POLLIN };
    while (!c->closed && channel_waiting_bytes(c) <= LINE_LIMIT && poll(&p, 1, 0) > 0)
        if (!channel_receive(c)) break;
    /* "cancel", "go" and "change" take effect at once; other requests stay in the buffer until the running
     * one ends. Each line is looked at once. */
    const size_t from = MAX(c->start, c->looked);
    size_t at = from, kept = from;
    for (const char *end; at < c->in.len && (end = memchr(c->in.data + at, '\n', c->in.len - at));) {
        const size_t n = (size_t)(end - (c->in.data + at)) + 1;
        if (!channel_handle_signal(c, c->in.data + at, n - 1)) {
            memmove(c->in.data + kept, c->in.data + at, n);
            kept += n;
        }
        at += n;
    }
    c->looked = kept;
    if (at > kept) {
        memmove(c->in.data + kept, c->in.data + at, c->in.len - at + 1);
        c->in.len -= at - kept;
        c->scanned = c->start;
    }
    return c->cancelled || c->closed;
}

bool channel_wait_go(struct channel *c)
{
    struct pollfd p = { .fd = c->fd, .events = POLLIN };
    while (!channel_stop(c) && !c->go) {
        if (channel_waiting_bytes(c) > LINE_LIMIT) return false;
        poll(&p, 1, -1);
    }
    const bool go = c->go && !c->cancelled && !c->closed;
    c->go = false;
    return go;
}

void channel_send(struct channel *c, json_t *object)
{
    char *line = object ? json_line(object) : NULL;
    json_decref(object);
    if (!line) { /* out of memory: the parent sees the socket close without an answer */
        c->closed = true;
        return;
    }
    const size_t n = strlen(line);
    line[n] = '\n'; /* replaces the NUL, which is not sent */
    for (size_t at = 0; at < n + 1 && !c->closed;) {
        const ssize_t sent = send(c->fd, line + at, n + 1 - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0)
            c->closed = true;
        else
            at += (size_t)sent;
    }
    free(line);
}

void channel_done(struct channel *c)
{
    str_free(&c->in);
    json_decref(c->change);
}

static json_t *channel_answer(const struct channel *c)
{
    json_t *o = json_object();
    json_put(o, "id", c->request_id < 0 ? json_null() : json_integer(c->request_id));
    return o;
}

json_t *channel_event(const struct channel *c, const char *name)
{
    json_t *o = channel_answer(c);
    json_put_str(o, "event", name);
    return o;
}

json_t *channel_ok(const struct channel *c)
{
    json_t *o = channel_answer(c);
    json_put_bool(o, "ok", true);
    return o;
}

static const char *code_name(enum err_code code)
{
    static const char *const NAMES[] = {
#define CODE_NAME(name, text) [name] = #name,
        ERR_LIST(CODE_NAME)
#undef CODE_NAME
    };
    return (size_t)code < COUNT_OF(NAMES) ? NAMES[code] : NAMES[ERR_INTERNAL];
}

void channel_fail(struct channel *c, const struct err *why)
{
    struct err cause;
    json_t *o = channel_answer(c);
    if (map_guard_explain(&cause)) why = &cause;
    json_put_bool(o, "ok", false);
    json_put_str(o, "code", code_name(why->code));
    json_put_str(o, "message", why->message[0] ? why->message : err_text(why->code));
    channel_send(c, o);
}

json_t *worker_progress_event(const struct worker *w, const char *phase, int64_t done, int64_t of,
                              double seconds)
{
    json_t *o = channel_event(&w->channel, "progress");
    json_put_str(o, "phase", phase);
    json_put_int(o, "done", done);
    json_put_int(o, "of", of);
    json_put_num(o, "seconds", seconds);
    return o;
}

bool worker_progress(struct worker *w, const char *phase, int64_t done, int64_t of, double seconds)
{
    channel_send(&w->channel, worker_progress_event(w, phase, done, of, seconds));
    return !channel_stop(&w->channel);
}

/* ---------------------------------------------------------------- the loop */

/* The requests by name. */
static const struct {
    const char *op;
    enum err_code (*run)(struct worker *w, const json_t *request, struct err *why);
} OPS[] = { { "open", worker_open },
            { "cell", worker_cell },
            { "generate", worker_generate },
            { "quality", worker_quality } };

static enum err_code serve_one(struct worker *w, const json_t *request, struct err *why)
{
    const char *op = json_get_str(request, "op", "");
    w->channel.cancelled = w->channel.go = false;
    json_decref(channel_take_change(&w->channel)); /* it was for an earlier request */
    if (strcmp(op, "cell") != 0) kept_fill_drop(&w->kept, w->model);
    for (size_t i = 0; i < COUNT_OF(OPS); i++)
        if (!strcmp(OPS[i].op, op)) return OPS[i].run(w, request, why);
    return err_set(why, ERR_USAGE,
                   "request '%.40s' is not known: expected open, cell, generate, quality, cancel or close",
                   op);
}

/* False after "close". */
static bool serve_line(struct worker *w, const char *line)
{
    struct err why = { 0 };
    json_t *request = NULL;
    w->channel.request_id = -1;
    enum err_code rc = json_parse(&request, line, strlen(line), &why);
    bool going = true;
    if (!rc) {
        const char *op = json_get_str(request, "op", "");
        w->channel.request_id = json_get_int(request, "id", -1);
        if (!strcmp(op, "cancel") || !strcmp(op, "go") ||
            !strcmp(op,
                    "change")) { /* no request is running: nothing to do, and the protocol has no answer */
        } else if (!strcmp(op, "close")) {
            channel_send(&w->channel, channel_ok(&w->channel));
            going = false;
        } else {
            rc = serve_one(w, request, &why);
        }
    }
    if (rc == ERR_NOMEM && !request) going = false; /* nobody waits for an answer without an id */
    if (rc) channel_fail(&w->channel, &why);
    json_decref(request);
    return going && !w->channel.closed;
}

enum err_code worker_serve(int fd, const struct log *log, struct err *why)
{
    struct worker w = { .channel = { .fd = fd, .request_id = -1 }, .log = log };
    prctl(PR_SET_PDEATHSIG,
          SIGKILL); /* if it fails, the end of file on the socket ends the worker a little later */
    enum err_code rc = ERR_OK;
    char *line;
    bool going = true;
    while (going && !(rc = channel_read(&w.channel, &line, why)) && line) {
        going = serve_line(&w, line);
        free(line);
    }
    kept_fill_drop(&w.kept, NULL);
    model_close(w.model);
    trial_close(w.trial);
    channel_done(&w.channel);
    return rc;
}
