/* telemetry/http/http.h - an HTTP client.
 *
 * Pushes, exports and webhooks are all sent with http_send, so passwords, certificates, timeouts and
 * redirects are handled the same way everywhere. Implemented with libcurl, which reads the usual proxy
 * variables. */
#ifndef QDYNO_TELEMETRY_HTTP_H
#define QDYNO_TELEMETRY_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

/* Credentials and limits. Strings are borrowed. {0}: no credentials, system certificates, 10 s. */
struct http_auth {
    const char *user, *password;                /* basic authentication; NULL: none */
    const char *bearer;                         /* bearer token; NULL: none. Not together with user */
    const char *ca_file, *cert_file, *key_file; /* TLS; NULL: system CAs, no client certificate */
    bool insecure;    /* do not verify certificates; set only when the user asked for it */
    double timeout_s; /* for the whole exchange; 0: 10 s. Connecting may take at most half of it */
};

enum { HTTP_HEADERS = 8, HTTP_REPLY_MAX = 1 << 16 };
struct http_request {
    const char *method; /* "GET" "PUT" "POST" "DELETE" */
    const char *url;    /* http or https, without user name and password */
    const char *content_type;
    const void *body; /* [n_body]; NULL: none */
    size_t n_body;
    const struct http_auth *auth;      /* NULL: {0} */
    const char *headers[HTTP_HEADERS]; /* further headers, "Name: value"; NULL after the last */
    struct str *reply;                 /* NULL: discard it. Otherwise the first HTTP_REPLY_MAX bytes of the
                                          response body are appended, whatever its status */
    double *retry_after_s;             /* NULL: not wanted. Otherwise the server's Retry-After; NAN: none */
};
/* Sends a request and checks the response. *status (may be NULL): the HTTP status, 0 without a response. Does
 * not follow redirects, because data sent to another address than the configured one was not delivered.
 * Messages name the URL without its query, which may hold a key, and quote the server. Thread-safe.
 * Errors: ERR_ABSENT  unreachable, timeout, HTTP 5xx, 408 or 429: retrying later may succeed
 *         ERR_USAGE   any other 4xx, a redirect, or an invalid certificate: retrying is useless
 *         ERR_NOMEM */
enum err_code http_send(const struct http_request *r, int *status, struct err *why);

/* Checks that `url` is a valid address without a user name, because addresses are stored in databases and
 * logs. HTTP_URL_BASE: a path will be appended, so there must be no query and no fragment. `what` begins the
 * error message: "gateway". Errors: ERR_USAGE, ERR_NOMEM. */
enum http_url_kind { HTTP_URL_ANY, HTTP_URL_BASE };
enum err_code http_url_check(const char *what, const char *url, enum http_url_kind kind, struct err *why);

#endif
