/* telemetry/http.h - one way to send an HTTP request (part of the door telemetry.h).
 *
 * Pushes, exports and webhooks all go through http_send, so that a password, a certificate, a silent server
 * and a redirect mean the same everywhere. By libcurl: proxies come from the usual variables. */
#ifndef QDYNO_TELEMETRY_HTTP_H
#define QDYNO_TELEMETRY_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

/* How to be let in, and how long to wait. Strings are borrowed. {0}: nobody, system certificates, 10 s. */
struct http_auth {
    const char *user, *password;                /* basic authentication; NULL: none */
    const char *bearer;                         /* NULL: none; not together with user */
    const char *ca_file, *cert_file, *key_file; /* TLS; NULL: system defaults, no client certificate */
    bool insecure;    /* skip certificate checks: only when the user spelled it out */
    double timeout_s; /* of the whole exchange, 0: 10 s; connecting at most half of it */
};

enum { HTTP_HEADERS = 8, HTTP_REPLY_MAX = 1 << 16 };
struct http_request {
    const char *method; /* "GET" "PUT" "POST" "DELETE" */
    const char *url;    /* http or https, without user and password */
    const char *content_type;
    const void *body; /* [n_body]; NULL: none */
    size_t n_body;
    const struct http_auth *auth;      /* NULL: {0} */
    const char *headers[HTTP_HEADERS]; /* further ones, "Name: value", NULL after the last */
    struct str *reply; /* NULL: not wanted; else appended: the answer's first HTTP_REPLY_MAX bytes, whatever
                          its status */
    double *retry_after_s; /* NULL: not wanted; else how long the server asks to be left alone (Retry-After,
                              seconds or a date); NAN: it does not say */
};
/* Send it and judge the answer. *status (may be NULL): the HTTP status, 0 when there was none. Redirects are
 * not followed: what lands elsewhere than its owner said is no success. Messages name the URL without its
 * query (which may hold a key) and quote the server. Thread-safe.
 * Errors: ERR_ABSENT  not reachable, no answer in time, HTTP 5xx, 408, 429: worth another try
 *         ERR_USAGE   refused for good: any other 4xx, a redirect, a certificate that does not check out
 *         ERR_NOMEM */
enum err_code http_send(const struct http_request *r, int *status, struct err *why);

/* Is this an address to send to? A user name in it is refused: addresses are kept in databases and logs.
 * HTTP_URL_BASE: a path is added later, so there may be no query and no fragment. `what` opens the message:
 * "gateway". ERR_USAGE, ERR_NOMEM. */
enum http_url_kind { HTTP_URL_ANY, HTTP_URL_BASE };
enum err_code http_url_check(const char *what, const char *url, enum http_url_kind kind, struct err *why);

#endif
