/* Proves: the limit of an operator is that of memory or of arithmetic, whichever takes longer, as worked out
 * by hand for a machine with known ceilings; it is unknown where a ceiling is. The sums of profiles add up
 * over answers, layers and operators; folded stacks have them in microseconds, with what belongs to no
 * operator; answers that do not fit are refused. */
#include <math.h>

#include "advisor/predict/predict.h"
#include "advisor/run/run.h"
#include "tests/check.h"

static const double READ = 2e10, FMA = 1e11, DOT = 4e11;

static struct machine_ceilings known_ceilings(void)
{
    return (struct machine_ceilings){ .read_bytes_s_1 = READ,
                                      .read_bytes_s_all = READ,
                                      .threads_all = 1,
                                      .count = 2,
                                      .row = { { "f32_fma", "ref", FMA, FMA },
                                               { "int8_dot", "ref", DOT, DOT } } };
}

static void test_limits(void **state)
{
    (void)state;
    const struct format *q8 = &FORMATS[FORMAT_Q8_0], *f32 = &FORMATS[FORMAT_F32];
    static const double BYTES = 1e6;
    const struct {
        struct operator_work work;
        double want_s;
        bool by_memory;
    } CASES[] = {
        /* one row: 2 operations for each of 1e6 weights; reading 1e6 bytes takes 50 us, computing 5 us */
        { { BYTES, 2e6, 1, q8, false }, BYTES / READ, true },
        { { BYTES, 2e6, 1, q8, true }, 2e6 / DOT, false },      /* from a cache */
        { { BYTES, 2e9, 1000, f32, false }, 2e9 / FMA, false }, /* f32 weights are not multiplied as int8 */
        { { BYTES, 2e6, 1, NULL, false }, BYTES / READ, true },
        { { BYTES, 1e8, 1, NULL, false }, 1e8 / FMA, false },
        { { BYTES, 0, 0, NULL, false }, NAN, false }, /* no arithmetic: nothing says what limits it */
    };
    struct err why = { 0 };
    struct config c;
    const struct machine machine = { .cores = 1, .processors = 1, .host = "described" };
    struct machine_ceilings k = known_ceilings();
    CHECK_OK(config_parse(&c, "threads=1", &why));
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        bool by_memory = false;
        const double s = predict_operator_limit_s(&CASES[i].work, &c, &machine, &k, &by_memory);
        if (isnan(CASES[i].want_s)) {
            CHECK_NAN(s);
            continue;
        }
        CHECK_NEAR(s, CASES[i].want_s, 1e-9 * CASES[i].want_s);
        assert_int_equal(by_memory, CASES[i].by_memory);
    }
    bool by_memory;
    k.read_bytes_s_1 = k.read_bytes_s_all = NAN;
    CHECK_NAN(predict_operator_limit_s(&CASES[0].work, &c, &machine, &k, &by_memory));
    k = known_ceilings();
    k.count = 0;
    CHECK_NAN(predict_operator_limit_s(&CASES[0].work, &c, &machine, &k, &by_memory));
}

static const char ANSWER[] =
    "{\"profile\":{\"layers\":2,"
    "\"prefill\":{\"passes\":1,\"seconds\":0.001,\"operators\":["
    "{\"layer\":-1,\"operator\":\"embedding\",\"calls\":1,\"seconds\":0.0001,\"bytes\":10,\"ops\":0,\"format\":null,\"rows\":0},"
    "{\"layer\":0,\"operator\":\"ffn down\",\"calls\":1,\"seconds\":0.0003,\"bytes\":100,\"ops\":200,\"format\":\"q8_0\",\"rows\":4},"
    "{\"layer\":1,\"operator\":\"ffn down\",\"calls\":1,\"seconds\":0.0005,\"bytes\":100,\"ops\":200,\"format\":\"q8_0\",\"rows\":4}]},"
    "\"decode\":{\"passes\":0,\"seconds\":0,\"operators\":[]}}}";

static void test_sums(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct run_profile p = { 0 };
    struct str folded = { 0 };
    json_t *answer;
    CHECK_OK(json_parse(&answer, ANSWER, strlen(ANSWER), &why));
    CHECK_OK(run_profile_add(&p, answer, &why));
    CHECK_OK(run_profile_add(&p, answer, &why));
    json_decref(answer);
    const struct operator_sum down = run_profile_over_layers(&p, PHASE_PREFILL, OPERATOR_DOWN),
                              all = run_profile_total(&p, PHASE_PREFILL);
    CHECK_EQ(p.phase[PHASE_PREFILL].passes, 2);
    CHECK_EQ(down.calls, 4);
    CHECK_NEAR(down.seconds, 0.0016, 1e-12);
    CHECK_NEAR(down.bytes, 400, 1e-9);
    CHECK_NEAR(down.ops, 800, 1e-9);
    CHECK_EQ(run_profile_at(&p, PHASE_PREFILL, 1, OPERATOR_DOWN)->rows, 4);
    assert_ptr_equal(run_profile_at(&p, PHASE_PREFILL, 1, OPERATOR_DOWN)->format, &FORMATS[FORMAT_Q8_0]);
    CHECK_NEAR(all.seconds, 0.0018, 1e-12);
    CHECK_EQ(all.calls, 6);
    CHECK_NAN(all.limit_s);
    run_profile_fold(&p, &folded);
    assert_string_equal(str_text(&folded), "prefill;embedding 200\n"
                                           "prefill;layer 0;ffn down 600\n"
                                           "prefill;layer 1;ffn down 1000\n"
                                           "prefill;other 200\n");
    str_free(&folded);
    run_profile_free(&p);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "{}", "{\"profile\":{\"layers\":0}}",
        "{\"profile\":{\"layers\":1,\"prefill\":{\"operators\":[{\"layer\":1,\"operator\":\"norm\"}]}}}",
        "{\"profile\":{\"layers\":1,\"prefill\":{\"operators\":[{\"layer\":0,\"operator\":\"nothing\"}]}}}"
    };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct err why = { 0 };
        struct run_profile p = { 0 };
        json_t *answer;
        CHECK_OK(json_parse(&answer, BAD[i], strlen(BAD[i]), &why));
        assert_int_equal(run_profile_add(&p, answer, &why), ERR_FORMAT);
        json_decref(answer);
        run_profile_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_limits), cmocka_unit_test(test_sums),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
