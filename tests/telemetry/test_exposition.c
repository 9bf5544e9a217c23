/* Proves: the text exposition format is correct (escapes, numbers, families) in every locale; misuse is
 * reported and nothing is written after it; `promtool check metrics`, if installed, reports no problem. */
#include "tests/telemetry/roots.h"

#include <locale.h>
#include <math.h>

#include "telemetry/export/export.h"

static void by_the_letter(void **state)
{
    (void)state;
    struct exposition e = { 0 };
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where installed: a decimal comma must not get in */
    exposition_family(&e, "qdyno_ab_effect_ratio", FAMILY_GAUGE, "B over A,\nhigher \\ better \"quoted\"");
    exposition_sample(&e, (struct label[]){ { "metric", "decode_tok_s" }, { "workload", "tg64" } }, 2, 1.25);
    exposition_sample(&e, (struct label[]){ { "metric", "a\\b\"c\nd" } }, 1, 0.1);
    exposition_sample(&e, (struct label[]){ { "metric", "absent" } }, 1, NAN);
    exposition_sample(&e, (struct label[]){ { "metric", NULL } }, 1, -INFINITY);
    exposition_family(&e, "qdyno_runs_total", FAMILY_COUNTER, "");
    exposition_sample(&e, NULL, 0, 3);
    exposition_family(&e, "qdyno_big_bytes", FAMILY_GAUGE, "µ");
    exposition_sample(&e, (struct label[]){ { "x", "bad \xff utf8" } }, 1, INFINITY);
    exposition_sample(&e, (struct label[]){ { "x", "y" } }, 1, 1e300);
    setlocale(LC_ALL, "C");
    CHECK_EQ(e.bad.code, ERR_OK);
    assert_string_equal(str_text(&e.text),
                        "# HELP qdyno_ab_effect_ratio B over A,\\nhigher \\\\ better \"quoted\"\n"
                        "# TYPE qdyno_ab_effect_ratio gauge\n"
                        "qdyno_ab_effect_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 1.25\n"
                        "qdyno_ab_effect_ratio{metric=\"a\\\\b\\\"c\\nd\"} 0.1\n"
                        "qdyno_ab_effect_ratio{metric=\"\"} -Inf\n"
                        "# HELP qdyno_runs_total \n"
                        "# TYPE qdyno_runs_total counter\n"
                        "qdyno_runs_total 3\n"
                        "# HELP qdyno_big_bytes µ\n"
                        "# TYPE qdyno_big_bytes gauge\n"
                        "qdyno_big_bytes{x=\"bad \xef\xbf\xbd utf8\"} +Inf\n"
                        "qdyno_big_bytes{x=\"y\"} 1e+300\n");
    exposition_free(&e);
}

static void misuse_is_caught(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum family_type type;
        const char *label[2];
        const char *says;
    } CASES[] = {
        { "qdyno:x", FAMILY_GAUGE, { "a", "b" }, "not a valid metric name" },
        { "1x", FAMILY_GAUGE, { "a", "b" }, "not a valid metric name" },
        { "", FAMILY_GAUGE, { "a", "b" }, "not a valid metric name" },
        { "x", FAMILY_GAUGE, { "a", "a" }, "twice" },
        { "x", FAMILY_GAUGE, { "__name__", "b" }, "not a valid label name" },
        { "x", FAMILY_GAUGE, { "a-b", "b" }, "not a valid label name" },
        { "x", FAMILY_GAUGE, { "", "b" }, "not a valid label name" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct exposition e = { 0 };
        exposition_family(&e, CASES[i].name, CASES[i].type, "h");
        exposition_sample(&e, (struct label[]){ { CASES[i].label[0], "1" }, { CASES[i].label[1], "2" } }, 2,
                          1);
        assert_int_equal(e.bad.code, ERR_INTERNAL);
        if (!strstr(e.bad.message, CASES[i].says)) fail_msg("%s", e.bad.message);
        size_t len = e.text.len;
        exposition_family(&e, "later", FAMILY_GAUGE, "h");
        exposition_sample(&e, NULL, 0, 1);
        assert_int_equal(e.text.len, len); /* nothing is written after a misuse */
        exposition_free(&e);
    }
    struct exposition e = { 0 };
    exposition_sample(&e, NULL, 0, 1);
    CHECK_CONTAINS(e.bad.message, "before any metric");
    exposition_free(&e);
}

static void histograms_by_the_letter(void **state)
{
    static const struct histogram_edges EDGES = { 3, { 0.5, 1, 2.5 } };
    struct histogram_counts h = { .count = 0 };
    struct exposition e = { 0 };
    (void)state;
    histogram_add(&h, &EDGES, 0.5, 2); /* an upper edge belongs to its bucket */
    histogram_add(&h, &EDGES, 0.75, 1);
    histogram_add(&h, &EDGES, 100, 1);
    histogram_add(&h, &EDGES, NAN, 5); /* no observation */
    histogram_add(&h, &EDGES, INFINITY, 5);
    histogram_add(&h, &EDGES, 1, 0);
    exposition_family(&e, "qdyno_x_seconds", FAMILY_HISTOGRAM, "h");
    exposition_histogram(&e, &(struct label){ "m", "a\"b" }, 1, &EDGES, &h);
    exposition_histogram(&e, NULL, 0, &EDGES, &(struct histogram_counts){ .count = 0 });
    CHECK_EQ(e.bad.code, ERR_OK);
    assert_string_equal(str_text(&e.text), "# HELP qdyno_x_seconds h\n"
                                           "# TYPE qdyno_x_seconds histogram\n"
                                           "qdyno_x_seconds_bucket{m=\"a\\\"b\",le=\"0.5\"} 2\n"
                                           "qdyno_x_seconds_bucket{m=\"a\\\"b\",le=\"1\"} 3\n"
                                           "qdyno_x_seconds_bucket{m=\"a\\\"b\",le=\"2.5\"} 3\n"
                                           "qdyno_x_seconds_bucket{m=\"a\\\"b\",le=\"+Inf\"} 4\n"
                                           "qdyno_x_seconds_sum{m=\"a\\\"b\"} 101.75\n"
                                           "qdyno_x_seconds_count{m=\"a\\\"b\"} 4\n"
                                           "qdyno_x_seconds_bucket{le=\"0.5\"} 0\n"
                                           "qdyno_x_seconds_bucket{le=\"1\"} 0\n"
                                           "qdyno_x_seconds_bucket{le=\"2.5\"} 0\n"
                                           "qdyno_x_seconds_bucket{le=\"+Inf\"} 0\n"
                                           "qdyno_x_seconds_sum 0\n"
                                           "qdyno_x_seconds_count 0\n");
    exposition_histogram(&e, NULL, 0, &EDGES, &h);
    CHECK_CONTAINS(e.bad.message, "same labels");
    exposition_free(&e);
}

static void bad_histograms_are_caught(void **state)
{
    static const struct histogram_edges EDGES = { 2, { 1, 2 } }, FALLING = { 2, { 2, 1 } },
                                        NONE = { 0, { 0 } };
    static const struct {
        enum family_type type;
        const struct histogram_edges *edges;
        struct histogram_counts h;
        const char *label, *says;
    } CASES[] = {
        { FAMILY_GAUGE, &EDGES, { .count = 0 }, "a", "not a histogram" },
        { FAMILY_HISTOGRAM, &FALLING, { .count = 0 }, "a", "must be ascending" },
        { FAMILY_HISTOGRAM, &NONE, { .count = 0 }, "a", "must be ascending" },
        { FAMILY_HISTOGRAM, &EDGES, { .bucket = { 1 }, .count = 2 }, "a", "add up" },
        { FAMILY_HISTOGRAM, &EDGES, { .bucket = { 1 }, .count = 1, .sum = NAN }, "a", "sum finite" },
        { FAMILY_HISTOGRAM, &EDGES, { .count = 0 }, "le", "not a valid label name" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct exposition e = { 0 };
        exposition_family(&e, "x", CASES[i].type, "h");
        exposition_histogram(&e, &(struct label){ CASES[i].label, "1" }, 1, CASES[i].edges, &CASES[i].h);
        if (!e.bad.code || !strstr(e.bad.message, CASES[i].says)) fail_msg("case %zu: %s", i, e.bad.message);
        exposition_free(&e);
    }
    struct exposition e = { 0 };
    exposition_family(&e, "x", FAMILY_HISTOGRAM, "h");
    exposition_sample(&e, NULL, 0, 1);
    CHECK_CONTAINS(e.bad.message, "is a histogram");
    exposition_free(&e);
    exposition_family(&e, "x_count", FAMILY_GAUGE, "h");
    exposition_family(&e, "x", FAMILY_HISTOGRAM, "h"); /* its count would be the gauge's sample */
    CHECK_CONTAINS(e.bad.message, "opened twice");
    exposition_free(&e);
}

static void families_and_series_are_unique(void **state)
{
    (void)state;
    struct exposition e = { 0 };
    exposition_family(&e, "a_b", FAMILY_GAUGE, "h");
    exposition_family(&e, "a", FAMILY_GAUGE, "h"); /* the start of another's name is another name */
    CHECK_EQ(e.bad.code, ERR_OK);
    exposition_family(&e, "a_b", FAMILY_GAUGE, "h");
    CHECK_CONTAINS(e.bad.message, "'a_b' is opened twice");
    exposition_free(&e);
    exposition_family(&e, "a", FAMILY_GAUGE, "h");
    exposition_sample(&e, (struct label[]){ { "x", "1" } }, 1, 1);
    exposition_sample(&e, (struct label[]){ { "x", "11" } }, 1, 1);
    exposition_sample(&e, NULL, 0, 1);
    CHECK_EQ(e.bad.code, ERR_OK);
    exposition_sample(&e, (struct label[]){ { "x", "1" } }, 1, 2);
    CHECK_CONTAINS(e.bad.message, "same labels");
    exposition_free(&e);
}

static void promtool_agrees(void **state)
{
    (void)state;
    if (system("command -v promtool >/dev/null 2>&1")) {
        print_message("SKIPPED: promtool (Debian package prometheus) is not installed\n");
        skip();
    }
    struct exposition e = { 0 };
    exposition_family(&e, "qdyno_ab_effect_ratio", FAMILY_GAUGE,
                      "Effect, B over A \\ with a backslash\nand a line.");
    exposition_sample(&e, (struct label[]){ { "metric", "decode_tok_s" }, { "workload", "a\"b\\c\nd" } }, 2,
                      1.07);
    exposition_sample(&e, (struct label[]){ { "metric", "é" }, { "workload", "" } }, 2, -INFINITY);
    exposition_family(&e, "qdyno_ab_blocks", FAMILY_GAUGE, "Blocks measured.");
    exposition_sample(&e, NULL, 0, 12);
    exposition_family(&e, "qdyno_pushes_total", FAMILY_COUNTER, "Pushes.");
    exposition_sample(&e, NULL, 0, 1e15);
    CHECK_EQ(e.bad.code, ERR_OK);
    FILE *p = popen("promtool check metrics", "w");
    assert_non_null(p);
    fputs(str_text(&e.text), p);
    assert_int_equal(pclose(p), 0);
    p = popen("promtool check metrics >/dev/null 2>&1", "w"); /* and it does notice things */
    fputs("qdyno_x{a=\"b} 1\n", p);
    assert_int_not_equal(pclose(p), 0);
    exposition_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_the_letter),
        cmocka_unit_test(misuse_is_caught),
        cmocka_unit_test(histograms_by_the_letter),
        cmocka_unit_test(bad_histograms_are_caught),
        cmocka_unit_test(families_and_series_are_unique),
        cmocka_unit_test(promtool_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
