/* The thread of the connections (serve.h): reads requests, hands them on, and writes answers, with
 * libmicrohttpd.
 *
 * While a request is computed, its connection is suspended: libmicrohttpd leaves it alone until there is
 * something to write. A suspended connection is not watched by libmicrohttpd, so this thread watches all
 * sockets for clients that go away. Every connection has a time limit for sending its request and for the
 * pause before the next one, which begins with the request and not anew with every byte, as libmicrohttpd's
 * own. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "advisor/serve/accept.h"
#include "advisor/serve/access.h"
#include "advisor/serve/parts.h"
#include "telemetry/http/http.h"

enum {
    SPARE_CONNECTIONS = 128, /* beside those of requests that wait and run */
    RECEIVE_S = 60,          /* for a request, from its first byte or the end of the one before */
    RETIRE_S = 1,            /* the same, in a process that retires */
    WRITE_S = 60,            /* without progress of a client that reads its answer */
    STEP_MS = 250,           /* between checks of the time limits */
    STOP_S = 2,              /* for clients to read the rest of their answers when the server ends */
    CHUNK = 1 << 14,         /* bytes of a stream that are written at a time */
    BODIES_MOST = 1 << 28,   /* bytes of all requests that are being read */
    READY = 32,              /* events of sockets that are taken at a time */
};

/* A TCP connection. */
struct link {
    struct link *previous, *next;
    int fd;
    int64_t waiting_since_ns;  /* for (the rest of) a request; 0: its request is being answered */
    bool closing, hung_up;     /* hung_up: its client sends no more */
    bool asked;                /* a request has come */
    struct exchange *exchange; /* NULL: none */
};

/* A request and its answer. */
struct exchange {
    struct connections *owner;
    struct MHD_Connection *mhd;
    struct link *link;
    const struct route *route;
    const char *argument; /* behind the route's path; owned */
    struct refusal no;    /* status 0: none */
    struct str body;
    struct call *call;    /* NULL: not handed on, or never */
    bool suspended, lost; /* lost: the client went away */
    size_t written;       /* of call->out: for documents */
    int64_t arrived_ns;
};

struct connections {
    struct server *s;
    struct MHD_Daemon *daemon;
    struct link *links;
    atomic_int link_count;
    int link_most, unasked;   /* unasked: links without a request so far */
    struct acceptor acceptor; /* of one of several processes */
    size_t body_bytes;        /* of all exchanges */
    int wake, watch;          /* eventfd; epoll of all sockets, for clients that go away */
    pthread_t thread;
    bool stopping;
    int64_t stop_ns; /* end by then */
};

/* ---------------------------------------------------------------- answers */

static enum MHD_Result answer_send(struct exchange *x, unsigned status, const char *type, const char *text,
                                   size_t n)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)(uintptr_t)text,
                                                             MHD_RESPMEM_MUST_COPY);
    char number[16];
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == 401) MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == 405) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, x->route->method);
    if (status == 413 || status == 503 || acceptor_moves_client(&x->owner->acceptor, x->owner->s))
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    snprintf(number, sizeof number, "%d", x->no.retry_after_s);
    if (x->no.retry_after_s) MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, number);
    const enum MHD_Result sent = MHD_queue_response(x->mhd, status, r);
    MHD_destroy_response(r);
    return sent;
}

static const char JSON_TYPE[] = "application/json";

/* What needs no memory: for a document that is incomplete, or an error that cannot be put together. */
static enum MHD_Result answer_no_memory(struct exchange *x)
{
    static const char TEXT[] = "{\"error\":{\"message\":\"out of memory for the answer\",\"type\":"
                               "\"server_error\",\"param\":null,\"code\":\"out_of_memory\"}}\n";
    memory_short_clear();
    return answer_send(x, 500, JSON_TYPE, TEXT, sizeof TEXT - 1);
}

static enum MHD_Result answer_json(struct exchange *x, unsigned status, json_t *document)
{
    struct str text = { 0 };
    reply_line(&text, "", document, "\n");
    const enum MHD_Result sent = text.failed ? answer_no_memory(x)
                                             : answer_send(x, status, JSON_TYPE, str_text(&text), text.len);
    str_free(&text);
    return sent;
}

static enum MHD_Result answer_refusal(struct exchange *x)
{
    return answer_json(x, (unsigned)x->no.status, refusal_json(&x->no));
}

static enum MHD_Result answer_page(struct exchange *x)
{
    struct server *s = x->owner->s;
    struct err why = { 0 };
    struct str page = { 0 };
    json_t *document = NULL;
    unsigned status = 200;
    switch (x->route->page) {
    case PAGE_HEALTH:
        document = page_health(s, access_has_key(s, x->mhd));
        if (strcmp(json_get_str(document, "status", ""), "ok")) status = 503;
        return answer_json(x, status, document);
    case PAGE_MODELS:
        document = page_models(s, x->argument);
        if (document) return answer_json(x, status, document);
        refuse(&x->no, 404, "model_not_found", NULL, "no model '%.100s' here: this server has '%.100s'",
               x->argument, s->o.name);
        return answer_refusal(x);
    case PAGE_METRICS: {
        page_write(s, &page, &why);
        if (why.code) refuse(&x->no, 500, "no_page", NULL, "%s", why.message);
        const enum MHD_Result sent = why.code
                                         ? answer_refusal(x)
                                         : answer_send(x, status, EXPOSITION_TYPE, str_text(&page), page.len);
        str_free(&page);
        return sent;
    }
    case PAGE_LOAD: document = page_load(s); return answer_json(x, status, document);
    case PAGE_SETTINGS:
        document = page_settings(s, str_text(&x->body), x->body.len, &x->no);
        return document ? answer_json(x, status, document) : answer_refusal(x);
    case PAGE_NONE: break;
    }
    return MHD_NO;
}

/* ---------------------------------------------------------------- streams */

static void exchange_suspend(struct exchange *x)
{
    x->suspended = true;
    MHD_suspend_connection(x->mhd);
}

/* Called by libmicrohttpd when it can write more. */
static ssize_t stream_read(void *arg, uint64_t at, char *to, size_t most)
{
    struct exchange *x = arg;
    struct call *c = x->call;
    struct server *s = x->owner->s;
    (void)at;
    if (x->lost) return MHD_CONTENT_READER_END_WITH_ERROR;
    pthread_mutex_lock(&s->lock);
    const bool ended = c->stage == CALL_ENDED, cut = c->out.failed;
    const size_t n = cut ? 0 : MIN(c->out.len - x->written, most);
    memcpy(to, str_text(&c->out) + x->written, n);
    x->written += n;
    if (x->written == c->out.len && !cut) {
        str_clear(&c->out);
        x->written = 0;
    }
    if (!n && !ended && !cut) exchange_suspend(x);
    pthread_mutex_unlock(&s->lock);
    if (cut) return MHD_CONTENT_READER_END_WITH_ERROR; /* so that the client sees that something is missing */
    return n ? (ssize_t)n : ended ? MHD_CONTENT_READER_END_OF_STREAM : 0;
}

static enum MHD_Result answer_stream(struct exchange *x)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK, stream_read, x, NULL);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream; charset=utf-8");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    if (acceptor_moves_client(&x->owner->acceptor, x->owner->s))
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* proxies pass every event on at once */
    const enum MHD_Result sent = MHD_queue_response(x->mhd, 200, r);
    MHD_destroy_response(r);
    return sent;
}

/* There is something to write, or the call has ended. */
static enum MHD_Result answer_call(struct exchange *x)
{
    struct call *c = x->call;
    pthread_mutex_lock(&x->owner->s->lock);
    const bool ended = c->stage == CALL_ENDED, streaming = c->streaming;
    pthread_mutex_unlock(&x->owner->s->lock);
    if (streaming) return answer_stream(x);
    if (!ended) { /* woken for nothing */
        exchange_suspend(x);
        return MHD_YES;
    }
    if (c->no.status) {
        x->no = c->no;
        return answer_refusal(x);
    }
    return answer_send(x, 200, JSON_TYPE, str_text(&c->out), c->out.len);
}

/* ---------------------------------------------------------------- requests */

static void body_release(struct exchange *x)
{
    x->owner->body_bytes -= x->body.len;
    str_free(&x->body);
}

/* The request is complete: give it to the preparing thread. */
static bool exchange_hand_on(struct exchange *x)
{
    struct call *c = call_open(x->route->id);
    if (!c) {
        if (x->route->generates) server_count_refused(x->owner->s);
        return refuse(&x->no, 500, "out_of_memory", NULL, "out of memory for a request");
    }
    x->owner->body_bytes -= x->body.len;
    c->body = x->body;
    x->body = (struct str){ 0 };
    c->ask.endpoint = x->route->endpoint;
    c->generates = x->route->generates;
    c->arrived_ns = x->arrived_ns;
    c->exchange = x;
    x->call = c;
    if (server_take(x->owner->s, c, &x->no)) return true;
    x->call = NULL;
    call_free(c);
    return false;
}

static enum MHD_Result exchange_complete(struct exchange *x)
{
    x->link->waiting_since_ns = 0;
    if (x->no.status) {
        if (x->route && x->route->generates) server_count_refused(x->owner->s);
        return answer_refusal(x);
    }
    if (x->route->page) return answer_page(x);
    if (!exchange_hand_on(x)) return answer_refusal(x);
    if (x->link->hung_up) return MHD_NO;
    exchange_suspend(x);
    return MHD_YES;
}

/* A part of the body. What is too large is read and dropped, so that the client sees the answer. */
static void exchange_receive(struct exchange *x, const char *bytes, size_t n)
{
    struct connections *h = x->owner;
    if (x->no.status) return;
    if ((int64_t)(x->body.len + n) > h->s->o.body_bytes) {
        refuse(&x->no, 413, "too_large", NULL, "the body has more than %lld bytes, which is the limit",
               (long long)h->s->o.body_bytes);
    } else if (h->body_bytes + n > BODIES_MOST) {
        refuse(&x->no, 429, "too_many_requests", NULL, "too many large requests at a time: try again later");
        x->no.retry_after_s = 1;
    } else {
        str_append_n(&x->body, bytes, n);
        h->body_bytes += n;
        if (!x->body.failed) return;
        refuse(&x->no, 500, "out_of_memory", NULL, "out of memory for the body");
    }
    body_release(x);
}

static struct exchange *exchange_begin(struct connections *h, struct MHD_Connection *c, const char *path,
                                       const char *method)
{
    struct link *l = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct exchange *x = l ? calloc(1, sizeof *x) : NULL;
    if (!x) return NULL;
    x->owner = h;
    x->mhd = c;
    x->arrived_ns = clock_ns();
    x->link = l;
    l->exchange = x;
    h->unasked -= !l->asked;
    l->asked = true;
    x->route = route_find(path);
    if (x->route && x->route->prefix) x->argument = strdup(path + strlen(x->route->path));
    access_check(&x->no, h->s, x->route, c, path, method);
    return x;
}

/* Called by libmicrohttpd for the head of a request, for each part of its body, at its end, and after a
 * suspension. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *upload, size_t *upload_size,
                                  void **context)
{
    struct connections *h = ctx;
    struct exchange *x = *context;
    (void)version;
    if (!x) {
        *context = x = exchange_begin(h, c, path, method);
        if (!x) return MHD_NO;
        /* a client that asks before it sends learns now that its body is too large; others read no answer
         * before they have sent it all */
        const bool asks = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT) != NULL;
        return x->no.status == 413 && asks ? exchange_complete(x) : MHD_YES;
    }
    if (*upload_size) {
        exchange_receive(x, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    if (x->lost) return MHD_NO;
    return x->call ? answer_call(x) : exchange_complete(x);
}

/* Called by libmicrohttpd when an answer is written, or its connection is closed. */
static void on_completed(void *ctx, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct connections *h = ctx;
    struct exchange *x = *context;
    struct call *call = x ? x->call : NULL;
    (void)c, (void)code;
    if (!x) return;
    x->link->exchange = NULL;
    x->link->waiting_since_ns = clock_ns();
    if (call) {
        pthread_mutex_lock(&h->s->lock);
        call->exchange = NULL;
        call->gone = true;
        const bool mine = call->stage == CALL_ENDED && !call->is_ready;
        if (!mine) {
            h->s->any_gone = true;
            pthread_cond_signal(&h->s->engine_wake);
        }
        pthread_mutex_unlock(&h->s->lock);
        if (mine) call_free(call);
    }
    body_release(x);
    free((void *)(uintptr_t)x->argument);
    free(x);
    *context = NULL;
}

/* ---------------------------------------------------------------- connections */

static void link_close(struct link *l)
{
    shutdown(l->fd, SHUT_RDWR);
    l->closing = true;
}

/* There are too many: the one that waits longest for its client makes room. */
static void links_make_room(struct connections *h)
{
    struct link *oldest = NULL;
    if (h->link_count <= h->link_most) return;
    for (struct link *l = h->links; l; l = l->next)
        if (l->waiting_since_ns && !l->closing && (!oldest || l->waiting_since_ns < oldest->waiting_since_ns))
            oldest = l;
    if (oldest) link_close(oldest);
}

static void links_end_late(struct connections *h)
{
    const int64_t second_ns = 1000 * 1000 * 1000, now_ns = clock_ns();
    for (struct link *l = h->links; l; l = l->next)
        if (l->waiting_since_ns && !l->closing &&
            l->waiting_since_ns + (h->acceptor.retiring && !l->exchange ? RETIRE_S : RECEIVE_S) * second_ns <
                now_ns)
            link_close(l);
}

/* Called by libmicrohttpd when a connection begins, and before it closes the socket. */
static void on_connection(void *ctx, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct connections *h = ctx;
    struct link *l = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (!l) return;
        *(l->previous ? &l->previous->next : &h->links) = l->next;
        if (l->next) l->next->previous = l->previous;
        h->link_count--;
        h->unasked -= !l->asked;
        free(l); /* closing the socket takes it out of the epoll set */
        return;
    }
    const int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    l = calloc(1, sizeof *l);
    struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET, .data.ptr = l };
    if (!l || epoll_ctl(h->watch, EPOLL_CTL_ADD, fd, &e)) {
        free(l);
        shutdown(fd, SHUT_RDWR); /* no request will come */
        return;
    }
    *l = (struct link){ .next = h->links, .fd = fd, .waiting_since_ns = clock_ns() };
    if (h->links) h->links->previous = l;
    h->links = l;
    h->link_count++;
    h->unasked++;
    *context = l;
    links_make_room(h);
}

/* ---------------------------------------------------------------- the thread */

static void exchange_resume(struct exchange *x)
{
    if (!x->suspended) return;
    x->suspended = false;
    MHD_resume_connection(x->mhd);
}

/* Calls with something to write, or that have ended. */
static void calls_look(struct connections *h)
{
    pthread_mutex_lock(&h->s->lock);
    struct call *c = h->s->ready;
    h->s->ready = NULL;
    for (struct call *next; c; c = next) {
        next = c->next_ready;
        c->is_ready = false;
        if (c->exchange)
            exchange_resume(c->exchange);
        else if (c->stage == CALL_ENDED)
            call_free(c);
    }
    pthread_mutex_unlock(&h->s->lock);
}

/* A client that closed its side of the connection, be it only for sending, has gone away. */
static void clients_look(struct connections *h)
{
    struct epoll_event ready[READY];
    const int n = epoll_wait(h->watch, ready, READY, 0);
    for (int i = 0; i < n; i++) {
        struct link *l = ready[i].data.ptr;
        l->hung_up = true;
        if (!l->exchange || !l->exchange->call) continue; /* libmicrohttpd is still reading */
        l->exchange->lost = true;
        exchange_resume(l->exchange);
    }
}

/* Have all clients got their answers? */
static bool connections_are_done(const struct connections *h)
{
    for (const struct link *l = h->links; l; l = l->next)
        if (l->exchange) return false;
    return true;
}

static void *connections_main(void *arg)
{
    struct connections *h = arg;
    thread_asks_for_short_slices();
    struct pollfd ready[] = {
        { .fd = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN },
        { .fd = h->wake, .events = POLLIN },
        { .fd = h->watch, .events = POLLIN },
        { .fd = -1 },
    };
    for (bool stopping = false; !stopping || (!connections_are_done(h) && clock_ns() < h->stop_ns);) {
        MHD_UNSIGNED_LONG_LONG soon_ms =
            STEP_MS; /* 0 while libmicrohttpd has work that no descriptor announces */
        eventfd_t count;
        MHD_get_timeout(h->daemon, &soon_ms);
        int wait_ms = (int)MIN(soon_ms, STEP_MS);
        ready[3] = (struct pollfd){ acceptor_descriptor(&h->acceptor, &wait_ms), POLLIN, 0 };
        poll(ready, COUNT_OF(ready), wait_ms);
        if (ready[1].revents) eventfd_read(h->wake, &count);
        clients_look(h);
        calls_look(h);
        links_end_late(h);
        MHD_run(h->daemon);
        pthread_mutex_lock(&h->s->lock);
        stopping = h->stopping;
        const int open = h->s->open;
        h->acceptor.retiring = h->s->retiring;
        pthread_mutex_unlock(&h->s->lock);
        if (ready[3].revents && !stopping) acceptor_run(&h->acceptor, h->daemon, open + h->unasked);
    }
    /* libmicrohttpd ends only without suspended connections */
    for (struct link *l = h->links; l; l = l->next) {
        if (!l->exchange) continue;
        l->exchange->lost = true;
        exchange_resume(l->exchange);
    }
    MHD_run(h->daemon);
    return NULL;
}

int connections_count(struct connections *h)
{
    return h->link_count;
}

void connections_wake(struct connections *h)
{
    eventfd_write(h->wake, 1);
}

static void log_discard(void *ctx, const char *format, va_list ap)
{
    (void)ctx, (void)format, (void)ap; /* errors are reported to the client; libraries do not print */
}

/* fd -1: connections come from the acceptor. */
static struct MHD_Daemon *daemon_start(struct connections *h, int fd)
{
    const unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    return MHD_start_daemon(fd < 0 ? flags | MHD_USE_NO_LISTEN_SOCKET : flags, 0, NULL, NULL, on_request, h,
                            MHD_OPTION_EXTERNAL_LOGGER, log_discard, NULL, MHD_OPTION_NOTIFY_CONNECTION,
                            on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->link_most + 1,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)WRITE_S,
                            fd < 0 ? MHD_OPTION_END : MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_END);
}

static void connections_free(struct connections *h)
{
    if (h->daemon) MHD_stop_daemon(h->daemon);
    calls_look(h); /* frees those whose clients were cut off */
    if (h->wake >= 0) close(h->wake);
    if (h->watch >= 0) close(h->watch);
    free(h);
}

/* Takes the listening socket, unless it is -1. Returns 0 or an errno. */
static int connections_open(struct connections *h, int fd)
{
    int cause = 0;
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->wake < 0) cause = errno;
    h->watch = epoll_create1(EPOLL_CLOEXEC);
    if (h->watch < 0 && !cause) cause = errno;
    errno = 0;
    h->daemon = daemon_start(h, fd); /* it owns the socket even if it cannot start */
    if (!h->daemon && !cause) cause = errno ? errno : ENOMEM;
    return cause ? cause : pthread_create(&h->thread, NULL, connections_main, h);
}

enum err_code connections_start(struct connections **out, struct server *s, int *port, struct err *why)
{
    int fd = -1, chosen = s->o.port;
    *out = NULL;
    enum err_code rc = s->o.share ? ERR_OK : http_listen(&fd, s->o.listen, s->o.port, &chosen, why);
    if (rc) return rc;
    struct connections *h = calloc(1, sizeof *h);
    if (!h) {
        if (fd >= 0) close(fd);
        return err_set(why, ERR_NOMEM, "out of memory for connections");
    }
    h->s = s;
    acceptor_init(&h->acceptor, s);
    h->link_most = s->o.queue + SPARE_CONNECTIONS;
    *out = h; /* before its thread answers the first request */
    const int cause = connections_open(h, fd);
    if (cause) {
        connections_free(h);
        *out = NULL;
        return err_set(why, err_of_errno(cause), "cannot start the server for port %d: %s", chosen,
                       strerror(cause));
    }
    if (port) *port = chosen;
    return ERR_OK;
}

void connections_stop(struct connections *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->s->lock);
    h->stopping = true;
    h->stop_ns = clock_ns() + STOP_S * INT64_C(1000000000);
    pthread_mutex_unlock(&h->s->lock);
    connections_wake(h);
    pthread_join(h->thread, NULL);
    connections_free(h);
}
