/* telemetry/push.c - handing a finished result to a Prometheus Pushgateway.
 *
 * PUT once per experiment, so that nothing of an older result lingers in the group; DELETE takes the group
 * away. Redirects are not followed: a PUT that lands elsewhere than its owner said is no success. The
 * gateway's own words are shown when it refuses. */
#include "telemetry/telemetry.h"

#include <ctype.h>
#include <curl/curl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { REPLY_MAX = 4096, SHOWN_MAX = 300 };
static const double DEFAULT_TIMEOUT_S = 10;

/* ---------------------------------------------------------------- the URL */

static bool is_unreserved(unsigned char c)
{
    return isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

static void append_percent(struct str *out, const char *value)
{
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if (is_unreserved(*p))
            str_append_n(out, p, 1);
        else
            str_printf(out, "%%%02X", *p);
}

/* RFC 4648 section 5, without padding; the gateway wants "=" for the empty value. */
static void append_base64url(struct str *out, const char *value)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const unsigned char *p = (const unsigned char *)value;
    size_t left = strlen(value);
    if (!left) str_append(out, "=");
    while (left) {
        size_t n = MIN(left, 3);
        uint32_t bits = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) | (n > 2 ? p[2] : 0);
        for (size_t i = 0; i <= n; i++) str_append_n(out, &DIGITS[bits >> (18 - 6 * i) & 63], 1);
        p += n;
        left -= n;
    }
}

static void append_label(struct str *out, const char *name, const char *value)
{
    /* a slash would end the path segment, and "." or ".." would be taken for folders on the way */
    bool encode = !*value || strchr(value, '/') || !strcmp(value, ".") || !strcmp(value, "..");
    str_printf(out, "/%s%s/", name, encode ? "@base64" : "");
    if (encode)
        append_base64url(out, value);
    else
        append_percent(out, value);
}

static bool label_name_is_valid(const char *name)
{
    if (str_starts(name, "__") || (!isalpha((unsigned char)*name) && *name != '_')) return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_') return false;
    return true;
}

static enum err_code labels_check(const struct push_target *t, struct err *why)
{
    if (!t->job || !*t->job) return err_set(why, ERR_USAGE, "a push needs a job name");
    for (int i = 0; i < t->n_grouping; i++) {
        const struct label *l = &t->grouping[i];
        if (!label_name_is_valid(l->name) || !l->value)
            return err_set(why, ERR_USAGE,
                           "grouping label '%s': want a letter or '_', then letters, digits, '_'", l->name);
        bool twice = !strcmp(l->name, "job");
        for (int k = 0; k < i; k++) twice |= !strcmp(t->grouping[k].name, l->name);
        if (twice) return err_set(why, ERR_USAGE, "grouping label '%s' is given twice", l->name);
    }
    return ERR_OK;
}

/* What libcurl's own parser says, and what we do not allow in a gateway's address. */
static enum err_code base_check(const char *url, struct err *why)
{
    static const struct {
        CURLUPart part;
        const char *what;
    } FORBIDDEN[] = {
        /* it would be copied into logs and the list of unsent results */
        { CURLUPART_USER, "a user name: give user and password as options instead" },
        { CURLUPART_QUERY, "a '?query'" },
        { CURLUPART_FRAGMENT, "a '#fragment'" },
    };
    if (!url || (!str_starts(url, "http://") && !str_starts(url, "https://")))
        return err_set(why, ERR_USAGE, "gateway '%s': want an address such as http://host:9091",
                       url ? url : "");
    CURLU *u = curl_url();
    if (!u) return err_set(why, ERR_NOMEM, "out of memory");
    CURLUcode bad = curl_url_set(u, CURLUPART_URL, url, 0);
    enum err_code rc = ERR_OK;
    if (bad) rc = err_set(why, ERR_USAGE, "gateway '%s': %s", url, curl_url_strerror(bad));
    for (size_t i = 0; !rc && i < COUNT_OF(FORBIDDEN); i++) {
        char *text = NULL;
        if (!curl_url_get(u, FORBIDDEN[i].part, &text, 0))
            rc = err_set(why, ERR_USAGE, "a gateway's address cannot have %s", FORBIDDEN[i].what);
        curl_free(text);
    }
    curl_url_cleanup(u);
    return rc;
}

enum err_code push_url(char **out, const struct push_target *t, struct err *why)
{
    struct str url = { 0 };
    *out = NULL;
    enum err_code rc = base_check(t->url, why);
    if (!rc) rc = labels_check(t, why);
    if (rc) return rc;
    size_t n = strlen(t->url);
    while (n && t->url[n - 1] == '/') n--;
    str_append_n(&url, t->url, n);
    str_append(&url, "/metrics");
    append_label(&url, "job", t->job);
    for (int i = 0; i < t->n_grouping; i++) append_label(&url, t->grouping[i].name, t->grouping[i].value);
    *out = str_take(&url);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

/* ---------------------------------------------------------------- the request */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_start(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT); /* a failure shows in curl_easy_init */
}

struct reply {
    char text[REPLY_MAX + 1];
    size_t len;
};

static size_t reply_take(char *data, size_t size, size_t n, void *ctx)
{
    struct reply *r = ctx;
    size_t keep = MIN(size * n, REPLY_MAX - r->len);
    memcpy(r->text + r->len, data, keep);
    r->len += keep;
    r->text[r->len] = '\0';
    return size * n; /* the rest of a long page is read and dropped */
}

/* One printable line of what the gateway said. */
static const char *reply_line(struct reply *r)
{
    size_t out = 0;
    for (size_t i = 0; i < r->len && out < SHOWN_MAX; i++) {
        unsigned char c = (unsigned char)r->text[i];
        bool blank = isspace(c) || iscntrl(c);
        if (blank && (!out || r->text[out - 1] == ' ')) continue;
        r->text[out++] = blank ? ' ' : (char)c;
    }
    while (out && r->text[out - 1] == ' ') out--;
    r->text[out] = '\0';
    return out ? r->text : "no text";
}

static enum err_code auth_set(CURL *c, const struct push_target *t, struct err *why)
{
    if (t->user && t->bearer)
        return err_set(why, ERR_USAGE, "a push has either user and password or a bearer token, not both");
    if (t->bearer) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, t->bearer);
    } else if (t->user) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(c, CURLOPT_USERNAME, t->user);
        curl_easy_setopt(c, CURLOPT_PASSWORD, t->password ? t->password : "");
    }
    if (t->ca_file) curl_easy_setopt(c, CURLOPT_CAINFO, t->ca_file);
    if (t->cert_file) curl_easy_setopt(c, CURLOPT_SSLCERT, t->cert_file);
    if (t->key_file) curl_easy_setopt(c, CURLOPT_SSLKEY, t->key_file);
    if (t->insecure) {
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    return ERR_OK;
}

/* What went wrong below HTTP: worth another try later, or wrong for good. */
static enum err_code transfer_failed(CURLcode code, const char *text, const char *url, double timeout_s,
                                     bool showed_cert, struct err *why)
{
    /* a server that wants a certificate may just hang up on who has none */
    bool hung_up = code != CURLE_COULDNT_CONNECT && code != CURLE_COULDNT_RESOLVE_HOST &&
                   code != CURLE_COULDNT_RESOLVE_PROXY;
    const char *hint = hung_up && !showed_cert && str_starts(url, "https:")
                           ? " (it may want a client certificate)"
                           : "";
    switch (code) {
    case CURLE_OUT_OF_MEMORY: return err_set(why, ERR_NOMEM, "out of memory pushing to %s", url);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return err_set(why, ERR_USAGE, "cannot push to %s: %s", url, text);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(why, ERR_ABSENT, "no answer from %s within %g s: %s", url, timeout_s, text);
    default: return err_set(why, ERR_ABSENT, "cannot reach %s: %s%s", url, text, hint);
    }
}

static enum err_code status_check(CURL *c, long status, struct reply *r, const char *url, struct err *why)
{
    char *location = NULL;
    if (status >= 200 && status < 300) return ERR_OK;
    if (status >= 300 && status < 400) {
        curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &location);
        return err_set(why, ERR_USAGE,
                       "%s answers %ld and points to '%s': pushes are not redirected, give the "
                       "gateway's own address",
                       url, status, location ? location : "nowhere");
    }
    bool later = status >= 500 || status == 408 || status == 429; /* busy, not wrong */
    return err_set(why, later ? ERR_ABSENT : ERR_USAGE, "%s %s (HTTP %ld): %s", url,
                   later                            ? "cannot take it now"
                   : status == 401 || status == 403 ? "does not let us in"
                                                    : "refuses",
                   status, reply_line(r));
}

static enum err_code request(const struct push_target *t, const char *method, const char *body, int *status,
                             struct err *why)
{
    char *url, problem[CURL_ERROR_SIZE] = "";
    struct reply reply = { .len = 0 };
    struct curl_slist *headers = NULL;
    long http = 0;
    if (status) *status = 0;
    enum err_code rc = push_url(&url, t, why);
    if (rc) return rc;
    pthread_once(&curl_once, curl_start);
    CURL *c = curl_easy_init();
    /* no "100-continue" round: old proxies stall on it; the type is what the gateway's parser expects */
    headers = curl_slist_append(headers, "Expect:");
    headers = curl_slist_append(headers, "Content-Type: text/plain; version=0.0.4; charset=utf-8");
    rc = c && headers ? auth_set(c, t, why) : err_set(why, ERR_NOMEM, "out of memory pushing to %s", url);
    if (!rc) {
        double timeout_s = t->timeout_s > 0 ? t->timeout_s : DEFAULT_TIMEOUT_S;
        curl_easy_setopt(c, CURLOPT_URL, url);
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(c, CURLOPT_USERAGENT, "qdyno/" QDYNO_VERSION);
        curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
        curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L); /* other threads are running */
        curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)MAX(1, timeout_s * 1e3));
        curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)MAX(1, timeout_s * 500));
        curl_easy_setopt(c, CURLOPT_ERRORBUFFER, problem);
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, reply_take);
        curl_easy_setopt(c, CURLOPT_WRITEDATA, &reply);
        if (body) {
            curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
            curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
        }
        CURLcode code = curl_easy_perform(c);
        if (code)
            rc = transfer_failed(code, *problem ? problem : curl_easy_strerror(code), url, timeout_s,
                                 t->cert_file != NULL, why);
        else {
            curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &http);
            if (status) *status = (int)http;
            rc = status_check(c, http, &reply, url, why);
        }
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(c);
    free(url);
    return rc;
}

enum err_code push_put(const struct push_target *t, const char *body, int *status, struct err *why)
{
    return request(t, "PUT", body, status, why);
}

enum err_code push_delete(const struct push_target *t, int *status, struct err *why)
{
    return request(t, "DELETE", NULL, status, why);
}
