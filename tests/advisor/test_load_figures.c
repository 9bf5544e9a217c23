/* Proves: intervals by batch means contain the mean of a correlated series as often as they say; the trend
 * test and the test of steady state find growing queues and pass stationary ones; figures of a load worked by
 * hand; percentiles only of enough requests; the search of the highest rate ends at it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "advisor/stats/stats.h"
#include "tests/check.h"

static double uniform(uint64_t *state)
{
    return ((double)(stats_random(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    return stats_normal_quantile(uniform(state));
}

/* x[n]: mean 0, each value `keep` times the one before plus noise. */
static void series_make(double *x, int n, double keep, uint64_t *state)
{
    double v = normal(state) / sqrt(1 - keep * keep);
    for (int i = 0; i < n; i++) x[i] = v = keep * v + normal(state);
}

static void test_batch_means(void **state)
{
    (void)state;
    enum { N = 640, RUNS = 400 };
    double x[N];
    uint64_t seed = 1;
    int inside = 0, known = 0, naive = 0;
    for (int r = 0; r < RUNS; r++) {
        series_make(x, N, 0.8, &seed);
        const struct interval i = stats_batch_means(x, N, 0.95), t = stats_t_interval(x, N, 0.95);
        naive += t.lower < 0 && t.upper > 0;
        if (isnan(i.lower)) continue;
        known++;
        inside += i.lower < 0 && i.upper > 0;
    }
    CHECK_GT(known, RUNS * 9 / 10);
    CHECK_GT(inside, known * 90 / 100); /* 95 % and a little less, as 640 values hold few independent ones */
    CHECK_LT(naive, RUNS * 70 / 100);   /* treating them as independent fails */
    CHECK_NAN(stats_batch_means(x, 31, 0.95).lower);
    for (int i = 0; i < N; i++) x[i] = 1;
    CHECK_NAN(stats_batch_means(x, N, 0.95).lower);
    CHECK_NEAR(stats_batch_means(x, N, 0.95).estimate, 1, 0);
}

static void test_trend(void **state)
{
    (void)state;
    static const double UP[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, EQUAL[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    /* S = 28, variance = 8 * 7 * 21 / 18 = 65.33, z = 27 / 8.083 = 3.340 */
    CHECK_NEAR(stats_trend_p(UP, 8), 8.37e-4, 1e-5);
    CHECK_NEAR(stats_trend_p(EQUAL, 8), 1, 0);
    CHECK_NAN(stats_trend_p(UP, 7));
    uint64_t seed = 3;
    int found = 0;
    double x[10];
    for (int r = 0; r < 2000; r++) {
        series_make(x, 10, 0, &seed);
        found += stats_trend_p(x, 10) < 0.05;
    }
    CHECK_LT(found, 140); /* 100 expected */
    CHECK_GT(found, 40);
}

static void test_steady(void **state)
{
    (void)state;
    enum { N = 200 };
    double ttft[N], queue[N];
    char why[160];
    int warmup, wrong = 0;
    uint64_t seed = 7;
    for (int r = 0; r < 200; r++) { /* stationary from the start */
        series_make(ttft, N, 0.5, &seed);
        series_make(queue, N, 0.5, &seed);
        for (int i = 0; i < N; i++) {
            ttft[i] = 5 + ttft[i];
            queue[i] = 10 + queue[i];
        }
        wrong += load_steady(ttft, queue, N, &warmup, why, sizeof why) != STEADY_REACHED;
    }
    CHECK_LT(wrong, 20);
    for (int i = 0; i < N; i++) ttft[i] = 1 + 0.1 * normal(&seed) + 20 * exp(-i / 8.0);
    CHECK_EQ(load_steady(ttft, queue, N, &warmup, why, sizeof why), STEADY_REACHED);
    CHECK_GE(warmup, 20);
    CHECK_LE(warmup, 60);
    for (int i = 0; i < N; i++)
        ttft[i] = 1 + 0.05 * i + 0.1 * normal(&seed); /* more arrives than is served */
    CHECK_EQ(load_steady(ttft, queue, N, &warmup, why, sizeof why), STEADY_NOT);
    for (int i = 0; i < N; i++) {
        ttft[i] = 1 + 0.1 * normal(&seed);
        queue[i] = i / 4;
    }
    CHECK_EQ(load_steady(ttft, queue, N, &warmup, why, sizeof why), STEADY_NOT);
    CHECK_CONTAINS(why, "unfinished requests");
    CHECK_EQ(load_steady(ttft, queue, STEADY_LEAST - 1, &warmup, why, sizeof why), STEADY_UNKNOWN);
    CHECK_CONTAINS(why, "39 requests are too few");
    CHECK_EQ(warmup, -1);
}

/* ---------------------------------------------------------------- figures */

/* An answer of n requests: request i is scheduled at i, sent 0.1 later, admitted after 0.2, has its first
 * token after 0.5 + wobble and two more after gaps of 0.1 and 0.3. Every fifth one failed. */
static json_t *answer_of(int n, bool with_failures)
{
    json_t *o = json_object(), *r = json_object(), *served = json_object();
    static const char *const KEYS[] = { "scheduled_s", "sent_s", "admitted_s",  "first_s", "end_s",  "prompt",
                                        "cached",      "tokens", "preemptions", "outcome", "token_s" };
    for (size_t k = 0; k < COUNT_OF(KEYS); k++) json_put(r, KEYS[k], json_array());
    for (int i = 0; i < n; i++) {
        const bool fails = with_failures && i % 5 == 4;
        const double first = i + 0.5 + 0.01 * (i * 7 % 10);
        const double value[] = { i, i + 0.1, i + 0.2, first, first + 0.4, 10, 4, fails ? 0 : 3, i % 2 };
        for (int k = 0; k < 9; k++)
            json_array_append_new(json_object_get(r, KEYS[k]),
                                  fails && (k == 3 || k == 4) ? json_null() : json_real(value[k]));
        json_array_append_new(json_object_get(r, "outcome"), json_string(fails ? "failed" : "done"));
        const double at[] = { first, first + 0.1, first + 0.4 };
        for (int t = 0; t < (fails ? 0 : 3); t++)
            json_array_append_new(json_object_get(r, "token_s"), json_real(at[t]));
    }
    json_put(o, "requests", r);
    json_put_num(served, "seconds", n);
    json_put_num(served, "steps", 2 * n);
    json_put_num(served, "step_requests", 3 * n);
    json_put_num(served, "step_s", 10);
    json_put_num(served, "model_s", 9);
    json_put_num(served, "kv_use", 0.25);
    json_put(o, "served", served);
    return o;
}

static struct load_summary figures_of(json_t *answer, const char *line, double *value, int *n_itl)
{
    struct err why = { 0 };
    struct workload w;
    struct load_summary s;
    float *itl;
    for (int m = 0; m < METRIC_COUNT; m++) value[m] = NAN;
    CHECK_OK(workload_parse(&w, line, &why));
    CHECK_OK(load_figures(&s, value, &itl, n_itl, answer, &w.load, &why));
    free(itl);
    json_decref(answer);
    return s;
}

static void test_figures(void **state)
{
    (void)state;
    double v[METRIC_COUNT];
    int n_itl;
    struct load_summary s = figures_of(answer_of(100, false), "load:rate=1,slo=\"ttft<551ms,itl_max<1s\"", v,
                                       &n_itl);
    CHECK_EQ(s.steady, STEADY_REACHED);
    CHECK_EQ(s.warmup, 0);
    CHECK_EQ(s.requests, 100);
    CHECK_EQ(s.done, 100);
    CHECK_EQ(s.good, 60); /* of the ten wobbles, 0 to 0.05 */
    CHECK_EQ(n_itl, 200);
    CHECK_NEAR(v[METRIC_GOODPUT], 0.6, 1e-12);
    CHECK_NEAR(v[METRIC_TTFT], 0.545, 1e-9);
    CHECK_NEAR(v[METRIC_TTFT_SENT], 0.445, 1e-9);
    CHECK_NEAR(v[METRIC_LATE], 0.1, 1e-9);
    CHECK_NEAR(v[METRIC_QUEUE], 0.2, 1e-9);
    CHECK_NEAR(v[METRIC_TPOT], 0.2, 1e-9);
    CHECK_NEAR(v[METRIC_E2E], 0.945, 1e-9);
    CHECK_NEAR(v[METRIC_ITL_MAX], 0.3, 1e-9);
    CHECK_NEAR(v[METRIC_REQUEST_RATE], 1, 1e-12);
    CHECK_NEAR(v[METRIC_IN_RATE], 10, 1e-12);
    CHECK_NEAR(v[METRIC_OUT_RATE], 3, 1e-12);
    CHECK_NEAR(v[METRIC_BATCH], 1.5, 1e-12);
    CHECK_NEAR(v[METRIC_KV_USE], 0.25, 0);
    CHECK_NEAR(v[METRIC_PREFIX_HIT], 0.4, 1e-12);
    CHECK_NEAR(v[METRIC_PREEMPTIONS], 50, 0);
    CHECK_NEAR(v[METRIC_SCHEDULER], 0.1, 1e-12);
    CHECK_NEAR(v[METRIC_FAILED], 0, 0);
    CHECK_NEAR(v[METRIC_TTFT_P50], 0.545, 1e-9);
    CHECK_NEAR(v[METRIC_TTFT_P95], 0.59, 1e-9); /* 90 requests bound the 95th percentile ... */
    CHECK_NAN(v[METRIC_TTFT_P99]);              /* ... 459 the 99th */
    s = figures_of(answer_of(500, false), "load:rate=1", v, &n_itl);
    CHECK_NEAR(v[METRIC_TTFT_P99], 0.59, 1e-9);
    CHECK_NAN(v[METRIC_GOODPUT]); /* no limits */
}

/* Complete requests, for the totals of the scrape page. */
static void test_requests(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct request_figures *f;
    struct request_totals *t = calloc(1, sizeof *t);
    struct cell_requests c = { .cell_id = 1,
                               .requests = { .model = "m", .workload = "load:rate=1", .sequences = 1 } };
    json_t *answer = answer_of(10, true);
    CHECK_OK(load_request_rows(&f, &c.requests.n, answer, &why));
    CHECK_EQ(c.requests.n, 8); /* two failed */
    CHECK_NEAR(f[1].prompt_tokens, 10, 0);
    CHECK_NEAR(f[1].gen_tokens, 3, 0);
    CHECK_NEAR(f[1].ttft_s, 0.57, 1e-6);
    CHECK_NEAR(f[1].prefill_s, 0.37, 1e-6);
    CHECK_NEAR(f[1].decode_s, 0.4, 1e-6);
    c.requests.figures = f;
    request_totals_add(t, &c);
    CHECK_EQ(t->n, 1);
    CHECK_NEAR(t->series[0].prompt_tokens, 80, 0);
    CHECK_NEAR(t->series[0].generated_tokens, 24, 0);
    CHECK_EQ(t->series[0].histogram[0].count, 8);             /* TTFT */
    CHECK_NEAR(t->series[0].histogram[2].sum, 8 * 0.2, 1e-5); /* per token: two gaps in 0.4 s */
    json_object_del(answer, "requests");
    CHECK_EQ(load_request_rows(&f, &c.requests.n, answer, &why), ERR_FORMAT);
    CHECK_EQ(c.requests.n, 0);
    assert_null(f);
    free(c.requests.figures);
    free(t);
    json_decref(answer);
}

static void test_failures_and_few(void **state)
{
    (void)state;
    double v[METRIC_COUNT];
    int n_itl;
    struct load_summary s = figures_of(answer_of(100, true), "load:rate=1,slo=ttft<9s", v, &n_itl);
    CHECK_EQ(s.done, 80);
    CHECK_EQ(s.good, 80); /* of all 100 requests */
    CHECK_NEAR(v[METRIC_GOODPUT], 0.8, 1e-12);
    CHECK_NEAR(v[METRIC_FAILED], 20, 0);
    CHECK_NEAR(v[METRIC_REQUEST_RATE], 0.8, 1e-12);
    s = figures_of(answer_of(20, false), "load:rate=1,slo=ttft<1ms", v, &n_itl);
    CHECK_EQ(s.steady, STEADY_UNKNOWN);
    CHECK_NAN(v[METRIC_TTFT]);
    CHECK_NAN(v[METRIC_TPOT]);
    CHECK_EQ(n_itl, 0);
    CHECK_NEAR(v[METRIC_E2E], 0.945, 1e-9); /* of the whole run */
    CHECK_EQ(s.good, 0);
    CHECK_NEAR(v[METRIC_GOODPUT], 0.025, 1e-12); /* half a request */
    s = figures_of(answer_of(100, false), "load:rate=1,arrivals=ramp", v, &n_itl);
    CHECK_EQ(s.steady, STEADY_NOT);
    CHECK_NAN(v[METRIC_TTFT]);
}

static void test_damaged_answer(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct workload w;
    struct load_summary s;
    double v[METRIC_COUNT];
    float *itl;
    int n;
    CHECK_OK(workload_parse(&w, "load:rate=1", &why));
    json_t *o = json_object();
    CHECK_EQ(load_figures(&s, v, &itl, &n, o, &w.load, &why), ERR_FORMAT);
    json_decref(o);
    o = answer_of(10, false);
    json_array_remove(json_object_get(json_object_get(o, "requests"), "token_s"), 0);
    CHECK_EQ(load_figures(&s, v, &itl, &n, o, &w.load, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "times of 29 tokens: expected 30");
    json_decref(o);
}

static void test_rate_search(void **state)
{
    (void)state;
    for (double limit = 0.5; limit < 10; limit += 0.7) { /* rates up to it meet the limits */
        struct rate_search s;
        double rate;
        int cells = 0;
        rate_search_init(&s, 8);
        while (!isnan(rate = rate_search_next(&s))) {
            rate_search_take(&s, rate, rate <= limit);
            cells++;
        }
        CHECK_EQ(cells, RATE_SEARCH_CELLS);
        CHECK_LE(s.low, limit);
        CHECK_GE(s.low, fmin(limit, 1.2 * 8) - 1.2 * 8 / 64 - 1e-9);
    }
    const struct workload_load l = { .meet = 0.95 };
    CHECK(load_meets(&(struct load_summary){ .steady = STEADY_REACHED, .good = 95, .requests = 100 }, &l));
    CHECK(!load_meets(&(struct load_summary){ .steady = STEADY_REACHED, .good = 94, .requests = 100 }, &l));
    CHECK(!load_meets(&(struct load_summary){ .steady = STEADY_NOT, .good = 100, .requests = 100 }, &l));
}

static json_t *parse(const char *text)
{
    struct err why = { 0 };
    json_t *o;
    CHECK_OK(json_parse(&o, text, strlen(text), &why));
    return o;
}

/* Five requests of two classes and none, not in the order of the schedule, worked by hand. */
static void test_classes(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct workload w;
    json_t *list,
        *answer = parse("{\"classes\": [\"math\", \"unused\", \"story\"], \"requests\": {"
                        "\"outcome\": [\"done\", \"done\", \"failed\", \"done\", \"done\"],"
                        "\"class\": [2, 0, 0, null, 2],"
                        "\"scheduled_s\": [5, 1, 2, 3, 4], \"sent_s\": [5, 1, 2, 3, 4],"
                        "\"first_s\": [5.5, 1.1, null, 3.1, 4.1], \"end_s\": [6.5, 1.1, null, 3.1, 4.3],"
                        "\"prompt\": [10, 30, 40, 50, 20], \"tokens\": [3, 1, 0, 1, 3],"
                        "\"token_s\": [5.5, 6.0, 6.5, 1.1, 3.1, 4.1, 4.2, 4.3]}}");
    CHECK_OK(workload_parse(&w, "load:rate=1,requests=5,prompts=x,slo=ttft<0.3", &why));
    CHECK_OK(load_class_figures(&list, answer, &w.load, &why));
    CHECK_EQ(json_array_size(list), 2); /* without the class that no request has */
    const json_t *math = json_array_get(list, 0), *story = json_array_get(list, 1);
    CHECK_STR(json_get_str(math, "class", ""), "math");
    CHECK_EQ(json_get_int(math, "requests", 0), 2);
    CHECK_EQ(json_get_int(math, "failed_requests", 0), 1);
    CHECK_NEAR(json_get_num(math, "prompt_tokens", NAN), 30, 1e-9);
    CHECK_NEAR(json_get_num(math, "ttft_s", NAN), 0.1, 1e-9);
    CHECK_NAN(json_get_num(math, "tpot_s", NAN)); /* its only answer has one token */
    CHECK_NEAR(json_get_num(math, "goodput_ratio", NAN), 0.5, 1e-9);
    CHECK_STR(json_get_str(story, "class", ""), "story");
    CHECK_EQ(json_get_int(story, "requests", 0), 2);
    CHECK_NEAR(json_get_num(story, "prompt_tokens", NAN), 15, 1e-9);
    CHECK_NEAR(json_get_num(story, "gen_tokens", NAN), 3, 1e-9);
    CHECK_NEAR(json_get_num(story, "ttft_s", NAN), 0.3, 1e-9);
    CHECK_NEAR(json_get_num(story, "tpot_s", NAN), 0.3, 1e-9);
    CHECK_NEAR(json_get_num(story, "e2e_s", NAN), 0.9, 1e-9);
    CHECK_NEAR(json_get_num(story, "goodput_ratio", NAN), 0.5, 1e-9);
    json_decref(list);
    json_object_del(answer, "classes");
    CHECK_OK(load_class_figures(&list, answer, &w.load, &why));
    CHECK(!list);
    json_decref(answer);
}

static void test_prompt_notes(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *note;
    } CASES[] = {
        { "{\"workload\": \"pp8\"}", "" },
        { "{\"workload\": \"pp8\", \"prompts\": {\"repeats\": false, \"text_tokens\": 9}}", "" },
        { "{\"workload\": \"pp8@d90000\", \"prompts\": {\"repeats\": true, \"text_tokens\": 70000}}",
          "pp8@d90000: the bundled text has 70000 tokens, fewer than a prompt, so text repeats; --prompts FILE "
          "takes prompts of your own" },
        { "{\"workload\": \"pp8@prompts:x/a.txt\", \"prompts\": {\"repeats\": true, \"file\": \"a.txt\", "
          "\"form\": \"text\", \"sha256\": \"0123456789abcdef\", \"count\": 1, \"used\": 1}}",
          "prompts from a.txt (text, SHA-256 0123456789ab...); the text is shorter than a prompt, and repeats in "
          "it" },
        { "{\"workload\": \"load:rate=1,requests=9,prompts=a\", \"served\": {\"cut\": 2}, \"prompts\": "
          "{\"repeats\": false, \"file\": \"a\", \"form\": \"ShareGPT\", \"sha256\": \"0123456789abcdef\", "
          "\"count\": 70, \"used\": 9, \"skipped\": 3}}",
          "prompts from a (ShareGPT, SHA-256 0123456789ab...): 9 of 70 are used; 3 without a text are left out; 2 "
          "of 9 requests were cut to the context of 4096 tokens (ctx= sets another)" },
    };
    char note[RUN_PROMPT_NOTE];
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        json_t *answer = parse(CASES[i].answer);
        CHECK_STR(run_prompt_note(note, sizeof note, answer), CASES[i].note);
        json_decref(answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_means),    cmocka_unit_test(test_trend),
        cmocka_unit_test(test_steady),         cmocka_unit_test(test_figures),
        cmocka_unit_test(test_requests),       cmocka_unit_test(test_failures_and_few),
        cmocka_unit_test(test_damaged_answer), cmocka_unit_test(test_rate_search),
        cmocka_unit_test(test_classes),        cmocka_unit_test(test_prompt_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
