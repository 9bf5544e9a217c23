/* telemetry/otlp/otlp_send.c - determines the collector's address, sends request bodies, and interprets the
 * response.
 *
 * The rules are those of OpenTelemetry, so the environment variables that configure other exporters configure
 * this one, too. */
#include "telemetry/otlp/otlp.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "telemetry/http/http.h"
#include "telemetry/otlp/otlp_fields.h"
#include "telemetry/otlp/protobuf.h"

static const double DEFAULT_TIMEOUT_S = 10, FIRST_PAUSE_S = 0.5;

static const struct {
    const char *name, *path; /* part of variable names; path below a base address */
} SIGNALS[OTLP_SIGNALS] = {
    [OTLP_TRACES] = { .name = "TRACES", .path = "/v1/traces" },
    [OTLP_METRICS] = { .name = "METRICS", .path = "/v1/metrics" },
};

/* ---------------------------------------------------------------- address */

/* The value of OTEL_EXPORTER_OTLP_<SIGNAL>_<key>, or else of OTEL_EXPORTER_OTLP_<key>; NULL: unset or empty.
 * *of_signal (may be NULL): whether it was the first. */
static const char *otlp_variable(enum otlp_signal signal, const char *key, bool *of_signal)
{
    char name[64];
    snprintf(name, sizeof name, "OTEL_EXPORTER_OTLP_%s_%s", SIGNALS[signal].name, key);
    const char *value = getenv(name);
    const bool own = value && *value;
    if (!own) {
        snprintf(name, sizeof name, "OTEL_EXPORTER_OTLP_%s", key);
        value = getenv(name);
    }
    if (of_signal) *of_signal = own;
    return value && *value ? value : NULL;
}

bool otlp_environment(void)
{
    return otlp_variable(OTLP_TRACES, "ENDPOINT", NULL) || otlp_variable(OTLP_METRICS, "ENDPOINT", NULL);
}

static enum err_code url_below(char **out, const char *base, enum otlp_signal signal, struct err *why)
{
    enum err_code rc = http_url_check("collector", base, HTTP_URL_BASE, why);
    if (rc) return rc;
    struct str url = { 0 };
    size_t n = strlen(base);
    while (n && base[n - 1] == '/') n--;
    str_append_n(&url, base, n);
    for (int i = 0; i < OTLP_SIGNALS; i++)
        if (str_ends(str_text(&url), SIGNALS[i].path))
            rc = err_set(why, ERR_USAGE, "collector '%s': give its address without '%s', which is added",
                         base, SIGNALS[i].path);
    str_append(&url, SIGNALS[signal].path);
    *out = rc ? NULL : str_take(&url);
    str_free(&url);
    return rc || *out ? rc : err_set(why, ERR_NOMEM, "out of memory");
}

static enum err_code target_find_url(char **out, enum otlp_signal signal, const char *base, struct err *why)
{
    if (base) return url_below(out, base, signal, why);
    bool whole, named = false;
    const char *url = otlp_variable(signal, "ENDPOINT", &whole),
               *protocol = otlp_variable(signal, "PROTOCOL", &named);
    if (!url) return ERR_OK;
    if (protocol && strcmp(protocol, "http/protobuf"))
        return err_set(
            why, ERR_USAGE,
            "OTEL_EXPORTER_OTLP_%s%sPROTOCOL is '%s': only http/protobuf is supported (usually on port "
            "4318); use --otlp URL to set a collector for qdyno only",
            named ? SIGNALS[signal].name : "", named ? "_" : "", protocol);
    if (!whole) return url_below(out, url, signal, why);
    enum err_code rc = http_url_check("collector", url, HTTP_URL_ANY, why);
    if (rc) return rc;
    *out = strdup(url);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

static int hex_digit(char c)
{
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                        : -1;
}

bool otlp_pair_read(char *pair[2], const char *text, size_t n)
{
    struct str name = { 0 }, value = { 0 };
    while (n && isspace((unsigned char)text[n - 1])) n--;
    while (n && isspace((unsigned char)*text)) text++, n--;
    const char *equals = memchr(text, '=', n), *end = text + n;
    size_t n_name = equals ? (size_t)(equals - text) : 0;
    while (n_name && isspace((unsigned char)text[n_name - 1])) n_name--;
    bool ok = n_name > 0;
    const char *at = ok ? equals + 1 : end;
    while (at < end && isspace((unsigned char)*at)) at++;
    str_append_n(&name, text, n_name);
    for (str_append(&value, ""); at < end && ok; at++) {
        char c = *at;
        if (c == '%') {
            const int high = end - at > 2 ? hex_digit(at[1]) : -1, low = end - at > 2 ? hex_digit(at[2]) : -1;
            ok = high >= 0 && low >= 0;
            c = (char)(high * 16 + low);
            at += 2;
        }
        str_append_n(&value, &c, 1);
    }
    ok = ok && !name.failed && !value.failed;
    pair[0] = ok ? str_take(&name) : NULL;
    pair[1] = ok ? str_take(&value) : NULL;
    str_free(&name);
    str_free(&value);
    return ok;
}

/* Converts "name=value" to "name: value". False: not a valid header. */
static bool header_parse(char **out, const char *text, size_t n)
{
    char *pair[2];
    struct str line = { 0 };
    if (!otlp_pair_read(pair, text, n)) return false;
    bool ok = true;
    for (const char *p = pair[0]; *p; p++)
        ok = ok && (isalnum((unsigned char)*p) || strchr("!#$%&'*+-.^_`|~", *p));
    for (const char *p = pair[1]; *p; p++)
        ok = ok && !iscntrl((unsigned char)*p); /* a line break would inject another header */
    str_printf(&line, "%s: %s", pair[0], pair[1]);
    *out = ok ? str_take(&line) : NULL;
    str_free(&line);
    free(pair[0]);
    free(pair[1]);
    return *out != NULL;
}

/* Error messages do not quote headers, because their values may be keys. */
static enum err_code target_find_headers(struct otlp_target *t, enum otlp_signal signal, struct err *why)
{
    const char *list = otlp_variable(signal, "HEADERS", NULL);
    int n = 0;
    for (size_t len; list && *list; list += len + (list[len] == ',')) {
        len = strcspn(list, ",");
        if (strspn(list, " \t,") >= len) continue;
        if (n == OTLP_HEADERS)
            return err_set(why, ERR_USAGE, "OTEL_EXPORTER_OTLP_HEADERS: at most %d headers", OTLP_HEADERS);
        if (!header_parse(&t->headers[n], list, len))
            return err_set(
                why, ERR_USAGE,
                "OTEL_EXPORTER_OTLP_HEADERS: header %d is not name=value with a percent-encoded value",
                n + 1);
        /* credentials from the options replace those of the environment */
        if ((t->auth.user || t->auth.bearer) && !strncasecmp(t->headers[n], "authorization:", 14)) {
            free(t->headers[n]);
            t->headers[n] = NULL;
        } else {
            n++;
        }
    }
    return ERR_OK;
}

static enum err_code target_find_auth(struct otlp_target *t, enum otlp_signal signal, struct err *why)
{
    double ms;
    const char *timeout = otlp_variable(signal, "TIMEOUT", NULL);
    if (!t->auth.ca_file) t->auth.ca_file = otlp_variable(signal, "CERTIFICATE", NULL);
    if (!t->auth.cert_file) t->auth.cert_file = otlp_variable(signal, "CLIENT_CERTIFICATE", NULL);
    if (!t->auth.key_file) t->auth.key_file = otlp_variable(signal, "CLIENT_KEY", NULL);
    if (t->auth.timeout_s > 0 || !timeout) return ERR_OK;
    if (!str_to_double(timeout, &ms) || !(ms > 0) || !isfinite(ms))
        return err_set(why, ERR_USAGE,
                       "OTEL_EXPORTER_OTLP_TIMEOUT is '%s': expected milliseconds, such as 10000", timeout);
    t->auth.timeout_s = ms * 1e-3;
    return ERR_OK;
}

enum err_code otlp_target_find(struct otlp_target *t, enum otlp_signal signal, const char *base,
                               const struct http_auth *auth, struct err *why)
{
    *t = (struct otlp_target){ 0 };
    if (auth) t->auth = *auth;
    t->auth.insecure_credentials |= http_insecure_credentials();
    enum err_code rc = target_find_url(&t->url, signal, base, why);
    if (!rc && t->url) rc = target_find_auth(t, signal, why);
    if (!rc && t->url) rc = target_find_headers(t, signal, why);
    if (rc) otlp_target_done(t);
    return rc;
}

void otlp_target_done(struct otlp_target *t)
{
    for (int i = 0; i < OTLP_HEADERS; i++) free(t->headers[i]);
    free(t->url);
    *t = (struct otlp_target){ 0 };
}

/* ---------------------------------------------------------------- response */

/* Copies the text of a bytes field, with control characters replaced, truncated to fit. */
static void text_copy(char *buf, size_t size, const struct pb_field *f)
{
    size_t out = 0;
    const char *text = (const char *)f->bytes;
    for (size_t left = f->n; left;) {
        uint32_t c;
        char utf8[4];
        const size_t n = str_utf8_next(text, left, &c),
                     m = str_utf8_put(c < 0x20 || c == 0x7f ? ' ' : c, utf8);
        if (out + m >= size) break;
        memcpy(buf + out, utf8, m);
        out += m;
        text += n;
        left -= n;
    }
    buf[out] = '\0';
}

static bool partial_parse(struct otlp_answer *out, const struct pb_field *partial)
{
    _Static_assert((int)OTLP_TRACES_REJECTED == (int)OTLP_METRICS_REJECTED &&
                       (int)OTLP_TRACES_MESSAGE == (int)OTLP_METRICS_MESSAGE &&
                       (int)OTLP_TRACES_PARTIAL_SUCCESS == (int)OTLP_METRICS_PARTIAL_SUCCESS,
                   "the same code parses the responses of both signals");
    struct pb_reader r = { partial->bytes, partial->bytes + partial->n };
    struct pb_field f;
    bool bad = false;
    while (pb_next(&r, &f, &bad)) {
        if (f.number == OTLP_TRACES_REJECTED && f.wire == PB_VARINT) out->rejected = (int64_t)f.value;
        if (f.number == OTLP_TRACES_MESSAGE && f.wire == PB_BYTES)
            text_copy(out->message, sizeof out->message, &f);
    }
    return !bad && out->rejected >= 0;
}

bool otlp_answer_parse(struct otlp_answer *out, const void *body, size_t n)
{
    *out = (struct otlp_answer){ 0 };
    if (!n) return true;
    struct pb_reader r = { body, (const unsigned char *)body + n };
    struct pb_field f;
    bool bad = false;
    while (pb_next(&r, &f, &bad))
        if (f.number == OTLP_TRACES_PARTIAL_SUCCESS && (f.wire != PB_BYTES || !partial_parse(out, &f)))
            return false;
    return !bad;
}

/* The message of a google.rpc.Status. False: the body is not one, or has no message. */
static bool refusal_parse(char *text, size_t size, const struct str *body)
{
    const unsigned char *bytes = (const unsigned char *)str_text(body);
    struct pb_reader r = { bytes, bytes + body->len };
    struct pb_field f;
    bool bad = false;
    text[0] = '\0';
    while (pb_next(&r, &f, &bad))
        if (f.number == RPC_STATUS_MESSAGE && f.wire == PB_BYTES) text_copy(text, size, &f);
    return !bad && *text;
}

static bool status_is_temporary(int status)
{
    return status == 429 || status == 502 || status == 503 || status == 504;
}

/* Decides about success from status and body. rc and *why come from http_send; *why may be replaced by the
 * collector's message. */
static enum err_code response_check(const struct otlp_target *t, enum err_code rc, int status,
                                    const struct str *reply, struct otlp_answer *answer, struct err *why)
{
    char words[256], shown[HTTP_SHOWN_MAX];
    http_url_shown(t->url, HTTP_SHOW_PATH, shown);
    if (rc) {
        if (!status) return rc;
        if (refusal_parse(words, sizeof words, reply))
            rc = err_set(why, rc, "the collector %s (HTTP %d): %s (%s)",
                         status_is_temporary(status) ? "is unavailable now" : "refuses the request", status,
                         words, shown);
        /* by the specification only those four may be retried */
        if (rc == ERR_ABSENT && !status_is_temporary(status)) {
            if (why) why->code = ERR_USAGE;
            rc = ERR_USAGE;
        }
        return rc;
    }
    if (!otlp_answer_parse(answer, str_text(reply), reply->len))
        return err_set(
            why, ERR_USAGE,
            "the server answers with status %d, but not with an OTLP response: is it the address of a collector? "
            "(%s)",
            status, shown);
    if (answer->rejected)
        return err_set(why, ERR_USAGE, "the collector accepted only a part, %lld rejected: %s (%s)",
                       (long long)answer->rejected, *answer->message ? answer->message : "no reason given",
                       shown);
    return ERR_OK;
}

enum err_code otlp_send(const struct otlp_target *t, const struct str *body, struct otlp_answer *answer,
                        struct err *why)
{
    const int64_t begun = clock_ns();
    double limit_s = t->auth.timeout_s > 0 ? t->auth.timeout_s : DEFAULT_TIMEOUT_S;
    if (t->deadline_ns) limit_s = MIN(limit_s, (double)(t->deadline_ns - begun) * 1e-9);
    if (limit_s <= 0)
        return err_set(why, ERR_ABSENT, "no time left to send: give more with --timeout (%s)", t->url);
    struct otlp_answer ignored;
    struct http_auth auth = t->auth;
    double pause_s, left_s = limit_s, doubling_s = FIRST_PAUSE_S;
    struct http_request r = { .method = "POST",
                              .url = t->url,
                              .content_type = "application/x-protobuf",
                              .body = str_text(body),
                              .n_body = body->len,
                              .auth = &auth,
                              .retry_after_s = &pause_s };
    for (int i = 0; i < OTLP_HEADERS; i++) r.headers[i] = t->headers[i];
    for (;;) {
        struct str reply = { 0 };
        int status = 0;
        r.reply = &reply;
        auth.timeout_s = left_s;
        enum err_code rc = http_send(&r, &status, why);
        rc = response_check(t, rc, status, &reply, answer ? answer : &ignored, why);
        str_free(&reply);
        if (!status_is_temporary(status)) return rc;
        /* random factor from 0.5 to 1.5, so that many machines that failed together do not retry together */
        if (!(pause_s > 0)) pause_s = doubling_s * (0.5 + (double)(clock_ns() % 1000) * 1e-3);
        doubling_s *= 2;
        left_s = limit_s - (double)(clock_ns() - begun) * 1e-9 - pause_s;
        if (left_s <= 0) return rc;
        clock_sleep_ns((int64_t)(pause_s * 1e9));
    }
}
