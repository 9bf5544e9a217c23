/* Proves: an axis is worded by its interval and margin alone; two arms stand to each other as Pareto says,
 * and openly unresolved where an interval straddles; what nobody measured is left out and said; the sentence
 * and the document say what the words say. */
#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "telemetry/metrics/metrics.h"
#include "tests/check.h"

static const struct interval NOTHING = { NAN, NAN, NAN };

static struct joint_input blank(int arms)
{
    static const char *const LABELS[] = { "f16", "q8_0", "q4_K", "q2_K" };
    struct joint_input in = { .arms = arms,
                              .margin = { 0.01, 0.01, 0.01, 0.02 },
                              .metric = { METRIC_DECODE_RATE, METRIC_PEAK_MEMORY, METRIC_ENERGY, -1 } };
    for (int i = 0; i < arms; i++) {
        in.label[i] = LABELS[i];
        for (int axis = 0; axis < JOINT_AXES; axis++) in.gain[i][axis] = NOTHING;
    }
    return in;
}

static void test_words(void **state)
{
    (void)state;
    static const struct {
        enum joint_axis axis;
        struct interval gain;
        enum joint_word word;
    } CASES[] = {
        { JOINT_SPEED, { 0.05, 0.02, 0.08 }, JOINT_BETTER },
        { JOINT_SPEED, { 0.05, -0.01, 0.11 }, JOINT_NONINFERIOR },
        { JOINT_SPEED, { 0.05, -0.02, 0.12 }, JOINT_OPEN },
        { JOINT_SPEED, { -0.05, -0.08, -0.02 }, JOINT_WORSE },
        { JOINT_SPEED, { 0.005, 0.002, 0.008 }, JOINT_EQUIVALENT }, /* detectable, and does not matter */
        { JOINT_SPEED, { 0, -0.01, 0.01 }, JOINT_EQUIVALENT },
        { JOINT_SPEED, { 0.009, 0.005, 0.013 }, JOINT_NONINFERIOR },
        { JOINT_SPEED, { 0.05, NAN, NAN }, JOINT_OPEN }, /* one block */
        { JOINT_SPEED, { NAN, NAN, NAN }, JOINT_UNMEASURED },
        { JOINT_QUALITY, { -0.005, -0.006, -0.004 }, JOINT_EQUIVALENT },
        { JOINT_QUALITY, { -0.019, -0.023, -0.015 }, JOINT_OPEN },
        { JOINT_QUALITY, { -0.021, -0.025, -0.017 }, JOINT_OPEN }, /* excludes 0, as all divergences do */
        { JOINT_QUALITY, { -0.09, -0.10, -0.08 }, JOINT_WORSE },
        { JOINT_QUALITY, { 0, 0, 0 }, JOINT_EQUIVALENT },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct joint_input in = blank(2);
        struct joint j;
        in.gain[1][CASES[i].axis] = CASES[i].gain;
        joint_of(&j, &in);
        if (j.word[1][CASES[i].axis] != CASES[i].word)
            fail_msg("case %zu: %s, want %s", i, joint_word_name(j.word[1][CASES[i].axis]),
                     joint_word_name(CASES[i].word));
    }
}

static const struct interval BETTER = { 0.5, 0.4, 0.6 }, WORSE = { -0.5, -0.6, -0.4 },
                             SAME = { 0, -0.001, 0.001 }, OPEN = { 0.01, -0.1, 0.12 },
                             FAITHFUL = { -0.001, -0.0012, -0.0008 }, LOSSY = { -0.1, -0.11, -0.09 };

static void test_relations(void **state)
{
    (void)state;
    const struct {
        struct interval speed, memory, quality;
        enum joint_relation to_a, from_a;
        int front_a, front_b;
    } CASES[] = {
        { BETTER, SAME, FAITHFUL, JOINT_DOMINATES, JOINT_DOMINATED, FRONT_NO, FRONT_YES },
        { BETTER, BETTER, LOSSY, JOINT_TRADE, JOINT_TRADE, FRONT_YES, FRONT_YES },
        { WORSE, SAME, LOSSY, JOINT_DOMINATED, JOINT_DOMINATES, FRONT_YES, FRONT_NO },
        { SAME, SAME, FAITHFUL, JOINT_SAME, JOINT_SAME, FRONT_YES, FRONT_YES },
        { BETTER, OPEN, FAITHFUL, JOINT_UNRESOLVED, JOINT_UNRESOLVED, FRONT_OPEN, FRONT_OPEN },
        { OPEN, SAME, FAITHFUL, JOINT_UNRESOLVED, JOINT_UNRESOLVED, FRONT_OPEN, FRONT_OPEN },
        /* whatever the open axis turns out to be, it is a trade already */
        { BETTER, OPEN, LOSSY, JOINT_TRADE, JOINT_TRADE, FRONT_YES, FRONT_YES },
        { BETTER, NOTHING, NOTHING, JOINT_DOMINATES, JOINT_DOMINATED, FRONT_NO, FRONT_YES },
        /* without speed nothing is decided but a trade */
        { NOTHING, SAME, FAITHFUL, JOINT_UNRESOLVED, JOINT_UNRESOLVED, FRONT_OPEN, FRONT_OPEN },
        { NOTHING, BETTER, FAITHFUL, JOINT_UNRESOLVED, JOINT_UNRESOLVED, FRONT_OPEN, FRONT_OPEN },
        { NOTHING, BETTER, LOSSY, JOINT_TRADE, JOINT_TRADE, FRONT_YES, FRONT_YES },
        /* more memory by hardly the margin is no price: the interval is within its noise */
        { BETTER,
          { -0.0105, -0.0108, -0.0002 },
          FAITHFUL,
          JOINT_UNRESOLVED,
          JOINT_UNRESOLVED,
          FRONT_OPEN,
          FRONT_OPEN },
        { BETTER, { -0.03, -0.031, -0.029 }, FAITHFUL, JOINT_TRADE, JOINT_TRADE, FRONT_YES, FRONT_YES },
        { NOTHING, NOTHING, NOTHING, JOINT_UNRESOLVED, JOINT_UNRESOLVED, FRONT_OPEN, FRONT_OPEN },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct joint_input in = blank(2);
        struct joint j;
        in.gain[1][JOINT_SPEED] = CASES[i].speed;
        in.gain[1][JOINT_MEMORY] = CASES[i].memory;
        in.gain[1][JOINT_QUALITY] = CASES[i].quality;
        joint_of(&j, &in);
        if (j.relation[1][0] != CASES[i].to_a || j.relation[0][1] != CASES[i].from_a)
            fail_msg("case %zu: %s / %s", i, joint_relation_name(j.relation[1][0]),
                     joint_relation_name(j.relation[0][1]));
        assert_int_equal(j.front[0], CASES[i].front_a);
        assert_int_equal(j.front[1], CASES[i].front_b);
    }
}

/* q8_0 dominates q2_K although both trade against A: faster, no larger and more faithful. */
static void test_among_challengers(void **state)
{
    (void)state;
    struct joint_input in = blank(4);
    struct joint j;
    in.gain[1][JOINT_SPEED] = (struct interval){ 0.5, 0.49, 0.51 };
    in.gain[1][JOINT_QUALITY] = (struct interval){ -0.03, -0.031, -0.029 };
    in.gain[2][JOINT_SPEED] = (struct interval){ 0.8, 0.79, 0.81 };
    in.gain[2][JOINT_QUALITY] = (struct interval){ -0.1, -0.101, -0.099 };
    in.gain[3][JOINT_SPEED] = (struct interval){ 0.4, 0.39, 0.41 };
    in.gain[3][JOINT_QUALITY] = (struct interval){ -0.9, -0.91, -0.89 };
    joint_of(&j, &in);
    for (int i = 1; i < 4; i++) assert_int_equal(j.relation[i][0], JOINT_TRADE);
    assert_int_equal(j.relation[1][2], JOINT_TRADE);
    assert_int_equal(j.relation[1][3], JOINT_DOMINATES);
    assert_int_equal(j.relation[2][3], JOINT_DOMINATES);
    assert_int_equal(j.relation[3][2], JOINT_DOMINATED);
    assert_int_equal(j.front[0], FRONT_YES);
    assert_int_equal(j.front[1], FRONT_YES);
    assert_int_equal(j.front[2], FRONT_YES);
    assert_int_equal(j.front[3], FRONT_NO);
    /* intervals that overlap: the difference is wide, so nothing is claimed */
    in.gain[3][JOINT_SPEED] = (struct interval){ 0.7, 0.45, 0.95 };
    joint_of(&j, &in);
    assert_int_equal(j.relation[1][3], JOINT_UNRESOLVED);
    assert_int_equal(j.front[3], FRONT_OPEN);
}

static void test_sentences(void **state)
{
    (void)state;
    const struct {
        struct interval speed, memory, quality;
        const char *says;
    } CASES[] = {
        { { log(1.58), log(1.55), log(1.61) },
          { -log(0.58), -log(0.59), -log(0.57) },
          LOSSY,
          "q8_0: +58 % decode, -42 % memory; quality not within 0.02 KLD: a trade" },
        { { log(1.052), log(1.03), log(1.07) },
          SAME,
          FAITHFUL,
          "q8_0: +5.2 % decode, same memory; quality within 0.02 KLD: better, and nothing measured is worse" },
        { OPEN, NOTHING, NOTHING,
          "q8_0: decode open (-9.5 to +12.7 %); quality not measured: not decided yet" },
        { NOTHING,
          NOTHING,
          { -0.02, -0.03, -0.01 },
          "q8_0: speed not measured; quality within 0.02 KLD or not: open: not decided yet" },
        { SAME, SAME, FAITHFUL,
          "q8_0: same decode, same memory; quality within 0.02 KLD: no difference that matters" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct joint_input in = blank(2);
        struct joint j;
        in.gain[1][JOINT_SPEED] = CASES[i].speed;
        in.gain[1][JOINT_MEMORY] = CASES[i].memory;
        in.gain[1][JOINT_QUALITY] = CASES[i].quality;
        joint_of(&j, &in);
        assert_string_equal(j.sentence[1], CASES[i].says);
    }
}

static void test_invalid_runs_have_no_verdict(void **state)
{
    (void)state;
    struct joint_input in = blank(2);
    struct joint j;
    in.invalid = "the A/A control failed";
    in.gain[1][JOINT_QUALITY] = FAITHFUL;
    joint_of(&j, &in);
    assert_string_equal(j.sentence[1], "q8_0: speed not compared; quality within 0.02 KLD: "
                                       "no verdict, because the A/A control failed");
}

static void test_json(void **state)
{
    (void)state;
    struct joint_input in = blank(2);
    struct joint j;
    in.metric[JOINT_SPEED] = METRIC_TTFT; /* less is better: a gain of ln 2 halves it */
    in.gain[1][JOINT_SPEED] = (struct interval){ log(2), log(1.6), log(2.5) };
    in.gain[1][JOINT_QUALITY] = LOSSY;
    joint_of(&j, &in);
    json_t *o = joint_to_json(&j);
    const json_t *arm = json_array_get(json_object_get(o, "arms"), 1), *axes = json_object_get(arm, "axes"),
                 *speed = json_object_get(axes, "speed"), *quality = json_object_get(axes, "quality");
    assert_string_equal(json_get_str(speed, "metric", ""), "ttft_s");
    CHECK_NEAR(json_get_num(speed, "ratio", NAN), 0.5, 1e-12);
    CHECK_NEAR(json_get_num(speed, "lower", NAN), 0.4, 1e-12);
    CHECK_NEAR(json_get_num(speed, "upper", NAN), 0.625, 1e-12);
    assert_string_equal(json_get_str(speed, "word", ""), "better");
    CHECK_NEAR(json_get_num(quality, "kld_mean", NAN), 0.1, 1e-12);
    CHECK_NEAR(json_get_num(quality, "lower", NAN), 0.09, 1e-12);
    assert_true(json_is_null(json_object_get(json_object_get(axes, "energy"), "ratio")));
    assert_string_equal(json_get_str(json_object_get(axes, "energy"), "word", ""), "not measured");
    assert_string_equal(json_get_str(arm, "against_a", ""), "trade-off");
    assert_string_equal(
        json_string_value(json_array_get(json_array_get(json_object_get(o, "relations"), 0), 1)),
        "trade-off");
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_relations),
        cmocka_unit_test(test_among_challengers),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_invalid_runs_have_no_verdict),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
