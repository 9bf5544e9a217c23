/* telemetry/http/http.c - sends a request with libcurl, and turns the response into success or an error. */
#include "telemetry/http/http.h"

#include <ctype.h>
#include <curl/curl.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum { SHOWN_MAX = 300 };
static const double DEFAULT_TIMEOUT_S = 10;

/* ---------------------------------------------------------------- address */

enum err_code http_url_check(const char *what, const char *url, enum http_url_kind kind, struct err *why)
{
    static const struct {
        CURLUPart part;
        enum http_url_kind from; /* forbidden for this kind and stricter ones */
        const char *what;
    } FORBIDDEN[] = {
        /* the address is stored in logs and in the list of unsent results */
        { CURLUPART_USER, HTTP_URL_ANY, "a user name: give user and password as options instead" },
        { CURLUPART_QUERY, HTTP_URL_BASE, "a '?query'" },
        { CURLUPART_FRAGMENT, HTTP_URL_BASE, "a '#fragment'" },
    };
    if (!url || (!str_starts(url, "http://") && !str_starts(url, "https://")))
        return err_set(why, ERR_USAGE, "%s '%s': expected an address such as http://host:9091", what,
                       url ? url : "");
    CURLU *u = curl_url();
    if (!u) return err_set(why, ERR_NOMEM, "out of memory");
    CURLUcode bad = curl_url_set(u, CURLUPART_URL, url, 0);
    enum err_code rc = ERR_OK;
    if (bad) rc = err_set(why, ERR_USAGE, "%s '%s': %s", what, url, curl_url_strerror(bad));
    for (size_t i = 0; !rc && i < COUNT_OF(FORBIDDEN); i++) {
        char *text = NULL;
        if (kind >= FORBIDDEN[i].from && !curl_url_get(u, FORBIDDEN[i].part, &text, 0))
            rc = err_set(why, ERR_USAGE, "the address of a %s cannot have %s", what, FORBIDDEN[i].what);
        curl_free(text);
    }
    curl_url_cleanup(u);
    return rc;
}

/* ---------------------------------------------------------------- response */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_start(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT); /* after a failure curl_easy_init fails, too */
}

struct exchange {
    CURL *curl;
    char shown[SHOWN_MAX]; /* the URL without its query */
    struct str reply;
    char problem[CURL_ERROR_SIZE];
    double timeout_s;
};

/* libcurl's write function: keeps the beginning of the body and drops the rest. */
static size_t reply_append(char *data, size_t size, size_t n, void *ctx)
{
    struct str *reply = ctx;
    str_append_n(reply, data, MIN(size * n, HTTP_REPLY_MAX - reply->len));
    return size * n;
}

/* The body as one printable line. */
static const char *reply_line(const struct str *reply, char *line, size_t size)
{
    size_t out = 0;
    for (size_t i = 0; i < reply->len && out < size - 1; i++) {
        unsigned char c = (unsigned char)reply->data[i];
        bool blank = isspace(c) || iscntrl(c);
        if (blank && (!out || line[out - 1] == ' ')) continue;
        line[out++] = blank ? ' ' : (char)c;
    }
    while (out && line[out - 1] == ' ') out--;
    line[out] = '\0';
    return out ? line : "no text";
}

/* The error for a transfer that failed below HTTP: ERR_ABSENT if retrying may help, else ERR_USAGE. */
static enum err_code transfer_error(CURLcode code, const struct exchange *x, bool showed_cert,
                                    struct err *why)
{
    const char *text = *x->problem ? x->problem : curl_easy_strerror(code), *url = x->shown;
    /* a server that requires a client certificate may close the connection without an explanation */
    bool hung_up = code != CURLE_COULDNT_CONNECT && code != CURLE_COULDNT_RESOLVE_HOST &&
                   code != CURLE_COULDNT_RESOLVE_PROXY;
    const char *hint = hung_up && !showed_cert && str_starts(url, "https:")
                           ? " (it may require a client certificate)"
                           : "";
    switch (code) {
    case CURLE_OUT_OF_MEMORY: return err_set(why, ERR_NOMEM, "out of memory sending to %s", url);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return err_set(why, ERR_USAGE, "cannot send to %s: %s", url, text);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(why, ERR_ABSENT, "no response from %s within %g s: %s", url, x->timeout_s, text);
    default: return err_set(why, ERR_ABSENT, "cannot reach %s: %s%s", url, text, hint);
    }
}

static enum err_code status_check(const struct exchange *x, long status, struct err *why)
{
    char *location = NULL, line[SHOWN_MAX];
    if (status >= 200 && status < 300) return ERR_OK;
    if (status >= 300 && status < 400) {
        curl_easy_getinfo(x->curl, CURLINFO_REDIRECT_URL, &location);
        return err_set(why, ERR_USAGE,
                       "%s answers %ld and redirects to '%s': redirects are not followed; give the server's "
                       "own address",
                       x->shown, status, location ? location : "nowhere");
    }
    bool later = status >= 500 || status == 408 || status == 429; /* overloaded: retry later */
    return err_set(why, later ? ERR_ABSENT : ERR_USAGE, "%s %s (HTTP %ld): %s", x->shown,
                   later                            ? "is unavailable now"
                   : status == 401 || status == 403 ? "denies access"
                                                    : "refuses the request",
                   status, reply_line(&x->reply, line, sizeof line));
}

/* ---------------------------------------------------------------- request */

static void auth_set(CURL *c, const struct http_auth *a)
{
    if (a->bearer) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, a->bearer);
    } else if (a->user) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(c, CURLOPT_USERNAME, a->user);
        curl_easy_setopt(c, CURLOPT_PASSWORD, a->password ? a->password : "");
    }
    if (a->ca_file) curl_easy_setopt(c, CURLOPT_CAINFO, a->ca_file);
    if (a->cert_file) curl_easy_setopt(c, CURLOPT_SSLCERT, a->cert_file);
    if (a->key_file) curl_easy_setopt(c, CURLOPT_SSLKEY, a->key_file);
    if (a->insecure) {
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

static void body_set(CURL *c, const struct http_request *r)
{
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
    if (!strcmp(r->method, "HEAD")) curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    if (!r->body) return;
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n_body);
}

/* NULL when out of memory. */
static struct curl_slist *headers_new(const struct http_request *r)
{
    struct str type = { 0 };
    /* no "Expect: 100-continue", on which old proxies stall */
    struct curl_slist *list = curl_slist_append(NULL, "Expect:"), *longer = list;
    str_printf(&type, "Content-Type: %s", r->content_type ? r->content_type : "");
    if (longer && r->content_type) longer = type.failed ? NULL : curl_slist_append(list, str_text(&type));
    for (int i = 0; longer && i < HTTP_HEADERS && r->headers[i]; i++)
        longer = curl_slist_append(list, r->headers[i]);
    str_free(&type);
    if (longer) return list;
    curl_slist_free_all(list);
    return NULL;
}

static enum err_code exchange_perform(struct exchange *x, const struct http_request *r,
                                      const struct http_auth *a, int *status, struct err *why)
{
    CURL *c = x->curl;
    long http = 0;
    curl_easy_setopt(c, CURLOPT_URL, r->url);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "qdyno/" QDYNO_VERSION);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L); /* other threads are running */
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)MAX(1, x->timeout_s * 1e3));
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)MAX(1, x->timeout_s * 500));
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->problem);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, reply_append);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &x->reply);
    auth_set(c, a);
    body_set(c, r);
    CURLcode code = curl_easy_perform(c);
    if (code) return transfer_error(code, x, a->cert_file != NULL, why);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &http);
    *status = (int)http;
    if (r->reply) str_append_n(r->reply, str_text(&x->reply), x->reply.len);
    curl_off_t pause = 0;
    if (r->retry_after_s && !curl_easy_getinfo(c, CURLINFO_RETRY_AFTER, &pause) && pause > 0)
        *r->retry_after_s = (double)pause;
    return status_check(x, http, why);
}

enum err_code http_send(const struct http_request *r, int *status, struct err *why)
{
    static const struct http_auth NO_AUTH;
    const struct http_auth *a = r->auth ? r->auth : &NO_AUTH;
    int http = 0;
    if (status) *status = 0;
    if (r->retry_after_s) *r->retry_after_s = (double)NAN;
    if (a->user && a->bearer)
        return err_set(why, ERR_USAGE, "give either user and password or a bearer token, not both");
    enum err_code rc = http_url_check("server", r->url, HTTP_URL_ANY, why);
    if (rc) return rc;
    struct exchange x = { .timeout_s = a->timeout_s > 0 ? a->timeout_s : DEFAULT_TIMEOUT_S };
    snprintf(x.shown, sizeof x.shown, "%.*s", (int)strcspn(r->url, "?#"), r->url);
    pthread_once(&curl_once, curl_start);
    struct curl_slist *headers = headers_new(r);
    x.curl = curl_easy_init();
    if (x.curl && headers) {
        curl_easy_setopt(x.curl, CURLOPT_HTTPHEADER, headers);
        rc = exchange_perform(&x, r, a, &http, why);
    } else {
        rc = err_set(why, ERR_NOMEM, "out of memory sending to %s", x.shown);
    }
    if (status) *status = http;
    str_free(&x.reply);
    curl_slist_free_all(headers);
    curl_easy_cleanup(x.curl);
    return rc;
}
