/* Proves, on a small scale what ./dev bench stats counts on a large one: with an interim analysis after every
 * block, verdicts on simulated experiments of a known truth are wrong no more often than they say, under
 * noise that breaks a t interval, also of runs that choose their estimand, and effects are found as planned.
 * A neighbour that reacts to the arms is reported. Fixed seeds. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "tests/bench/advisor/simulate.h"

struct counts {
    int claims, equivalent, found, peeked;
};

/* n experiments of two arms at this spread of block effects; effect: log ratio. */
static struct counts count(const char *noise, double sd, double effect, double margin, int blocks, int n)
{
    struct counts c = { 0 };
    const struct noise *kind = noise_find(noise);
    assert_non_null(kind);
    struct experiment_state *scratch = calloc(1, sizeof *scratch);
    assert_non_null(scratch);
    const struct trial t = { .noise = kind,
                             .scale = sd / noise_unit_sd(kind),
                             .arms = 2,
                             .effect = { 0, effect },
                             .margin = margin,
                             .estimand = ESTIMAND_LOADED,
                             .max_blocks = blocks,
                             .seed = 7 };
    for (int i = 0; i < n; i++) {
        struct simulated o;
        trial_run(&t, (uint64_t)i, scratch, &o);
        c.claims += claims_difference(o.seen[1]);
        c.equivalent += says(o.seen[1], VERDICT_EQUIVALENT);
        c.found += says(o.seen[1], VERDICT_BETTER) || says(o.seen[1], VERDICT_NEGLIGIBLE);
        c.peeked += o.peeked;
    }
    free(scratch);
    return c;
}

static void false_alarms_are_rare_however_often_one_looks(void **state)
{
    (void)state;
    const char *const kinds[] = { "independent", "all of these", "rhythm", "AR(1) 0.99",
                                  "spikes",      "daily",        "bursts", "bursts, unmeasured" };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct counts c = count(kinds[i], 0.01, 0, 0.0005, 32, 400);
        CHECK_LE(c.claims, 20); /* 5 % of 400 */
        CHECK_GT(c.peeked, 48); /* a t interval looked at as often cries wolf in over 12 % */
    }
}

/* Runs that choose their estimand: where blocks are disturbed now and then, and in spells. */
static void a_choice_of_estimand_keeps_its_promise(void **state)
{
    (void)state;
    enum { RUNS = 400 };
    const char *const kinds[] = { "rare bursts", "spells of load", "bursts", "spikes" };
    struct experiment_state *scratch = calloc(1, sizeof *scratch);
    assert_non_null(scratch);
    int switches = 0;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        const struct noise *kind = noise_find(kinds[k]);
        const struct trial t = { .noise = kind,
                                 .scale = 0.01 / noise_unit_sd(kind),
                                 .arms = 2,
                                 .margin = 0.0005,
                                 .estimand = ESTIMAND_EITHER,
                                 .max_blocks = 32,
                                 .seed = 11 };
        int claims = 0, any = 0;
        for (int i = 0; i < RUNS; i++) {
            struct simulated o;
            trial_run(&t, (uint64_t)i, scratch, &o);
            claims += claims_difference(o.seen[1]);
            any += o.any_divided; /* even one that picks the estimand to please */
            switches += o.switches;
        }
        CHECK_LE(claims, RUNS / 20);
        CHECK_LE(any, RUNS / 20);
    }
    CHECK_GT(switches, RUNS); /* they did choose */
    free(scratch);
}

/* A neighbour that reacts to the arm breaks the comparison: it is reported in most runs. */
static void a_neighbour_that_reacts_is_reported(void **state)
{
    (void)state;
    struct experiment_state *scratch = calloc(1, sizeof *scratch);
    assert_non_null(scratch);
    int warned[2] = { 0 };
    for (int k = 0; k < 2; k++) {
        const struct noise *kind = noise_find(k ? "a neighbour that reacts" : "bursts");
        const struct trial t = { .noise = kind,
                                 .scale = 0.02 / noise_unit_sd(kind),
                                 .arms = 2,
                                 .margin = 0.0005,
                                 .estimand = ESTIMAND_EITHER,
                                 .max_blocks = 32,
                                 .seed = 3 };
        for (int i = 0; i < 200; i++) {
            struct simulated o;
            trial_run(&t, (uint64_t)i, scratch, &o);
            warned[k] += o.warned;
        }
    }
    CHECK_LE(warned[0], 10); /* 5 % of 200 */
    CHECK_GE(warned[1], 80);
    free(scratch);
}

static void equivalence_at_the_margin_is_rare(void **state)
{
    (void)state;
    CHECK_LE(count("independent", 0.005, 0.01, 0.01, 32, 300).equivalent, 15);
    CHECK_LE(count("AR(1) 0.9", 0.005, -0.01, 0.01, 32, 300).equivalent, 15);
}

static void arms_without_a_difference_are_called_equivalent(void **state)
{
    (void)state;
    const struct counts c = count("independent", 0.005, 0, 0.01, 32, 100);
    CHECK_GE(c.equivalent, 90);
    CHECK_LE(c.claims, 5);
}

static void effects_are_found_as_planned(void **state)
{
    (void)state;
    const struct {
        const char *noise;
        double effect, sd;
    } wanted[] = { { "independent", 0.01, 0.01 }, { "heavy tails", 0.02, 0.02 }, { "drift", 0.05, 0.04 } };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        const double effect = log1p(wanted[i].effect);
        const int plan = stats_anytime_blocks_for(wanted[i].sd, effect, 0.95, 0.8);
        CHECK_GE(count(wanted[i].noise, wanted[i].sd, effect, 0.005, plan, 200).found, 150); /* 3 of 4 */
    }
}

/* What another program did is measured, so the same blocks find an effect more often (adjust.c). */
static void a_covariate_finds_more(void **state)
{
    (void)state;
    const int with = count("bursts", 0.05, 0.03, 0.005, 32, 200).found,
              without = count("bursts, unmeasured", 0.05, 0.03, 0.005, 32, 200).found;
    CHECK_LT(without + 40, with);
}

static void the_same_experiment_twice_is_the_same(void **state)
{
    (void)state;
    const struct counts a = count("all of these", 0.02, 0.02, 0.005, 16, 50);
    const struct counts b = count("all of these", 0.02, 0.02, 0.005, 16, 50);
    CHECK_GT(a.found, 0);
    CHECK_EQ(memcmp(&a, &b, sizeof a), 0);
    assert_null(noise_find("quiet"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(false_alarms_are_rare_however_often_one_looks),
        cmocka_unit_test(a_choice_of_estimand_keeps_its_promise),
        cmocka_unit_test(a_neighbour_that_reacts_is_reported),
        cmocka_unit_test(equivalence_at_the_margin_is_rare),
        cmocka_unit_test(arms_without_a_difference_are_called_equivalent),
        cmocka_unit_test(effects_are_found_as_planned),
        cmocka_unit_test(a_covariate_finds_more),
        cmocka_unit_test(the_same_experiment_twice_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
