/* telemetry/export/server.c - the HTTP server for /metrics.
 *
 * One thread serves all connections in turn; a page takes milliseconds. Every connection carries one request
 * and has a deadline from its beginning to its end, because libmicrohttpd's own time limit begins anew with
 * every byte. When there are too many connections, of one client or in all, the oldest is closed in favour of
 * the new one: a client that sends its request is answered at once, so those that remain are slow or silent.
 */
#include "telemetry/export/export.h"

#include <assert.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS = 64,
    KEPT = 48, /* below CONNECTIONS, at which libmicrohttpd stops to accept */
    KEPT_OF_CLIENT = 16,
    LIFE_S = 10,   /* the time that Prometheus waits for a page by default */
    STEP_MS = 250, /* between checks of the deadlines */
};

/* The part of a client's address that it cannot choose freely: IPv4 address, or IPv6 network (64 bits). */
struct client {
    unsigned char byte[8];
};

struct connection {
    int fd; /* -1: free entry */
    int64_t begun_ns;
    struct client client;
    bool closing;
};

struct page_server {
    struct MHD_Daemon *daemon;
    struct page_spec spec;
    struct connection connection[CONNECTIONS]; /* used by the thread only */
    pthread_t thread;
    int wake; /* eventfd that ends the thread; -1: none */
};

/* ---------------------------------------------------------------- answers */

static enum MHD_Result connection_answer(struct MHD_Connection *c, unsigned status, const char *type,
                                         const char *text, size_t n)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)text, MHD_RESPMEM_MUST_COPY);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const enum MHD_Result sent = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return sent;
}

static const char PLAIN[] = "text/plain; charset=utf-8";

static enum MHD_Result connection_answer_text(struct MHD_Connection *c, unsigned status, const char *type,
                                              const char *text)
{
    return connection_answer(c, status, type, text, strlen(text));
}

static enum MHD_Result connection_answer_metrics(struct page_server *s, struct MHD_Connection *c)
{
    struct str body = { 0 };
    struct err why = { 0 };
    enum MHD_Result sent;
    enum err_code rc = s->spec.metrics(s->spec.ctx, &body, &why);
    if (!rc && body.failed) rc = err_set(&why, ERR_NOMEM, "out of memory writing the page");
    if (rc) {
        char text[sizeof why.message + 2];
        snprintf(text, sizeof text, "%s\n", why.message);
        sent = connection_answer_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, PLAIN, text);
    } else {
        sent = connection_answer(c, MHD_HTTP_OK, EXPOSITION_TYPE, str_text(&body), body.len);
    }
    str_free(&body);
    return sent;
}

static const char INDEX[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>qdyno</title></head>"
    "<body><h1>qdyno " QDYNO_VERSION "</h1><p><a href=\"/metrics\">Metrics</a> for Prometheus; "
    "docs/metrics.md explains their names.</p></body></html>\n";

static enum MHD_Result connection_serve(void *ctx, struct MHD_Connection *c, const char *url,
                                        const char *method, const char *version, const char *upload,
                                        size_t *upload_size, void **seen)
{
    static int first; /* only its address is used, to mark a connection as seen */
    struct page_server *s = ctx;
    (void)version;
    (void)upload;
    if (!*seen) { /* the first call comes after the headers; a body, if any, is ignored */
        *seen = &first;
        return MHD_YES;
    }
    if (*upload_size) {
        *upload_size = 0;
        return MHD_YES;
    }
    const bool known = !strcmp(url, "/metrics") || !strcmp(url, "/") || !strcmp(url, "/-/healthy");
    if (!known) return connection_answer_text(c, MHD_HTTP_NOT_FOUND, PLAIN, "Not here: see /metrics\n");
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return connection_answer_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, PLAIN, "Only GET and HEAD\n");
    if (!strcmp(url, "/metrics")) return connection_answer_metrics(s, c);
    if (!strcmp(url, "/")) return connection_answer_text(c, MHD_HTTP_OK, "text/html; charset=utf-8", INDEX);
    return connection_answer_text(c, MHD_HTTP_OK, PLAIN, "Healthy\n");
}

static void log_discard(void *ctx, const char *format, va_list ap)
{
    (void)ctx;
    (void)format;
    (void)ap; /* errors are reported to the client; libraries do not print */
}

/* ---------------------------------------------------------------- connections */

static struct client client_of(const struct sockaddr *a)
{
    struct client c = { { 0 } };
    if (a->sa_family == AF_INET) {
        memcpy(c.byte, &((const struct sockaddr_in *)a)->sin_addr, 4);
    } else if (a->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)a)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(v6))
            memcpy(c.byte, v6->s6_addr + 12, 4);
        else
            memcpy(c.byte, v6, sizeof c.byte);
    }
    return c;
}

static bool client_is(const struct connection *c, const struct client *client)
{
    return !client || !memcmp(&c->client, client, sizeof *client);
}

/* The connection ends for its client at once; libmicrohttpd notices it, and releases it. */
static void connection_end(struct connection *c)
{
    shutdown(c->fd, SHUT_RDWR);
    c->closing = true;
}

/* Ends the oldest connection if there are more than `most`, of one client or (NULL) of all. */
static void connections_limit(struct page_server *s, const struct client *client, int most)
{
    struct connection *oldest = NULL;
    int n = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &s->connection[i];
        if (c->fd < 0 || c->closing || !client_is(c, client)) continue;
        n++;
        if (!oldest || c->begun_ns < oldest->begun_ns) oldest = c;
    }
    if (n > most) connection_end(oldest);
}

static void connections_end_late(struct page_server *s)
{
    const int64_t latest_ns = clock_ns() - LIFE_S * INT64_C(1000000000);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &s->connection[i];
        if (c->fd >= 0 && !c->closing && c->begun_ns < latest_ns) connection_end(c);
    }
}

/* Called by libmicrohttpd when a connection begins, and before it closes the socket. */
static void connection_notify(void *ctx, struct MHD_Connection *mhd, void **entry,
                              enum MHD_ConnectionNotificationCode code)
{
    struct page_server *s = ctx;
    struct connection *c = *entry;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c) c->fd = -1;
        return;
    }
    const int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    const struct sockaddr *from = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)
                                      ->client_addr;
    for (int i = 0; i < CONNECTIONS && !c; i++)
        if (s->connection[i].fd < 0) c = &s->connection[i];
    assert(c); /* libmicrohttpd accepts at most CONNECTIONS */
    *c = (struct connection){ .fd = fd, .begun_ns = clock_ns(), .client = client_of(from) };
    *entry = c;
    connections_limit(s, &c->client, KEPT_OF_CLIENT);
    connections_limit(s, NULL, KEPT);
}

static void *server_main(void *arg)
{
    struct page_server *s = arg;
    struct pollfd ready[] = {
        { .fd = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN },
        { .fd = s->wake, .events = POLLIN },
    };
    while (!ready[1].revents) {
        MHD_UNSIGNED_LONG_LONG soon_ms =
            STEP_MS; /* 0 while libmicrohttpd has work that no descriptor announces */
        MHD_get_timeout(s->daemon, &soon_ms);
        poll(ready, COUNT_OF(ready), (int)MIN(soon_ms, STEP_MS));
        connections_end_late(s);
        MHD_run(s->daemon);
    }
    return NULL;
}

/* ---------------------------------------------------------------- start and stop */

/* Takes the listening socket, also if it fails. Returns 0 or an errno. */
static int page_server_open(struct page_server *s, int fd)
{
    int cause = 0;
    for (int i = 0; i < CONNECTIONS; i++) s->connection[i].fd = -1;
    s->wake = eventfd(0, EFD_CLOEXEC);
    if (s->wake < 0) cause = errno;
    errno = 0;
    s->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, connection_serve, s,
                                 MHD_OPTION_EXTERNAL_LOGGER, log_discard, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
                                 MHD_OPTION_NOTIFY_CONNECTION, connection_notify, s,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)LIFE_S, MHD_OPTION_END);
    if (!s->daemon && !cause) cause = errno ? errno : ENOMEM;
    return cause ? cause : pthread_create(&s->thread, NULL, server_main, s);
}

enum err_code page_server_start(struct page_server **out, const struct page_spec *spec, int *port,
                                struct err *why)
{
    int fd = -1, chosen = 0;
    *out = NULL;
    enum err_code rc = http_listen(&fd, spec->listen ? spec->listen : "127.0.0.1", spec->port, &chosen, why);
    if (rc) return rc;
    struct page_server *s = calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        return err_set(why, ERR_NOMEM, "out of memory for the server for port %d", chosen);
    }
    s->spec = *spec;
    const int cause = page_server_open(s, fd);
    if (cause) {
        if (s->daemon) MHD_stop_daemon(s->daemon);
        if (s->wake >= 0) close(s->wake);
        free(s);
        return err_set(why, err_of_errno(cause), "cannot start the server for port %d: %s", chosen,
                       strerror(cause));
    }
    if (port) *port = chosen;
    *out = s;
    return ERR_OK;
}

void page_server_stop(struct page_server *s)
{
    if (!s) return;
    eventfd_write(s->wake, 1);
    pthread_join(s->thread, NULL);
    MHD_stop_daemon(s->daemon);
    close(s->wake);
    free(s);
}
