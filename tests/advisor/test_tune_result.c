/* Proves: the result of a search follows from the candidates that it lists. Each reason why the current
 * configuration stays is named (nothing else timed, a failure, slower, quality not measured, a limit);
 * settings that change no answers need no quality; a result from a machine that others used is called that,
 * and one from a quiet machine is not; the sentence begins with what is proven. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/parts.h"
#include "advisor/tune/parts.h"
#include "tests/check.h"

enum { N = 3 };
struct searched {
    struct tune_options o;
    struct tune_candidate list[N];
    struct tuning t;
    char because[TUNE_BECAUSE];
};

/* The current configuration at 10 tokens/s, a candidate at 12, and one that was not timed. */
static struct searched *searched_new(void)
{
    struct searched *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->o = (struct tune_options){ .goal = GOAL_SPEED, .limits = { .kld = 0.02 }, .budget_s = 60 };
    x->t = (struct tuning){ .task = { .o = &x->o, .recipe_dim = -1 },
                            .known = { .list = x->list, .n = N },
                            .costs = { .timing = { 20, 1 } } };
    static const char *const LINES[N] = { "default", "kv=q8_0", "threads=1" };
    for (int i = 0; i < N; i++) {
        struct tune_candidate *c = &x->list[i];
        *c = (struct tune_candidate){ .index = -1,
                                      .memory_bytes = 1000,
                                      .read_bytes = 1000,
                                      .predicted = 10,
                                      .rate = i == 1 ? 12 : 10,
                                      .normalized_rate = i == 1 ? 12 : 10,
                                      .normalized_sd = 0.01,
                                      .timings = i < 2,
                                      .kld = i ? NAN : 0,
                                      .ppl_ratio = i ? NAN : 1,
                                      .same_answers = i != 1 };
        c->ln_guess = log(1e-4);
        snprintf(c->line, sizeof c->line, "%s", LINES[i]);
    }
    return x;
}

static const char *why_kept(struct searched *x)
{
    tune_explain_kept(x->because, sizeof x->because, &x->t);
    return x->because;
}

static void nothing_else_was_timed(void **state)
{
    (void)state;
    struct searched *x = searched_new();
    x->list[1].timings = 0;
    CHECK_CONTAINS(why_kept(x), "no other configuration was timed");
    CHECK_CONTAINS(x->because, "20 s");
    CHECK(!strstr(x->because, "go on"));
    x->list[1].failed = true;
    snprintf(x->list[1].error, sizeof x->list[1].error, "out of pages");
    CHECK_CONTAINS(why_kept(x), "kv=q8_0 failed: out of pages");
    free(x);
}

/* The reason says how a search goes on that only its budget ended: with a budget for what is still to be
 * measured, the confirmation included, and at least twice the given one. */
static void a_search_that_the_budget_ended_can_go_on(void **state)
{
    (void)state;
    struct tune_result r = { .unfinished = true, .enough_s = 150, .fitting = 1079 };
    struct searched *x = searched_new();
    x->t.out = &r;
    CHECK_CONTAINS(why_kept(x),
                   "its quality was not measured within the budget; the budget ended the search with 1 of "
                   "1079 possible winners timed: with a budget of 150 s in all it can go on");
    CHECK_EQ(tune_enough_for_race_s(&x->t, 25), 120); /* nothing is known of the confirmation */
    x->t.costs.cell = (struct tune_mean){ 10, 1 };
    const double enough_s = tune_enough_for_race_s(&x->t, 25);
    CHECK_GT(enough_s, tune_confirm_s(&x->t, 2, true) + 50);
    CHECK_GT(tune_enough_for_race_s(&x->t, 125), enough_s + 150);
    free(x);
}

static void quality_that_was_not_measured_is_the_reason(void **state)
{
    (void)state;
    struct searched *x = searched_new();
    CHECK_EQ(tune_best(&x->t, -1), 0);
    CHECK_CONTAINS(
        why_kept(x),
        "kv=q8_0 is better for this goal (about 12.0 tokens/s against about 10.0), but it changes answers");
    CHECK_CONTAINS(x->because, "quality was not measured");
    x->list[1].quality_failed = true;
    snprintf(x->list[1].error, sizeof x->list[1].error, "no text");
    CHECK_CONTAINS(why_kept(x), "could not be measured: no text");
    free(x);
}

static void a_limit_is_the_reason(void **state)
{
    (void)state;
    struct searched *x = searched_new();
    x->list[1].kld = 0.05;
    x->list[1].ppl_ratio = 1;
    CHECK_CONTAINS(why_kept(x), "quality loss of 0.05 nats (KL divergence) is above the limit of 0.02");
    x->list[1].kld = 0.01;
    x->list[1].ppl_ratio = 1.05;
    x->o.limits.ppl_ratio = 0.02;
    CHECK_CONTAINS(why_kept(x), "perplexity is 5 % higher, more than the limit of 2 %");
    x->list[1].ppl_ratio = 1.01;
    x->o.limits.accuracy = 0.005;
    x->list[1].accuracy_lower = -0.01;
    CHECK_CONTAINS(why_kept(x), "loss of right answers is not shown to be within the limit of 0.5 %");
    free(x);
}

static void slower_ones_are_named_with_their_rate(void **state)
{
    (void)state;
    struct searched *x = searched_new();
    x->list[1].rate = x->list[1].normalized_rate = 8;
    CHECK_CONTAINS(
        why_kept(x),
        "of 1 other configuration measured none is better for this goal; the nearest, kv=q8_0, has about "
        "8.00 tokens/s against about 10.0");
    x->list[2].timings = 1;
    x->list[2].rate = x->list[2].normalized_rate = 9;
    CHECK_CONTAINS(
        why_kept(x),
        "of 2 other configurations measured none is better for this goal; the nearest, threads=1, has about 9.00");
    free(x);
}

/* The one timing of threads=1 was faster than that of the current configuration, but it is so uncertain that
 * the estimate, which decides, is slower. */
static void the_rates_named_are_those_that_decide(void **state)
{
    (void)state;
    struct searched *x = searched_new();
    x->list[1].timings = 0;
    x->list[2].timings = 1;
    x->list[2].predicted = 5;
    x->list[2].rate = x->list[2].normalized_rate = 10.5;
    x->list[2].normalized_sd = 0.5; /* as uncertain as the prediction: the geometric mean of both, 7.25 */
    CHECK_EQ(tune_best(&x->t, -1), 0);
    CHECK_CONTAINS(why_kept(x),
                   "of 1 other configuration measured none is better for this goal; the nearest, threads=1, "
                   "has about 7.25 tokens/s against about 10.0");
    free(x);
}

static void settings_without_effect_on_answers_need_no_quality(void **state)
{
    (void)state;
    struct searched *x = searched_new();
    x->list[2].timings = 1;
    x->list[2].rate = x->list[2].normalized_rate = 11;
    CHECK(tune_quality_known(&x->list[2]));
    CHECK_EQ(tune_best(&x->t, -1),
             2);          /* its quality was never measured; the faster kv=q8_0 changes answers */
    x->list[0].kld = NAN; /* nor that of the current configuration */
    CHECK_EQ(tune_best(&x->t, -1), 2);
    x->o.limits.accuracy = 0.005;
    x->list[2].accuracy_lower = NAN;
    CHECK(!tune_accuracy_missing(&x->t, 2));
    free(x);
}

/* A candidate whose quality was measured before its speed is one of those that the screen shows. */
static void judged_candidates_are_on_the_board(void **state)
{
    (void)state;
    struct tune_result r = { .run_id = 0 };
    struct searched *x = searched_new();
    x->t.out = &r;
    CHECK(tune_report(&x->t, "", ""));
    CHECK_EQ(x->t.now.n, 2);
    x->list[2].judged = true;
    CHECK(tune_report(&x->t, "", ""));
    CHECK_EQ(x->t.now.n, 3);
    CHECK_EQ(x->t.now.timed, 1);
    assert_string_equal(x->t.now.board[2].candidate->line, "threads=1");
    free(x);
}

/* ---------------------------------------------------------------- not compared */

/* threads=1 was compared; kv=q8_0, which looks faster in the list, was not, for a reason that is given. */
static const char *passed_over(struct searched *x, struct tune_result *r)
{
    *r = (struct tune_result){ .winner = { .line = "threads=1" } };
    x->t.out = r;
    x->list[2].timings = 1;
    x->list[2].rate = x->list[2].normalized_rate = 11;
    tune_keep_expected(&x->t);
    x->list[2].rate = 10.8; /* by the confirmation */
    tune_explain_passed(&x->t);
    return r->n_passed ? r->passed[0].why : "";
}

static void faster_ones_that_were_not_compared_are_explained(void **state)
{
    (void)state;
    struct searched *x = searched_new();
    struct tune_result r;
    CHECK_CONTAINS(passed_over(x, &r), "it changes answers, and its quality was not measured");
    CHECK_EQ(r.n_passed, 1);
    assert_string_equal(r.passed[0].line, "kv=q8_0");
    CHECK_EQ(r.passed[0].rate, 12);
    x->list[1].kld = 0.001;
    x->list[1].ppl_ratio = 1;
    CHECK_CONTAINS(passed_over(x, &r),
                   "the time was enough to compare one candidate, and threads=1 promises more");
    x->list[1].predicted = 2; /* so its one timing is luck: the geometric mean, 4.9, is expected */
    x->list[1].normalized_sd = 0.5;
    CHECK_CONTAINS(
        passed_over(x, &r),
        "its 1 timing may be luck: with what similar configurations measured, about 4.90 tokens/s are "
        "expected of it, and 10.0 of default");
    x->list[1].predicted = 10;
    x->list[1].normalized_sd = 0.01;
    x->list[1].memory_bytes = 100000;
    x->o.goal = GOAL_BALANCED;
    CHECK_CONTAINS(passed_over(x, &r),
                   "the goal balanced weighs speed, quality and memory, and in sum it promises less");
    x->list[1].rate = 10.7; /* the list does not show it as faster */
    assert_string_equal(passed_over(x, &r), "");
    free(x);
}

/* ---------------------------------------------------------------- load */

static struct experiment_state *compared(enum estimand use, int blocks, int disturbed, double others)
{
    struct experiment_spec spec = { .metric = &METRICS[METRIC_DECODE_RATE], .margin = 0.01 };
    struct experiment_state *s = malloc(sizeof *s);
    assert_non_null(s);
    config_default(&spec.config[0]);
    config_default(&spec.config[1]);
    state_init(s, &spec);
    s->estimand = use;
    for (int i = 0; i < blocks; i++) series_add(&s->comparison[1].all, 0.1, NAN, i < disturbed);
    s->load[use].others_busy = others;
    return s;
}

static void load_is_told_from_quiet(void **state)
{
    (void)state;
    static const struct {
        enum estimand use;
        int blocks, disturbed;
        double others;
        bool loaded;
        const char *text;
    } CASES[] = {
        { ESTIMAND_LOADED, 12, 12, 0.65, true,
          "other programs used 65 % of the processors, 12 of 12 blocks were disturbed" },
        { ESTIMAND_LOADED, 1, 1, NAN, true, "1 of 1 block was disturbed" },
        { ESTIMAND_LOADED, 12, 7, 0.05, true,
          "5 % of the processors, 7 of 12 blocks were disturbed" }, /* 5 are too few */
        { ESTIMAND_LOADED, 30, 10, 0.2, true, "20 %" },
        { ESTIMAND_LOADED, 30, 3, 0.02, false, "" },
        { ESTIMAND_LOADED, 6, 0, 0.01, false, "" },
        { ESTIMAND_LOADED, 4, 0, NAN, false, "" },  /* few, but nothing disturbed them */
        { ESTIMAND_QUIET, 12, 6, 0.04, false, "" }, /* only the undisturbed ones count */
        { ESTIMAND_LOADED, 0, 0, 0.9, false, "" },
    };
    char text[RUN_LOAD_TEXT];
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct experiment_state *s = compared(CASES[i].use, CASES[i].blocks, CASES[i].disturbed,
                                              CASES[i].others);
        const struct run_load l = experiment_run_load(s, 1);
        if (l.loaded != CASES[i].loaded) fail_msg("case %zu: loaded %d", i, l.loaded);
        CHECK_EQ(l.undisturbed, CASES[i].blocks - CASES[i].disturbed);
        CHECK_CONTAINS(experiment_run_load_text(text, &l), CASES[i].text);
        if (!CASES[i].loaded) assert_string_equal(text, "");
        free(s);
    }
}

/* Bug: an A/B beside other programs corrected the predictions for a quiet machine. */
static void a_disturbed_run_corrects_no_prediction(void **state)
{
    (void)state;
    static const struct {
        enum estimand use;
        int blocks, disturbed;
        bool teaches;
    } CASES[] = { { ESTIMAND_LOADED, 12, 12, false },
                  { ESTIMAND_LOADED, 12, 7, false },
                  { ESTIMAND_QUIET, 20, 14, false },
                  { ESTIMAND_LOADED, 12, 6, true },
                  { ESTIMAND_QUIET, 12, 0, true } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct experiment_state *s = compared(CASES[i].use, CASES[i].blocks, CASES[i].disturbed, 0.5);
        for (int arm = 0; arm < 2; arm++)
            if (experiment_arm_teaches(s, arm) != CASES[i].teaches) fail_msg("case %zu, arm %d", i, arm);
        free(s);
    }
}

static struct tune_result result_of(double lower, double upper, bool wins)
{
    struct tune_result r = { .effect = { log(1.15), log(lower), log(upper) },
                             .alpha = 0.05,
                             .wins = wins,
                             .verdict = wins ? VERDICT_BETTER : VERDICT_INCONCLUSIVE,
                             .current = { .line = "default", .memory_bytes = 1000 },
                             .winner = { .line = "threads=1", .memory_bytes = 1000, .same_answers = true } };
    return r;
}

static void the_sentence_begins_with_what_is_proven(void **state)
{
    (void)state;
    char text[TUNE_SENTENCE];
    struct tune_result r = result_of(1.003, 2.79, true);
    assert_string_equal(
        tune_sentence(text, sizeof text, &r),
        "threads=1 is at least 0.30 % faster (95 %: 0.30 to 179 %) than default, with the same memory; "
        "its settings do not change answers.");
    r.load = (struct run_load){ true, 0.65, 12, 0 };
    CHECK_CONTAINS(
        tune_sentence(text, sizeof text, &r),
        "answers. It was measured on a busy machine (other programs used 65 % of the processors, 12 of 12 blocks "
        "were disturbed), so it may not hold on a quiet one.");
    r = result_of(0.97, 1.3, false);
    CHECK_CONTAINS(
        tune_sentence(text, sizeof text, &r),
        "Keep default: the best candidate, threads=1, is not proven better. It is between 3.0 % slower and 30 % "
        "faster (95 %)");
    r.alpha = 0.025; /* as in the A/B of two candidates, whose intervals are those of `show` */
    CHECK_CONTAINS(tune_sentence(text, sizeof text, &r), "faster (97.5 %)");
    r.winner.same_answers = false;
    r.winner.kld = 0.001;
    snprintf(r.text, sizeof r.text, "held-out.txt");
    CHECK_CONTAINS(tune_sentence(text, sizeof text, &r),
                   "quality loss 0.001 nats (KL divergence) on held-out.txt");
    r.winner.kld = NAN;
    CHECK_CONTAINS(tune_sentence(text, sizeof text, &r), "quality not measured");
    r.effect = (struct interval){ NAN, NAN, NAN };
    r.winner.rate = 64.3;
    r.current.rate = 4.2;
    r.blocks = 1;
    tune_explain_undecided(&r, 2, 600);
    CHECK_CONTAINS(
        tune_sentence(text, sizeof text, &r),
        "Keep default: the candidate threads=1 is not proven better (64.3 tokens/s against 4.20): there was time for 1 block "
        "of the A/B with the current configuration, and a claim needs at least 7; a budget of 600 s in all should be enough");
    tune_explain_undecided(&r, 3, 660); /* each of two comparisons has half of the error probability */
    CHECK_EQ(tune_fewest_blocks(3), 8);
    CHECK_CONTAINS(tune_sentence(text, sizeof text, &r), "and a claim needs at least 8; a budget of 660 s ");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(nothing_else_was_timed),
                                        cmocka_unit_test(quality_that_was_not_measured_is_the_reason),
                                        cmocka_unit_test(a_search_that_the_budget_ended_can_go_on),
                                        cmocka_unit_test(a_limit_is_the_reason),
                                        cmocka_unit_test(slower_ones_are_named_with_their_rate),
                                        cmocka_unit_test(the_rates_named_are_those_that_decide),
                                        cmocka_unit_test(settings_without_effect_on_answers_need_no_quality),
                                        cmocka_unit_test(judged_candidates_are_on_the_board),
                                        cmocka_unit_test(faster_ones_that_were_not_compared_are_explained),
                                        cmocka_unit_test(load_is_told_from_quiet),
                                        cmocka_unit_test(a_disturbed_run_corrects_no_prediction),
                                        cmocka_unit_test(the_sentence_begins_with_what_is_proven) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
