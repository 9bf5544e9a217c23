/* Proves: figures become the statement with the intervals their errors give, exact p and all, and the
 * document of it reads back as itself; a comparison is measured in a process of its own and its failures are
 * named. */
#include "tests/advisor/fake.h"

#include <math.h>

#include "advisor/experiment/experiment.h"
#include "advisor/run/run.h"

static struct divergence figures(int64_t windows)
{
    struct divergence d = { .reference = { .ppl = exp(1.5), .nll = 1.5, .nll_se = 0.02, .chunks = windows },
                            .candidate = { .ppl = exp(1.51),
                                           .nll = 1.51,
                                           .nll_se = 0.02,
                                           .chunks = windows,
                                           .scored = windows * 10 },
                            .kld_mean = 0.01,
                            .kld_se = 0.002,
                            .kld_p50 = 0.005,
                            .kld_p90 = 0.03,
                            .kld_p99 = NAN,
                            .kld_max = 0.2,
                            .top1_ratio = 0.95,
                            .top1_se = 0.01,
                            .top1_lower = 0.92,
                            .top1_upper = 0.97,
                            .log_ratio = 0.01,
                            .log_ratio_se = 0.003,
                            .only_reference_right = 2,
                            .only_candidate_right = 11,
                            .accuracy_reference = 0.4,
                            .accuracy_candidate = 0.41,
                            .accuracy_change = 0.01,
                            .accuracy_change_se = 0.004,
                            .greedy = { .prompts = 16, .diverged = 9, .limit = 64, .median = 20 } };
    return d;
}

static void test_statement(void **state)
{
    (void)state;
    struct quality q;
    struct divergence d = figures(25);
    const double t = 2.0638985616280205; /* of 24 degrees of freedom, 97.5 % */
    quality_of(&q, &d, "/some/where/text.txt", 128);
    assert_true(q.known);
    assert_string_equal(q.text, "text.txt");
    CHECK_NEAR(q.kld.lower, 0.01 - t * 0.002, 1e-9);
    CHECK_NEAR(q.kld.upper, 0.01 + t * 0.002, 1e-9);
    CHECK_NEAR(q.ppl_ratio.estimate, exp(0.01), 1e-12);
    CHECK_NEAR(q.ppl_ratio.lower, exp(0.01 - t * 0.003), 1e-9);
    CHECK_NEAR(q.ppl_ratio.upper, exp(0.01 + t * 0.003), 1e-9);
    CHECK_NEAR(q.ppl.upper, exp(1.51 + t * 0.02), 1e-8);
    CHECK_NEAR(q.top1.lower, 0.92, 0);
    CHECK_NEAR(q.mcnemar_p, 0.0225, 5e-5); /* 2 against 11 */
    d.kld_se = 0.02;                       /* no divergence is below 0 */
    quality_of(&q, &d, "t", 128);
    CHECK_NEAR(q.kld.lower, 0, 0);
    d = figures(1); /* one window: no error is known */
    d.kld_se = d.log_ratio_se = NAN;
    quality_of(&q, &d, "t", 128);
    CHECK_NAN(q.kld.lower);
    CHECK_NAN(q.kld.upper);
    CHECK_NAN(q.ppl_ratio.upper);
    CHECK_NAN(q.ppl.lower);
    CHECK_NEAR(q.kld.estimate, 0.01, 0);
}

static void test_json(void **state)
{
    (void)state;
    const struct divergence d = figures(25);
    struct quality q, back;
    quality_of(&q, &d, "text.txt", 128);
    json_t *o = quality_to_json(&q);
    CHECK_NEAR(json_get_num(o, "ppl_ratio_upper", NAN), q.ppl_ratio.upper, 0);
    CHECK_NEAR(json_get_num(o, "kld_lower", NAN), q.kld.lower, 0);
    assert_true(json_is_null(json_object_get(o, "kld_p99")));
    quality_from_json(&back, o);
    json_t *again = quality_to_json(&back);
    assert_true(json_equal(o, again));
    json_decref(o);
    json_decref(again);
    o = quality_to_json(&(struct quality){ 0 });
    assert_true(json_is_null(o));
    quality_from_json(&back, o);
    assert_false(back.known);
    json_decref(o);
}

struct heard {
    int events, until;
};

static bool hear(void *ctx, const json_t *event)
{
    struct heard *h = ctx;
    h->events += event != NULL;
    return !h->until || h->events < h->until;
}

static enum err_code measure(struct quality *q, const char *options, struct heard *h, struct err *why)
{
    const struct config c = fake_config(options), a = fake_config("rate=1");
    const struct arm_spec arm = { .model = "", .config = &c, .ctx = 4, .program = FAKE_PROGRAM };
    const struct quality_spec s = { .file = "/some/words", .ctx = 128, .chunks = 9, .reference = &a };
    return quality_measure(q, &arm, &s, hear, h, why);
}

static void test_measured(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct heard h = { 0 };
    struct quality q;
    CHECK_OK(measure(&q, "kld=0.03+kld_se=0.001", &h, &why));
    assert_true(q.known);
    assert_int_equal(q.ctx, 128);
    assert_string_equal(q.text, "words");
    assert_int_equal(q.figures.candidate.chunks, 9);
    CHECK_NEAR(q.kld.estimate, 0.03, 0);
    CHECK_NEAR(q.kld.upper, 0.03 + 2.306004135 * 0.001, 1e-9); /* t of 8 */
    CHECK_GE(h.events, 1);
}

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        enum err_code rc;
        const char *says;
    } CASES[] = {
        { "open=fit", ERR_FIT, "needs 9G" },
        { "at=1+do=error", ERR_FORMAT, "is damaged" },
        { "at=1+do=fit", ERR_FIT, "needs 9G" },
        { "at=1+do=kill", ERR_FIT, "probably for memory" },
        { "at=1+do=garbage", ERR_INTERNAL, "does not speak the protocol" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct heard h = { 0 };
        struct quality q;
        assert_int_equal(measure(&q, CASES[i].options, &h, &why), CASES[i].rc);
        if (!strstr(why.message, CASES[i].says)) fail_msg("'%s' lacks '%s'", why.message, CASES[i].says);
        assert_false(q.known);
    }
    struct err why = { 0 };
    struct heard h = { .until = 1 };
    struct quality q;
    assert_int_equal(measure(&q, "kld=0.03+sleep_ms=20000", &h, &why), ERR_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statement),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_measured),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
