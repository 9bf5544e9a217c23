/* telemetry/http/http.c - sends a request with libcurl, and turns the response into success or an error. */
#include "telemetry/http/http.h"

#include <ctype.h>
#include <math.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/http/http_internal.h"

static const double DEFAULT_TIMEOUT_S = 10;

/* ---------------------------------------------------------------- response */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_start(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT); /* after a failure curl_easy_init fails, too */
}

/* Sets an option that libcurl copies. Without memory for a password or a certificate nothing may be sent. */
static void text_set(struct exchange *x, CURLoption option, const char *text)
{
    const CURLcode code = curl_easy_setopt(x->curl, option, text);
    if (!x->bad) x->bad = code;
}

/* libcurl's write function: hands the body on, or keeps its beginning and drops the rest. */
static size_t reply_append(char *data, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    long status = 0;
    if (x->request->receive) curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300) {
        x->cancelled = !x->request->receive(x->request->ctx, data, size * n);
        return x->cancelled ? CURL_WRITEFUNC_ERROR : size * n;
    }
    str_append_n(&x->reply, data, MIN(size * n, HTTP_REPLY_MAX - x->reply.len));
    return size * n;
}

/* libcurl's header function: keeps the values that the caller wants, of the last response. */
static size_t header_keep(char *line, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    const size_t len = size * n;
    const char *const end = line + len, *const colon = memchr(line, ':', len);
    if (len >= 5 && !memcmp(line, "HTTP/", 5)) /* a response after an interim one */
        for (int i = 0; i < x->request->n_wanted; i++) str_clear(&x->request->wanted[i].value);
    for (int i = 0; colon && i < x->request->n_wanted; i++) {
        struct http_wanted *const w = &x->request->wanted[i];
        const size_t name = strlen(w->name);
        if ((size_t)(colon - line) != name || strncasecmp(line, w->name, name)) continue;
        const char *from = colon + 1, *to = end;
        while (from < to && isspace((unsigned char)*from)) from++;
        while (to > from && isspace((unsigned char)to[-1])) to--;
        if (memchr(from, 0, (size_t)(to - from))) continue; /* no header may have it */
        str_clear(&w->value);
        str_append_n(&w->value, from, (size_t)(to - from));
    }
    return len;
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

/* Such a server has not accepted anything; the right one may be there later. */
static enum err_code not_http(const struct exchange *x, const char *text, struct err *why)
{
    return err_set(why, ERR_ABSENT,
                   "the server does not answer with HTTP/1.x or HTTP/2 (%s): is it the right port? (%s)",
                   text, x->shown);
}

/* Connecting may take half of the time of an exchange. */
static double connect_most_s(const struct exchange *x)
{
    return x->timeout_s / 2;
}

/* Messages name the cause first and the URL last: where they are stored or shown in a bounded field, the cut
 * hits the URL.
 *
 * The error for a transfer that failed below HTTP: ERR_ABSENT if retrying may help, else ERR_USAGE. */
static enum err_code transfer_error(CURLcode code, const struct exchange *x, bool showed_cert,
                                    struct err *why)
{
    long cause = 0;
    curl_off_t connected_us = 0; /* 0: the connection was not made */
    (void)curl_easy_getinfo(x->curl, CURLINFO_OS_ERRNO, &cause);
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
    case CURLE_URL_MALFORMAT: return err_set(why, ERR_USAGE, "cannot send: %s (%s)", text, url);
    case CURLE_UNSUPPORTED_PROTOCOL: /* the URL has been checked, so it is the response that is not HTTP */
    case CURLE_WEIRD_SERVER_REPLY: return not_http(x, text, why);
    case CURLE_OPERATION_TIMEDOUT:
        (void)curl_easy_getinfo(x->curl, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
        return err_set(why, ERR_ABSENT, "no response within %.3g s: %s (%s)",
                       !connected_us && x->request->stall_s > 0 ? connect_most_s(x)
                       : x->request->stall_s > 0                ? x->request->stall_s
                                                                : x->timeout_s,
                       text, url);
    default:
        return err_set(why, ERR_ABSENT, "cannot reach the server: %s%s%s%s%s (%s)", text, cause ? " (" : "",
                       cause ? strerror((int)cause) : "", cause ? ")" : "", hint, url);
    }
}

static enum err_code status_check(const struct exchange *x, long status, struct err *why)
{
    char *location = NULL, line[HTTP_SHOWN_MAX], shown[HTTP_SHOWN_MAX];
    long version = 0;
    curl_easy_getinfo(x->curl, CURLINFO_HTTP_VERSION, &version);
    if (version != CURL_HTTP_VERSION_1_0 && version != CURL_HTTP_VERSION_1_1 &&
        version != CURL_HTTP_VERSION_2_0)
        return not_http(x, "unknown version", why);
    if (status >= 200 && status < 300) return ERR_OK;
    if (status >= 300 && status < 400 && x->request->redirects) return ERR_OK;
    if (status >= 300 && status < 400) {
        curl_easy_getinfo(x->curl, CURLINFO_REDIRECT_URL, &location);
        return err_set(why, ERR_USAGE,
                       "the server answers %ld and redirects to '%s': redirects are not followed; give the "
                       "server's own address (%s)",
                       status, location ? http_url_shown(location, x->part, shown) : "nowhere", x->shown);
    }
    /* overloaded, or no final response: retry later */
    bool later = status >= 500 || status < 200 || status == 408 || status == 429;
    return err_set(why, later ? ERR_ABSENT : ERR_USAGE, "the server %s (HTTP %ld): %s (%s)",
                   later                            ? "is unavailable now"
                   : status == 401 || status == 403 ? "denies access"
                                                    : "refuses the request",
                   status, reply_line(&x->reply, line, sizeof line), x->shown);
}

/* ---------------------------------------------------------------- request */

/* Can the value of this header, "Name: value", be a secret? */
static bool header_is_secret(const char *header)
{
    static const char *const WORDS[] = { "auth", "key", "token", "secret", "password", "cookie" };
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(header, ":"), header);
    for (size_t i = 0; i < COUNT_OF(WORDS); i++)
        if (strcasestr(name, WORDS[i])) return true;
    return false;
}

static bool has_credentials(const struct http_request *r, const struct http_auth *a)
{
    bool some = a->user || a->bearer;
    for (int i = 0; i < HTTP_HEADERS && r->headers[i]; i++) some |= header_is_secret(r->headers[i]);
    return some;
}

/* Where path and query of a valid URL begin; its end if it has neither. */
static const char *url_tail(const char *url)
{
    const char *host = strstr(url, "://") + 3;
    return host + strcspn(host, "/?#");
}

/* Does the address itself hold a secret? */
static bool address_is_secret(const struct http_request *r)
{
    const char *tail = url_tail(r->url);
    return r->secret_path && tail[*tail == '/'];
}

/* Credentials go to another host only over verified TLS, unless the user asked for less. A secret address is
 * refused only where the server is not verified: it is the user who wrote http:// in it. */
static enum err_code credentials_check(const struct exchange *x, const struct http_request *r,
                                       const struct http_auth *a, struct err *why)
{
    const bool encrypted = str_starts(r->url, "https://");
    const bool secret = has_credentials(r, a) || (encrypted && address_is_secret(r));
    if ((encrypted && !a->insecure) || a->insecure_credentials || !secret || http_url_is_loopback(r->url))
        return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "nothing was sent to %s: %s, so a password or token could be read by others; use an https "
                   "address whose certificate can be verified (--ca FILE), or allow it with "
                   "--insecure-credentials or QDYNO_INSECURE_CREDENTIALS=1",
                   x->shown, encrypted ? "its certificate is not verified" : "http is not encrypted");
}

/* Overwrites a secret of the request where a text repeats it. */
static void text_hide(char *text, size_t len, const char *secret)
{
    enum { SHORTEST = 4 }; /* shorter texts occur by chance */
    const size_t n = secret ? strlen(secret) : 0;
    if (n < SHORTEST || !text) return;
    for (char *at = text; (at = memmem(at, len - (size_t)(at - text), secret, n)); at += n)
        memset(at, '*', n);
}

/* Hides user and password as the header "Authorization: Basic" has them. False: out of memory. */
static bool text_hide_basic(char *text, size_t len, const struct http_auth *a)
{
    struct str pair = { 0 };
    str_printf(&pair, "%s:%s", a->user, a->password ? a->password : "");
    unsigned char *coded = pair.failed ? NULL : malloc((pair.len + 2) / 3 * 4 + 1);
    if (coded) {
        EVP_EncodeBlock(coded, (const unsigned char *)str_text(&pair), (int)pair.len);
        /* without the end, whose padding a server may leave out */
        coded[strcspn((const char *)coded, "=")] = '\0';
        text_hide(text, len, (const char *)coded);
    }
    free(coded);
    str_free(&pair);
    return coded != NULL;
}

/* Hides the value of a header, and its last word alone: the token of "Authorization: Basic TOKEN". */
static void text_hide_header(char *text, size_t len, const char *header)
{
    const char *value = header + strcspn(header, ":");
    value += strspn(value, ": ");
    const char *word = strrchr(value, ' ');
    text_hide(text, len, value);
    if (word) text_hide(text, len, word + 1);
}

/* A server can repeat secrets in its response and in the address of a redirection, which messages quote. */
static void text_hide_secrets(char *text, size_t len, const struct http_request *r, const struct http_auth *a)
{
    const char *path = url_tail(r->url), *query = strchr(path, '?');
    if (!text) return;
    if (a->user && !text_hide_basic(text, len, a)) memset(text, '*', len);
    text_hide(text, len, a->password);
    text_hide(text, len, a->bearer);
    if (query) text_hide(text, len, query + 1);
    if (address_is_secret(r)) text_hide(text, len, path);
    for (int i = 0; i < HTTP_HEADERS && r->headers[i]; i++)
        if (header_is_secret(r->headers[i])) text_hide_header(text, len, r->headers[i]);
}

static void auth_set(struct exchange *x, const struct http_auth *a)
{
    CURL *c = x->curl;
    if (a->bearer) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        text_set(x, CURLOPT_XOAUTH2_BEARER, a->bearer);
    } else if (a->user) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        text_set(x, CURLOPT_USERNAME, a->user);
        text_set(x, CURLOPT_PASSWORD, a->password ? a->password : "");
    }
    if (a->ca_file) text_set(x, CURLOPT_CAINFO, a->ca_file);
    if (a->cert_file) text_set(x, CURLOPT_SSLCERT, a->cert_file);
    if (a->key_file) text_set(x, CURLOPT_SSLKEY, a->key_file);
    if (a->insecure) {
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

static void body_set(struct exchange *x, const struct http_request *r)
{
    CURL *c = x->curl;
    text_set(x, CURLOPT_CUSTOMREQUEST, r->method);
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

/* curl_easy_perform, with calls of `waiting` in between. */
static CURLcode transfer(struct exchange *x)
{
    enum { TICK_MS = 100 };
    const struct http_request *r = x->request;
    if (!r->waiting) return curl_easy_perform(x->curl);
    CURLM *m = curl_multi_init();
    if (!m || curl_multi_add_handle(m, x->curl)) {
        curl_multi_cleanup(m);
        return CURLE_OUT_OF_MEMORY;
    }
    CURLcode code = CURLE_OK;
    int64_t called_ns = clock_ns();
    int running = 1, left;
    while (!code && running) {
        if (curl_multi_perform(m, &running)) code = CURLE_OUT_OF_MEMORY;
        const CURLMsg *done = curl_multi_info_read(m, &left);
        if (done) code = done->data.result;
        if (!code && running) (void)curl_multi_poll(m, NULL, 0, TICK_MS, NULL);
        if (clock_ns() - called_ns < (int64_t)TICK_MS * 1000000) continue;
        called_ns = clock_ns();
        if (!r->waiting(r->ctx)) x->cancelled = true;
        if (x->cancelled && !code) code = CURLE_ABORTED_BY_CALLBACK;
    }
    curl_multi_remove_handle(m, x->curl);
    curl_multi_cleanup(m);
    return code;
}

/* How long the exchange may take, and what is different for large bodies. */
static void timeout_set(struct exchange *x)
{
    const double stall_s = x->request->stall_s;
    curl_easy_setopt(x->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)MAX(1, connect_most_s(x) * 1e3));
    if (stall_s > 0) {
        /* with HTTP/2, several transfers would share a connection, and so its rate */
        curl_easy_setopt(x->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_TIME, (long)MAX(1, stall_s));
    } else {
        curl_easy_setopt(x->curl, CURLOPT_TIMEOUT_MS, (long)MAX(1, x->timeout_s * 1e3));
    }
}

/* Sets all options of the request. */
static void options_set(struct exchange *x)
{
    CURL *c = x->curl;
    const struct http_request *r = x->request;
    text_set(x, CURLOPT_URL, r->url);
    text_set(x, CURLOPT_USERAGENT, "qdyno/" QDYNO_VERSION);
    text_set(x, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_HTTP09_ALLOWED, 0L); /* a response without a status delivers nothing */
    if (http_url_is_loopback(r->url)) text_set(x, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L); /* other threads are running */
    timeout_set(x);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->problem);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, reply_append);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
    if (r->n_wanted) curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, header_keep);
    if (r->n_wanted) curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, x->headers);
    auth_set(x, x->auth);
    body_set(x, r);
}

enum err_code exchange_open(struct exchange *x, const struct http_request *r, struct err *why)
{
    static const struct http_auth NO_AUTH;
    const struct http_auth *a = r->auth ? r->auth : &NO_AUTH;
    *x = (struct exchange){ .request = r,
                            .auth = a,
                            .timeout_s = a->timeout_s > 0 ? a->timeout_s : DEFAULT_TIMEOUT_S,
                            .part = r->secret_path ? HTTP_SHOW_HOST : HTTP_SHOW_PATH };
    if (a->user && a->bearer)
        return err_set(why, ERR_USAGE, "give either user and password or a bearer token, not both");
    enum err_code rc = memory_check("send", why); /* the body may be incomplete */
    if (!rc) rc = http_url_check("server", r->url, HTTP_URL_ANY, why);
    if (rc) return rc;
    http_url_shown(r->url, x->part, x->shown);
    for (int i = 0; i < r->n_wanted; i++) str_clear(&r->wanted[i].value);
    rc = credentials_check(x, r, a, why);
    if (rc) return rc;
    pthread_once(&curl_once, curl_start);
    x->headers = headers_new(r);
    x->curl = curl_easy_init();
    if (!x->curl || !x->headers) return err_set(why, ERR_NOMEM, "out of memory sending to %s", x->shown);
    options_set(x);
    return ERR_OK;
}

static enum err_code result_of(struct exchange *x, CURLcode code, int *status, struct err *why)
{
    const struct http_request *r = x->request;
    long http = 0;
    if (code && x->cancelled) return err_set(why, ERR_CANCELLED, "cancelled");
    if (code) return transfer_error(code, x, x->auth->cert_file != NULL, why);
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &http);
    *status = (int)http;
    for (int i = 0; i < r->n_wanted; i++)
        if (r->wanted[i].value.failed) return err_set(why, ERR_NOMEM, "out of memory receiving headers");
    text_hide_secrets(x->reply.data, x->reply.len, r, x->auth);
    if (r->reply) str_append_n(r->reply, str_text(&x->reply), x->reply.len);
    curl_off_t pause = 0;
    if (r->retry_after_s && !curl_easy_getinfo(x->curl, CURLINFO_RETRY_AFTER, &pause) && pause > 0)
        *r->retry_after_s = (double)pause;
    return status_check(x, http, why);
}

enum err_code exchange_result(struct exchange *x, CURLcode code, int *status, struct err *why)
{
    const enum err_code rc = result_of(x, code, status, why);
    if (rc && why) text_hide_secrets(why->message, strlen(why->message), x->request, x->auth);
    return rc;
}

void exchange_close(struct exchange *x)
{
    str_free(&x->reply);
    curl_easy_cleanup(x->curl);
    curl_slist_free_all(x->headers);
}

enum err_code http_send(const struct http_request *r, int *status, struct err *why)
{
    struct exchange x;
    int http = 0;
    if (r->retry_after_s) *r->retry_after_s = (double)NAN;
    enum err_code rc = exchange_open(&x, r, why);
    if (!rc) rc = exchange_result(&x, x.bad ? x.bad : transfer(&x), &http, why);
    if (status) *status = http;
    exchange_close(&x);
    return rc;
}
