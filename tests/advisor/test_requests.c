/* Proves: what requests took is counted once, exactly, in the buckets where it belongs; sequences side by
 * side are requests each; what is no request or has no figures adds nothing; too many series become one; and
 * the text of it is what Prometheus' own checker accepts. */
#include "tests/advisor/fake.h"

#include <math.h>

#include "advisor/run/run.h"

static json_t *answer_of(const char *text)
{
    json_t *o = NULL;
    struct err why = { 0 };
    CHECK_OK(json_parse(&o, text, strlen(text), &why));
    return o;
}

static void answers_are_read(void **state)
{
    static const struct {
        const char *answer;
        bool is_request;
    } CASES[] = {
        { "{\"model\":\"m\",\"workload\":\"pp8+tg4\",\"sequences\":2,\"prefill_s\":0.5,\"decode_s\":1,"
          "\"ttft_s\":0.6,\"prompt_tokens\":16,\"gen_tokens\":8}",
          true },
        { "{\"workload\":\"tg4\",\"prefill_s\":null,\"decode_s\":1,\"ttft_s\":null,\"gen_tokens\":4}", true },
        { "{\"workload\":\"eval\",\"prefill_s\":0.5,\"decode_s\":null,\"scored_tokens\":511}", false },
        { "{\"workload\":\"train20\",\"train_s\":1}", false },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct request_rows rows = { .n = 0 };
        struct request_figures f;
        json_t *o = answer_of(CASES[i].answer);
        CHECK_EQ(request_read(&rows, &f, o), CASES[i].is_request);
        json_decref(o);
        if (i == 0) {
            CHECK_EQ(rows.sequences, 2);
            CHECK_EQ(f.prompt_tokens, 16);
            CHECK_EQ(f.gen_tokens, 8);
            CHECK_EQ(f.ttft_s, 0.6f);
            assert_string_equal(rows.model, "m");
            assert_string_equal(rows.workload, "pp8+tg4");
        }
        if (i == 1) {
            CHECK_EQ(rows.sequences, 1);
            CHECK_NAN(f.ttft_s);
            CHECK_NAN(f.prefill_s);
            CHECK_EQ(f.decode_s, 1);
        }
    }
}

struct seen {
    char what[64];
    struct histogram_counts h;
    double value;
    int times;
};

static void take_value(void *ctx, enum family_id f, const struct label *labels, int n, double value)
{
    struct seen *s = ctx;
    CHECK_EQ(n, 2);
    CHECK(labels[0].value);
    if (!strcmp(FAMILIES[f].name, s->what)) {
        s->value = value;
        s->times++;
    }
}

static void take_histogram(void *ctx, enum family_id f, const struct label *labels, int n,
                           const struct histogram_counts *h)
{
    struct seen *s = ctx;
    CHECK_EQ(n, 2);
    CHECK(labels[1].value);
    if (!strcmp(FAMILIES[f].name, s->what)) {
        s->h = *h;
        s->times++;
    }
}

static struct seen look(const struct request_totals *t, const char *what)
{
    struct seen s = { .value = NAN };
    const struct family_sink to = { &s, take_value, take_histogram };
    snprintf(s.what, sizeof(s.what), "%s", what);
    request_totals_tell(t, &to);
    return s;
}

/* The count of the bucket whose upper edge is `edge`. */
static uint64_t bucket(const struct seen *s, const struct histogram_edges *e, double edge)
{
    for (int i = 0; i < e->n; i++)
        if (e->edge[i] == edge) return s->h.bucket[i];
    fail_msg("no edge %g", edge);
    return 0;
}

static void counts_are_exact(void **state)
{
    struct request_totals *t = calloc(1, sizeof(*t));
    (void)state;
    struct request_figures f[] = { { 16, 8, 0.25f, 0.2f, 0.04f }, { 16, 8, 0.3f, 0.25f, 0.08f } };
    const float itl[] = { 0.003f, 0.0079f, 0.02f, 100 }; /* on either side of edges, and above the last */
    struct cell_requests c = { 7, { "m", "pp8+tg4", 2, 2, f }, itl, 4 };
    request_totals_add(t, &c);
    CHECK_EQ(t->last_cell, 7);
    CHECK_EQ(t->n, 1);
    struct seen s = look(t, "qdyno_prompt_tokens_total");
    CHECK_EQ(s.value, 32);
    CHECK_EQ(s.times, 1);
    CHECK_EQ(look(t, "qdyno_generated_tokens_total").value, 16);
    CHECK_NEAR(look(t, "qdyno_prompt_seconds_total").value, 0.45, 1e-6);
    CHECK_NEAR(look(t, "qdyno_generate_seconds_total").value, 0.12, 1e-6);
    s = look(t, "qdyno_time_to_first_token_seconds");
    CHECK_EQ(s.h.count, 4);                            /* two requests of two sequences each */
    CHECK_EQ(bucket(&s, &EDGES_FIRST_TOKEN, 0.25), 2); /* an edge belongs to its own bucket */
    CHECK_EQ(bucket(&s, &EDGES_FIRST_TOKEN, 0.5), 2);
    CHECK_NEAR(s.h.sum, 2 * 0.55, 1e-6);
    s = look(t, "qdyno_inter_token_latency_seconds");
    CHECK_EQ(s.h.count, 8);
    CHECK_EQ(bucket(&s, &EDGES_TOKEN, 0.008), 2);
    CHECK_EQ(bucket(&s, &EDGES_TOKEN, 0.025), 2);
    CHECK_EQ(s.h.bucket[EDGES_TOKEN.n], 2); /* +Inf */
    s = look(t, "qdyno_request_time_per_output_token_seconds");
    CHECK_EQ(s.h.count, 4);
    CHECK_EQ(bucket(&s, &EDGES_TOKEN, 0.01), 2);
    CHECK_EQ(bucket(&s, &EDGES_TOKEN, 0.025), 2);
    s = look(t, "qdyno_request_duration_seconds"); /* 0.29 and 0.38 */
    CHECK_EQ(s.h.count, 4);
    CHECK_EQ(bucket(&s, &EDGES_REQUEST, 0.32), 2);
    CHECK_EQ(bucket(&s, &EDGES_REQUEST, 0.64), 2);

    /* no prompt: no time to a first token, and no zero instead of it */
    struct request_figures plain = { 0, 4, NAN, NAN, 0.02f };
    struct cell_requests tg = { 8, { "m", "tg4", 1, 1, &plain }, NULL, 0 };
    request_totals_add(t, &tg);
    s = look(t, "qdyno_time_to_first_token_seconds");
    CHECK_EQ(s.times, 1);
    CHECK_EQ(s.h.count, 4);
    s = look(t, "qdyno_request_duration_seconds");
    CHECK_EQ(s.times, 2);
    CHECK_EQ(s.h.count, 1);
    CHECK_EQ(bucket(&s, &EDGES_REQUEST, 0.02), 1);
    free(t);
}

static void many_series_become_one(void **state)
{
    enum { MANY = REQUEST_SERIES + 5 };
    struct request_totals *t = calloc(1, sizeof(*t));
    (void)state;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++) {
            struct request_figures f = { 0, 1, NAN, NAN, 1 };
            struct cell_requests c = { round * MANY + i, { "", "tg1", 1, 1, &f }, NULL, 0 };
            snprintf(c.requests.model, sizeof(c.requests.model), "m%d", i);
            request_totals_add(t, &c);
        }
    CHECK_EQ(t->n, REQUEST_SERIES + 1);
    assert_string_equal(t->series[REQUEST_SERIES].model, "other");
    CHECK_EQ(t->series[REQUEST_SERIES].generated_tokens, 10);
    CHECK_EQ(t->series[0].generated_tokens, 2);
    free(t);
}

static void the_text_is_valid(void **state)
{
    struct request_totals *t = calloc(1, sizeof(*t));
    struct exposition e = { 0 };
    const struct family_sink to = exposition_sink(&e);
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct request_figures f = { 8, 4, 0.25f, 0.2f, 0.04f };
        struct cell_requests c = { i, { "m\"x", "", 1, 1, &f }, (const float[]){ 0.01f }, 1 };
        snprintf(c.requests.workload, sizeof(c.requests.workload), "tg%d", i);
        request_totals_add(t, &c);
    }
    request_totals_tell(t, &to);
    CHECK_EQ(e.bad.code, ERR_OK);
    CHECK_CONTAINS(str_text(&e.text),
                   "qdyno_decode_seconds_bucket{model=\"m\\\"x\",workload=\"tg1\",le=\"0.04\"} 1\n");
    CHECK_CONTAINS(str_text(&e.text),
                   "qdyno_decode_seconds_bucket{model=\"m\\\"x\",workload=\"tg1\",le=\"+Inf\"} 1\n"
                   "qdyno_decode_seconds_sum{model=\"m\\\"x\",workload=\"tg1\"} 0.03999999910593033\n"
                   "qdyno_decode_seconds_count{model=\"m\\\"x\",workload=\"tg1\"} 1\n");
    if (!system("command -v promtool >/dev/null 2>&1")) {
        FILE *p = popen("promtool check metrics", "w");
        assert_non_null(p);
        fputs(str_text(&e.text), p);
        assert_int_equal(pclose(p), 0);
    } else {
        print_message("SKIPPED: promtool (Debian package prometheus) is not installed\n");
    }
    exposition_free(&e);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_read),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(many_series_become_one),
        cmocka_unit_test(the_text_is_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
