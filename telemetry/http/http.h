/* telemetry/http/http.h - an HTTP client, and the sockets of HTTP servers.
 *
 * Pushes, exports, webhooks and downloads are all sent with http_send, so passwords, certificates, timeouts
 * and redirects are handled the same way everywhere. Implemented with libcurl, which reads the usual proxy
 * variables; loopback addresses are never reached through a proxy. */
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
    bool insecure; /* do not verify certificates; set only when the user asked for it */
    /* send user, password, token and secret headers also to another host over http or with `insecure`, and a
     * secret path with `insecure`; set only when the user asked for it */
    bool insecure_credentials;
    double timeout_s; /* for the whole exchange; 0: 10 s. Connecting may take at most half of it */
};

/* A header of the response that the caller wants. `value` is the caller's (str_free); it is empty if the
 * response does not have the header, and set before the body arrives. */
struct http_wanted {
    const char *name; /* "Content-Range", in any case */
    struct str value;
};

enum { HTTP_HEADERS = 8, HTTP_REPLY_MAX = 1 << 16 };
struct http_request {
    const char *method; /* "GET" "HEAD" "PUT" "POST" "DELETE" */
    const char *url;    /* http or https, without user name and password */
    /* The path of the URL is a secret, as a webhook's: messages show only the host, and a server whose
     * certificate is not verified gets it only with insecure_credentials. */
    bool secret_path;
    const char *content_type;
    const void *body; /* [n_body]; NULL: none */
    size_t n_body;
    const struct http_auth *auth;      /* NULL: {0} */
    const char *headers[HTTP_HEADERS]; /* further headers, "Name: value"; NULL after the last */
    struct str *reply;                 /* NULL: discard it. Otherwise the first HTTP_REPLY_MAX bytes of the
                                          response body are appended, whatever its status */
    /* NULL: none. Otherwise the body of a successful response goes here part by part, as it arrives, and not
     * to `reply`; returning false ends the exchange (ERR_CANCELLED). */
    bool (*receive)(void *ctx, const char *data, size_t n);
    /* NULL: none. Otherwise called at least every 100 ms; returning false ends the exchange (ERR_CANCELLED).
     */
    bool (*waiting)(void *ctx);
    void *ctx;                  /* of both */
    double *retry_after_s;      /* NULL: not wanted. Otherwise the server's Retry-After; NAN: none */
    struct http_wanted *wanted; /* [n_wanted] */
    int n_wanted;
    /* A redirect is no error: the caller reads the status and the wanted header "Location", and decides
     * whether to follow, and with which credentials. */
    bool redirects;
    /* 0: the timeout of `auth` is for the whole exchange. Otherwise for large bodies: that timeout is for
     * connecting only, and the exchange ends (ERR_ABSENT) when nothing has arrived for so long. */
    double stall_s;
};
/* Sends a request and checks the response. *status (may be NULL): the HTTP status, 0 without a response. Does
 * not follow redirects, because data sent to another address than the configured one was not delivered, and
 * its credentials were not meant for that address. Messages name the URL as http_url_shown does and quote the
 * server, without the secrets of the request that it may repeat. Thread-safe.
 * Errors: ERR_ABSENT  unreachable, timeout, no valid HTTP response, HTTP 5xx, 408 or 429: retrying later may
 *                     succeed
 *         ERR_USAGE   any other 4xx, a redirect, an invalid certificate, or credentials that would be sent
 *                     without verified encryption: retrying is useless
 *         ERR_CANCELLED  `receive` or `waiting` returned false
 *         ERR_NOMEM */
enum err_code http_send(const struct http_request *r, int *status, struct err *why);

/* ---------------------------------------------------------------- many at a time (many.c) */

/* Requests that are in progress at the same time, for one thread. */
struct http_many;
/* How a request ended: as http_send would have returned. It may start further requests. */
typedef void http_ended_fn(void *ctx, enum err_code rc, int status, const struct err *why);

enum err_code http_many_open(struct http_many **out, struct err *why); /* ERR_NOMEM */
/* Breaks off what is in progress, without calling `ended`. NULL is fine. */
void http_many_close(struct http_many *m);
int http_many_count(const struct http_many *m); /* requests in progress */
/* Start a request. *r and what it points to are borrowed until ended(r->ctx, ...) is called. r->waiting is
 * not called. Errors: those of http_send before anything is sent; then `ended` is not called. */
enum err_code http_many_start(struct http_many *m, const struct http_request *r, http_ended_fn *ended,
                              struct err *why);
/* Send and receive. Returns when a request has ended or something has arrived, at the latest after wait_s (at
 * most 1 s). ERR_NOMEM. */
enum err_code http_many_run(struct http_many *m, double wait_s, struct err *why);

/* ---------------------------------------------------------------- addresses (url.c) */

/* Checks that `url` is a valid address without a user name, because addresses are stored in databases and
 * logs. HTTP_URL_BASE: a path will be appended, so there must be no query and no fragment. `what` begins the
 * error message: "gateway". Errors: ERR_USAGE, ERR_NOMEM. */
enum http_url_kind { HTTP_URL_ANY, HTTP_URL_BASE };
enum err_code http_url_check(const char *what, const char *url, enum http_url_kind kind, struct err *why);

/* The part of an address that may be printed and stored: scheme, host, port and, with HTTP_SHOW_PATH, the
 * path. Neither user name and password nor the query appear. It is safe for text that is no valid address:
 * whatever cannot be told from a password is left out. Every address that is printed before it was checked,
 * or whose path or query may hold a secret, goes through this function. Returns buf. */
enum http_url_part { HTTP_SHOW_PATH, HTTP_SHOW_HOST };
enum { HTTP_SHOWN_MAX = 300 };
const char *http_url_shown(const char *url, enum http_url_part part, char buf[HTTP_SHOWN_MAX]);

/* True if the host is this machine: localhost, 127.0.0.0/8 or ::1. */
bool http_url_is_loopback(const char *url);

/* Do both addresses lead to the same server: scheme, host and port? False for text that is no address. */
bool http_url_same_server(const char *a, const char *b);

/* The address to which `location` leads, a header of the response of `url`; it may be relative. *out is
 * the caller's: free(). ERR_USAGE: it leads to no http or https address; ERR_NOMEM. */
enum err_code http_url_follow(char **out, const char *url, const char *location, struct err *why);

/* Appends a text as a part of a path or query: all but letters, digits and "-._~" is written as %XX; '/' is
 * kept in a path. */
enum http_escape { HTTP_ESCAPE_ALL, HTTP_ESCAPE_PATH };
void http_url_escape(struct str *out, const char *text, enum http_escape how);

/* ---------------------------------------------------------------- servers (listen.c) */

/* Opens a socket that listens on an address of this machine ("127.0.0.1", "0.0.0.0", "::1"). port 0: any free
 * one. *fd owned by the caller; *chosen: the port. Errors: ERR_USAGE (no such address here, a port that this
 * user may not open), ERR_ABSENT (the port is in use), ERR_IO, ERR_FIT. */
enum err_code http_listen(int *fd, const char *address, int port, int *chosen, struct err *why);

/* Does a socket on this address accept connections from this machine only? 127.0.0.0/8 and ::1. */
bool http_address_is_loopback(const char *address);

/* ---------------------------------------------------------------- credentials */

/* True if the environment allows http_auth.insecure_credentials: QDYNO_INSECURE_CREDENTIALS=1. */
bool http_insecure_credentials(void);

#endif
