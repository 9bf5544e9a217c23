/* Proves: addresses, headers, timeouts and certificates come from options and environment by
 * OpenTelemetry's rules; error messages contain no secrets; every response of a collector (success,
 * partial success, refusal, overload, garbage) gives the documented result. */
#include "tests/telemetry/collector.h"
#include "telemetry/http/http.h"
#include "telemetry/otlp/otlp.h"
#include "telemetry/otlp/protobuf.h"
#include "tests/telemetry/roots.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- where to */

static const char *const VARIABLES[] = { "ENDPOINT",  "HEADERS",     "TIMEOUT",
                                         "PROTOCOL",  "CERTIFICATE", "CLIENT_CERTIFICATE",
                                         "CLIENT_KEY" };

static int forget_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(VARIABLES); i++) {
        static const char *const INFIX[] = { "", "TRACES_", "METRICS_" };
        for (size_t k = 0; k < COUNT_OF(INFIX); k++) {
            char name[96];
            snprintf(name, sizeof name, "OTEL_EXPORTER_OTLP_%s%s", INFIX[k], VARIABLES[i]);
            unsetenv(name);
        }
    }
    return 0;
}

static void set(const char *key, const char *value)
{
    char name[96];
    snprintf(name, sizeof name, "OTEL_EXPORTER_OTLP_%s", key);
    CHECK(!setenv(name, value, 1));
}

static void addresses_by_table(void **state)
{
    (void)state;
    static const struct {
        const char *option, *endpoint, *traces, *url,
            *says; /* url: of traces; says: part of the error message */
    } CASES[] = {
        { NULL, NULL, NULL, NULL, NULL },
        { "http://h:4318", NULL, NULL, "http://h:4318/v1/traces", NULL },
        { "http://h:4318/", NULL, NULL, "http://h:4318/v1/traces", NULL },
        { "https://h/otlp", NULL, NULL, "https://h/otlp/v1/traces", NULL },
        { NULL, "http://e:4318", NULL, "http://e:4318/v1/traces", NULL },
        { NULL, "http://e:4318/a//", NULL, "http://e:4318/a/v1/traces", NULL },
        { NULL, "http://e:4318", "http://t/x", "http://t/x", NULL }, /* used unchanged */
        { NULL, NULL, "http://t/v1/traces?key=1", "http://t/v1/traces?key=1", NULL },
        { "http://o", "http://e", "http://t", "http://o/v1/traces", NULL }, /* options come first */
        { NULL, "", "", NULL, NULL },
        { "http://h/v1/traces", NULL, NULL, NULL, "without '/v1/traces'" },
        { "http://h/v1/metrics/", NULL, NULL, NULL, "without '/v1/metrics'" },
        { "h:4318", NULL, NULL, NULL, "collector" },
        { "http://u:p@h", NULL, NULL, NULL, "user" },
        { "http://h?x=1", NULL, NULL, NULL, "query" },
        { NULL, "grpc://h", NULL, NULL, "collector" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct otlp_target t;
        struct err why = { 0 };
        forget_environment(NULL);
        if (CASES[i].endpoint) set("ENDPOINT", CASES[i].endpoint);
        if (CASES[i].traces) set("TRACES_ENDPOINT", CASES[i].traces);
        const enum err_code rc = otlp_target_find(&t, OTLP_TRACES, CASES[i].option, NULL, &why);
        if (CASES[i].says) {
            assert_int_equal(rc, ERR_USAGE);
            if (!strstr(why.message, CASES[i].says)) fail_msg("case %zu: %s", i, why.message);
            assert_null(t.url);
            continue;
        }
        if (rc) fail_msg("case %zu: %s", i, why.message);
        if (CASES[i].url)
            assert_string_equal(t.url, CASES[i].url);
        else
            assert_null(t.url);
        CHECK(otlp_environment() == (CASES[i].endpoint && *CASES[i].endpoint) ||
              (CASES[i].traces && *CASES[i].traces));
        otlp_target_done(&t);
    }
}

static void headers_times_and_certificates_are_found(void **state)
{
    (void)state;
    struct otlp_target t;
    struct err why = { 0 };
    set("ENDPOINT", "http://e:4318");
    set("HEADERS", " api-key = s%20e%3Dc%2Cret , x=1,");
    set("TIMEOUT", "2500");
    set("METRICS_TIMEOUT", "1000");
    set("CERTIFICATE", "ca.pem");
    set("CLIENT_CERTIFICATE", "me.pem");
    set("CLIENT_KEY", "me.key");
    CHECK_OK(otlp_target_find(&t, OTLP_TRACES, NULL, NULL, &why));
    assert_string_equal(t.headers[0], "api-key: s e=c,ret");
    assert_string_equal(t.headers[1], "x: 1");
    assert_null(t.headers[2]);
    CHECK_EQ(t.auth.timeout_s, 2.5);
    assert_string_equal(t.auth.ca_file, "ca.pem");
    assert_string_equal(t.auth.cert_file, "me.pem");
    assert_string_equal(t.auth.key_file, "me.key");
    otlp_target_done(&t);
    CHECK_OK(otlp_target_find(&t, OTLP_METRICS, NULL, NULL, &why));
    CHECK_EQ(t.auth.timeout_s, 1);
    assert_string_equal(t.url, "http://e:4318/v1/metrics");
    otlp_target_done(&t);

    const struct http_auth auth = { .bearer = "token", .ca_file = "mine.pem", .timeout_s = 3 };
    set("HEADERS", "Authorization=Basic%20c2VjcmV0,x=1");
    CHECK_OK(otlp_target_find(&t, OTLP_TRACES, "http://o", &auth, &why));
    CHECK_EQ(t.auth.timeout_s, 3);
    assert_string_equal(t.auth.ca_file, "mine.pem");
    assert_string_equal(t.auth.cert_file, "me.pem");
    assert_string_equal(t.headers[0], "x: 1"); /* one Authorization is enough */
    assert_null(t.headers[1]);
    otlp_target_done(&t);
}

static void bad_environments_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } CASES[] = {
        { "HEADERS", "secret", "header 1" },
        { "HEADERS", "a=1,b c=secret", "header 2" },
        { "HEADERS", "a=secret%0d%0aInjected:%201", "header 1" },
        { "HEADERS", "a=secret%zz", "header 1" },
        { "HEADERS", "a=secret%4", "header 1" },
        { "HEADERS", "=secret", "header 1" },
        { "HEADERS", "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1", "at most" },
        { "TIMEOUT", "10s", "'10s'" },
        { "TIMEOUT", "0", "milliseconds" },
        { "TIMEOUT", "-1", "milliseconds" },
        { "PROTOCOL", "grpc", "http/protobuf" },
        { "TRACES_PROTOCOL", "http/json", "TRACES_PROTOCOL" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct otlp_target t;
        struct err why = { 0 };
        forget_environment(NULL);
        set("ENDPOINT", "http://e:4318");
        set(CASES[i].key, CASES[i].value);
        assert_int_equal(otlp_target_find(&t, OTLP_TRACES, NULL, NULL, &why), ERR_USAGE);
        if (!strstr(why.message, CASES[i].says)) fail_msg("case %zu: %s", i, why.message);
        assert_null(strstr(why.message, "secret"));
        assert_null(t.url);
    }
    /* another exporter's protocol is no business of a collector named for us alone */
    struct otlp_target t;
    struct err why = { 0 };
    forget_environment(NULL);
    set("PROTOCOL", "grpc");
    CHECK_OK(otlp_target_find(&t, OTLP_TRACES, "http://o", NULL, &why));
    otlp_target_done(&t);
}

/* ---------------------------------------------------------------- answers */

static void put_partial(struct str *out, int64_t rejected, const char *message)
{
    const size_t partial = pb_open(out, 1);
    if (rejected) pb_put_varint(out, 1, (uint64_t)rejected);
    if (message) pb_put_bytes(out, 2, message, strlen(message));
    pb_close(out, partial);
}

static void answers_are_read(void **state)
{
    (void)state;
    struct otlp_answer a;
    struct str s = { 0 };
    CHECK(otlp_answer_parse(&a, "", 0));
    CHECK(!a.rejected);
    CHECK(!*a.message);
    CHECK(otlp_answer_parse(&a, "\x0a\x00", 2));
    CHECK(!a.rejected);
    CHECK(!*a.message);
    put_partial(&s, 3, "too\nold \xff");
    pb_put_varint(&s, 9, 1); /* of a later version */
    CHECK(otlp_answer_parse(&a, s.data, s.len));
    CHECK_EQ(a.rejected, 3);
    assert_string_equal(a.message, "too old \xef\xbf\xbd");
    str_clear(&s);
    put_partial(&s, 0, "a warning");
    CHECK(otlp_answer_parse(&a, s.data, s.len));
    CHECK_EQ(a.rejected, 0);
    assert_string_equal(a.message, "a warning");
    str_clear(&s);
    put_partial(&s, -1, NULL);
    CHECK(!otlp_answer_parse(&a, s.data, s.len));
    str_clear(&s);
    char longer[1000];
    memset(longer, 'm', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    put_partial(&s, 1, longer);
    CHECK(otlp_answer_parse(&a, s.data, s.len));
    CHECK_EQ(strlen(a.message), sizeof a.message - 1);
    CHECK(!otlp_answer_parse(&a, "<html>", 6));
    CHECK(!otlp_answer_parse(&a, "{}", 2));
    CHECK(!otlp_answer_parse(&a, "OK\n", 3));
    CHECK(!otlp_answer_parse(&a, "\x08\x01", 2)); /* a number where the message is */
    str_free(&s);
}

/* A copy of exactly n bytes, so that a sanitizer sees one byte too many. */
static unsigned char *exactly(const void *bytes, size_t n)
{
    unsigned char *copy = malloc(MAX(n, 1));
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    return copy;
}

static void garbage_answers_never_hurt(void **state)
{
    (void)state;
    struct str s = { 0 };
    struct otlp_answer a;
    uint64_t x = 88172645463325252;
    put_partial(&s, 123456, "some words to cut short");
    put_partial(&s, 1, "twice");
    for (size_t n = 0; n <= s.len; n++) { /* cut anywhere */
        unsigned char *copy = exactly(s.data, n);
        (void)otlp_answer_parse(&a, copy, n);
        CHECK(memchr(a.message, '\0', sizeof a.message));
        free(copy);
    }
    int good = 0;
    for (int i = 0; i < 200000; i++) {
        unsigned char bytes[64];
        for (size_t k = 0; k < sizeof bytes; k++) { /* xorshift */
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            bytes[k] = (unsigned char)x;
        }
        const size_t n = bytes[0] % sizeof bytes;
        if (i & 1) { /* half of them: a good one with a few bytes changed */
            memcpy(bytes, s.data, MIN(s.len, sizeof bytes));
            for (int k = 0; k < 3; k++)
                bytes[(x >> 8 * k) % sizeof bytes] = (unsigned char)(x >> (8 * k + 24));
        }
        unsigned char *copy = exactly(bytes, n);
        good += otlp_answer_parse(&a, copy, n);
        CHECK_NE(memchr(a.message, '\0', sizeof a.message), NULL);
        free(copy);
    }
    CHECK_LT(0, good);
    CHECK_LT(good, 200000);
    str_free(&s);
}

/* ---------------------------------------------------------------- sending */

/* Sends one small body; the collector ends after its last reply. */
static enum err_code send_to(struct collector *c, const char *const *replies, double timeout_s,
                             struct otlp_answer *answer, struct err *out)
{
    struct err why = { 0 };
    char base[64];
    struct str body = { 0 };
    struct otlp_target t;
    const struct http_auth auth = { .timeout_s = timeout_s };
    collector_start(c, replies);
    snprintf(base, sizeof base, "http://127.0.0.1:%d", c->port);
    CHECK_OK(otlp_target_find(&t, OTLP_TRACES, base, &auth, &why));
    pb_put_varint(&body, 1, 150); /* a byte 0 may stand anywhere: the length counts */
    str_append_n(&body, "\0\0x", 3);
    const enum err_code rc = otlp_send(&t, &body, answer, out);
    collector_stop(c);
    str_free(&body);
    otlp_target_done(&t);
    return rc;
}

#define BUSY(status, more) "HTTP/1.1 " status " X\r\n" more "Content-Length: 0\r\nConnection: close\r\n\r\n"

static void a_body_arrives_as_it_is(void **state)
{
    (void)state;
    static struct collector c;
    c = (struct collector){ 0 };
    struct err why = { 0 };
    struct otlp_answer a;
    set("HEADERS", "x-key=1");
    CHECK_OK(send_to(&c, (const char *const[]){ COLLECTOR_OK, NULL }, 60, &a, &why));
    CHECK_EQ(c.requests, 1);
    CHECK(str_starts(c.request[0], "POST /v1/traces HTTP/1.1\r\n"));
    CHECK_CONTAINS(c.request[0], "Content-Type: application/x-protobuf\r\n");
    CHECK_CONTAINS(c.request[0], "x-key: 1\r\n");
    CHECK_CONTAINS(c.request[0], "Content-Length: 6\r\n");
    CHECK(!memcmp(c.request[0] + c.n_request[0] - 6, "\x08\x96\x01\0\0x", 6));
    CHECK(!a.rejected);
    CHECK(!*a.message);
}

static void busy_collectors_are_asked_again(void **state)
{
    (void)state;
    static struct collector c;
    struct err why = { 0 };
    c = (struct collector){ 0 };
    CHECK_OK(send_to(
        &c, (const char *const[]){ BUSY("503", ""), BUSY("429", "Retry-After: 1\r\n"), COLLECTOR_OK, NULL },
        60, NULL, &why));
    CHECK_EQ(c.requests, 3);
    CHECK_EQ(c.n_request[0], c.n_request[2]);
    CHECK(!memcmp(c.request[0] + c.n_request[0] - 6, c.request[2] + c.n_request[2] - 6, 6));
    /* Retry-After exceeds the timeout: fail at once */
    c = (struct collector){ 0 };
    assert_int_equal(
        send_to(&c, (const char *const[]){ BUSY("503", "Retry-After: 3600\r\n"), NULL }, 60, NULL, &why),
        ERR_ABSENT);
    CHECK_EQ(c.requests, 1);
    CHECK_CONTAINS(why.message, "503");
    c = (struct collector){ 0 };
    assert_int_equal(send_to(&c, (const char *const[]){ BUSY("504", ""), NULL }, 0.1, NULL, &why),
                     ERR_ABSENT);
}

static void what_is_final_is_not_repeated(void **state)
{
    (void)state;
    static struct collector c;
    static const struct {
        const char *reply;
        const char *says;
    } CASES[] = {
        { BUSY("400", ""), "HTTP 400" },
        { BUSY("401", ""), "denies access" },
        { BUSY("404", ""), "HTTP 404" },
        { BUSY("408", ""), "HTTP 408" },
        { BUSY("500", ""), "HTTP 500" },
        { BUSY("301", "Location: http://elsewhere/\r\n"), "elsewhere" },
        /* google.rpc.Status: code 3, "no spans" */
        { "HTTP/1.1 400 X\r\nContent-Length: 12\r\n\r\n\x08\x03\x12\x08no spans", "no spans" },
        { "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>it works!",
          "is it the address of a collector" },
        { "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n\x0a\x0a\x08\x02\x12\x06stolen",
          "only a part, 2 rejected: stolen" },
        { "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x07", "7 rejected" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        c = (struct collector){ 0 };
        const enum err_code rc = send_to(&c, (const char *const[]){ CASES[i].reply, NULL }, 60, NULL, &why);
        if (rc != ERR_USAGE || why.code != rc || !strstr(why.message, CASES[i].says))
            fail_msg("case %zu: %d %s", i, rc, why.message);
        CHECK_EQ(c.requests, 1);
    }
    /* a warning is no failure, and is handed on */
    struct otlp_answer a;
    struct err why = { 0 };
    c = (struct collector){ 0 };
    CHECK_OK(send_to(
        &c, (const char *const[]){ "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\x0a\x06\x12\x04slow", NULL },
        60, &a, &why));
    assert_string_equal(a.message, "slow");
}

static void nobody_there_is_absent(void **state)
{
    (void)state;
    struct otlp_target t;
    struct err why = { 0 };
    const struct str body = { 0 };
    CHECK_OK(otlp_target_find(&t, OTLP_METRICS, "http://127.0.0.1:1", NULL, &why));
    assert_int_equal(otlp_send(&t, &body, NULL, &why), ERR_ABSENT);
    CHECK_CONTAINS(why.message, "http://127.0.0.1:1/v1/metrics");
    otlp_target_done(&t);
}

int main(void)
{
#define E(test) cmocka_unit_test_setup_teardown(test, forget_environment, forget_environment)
    const struct CMUnitTest tests[] = {
        E(addresses_by_table),
        E(headers_times_and_certificates_are_found),
        E(bad_environments_are_refused),
        cmocka_unit_test(answers_are_read),
        cmocka_unit_test(garbage_answers_never_hurt),
        E(a_body_arrives_as_it_is),
        E(busy_collectors_are_asked_again),
        E(what_is_final_is_not_repeated),
        E(nobody_there_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
