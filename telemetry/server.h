/* telemetry/server.h - a page that Prometheus scrapes (part of the door telemetry.h).
 *
 * A small HTTP server by libmicrohttpd: GET and HEAD of /metrics, of / (a page that points there) and of
 * /-/healthy; anything else is 404, any other method 405. No TLS and no password: it listens on loopback
 * unless an address is spelled out; what must cross a network goes through a proxy that has both. */
#ifndef QDYNO_TELEMETRY_SERVER_H
#define QDYNO_TELEMETRY_SERVER_H

#include "base/base.h"

/* Write the page into *body (empty before). An error is answered as HTTP 500 with its message. Called by one
 * thread of the server's, one call at a time. */
typedef enum err_code page_fn(void *ctx, struct str *body, struct err *why);

struct page_server;
struct page_spec {
    const char *listen; /* NULL: loopback; else an address of this machine: "0.0.0.0", "::", "192.0.2.7" */
    int port;           /* 0: any free one */
    page_fn *metrics;
    void *ctx;
};
/* *port (may be NULL): where it listens. Errors: ERR_USAGE (no address of this machine, a port that this user
 * may not have), ERR_ABSENT (the port is taken), ERR_NOMEM. */
enum err_code page_server_start(struct page_server **out, const struct page_spec *spec, int *port,
                                struct err *why);
/* Answers what was asked already, then ends. NULL is fine. */
void page_server_stop(struct page_server *s);

#endif
