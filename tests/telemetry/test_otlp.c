/* Proves: encoded messages are the expected bytes, worked out by hand from the wire format and OTLP's
 * field numbers; unknown values are absent; the reader detects damaged bytes; the official definitions, if
 * python3 has them, read the same values and have the same field numbers. */
#include "tests/telemetry/otlp_decode.h"
#include "telemetry/otlp/otlp.h"
#include "telemetry/otlp/otlp_fields.h"
#include "telemetry/otlp/protobuf.h"
#include "tests/telemetry/roots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- wire format */

static void check_bytes(struct str *s, const char *want, size_t n)
{
    CHECK(!s->failed);
    if (s->len != n || (n && memcmp(s->data, want, n))) {
        for (size_t i = 0; i < s->len; i++) print_message("%02x ", (unsigned char)s->data[i]);
        fail_msg("%zu bytes, want %zu", s->len, n);
    }
    str_free(s);
}
#define CHECK_BYTES(s, want) check_bytes(&(s), want, sizeof(want) - 1)

static void bytes_are_those_of_the_format(void **state)
{
    (void)state;
    struct str s = { 0 };
    pb_put_varint(&s, 1, 150); /* the example of the format's own page */
    CHECK_BYTES(s, "\x08\x96\x01");
    pb_put_varint(&s, 16, 0);
    CHECK_BYTES(s, "\x80\x01\x00");
    pb_put_varint(&s, 3, (uint64_t)-1);
    CHECK_BYTES(s, "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    pb_put_fixed64(&s, 7, 0x0102030405060708);
    CHECK_BYTES(s, "\x39\x08\x07\x06\x05\x04\x03\x02\x01");
    pb_put_double(&s, 4, 1.0);
    CHECK_BYTES(s, "\x21\x00\x00\x00\x00\x00\x00\xf0\x3f");
    pb_put_string(&s, 2, "testing");
    CHECK_BYTES(s, "\x12\x07testing");
    pb_put_string(&s, 2, "a\xffz"); /* not UTF-8 */
    CHECK_BYTES(s, "\x12\x05"
                   "a\xef\xbf\xbdz");
    pb_put_bytes(&s, 1, "\0\1", 2);
    CHECK_BYTES(s, "\x0a\x02\x00\x01");
    pb_put_bytes(&s, 1, NULL, 0);
    CHECK_BYTES(s, "\x0a\x00");
    pb_put_packed_fixed64(&s, 6, (const uint64_t[]){ 1, 2 }, 2);
    CHECK_BYTES(s, "\x32\x10\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00");
    pb_put_packed_doubles(&s, 7, (const double[]){ 0.5 }, 1);
    CHECK_BYTES(s, "\x3a\x08\x00\x00\x00\x00\x00\x00\xe0\x3f");
    pb_put_packed_doubles(&s, 7, NULL, 0);
    CHECK_BYTES(s, "");
}

static void messages_stand_behind_their_length(void **state)
{
    (void)state;
    struct str s = { 0 };
    size_t outer = pb_open(&s, 3), inner = pb_open(&s, 1);
    pb_put_varint(&s, 1, 150);
    pb_close(&s, inner);
    pb_close(&s, outer);
    CHECK_BYTES(s, "\x1a\x05\x0a\x03\x08\x96\x01");
    outer = pb_open(&s, 1);
    pb_close(&s, outer);
    CHECK_BYTES(s, "\x0a\x00");
    /* lengths of two bytes, and a neighbour on each side that must stay */
    char text[201];
    memset(text, 'x', 200);
    text[200] = '\0';
    pb_put_varint(&s, 1, 7);
    outer = pb_open(&s, 2);
    pb_put_string(&s, 1, text);
    pb_close(&s, outer);
    pb_put_varint(&s, 3, 8);
    CHECK_EQ(s.len, 2 + 3 + 203 + 2);
    CHECK(!memcmp(s.data, "\x08\x07\x12\xcb\x01\x0a\xc8\x01", 8));
    CHECK(!memcmp(s.data + s.len - 3, "x\x18\x08", 3));
    str_free(&s);
}

static void reader_reads_what_was_written(void **state)
{
    (void)state;
    struct str s = { 0 };
    pb_put_varint(&s, 1, 150);
    pb_put_fixed64(&s, 2, 9);
    pb_put_bytes(&s, 3, "abc", 3);
    str_append_n(&s, "\x25\x04\x03\x02\x01", 5); /* field 4, fixed32 */
    pb_put_varint(&s, 536870911, UINT64_MAX);
    struct pb_reader r = { (unsigned char *)s.data, (unsigned char *)s.data + s.len };
    struct pb_field f;
    bool bad = false;
    CHECK(pb_next(&r, &f, &bad));
    CHECK_EQ(f.number, 1);
    CHECK_EQ(f.wire, PB_VARINT);
    CHECK_EQ(f.value, 150);
    CHECK(pb_next(&r, &f, &bad));
    CHECK_EQ(f.number, 2);
    CHECK_EQ(f.wire, PB_FIXED64);
    CHECK_EQ(f.value, 9);
    CHECK(pb_next(&r, &f, &bad));
    CHECK_EQ(f.number, 3);
    CHECK_EQ(f.wire, PB_BYTES);
    CHECK_EQ(f.n, 3);
    CHECK(!memcmp(f.bytes, "abc", 3));
    CHECK(pb_next(&r, &f, &bad));
    CHECK_EQ(f.number, 4);
    CHECK_EQ(f.wire, PB_FIXED32);
    CHECK_EQ(f.value, 0x01020304);
    CHECK(pb_next(&r, &f, &bad));
    CHECK_EQ(f.number, 536870911);
    CHECK_EQ(f.value, UINT64_MAX);
    CHECK(!pb_next(&r, &f, &bad));
    CHECK(!bad);
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

static bool walk(const void *bytes, size_t n)
{
    unsigned char *copy = exactly(bytes, n);
    struct pb_reader r = { copy, copy + n };
    struct pb_field f;
    bool bad = false;
    size_t sum = 0;
    while (pb_next(&r, &f, &bad))
        for (size_t i = 0; i < f.n; i++) sum += f.bytes[i];
    free(copy);
    return !bad && sum < SIZE_MAX;
}

static void damage_is_seen(void **state)
{
    (void)state;
    CHECK(walk("", 0));
    CHECK(!walk("\x08", 1));             /* a tag and no value */
    CHECK(!walk("\x08\x96", 2));         /* a varint that goes on */
    CHECK(!walk("\x80", 1));             /* a tag that goes on */
    CHECK(!walk("\x00\x01", 2));         /* field 0 */
    CHECK(!walk("\x0b", 1));             /* a group */
    CHECK(!walk("\x0f\x00", 2));         /* wire type 7 */
    CHECK(!walk("\x09\x01\x02", 3));     /* a fixed64 of two bytes */
    CHECK(!walk("\x0d\x01\x02\x03", 4)); /* a fixed32 of three */
    CHECK(!walk("\x0a\x05"
                "abcd",
                6));                                                      /* a length behind the end */
    CHECK(!walk("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11));     /* and one of 2^64 - 1 */
    CHECK(!walk("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12)); /* a varint of eleven bytes */
}

/* ---------------------------------------------------------------- spans and metrics */

static const uint8_t TRACE[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

/* Finds fields by numbers from the outside in; the n-th of the last number. False: it is not there. */
static bool find(struct pb_field *out, const struct str *body, const int *path, int depth, int nth)
{
    struct pb_field at = { .bytes = (const unsigned char *)str_text(body), .n = body->len };
    for (int d = 0; d < depth; d++) {
        struct pb_reader r = { at.bytes, at.bytes + at.n };
        bool bad = false, found = false;
        int seen = 0;
        while (!found && pb_next(&r, &at, &bad))
            found = at.number == path[d] && seen++ == (d + 1 == depth ? nth : 0);
        CHECK(!bad);
        if (!found) return false;
    }
    *out = at;
    return true;
}
#define FIND(field, body, nth, ...)                                                                          \
    find(field, body, (const int[]){ __VA_ARGS__ },                                                          \
         (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)), nth)

static bool holds(const struct pb_field *f, const char *text)
{
    return f->wire == PB_BYTES && f->n == strlen(text) && !memcmp(f->bytes, text, f->n);
}

static const struct otlp_attribute ATTRIBUTES[] = {
    { .key = "text", .type = OTLP_STRING, .string = "ü" },
    { .key = "count", .type = OTLP_INT, .integer = -5 },
    { .key = "share", .type = OTLP_DOUBLE, .number = 0.25 },
    { .key = "yes", .type = OTLP_BOOL, .truth = true },
    { .key = "list", .type = OTLP_STRINGS, .strings = (const char *const[]){ "a", "b" }, .n = 2 },
    { .key = "unknown_text", .type = OTLP_STRING },
    { .key = "unknown_number", .type = OTLP_DOUBLE, .number = NAN },
    { .key = "empty_list", .type = OTLP_STRINGS },
};
static const struct otlp_resource WHO = { ATTRIBUTES, 1 };

static void encode_traces(struct str *out)
{
    const struct otlp_event event = { "discarded", 1700000000000000150, ATTRIBUTES, 1 };
    struct otlp_span spans[] = {
        { .span_id = { 1 },
          .name = "experiment",
          .kind = OTLP_KIND_INTERNAL,
          .begun_ns = 1700000000000000100,
          .ended_ns = 1700000000000000200,
          .attributes = ATTRIBUTES,
          .n_attributes = COUNT_OF(ATTRIBUTES),
          .events = &event,
          .n_events = 1 },
        { .span_id = { 2 },
          .parent_id = { 1 },
          .name = "load",
          .kind = OTLP_KIND_CLIENT,
          .begun_ns = 1700000000000000100,
          .ended_ns = 1700000000000000101,
          .status = OTLP_STATUS_ERROR,
          .message = "gone",
          .linked = true,
          .link_trace_id = { 9 },
          .link_span_id = { 8 } },
    };
    for (size_t i = 0; i < COUNT_OF(spans); i++) memcpy(spans[i].trace_id, TRACE, sizeof TRACE);
    otlp_traces_encode(out, &WHO, spans, COUNT_OF(spans));
}

static void spans_are_encoded(void **state)
{
    (void)state;
    struct str body = { 0 };
    struct pb_field f;
    enum { RESOURCE_SPANS = 1, SCOPE_SPANS = 2, SPANS = 2 };
    encode_traces(&body);
    CHECK(FIND(&f, &body, 0, 1, 1, 1, 1));
    CHECK(holds(&f, "text")); /* resource.attributes.key */
    CHECK(FIND(&f, &body, 0, 1, 1, 1, 2, 1));
    CHECK(holds(&f, "ü"));
    CHECK(FIND(&f, &body, 0, 1, 2, 1, 1));
    CHECK(holds(&f, "qdyno")); /* scope */
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 1));
    CHECK_EQ(f.n, 16);
    CHECK(!memcmp(f.bytes, TRACE, 16));
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 2));
    CHECK_EQ(f.n, 8);
    CHECK_EQ(f.bytes[0], 1);
    CHECK(!FIND(&f, &body, 0, 1, 2, 2, 4)); /* a root has no parent, not one of zeros */
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 5));
    CHECK(holds(&f, "experiment"));
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 6));
    CHECK_EQ(f.value, 1);
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 7));
    CHECK_EQ(f.wire, PB_FIXED64);
    CHECK_EQ(f.value, 1700000000000000100);
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 8));
    CHECK_EQ(f.wire, PB_FIXED64);
    CHECK_EQ(f.value, 1700000000000000200);
    CHECK(FIND(&f, &body, 4, 1, 2, 2, 9));
    CHECK(!FIND(&f, &body, 5, 1, 2, 2, 9)); /* five are known */
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 11, 2));
    CHECK(holds(&f, "discarded"));
    CHECK(!FIND(&f, &body, 0, 1, 2, 2, 15)); /* unset is no status */
    struct pb_field second;
    CHECK(FIND(&second, &body, 1, 1, 2, 2));
    CHECK_EQ(second.wire, PB_BYTES);
    struct str span = { .data = (char *)second.bytes, .len = second.n };
    CHECK(FIND(&f, &span, 0, 4));
    CHECK_EQ(f.n, 8);
    CHECK_EQ(f.bytes[0], 1);
    CHECK(FIND(&f, &span, 0, 15, 2));
    CHECK(holds(&f, "gone"));
    CHECK(FIND(&f, &span, 0, 15, 3));
    CHECK_EQ(f.value, 2);
    CHECK(FIND(&f, &span, 0, 13, 1));
    CHECK_EQ(f.n, 16);
    CHECK_EQ(f.bytes[0], 9);
    CHECK(!FIND(&f, &body, 2, 1, 2, 2));
    str_free(&body);
}

static int encode_metrics(struct str *out)
{
    static const double BOUNDS[] = { 0.001, 0.01, 0.1 };
    static const uint64_t COUNTS[] = { 3, 0, 2, 1 };
    const uint64_t now = 1700000000000000000, then = now - 5000000000;
    const struct otlp_point gauge[] = {
        { .time_ns = now, .value = 1.5, .attributes = ATTRIBUTES, .n_attributes = COUNT_OF(ATTRIBUTES) },
        { .time_ns = now, .value = NAN }
    };
    const struct otlp_point sum = { .begun_ns = then, .time_ns = now, .value = 42 };
    const struct otlp_point unknown = { .time_ns = now, .value = NAN };
    const struct otlp_point histogram[] = {
        { .begun_ns = then, .time_ns = now, .bounds = BOUNDS, .counts = COUNTS, .n_bounds = 3, .sum = 0.9 },
        { .time_ns = now, .bounds = BOUNDS, .n_bounds = 3, .sum = NAN },
    };
    const struct otlp_metric metrics[] = {
        { "a.gauge", "By", "of bytes", OTLP_GAUGE, gauge, 2 },
        { "a.sum", "s", NULL, OTLP_SUM, &sum, 1 },
        { "not.known", "1", NULL, OTLP_GAUGE, &unknown, 1 },
        { "a.histogram", "s", "", OTLP_HISTOGRAM, histogram, 2 },
    };
    return otlp_metrics_encode(out, &WHO, metrics, COUNT_OF(metrics));
}

static void metrics_are_encoded(void **state)
{
    (void)state;
    struct str body = { 0 };
    struct pb_field f, m;
    CHECK_EQ(encode_metrics(&body), 3);
    CHECK(FIND(&f, &body, 0, 1, 1, 1, 1));
    CHECK(holds(&f, "text"));
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 1));
    CHECK(holds(&f, "a.gauge"));
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 2));
    CHECK(holds(&f, "of bytes"));
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 3));
    CHECK(holds(&f, "By"));
    CHECK(FIND(&f, &body, 0, 1, 2, 2, 5, 1, 4));
    CHECK_EQ(f.wire, PB_FIXED64);
    CHECK_EQ(f.value, 0x3ff8000000000000);
    CHECK(!FIND(&f, &body, 1, 1, 2, 2, 5, 1)); /* one point is not known */
    CHECK(FIND(&m, &body, 1, 1, 2, 2));
    struct str sum = { .data = (char *)m.bytes, .len = m.n };
    CHECK(FIND(&f, &sum, 0, 1));
    CHECK(holds(&f, "a.sum"));
    CHECK(!FIND(&f, &sum, 0, 2));
    CHECK(FIND(&f, &sum, 0, 7, 2));
    CHECK_EQ(f.value, 2);
    CHECK(FIND(&f, &sum, 0, 7, 3));
    CHECK_EQ(f.value, 1);
    CHECK(FIND(&f, &sum, 0, 7, 1, 2));
    CHECK_EQ(f.value, 1699999995000000000);
    CHECK(FIND(&m, &body, 2, 1, 2, 2));
    struct str histogram = { .data = (char *)m.bytes, .len = m.n };
    CHECK(FIND(&f, &histogram, 0, 1));
    CHECK(holds(&f, "a.histogram")); /* the unknown one is not there */
    CHECK(FIND(&f, &histogram, 0, 9, 1, 4));
    CHECK_EQ(f.value, 6);
    CHECK(FIND(&f, &histogram, 0, 9, 1, 6));
    CHECK_EQ(f.n, 4 * 8);
    CHECK_EQ(f.bytes[0], 3);
    CHECK_EQ(f.bytes[24], 1);
    CHECK(FIND(&f, &histogram, 0, 9, 1, 7));
    CHECK_EQ(f.n, 3 * 8);
    CHECK(!FIND(&f, &histogram, 1, 9, 1));
    CHECK(!FIND(&f, &body, 3, 1, 2, 2));
    str_free(&body);

    const struct otlp_point unknown = { .value = NAN };
    const struct otlp_metric nothing = { "x", NULL, NULL, OTLP_GAUGE, &unknown, 1 };
    CHECK_EQ(otlp_metrics_encode(&body, NULL, &nothing, 1), 0);
    str_free(&body);
}

/* ---------------------------------------------------------------- the official definitions */

static void official_definitions_read_the_spans(void **state)
{
    (void)state;
    struct str body = { 0 };
    encode_traces(&body);
    otlp_decode("sample-traces", &body, NULL);
}

static void official_definitions_read_the_metrics(void **state)
{
    (void)state;
    struct str body = { 0 };
    encode_metrics(&body);
    otlp_decode("sample-metrics", &body, NULL);
}

static void field_numbers_are_the_official_ones(void **state)
{
    (void)state;
    struct str table = { 0 };
#define ROW(id, message, field, number) str_printf(&table, "%s %s %d\n", message, field, number);
    OTLP_FIELDS(ROW)
#undef ROW
    otlp_decode("fields", &table, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_format),
        cmocka_unit_test(messages_stand_behind_their_length),
        cmocka_unit_test(reader_reads_what_was_written),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(spans_are_encoded),
        cmocka_unit_test(metrics_are_encoded),
        cmocka_unit_test(official_definitions_read_the_spans),
        cmocka_unit_test(official_definitions_read_the_metrics),
        cmocka_unit_test(field_numbers_are_the_official_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
