/* Proves: from the same numbers always the same verdict, on each side of every boundary; the order of blocks
 * is a function of seed and number alone; contamination rules fire on the machine and never on slowness. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/experiment/parts.h"
#include "advisor/run/run.h"
#include "advisor/stats/stats.h"

static struct experiment_state *with_blocks(const double *d, int n)
{
    struct experiment_spec spec = { .metric = &METRICS[METRIC_DECODE_RATE], .margin = 0.01 };
    struct experiment_state *s = malloc(sizeof(*s));
    assert_non_null(s);
    config_default(&spec.config[0]);
    config_default(&spec.config[1]);
    state_init(s, &spec);
    memcpy(s->comparison[1].d, d, (size_t)n * sizeof(*d));
    s->blocks = s->comparison[1].blocks = n;
    return s;
}

/* n blocks around `center`, alternating +-spread: mean exactly center. */
static struct experiment_state *around(double center, double spread, int n)
{
    double d[64] = { 0 };
    for (int i = 0; i < n; i++) d[i] = center + (i & 1 ? spread : -spread);
    return with_blocks(d, n);
}

static enum verdict judged(struct experiment_state *s)
{
    experiment_judge(s);
    const enum verdict v = s->verdict;
    free(s);
    return v;
}

static void verdicts_on_both_sides_of_every_boundary(void **state)
{
    (void)state;
    assert_int_equal(judged(around(0.10, 0.01, 8)), VERDICT_BETTER);
    assert_int_equal(judged(around(-0.10, 0.01, 8)), VERDICT_WORSE);
    assert_int_equal(judged(around(0.10, 0.01, 6)), VERDICT_INCONCLUSIVE); /* the coin needs 7 for 1 in 20 */
    assert_int_equal(judged(around(0, 0.002, 8)), VERDICT_EQUIVALENT);
    assert_int_equal(judged(around(0.005, 0.001, 8)), VERDICT_EQUIVALENT); /* detectable, inside the margin */
    /* excludes 0, |estimate| <= margin, but the 90 % interval reaches beyond it */
    assert_int_equal(judged(around(0.009, 0.003, 12)), VERDICT_NEGLIGIBLE);
    assert_int_equal(judged(around(0.011, 0.003, 12)), VERDICT_BETTER); /* just over the margin */
    assert_int_equal(judged(around(0.02, 0.05, 6)), VERDICT_INCONCLUSIVE);
    assert_int_equal(judged(around(0, 0.05, 6)), VERDICT_INCONCLUSIVE);
    assert_int_equal(judged(around(0.5, 0, 7)), VERDICT_BETTER); /* a metric without noise */
    assert_int_equal(judged(around(0, 0, 6)), VERDICT_EQUIVALENT);
}

/* What is shown of a result follows from the result alone: not from the phase in which somebody looks, and in
 * the direction of the metric. */
static void shown_figures_have_one_source(void **state)
{
    (void)state;
    struct experiment_state *s = around(0.02, 0.05, 12);
    s->comparison[1].verdict = VERDICT_BETTER;
    for (int phase = PHASE_CONTROL; phase <= PHASE_DONE; phase++) {
        s->phase = (enum experiment_phase)phase;
        s->control_blocks = 3; /* their spread is that of other blocks */
        for (int i = 0; i < 3; i++) s->control_d[i] = 0.3 * i;
        judge_control(s);
        judge_numbers(s);
        CHECK_NEAR(s->mde, experiment_detectable(stats_sd(s->comparison[1].d, 12), 12), 1e-12);
    }
    const struct interval gain = { 0.1, 0.05, 0.2 };
    CHECK_NEAR(experiment_change(s, gain).lower, 0.05, 1e-12);
    s->spec.metric = &METRICS[METRIC_TTFT]; /* less is better: a gain is a smaller number */
    const struct interval turned = experiment_change(s, gain);
    CHECK_NEAR(turned.estimate, -0.1, 1e-12);
    CHECK_NEAR(turned.lower, -0.2, 1e-12);
    CHECK_NEAR(turned.upper, -0.05, 1e-12);
    /* a race's winner is what was measured again */
    s->spec.arms = 3;
    s->confirming = true;
    s->headline = 2;
    s->confirmation.verdict = VERDICT_EQUIVALENT;
    assert_ptr_equal(experiment_comparison(s, 2), &s->confirmation);
    assert_ptr_equal(experiment_headline(s), &s->confirmation);
    assert_ptr_equal(experiment_comparison(s, 1), &s->comparison[1]);
    assert_int_equal(experiment_verdict(s, 2), VERDICT_EQUIVALENT);
    assert_int_equal(experiment_verdict(s, 1), VERDICT_BETTER);
    s->verdict = VERDICT_INVALID;
    assert_int_equal(experiment_verdict(s, 1), VERDICT_INVALID);
    free(s);
}

static void fewer_than_six_blocks_claim_nothing(void **state)
{
    (void)state;
    for (int n = 0; n < 6; n++) assert_int_equal(judged(around(0.5, 0.001, n)), VERDICT_INCONCLUSIVE);
    struct experiment_state *s = around(0.5, 0.001, 5);
    experiment_judge(s);
    assert_int_equal(s->blocks_needed, 2); /* a difference needs 7 */
    CHECK_CONTAINS(
        s->reason,
        "only 5 blocks; proving a difference takes at least 7, which with this noise would probably find one of");
    CHECK_CONTAINS(s->reason, "a verdict needs about 2 more blocks");
    free(s);
    /* without blocks the control says what could be seen, and blocks take as long as its own */
    s = around(0, 0, 0);
    const double control[] = { 0.01, -0.01, 0 };
    memcpy(s->control_d, control, sizeof(control));
    s->control_blocks = 3;
    s->block_s = 1.5;
    experiment_judge(s);
    assert_int_equal(s->blocks_needed, 7);
    CHECK_CONTAINS(
        s->reason,
        "no block was measured; proving a difference takes at least 7, which with this noise would probably find one of");
    CHECK_CONTAINS(s->reason, "a verdict needs about 7 more blocks (11 s at this load)");
    free(s);
    /* undisturbed blocks come only as often as they did */
    s = around(0.5, 0.001, 4);
    s->block_s = 1;
    s->complete = 8;
    s->discarded = 4;
    s->estimand = ESTIMAND_QUIET;
    experiment_judge(s);
    CHECK_CONTAINS(s->reason, "only 4 undisturbed blocks");
    CHECK_CONTAINS(s->reason, "a verdict needs about 3 more blocks (6 s at this load)");
    s->blocks = s->comparison[1].blocks = 0;
    s->discarded = 8;
    experiment_judge(s);
    CHECK_CONTAINS(s->reason, "none of 8 was undisturbed: --estimand loaded uses all");
    free(s);
}

static void blocks_needed_are_enough_and_not_twice_too_many(void **state)
{
    (void)state;
    const double centers[] = { 0.0, 0.004, 0.008, 0.012, 0.03 };
    for (size_t i = 0; i < COUNT_OF(centers); i++) {
        struct experiment_state *s = around(centers[i], 0.02, 6);
        experiment_judge(s);
        assert_int_equal(s->verdict, VERDICT_INCONCLUSIVE);
        CHECK_GT(s->blocks_needed, 0);
        /* With so many more at the same mean and sd the intervals decide. */
        const double sd = stats_sd(s->comparison[1].d, 6), most = 0.01 + 1e-12;
        for (int n = 6 + s->blocks_needed, less = 0; less < 2; less++, n--) {
            const double half95 = stats_anytime_factor(n, 1, 0.05) * sd / sqrt(n);
            const double half90 = stats_anytime_factor(n, 1, 0.10) * sd / sqrt(n);
            const bool enough = (centers[i] > 0.01 && half95 <= centers[i]) || half90 + centers[i] <= most;
            assert_int_equal(enough, !less);
        }
        free(s);
    }
}

static void what_makes_a_run_invalid(void **state)
{
    (void)state;
    struct experiment_state *s = around(0.10, 0.01, 8);
    s->discarded = 30; /* disturbed blocks alone do not */
    assert_int_equal(judged(s), VERDICT_BETTER);
    s = around(0.10, 0.01, 8);
    s->control_failed = true;
    assert_int_equal(judged(s), VERDICT_INVALID);
    s = around(0.10, 0.01, 8);
    s->arm[1].failed = true;
    snprintf(s->arm[1].error, sizeof(s->arm[1].error), "killed");
    experiment_judge(s);
    assert_int_equal(s->verdict, VERDICT_INVALID);
    CHECK_CONTAINS(s->reason, "arm B");
    CHECK_CONTAINS(s->reason, "killed");
    free(s);
}

static void a_control_is_doubled_once_before_it_fails(void **state)
{
    (void)state;
    struct experiment_state *s = around(0, 0, 0);
    s->spec.control_blocks = 3;
    const double biased[] = { 0.0200, 0.0201, 0.0199, 0.0200, 0.0202, 0.0198 };
    memcpy(s->control_d, biased, sizeof(biased));
    s->control_blocks = 2;
    assert_int_equal(control_wanted(s), 3);
    s->control_blocks = 3;
    judge_control(s);
    assert_int_equal(control_wanted(s), 6);
    CHECK(!s->control_failed);
    s->control_blocks = 6;
    judge_control(s);
    CHECK(s->control_failed);
    /* Certain, but a tenth of the margin: it cannot turn a verdict. */
    const double tiny[] = { 0.00100, 0.00101, 0.00099, 0.00100, 0.00102, 0.00098 };
    memcpy(s->control_d, tiny, sizeof(tiny));
    judge_control(s);
    CHECK_GT(s->control.lower, 0);
    CHECK(!s->control_failed);
    /* By chance the first three agree; the next three say otherwise. */
    const double chance[] = { 0.0020, 0.0021, 0.0019, -0.003, -0.001, 0.001 };
    memcpy(s->control_d, chance, sizeof(chance));
    judge_control(s);
    CHECK(!s->control_failed);
    /* A quiet control is not prolonged. */
    const double quiet[] = { 0.002, -0.002, 0.001 };
    memcpy(s->control_d, quiet, sizeof(quiet));
    s->control_blocks = 3;
    judge_control(s);
    assert_int_equal(control_wanted(s), 3);
    CHECK_NEAR(s->noise_floor, stats_t_quantile(0.975, 2) * stats_sd(quiet, 3) / sqrt(3), 1e-15);
    free(s);
}

static void block_order_is_fixed_by_seed_and_number(void **state)
{
    (void)state;
    int abba = 0, same = 0;
    for (int b = 0; b < 1000; b++) {
        int x[BLOCK_CELLS], y[BLOCK_CELLS], z[BLOCK_CELLS];
        block_order(42, CELL_BLOCK, b, 2, x);
        block_order(42, CELL_BLOCK, b, 2, y);
        block_order(43, CELL_BLOCK, b, 2, z);
        assert_memory_equal(x, y, 4 * sizeof(*x));
        CHECK_EQ(x[0], x[3]);
        CHECK_EQ(x[1], x[2]);
        CHECK_NE(x[0], x[1]);
        abba += x[0] == 0;
        same += x[0] == z[0];
    }
    CHECK_GT(abba, 440);
    CHECK_LT(abba, 560); /* a fair coin: 4 sd */
    CHECK_GT(same, 440);
    CHECK_LT(same, 560);
}

static void every_arm_comes_first_as_often(void **state)
{
    (void)state;
    enum { ARMS = 5, ROUNDS = 5000 };
    int first[ARMS] = { 0 }, second[ARMS] = { 0 };
    for (int b = 0; b < ROUNDS; b++) {
        int place[BLOCK_CELLS], seen = 0;
        block_order(9, CELL_BLOCK, b, ARMS, place);
        for (int i = 0; i < ARMS; i++) {
            seen |= 1 << place[i];
            assert_int_equal(place[i], place[2 * ARMS - 1 - i]);
        }
        assert_int_equal(seen, (1 << ARMS) - 1);
        first[place[0]]++;
        second[place[1]]++;
    }
    for (int k = 0; k < ARMS; k++) { /* 1000 each: 5 sd are 141 */
        CHECK_LT(abs(first[k] - ROUNDS / ARMS), 141);
        CHECK_LT(abs(second[k] - ROUNDS / ARMS), 141);
    }
}

static void a_linear_drift_cancels_in_a_block(void **state)
{
    (void)state;
    for (int arms = 2; arms <= EXPERIMENT_ARMS; arms++)
        for (int b = 0; b < 8; b++) {
            int place[BLOCK_CELLS];
            double value[BLOCK_CELLS];
            block_order(7, CELL_BLOCK, b, arms, place);
            for (int i = 0; i < 2 * arms; i++) value[i] = exp(0.05 * place[i] - 0.02 * i);
            for (int k = 1; k < arms; k++) {
                CHECK_NEAR(block_effect(value, place, 2 * arms, k, +1), 0.05 * k, 1e-12);
                CHECK_NEAR(block_effect(value, place, 2 * arms, k, -1), -0.05 * k, 1e-12);
            }
            for (int i = 0; i < 2 * arms; i++)
                if (!place[i]) value[i] = i & 1 ? NAN : 0;
            CHECK_NAN(block_effect(value, place, 2 * arms, 1, +1));
        }
}

/* Which blocks count depends on how many were disturbed and on the budget. */
static void the_estimand_follows_the_disturbances(void **state)
{
    (void)state;
    struct experiment_state *s = around(0, 0, 0);
    static const struct {
        int complete, disturbed, planned;
        double left_s; /* of the budget */
        enum estimand use;
    } CASES[] = {
        { .complete = 10, .disturbed = 2, .left_s = 0, .use = ESTIMAND_QUIET },     /* 1 in 5 */
        { .complete = 10, .disturbed = 5, .left_s = 100, .use = ESTIMAND_QUIET },   /* there is time */
        { .complete = 10, .disturbed = 5, .left_s = 2, .use = ESTIMAND_LOADED },    /* 5 + 1 of 7 */
        { .complete = 10, .disturbed = 5, .left_s = 4, .use = ESTIMAND_QUIET },     /* 5 + 2 */
        { .complete = 10, .disturbed = 8, .left_s = 1000, .use = ESTIMAND_LOADED }, /* 3 of 4 wasted */
        { .complete = 10, .disturbed = 5, .planned = 80, .left_s = 100, .use = ESTIMAND_LOADED },
        { .complete = 2, .disturbed = 2, .left_s = 1000, .use = ESTIMAND_QUIET }, /* too early to say */
    };
    s->block_s = 1;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        s->complete = CASES[i].complete;
        s->disturbed = CASES[i].disturbed;
        s->planned_blocks = CASES[i].planned;
        s->spec.budget_s = 100;
        s->elapsed_s = 100 - CASES[i].left_s;
        if (CASES[i].left_s > 100) s->elapsed_s = 0, s->spec.budget_s = CASES[i].left_s;
        s->spec.estimand = ESTIMAND_EITHER;
        CHECK_EQ(estimand_choose(s), CASES[i].use);
        s->spec.estimand = ESTIMAND_LOADED;
        CHECK_EQ(estimand_choose(s), ESTIMAND_LOADED);
    }
    free(s);
}

static void an_estimand_selects_its_blocks(void **state)
{
    (void)state;
    struct experiment_state *s = around(0, 0, 0);
    for (int i = 0; i < 12; i++) {
        series_add(&s->comparison[1].all, i, NAN, i % 3 == 0);
        series_add(&s->control_all, -i, NAN, i % 2);
    }
    s->complete = 12;
    s->disturbed = 4;
    estimand_use(s, ESTIMAND_QUIET);
    CHECK_EQ(s->comparison[1].blocks, 8);
    CHECK_NEAR(s->comparison[1].d[2], 4, 0);
    CHECK_EQ(s->blocks, 8);
    CHECK_EQ(s->discarded, 4);
    CHECK_EQ(s->control_blocks, 6);
    CHECK_EQ(s->control_discarded, 6);
    estimand_use(s, ESTIMAND_LOADED);
    CHECK_EQ(s->comparison[1].blocks, 12);
    CHECK_EQ(s->blocks, 12);
    CHECK_EQ(s->discarded, 0);
    CHECK_EQ(s->control_blocks, 12);
    free(s);
}

/* Where the run may choose its estimand: what it refutes, both players refute (evidence.c). */
static void a_choice_of_estimand_divides_the_stake(void **state)
{
    (void)state;
    struct experiment_state *s = around(0, 0, 0);
    struct comparison *c = &s->comparison[1];
    for (int i = 0; i < 3; i++) series_add(&s->control_all, 0, NAN, i == 0);
    CHECK_NEAR(evidence_share_loaded(s), 0.4, 1e-15); /* (1 + 1) / (3 + 2) */
    double quiet[EXPERIMENT_BLOCKS], loaded[EXPERIMENT_BLOCKS];
    int n = 0;
    for (int i = 0; i < 24; i++) {
        const bool disturbed = i % 4 == 3;
        const double d = (disturbed ? -0.01 : 0.02) + 0.004 * (i * 5 % 7 - 3);
        series_add(&c->all, d, NAN, disturbed);
        loaded[i] = d;
        if (!disturbed) quiet[n++] = d;
    }
    const struct stats_stake part[2] = { { quiet, n, 0.6 }, { loaded, 24, 0.4 } };
    const double e[] = { stats_coin_evalue(quiet, n), stats_coin_evalue(loaded, 24) };
    const struct interval alone[] = { stats_anytime_interval(quiet, n, 0.95),
                                      stats_anytime_interval(loaded, 24, 0.95) };
    CHECK_NEAR(stats_mixed_evalue(part, 2), 0.6 * e[0] + 0.4 * e[1], 1e-9 * e[0]);
    s->spec.estimand = ESTIMAND_EITHER;
    for (int k = 0; k < 2; k++) {
        estimand_use(s, k ? ESTIMAND_LOADED : ESTIMAND_QUIET);
        const struct interval both = evidence_interval(c, c->blocks, 0.95);
        CHECK_NEAR(evidence_evalue(c, c->blocks), fmin(e[k], stats_mixed_evalue(part, 2)), 1e-9 * e[0]);
        CHECK_NEAR(both.estimate, alone[k].estimate, 1e-15);
        CHECK_LE(both.lower, alone[k].lower);
        CHECK_GE(both.upper, alone[k].upper);
        for (int side = -1; side <= 1; side += 2) { /* just outside, both refute; just inside, one does not */
            const double bound = side < 0 ? both.lower : both.upper;
            for (int out = 0; out < 2; out++) {
                const double null = bound + side * (out ? 1e-6 : -1e-6);
                double q[EXPERIMENT_BLOCKS], l[EXPERIMENT_BLOCKS];
                for (int i = 0; i < n; i++) q[i] = quiet[i] - null;
                for (int i = 0; i < 24; i++) l[i] = loaded[i] - null;
                const struct stats_stake shifted[2] = { { q, n, 0.6 }, { l, 24, 0.4 } };
                const double own = k ? stats_coin_evalue(l, 24) : stats_coin_evalue(q, n);
                CHECK_EQ(fmin(own, stats_mixed_evalue(shifted, 2)) >= 20, out);
            }
        }
        CHECK_LE(evidence_p(c), 1 / fmax(1, evidence_evalue(c, c->blocks)));
    }
    s->spec.estimand = ESTIMAND_QUIET; /* no choice: nothing is divided */
    estimand_use(s, ESTIMAND_QUIET);
    CHECK_NEAR(evidence_evalue(c, n), e[0], 1e-9 * e[0]);
    CHECK_NEAR(evidence_interval(c, n, 0.95).lower, alone[0].lower, 1e-12);
    s->spec.estimand = ESTIMAND_EITHER; /* no disturbed block: there is nothing to choose, and no cost */
    memset(&c->all, 0, sizeof(c->all));
    for (int i = 0; i < n; i++) series_add(&c->all, quiet[i], NAN, false);
    estimand_use(s, ESTIMAND_QUIET);
    CHECK_NEAR(evidence_evalue(c, n), e[0], 1e-9 * e[0]);
    CHECK_NEAR(evidence_interval(c, n, 0.95).upper, alone[0].upper, 1e-12);
    CHECK_NEAR(evidence_p(c), stats_anytime_p(quiet, n), 1e-15);
    free(s);
}

/* Over all sign patterns of twelve blocks, whatever their sizes and whichever of them were disturbed: at most
 * 1 in 20 ever sees evidence of 20, even if the estimand is chosen after each look to please. */
static void no_choice_of_estimand_cries_wolf(void **state)
{
    (void)state;
    enum { N = 12, PATTERNS = 1 << N };
    static const struct {
        double size[N];
        unsigned disturbed; /* bit of each block */
        int control;        /* disturbed blocks of 3 */
    } CASES[] = { { { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 0xc00, 0 },
                  { { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 0x7, 3 },
                  { { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8 }, 0x8a8, 1 },
                  { { 1, 50, 1, 50, 1, 50, 1, 50, 1, 50, 1, 50 }, 0xaaa, 2 } };
    struct experiment_state *s = around(0, 0, 0);
    struct comparison *c = &s->comparison[1];
    s->spec.estimand = ESTIMAND_EITHER;
    for (size_t k = 0; k < COUNT_OF(CASES); k++) {
        int reached = 0;
        s->control_all.blocks = 0;
        for (int i = 0; i < 3; i++) series_add(&s->control_all, 0, NAN, i < CASES[k].control);
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            bool seen = false;
            c->all.blocks = 0;
            for (int i = 0; i < N && !seen; i++) {
                const double d = CASES[k].size[i];
                series_add(&c->all, pattern >> i & 1 ? d : -d, NAN, CASES[k].disturbed >> i & 1);
                for (int use = ESTIMAND_QUIET; use <= ESTIMAND_LOADED && i >= 5; use++) {
                    estimand_use(s, (enum estimand)use);
                    seen |= evidence_evalue(c, c->blocks) >= 20;
                }
            }
            reached += seen;
        }
        CHECK_GT(reached, 0);
        CHECK_LE(20 * reached, PATTERNS);
    }
    free(s);
}

/* Other programs that run more beside one arm are reported; those that run more in some blocks are not. */
static void a_load_that_reacts_is_reported(void **state)
{
    (void)state;
    struct experiment_state *s = around(0, 0, 0);
    struct comparison *c = &s->comparison[1];
    experiment_judge(s);
    CHECK_NAN(s->load_reacts);
    CHECK_NAN(s->load_reacts_p);
    CHECK(!experiment_load_reacts(s));
    for (int i = 0; i < 12; i++) series_add(&c->all, 0.1, i == 3 ? NAN : i & 1 ? 0.5 : -0.5, true);
    experiment_judge(s);
    CHECK_GT(s->load_reacts_p, 0.05);
    CHECK(!experiment_load_reacts(s));
    for (int i = 0; i < 12; i++) c->all.load[i] = 0.3 + 0.1 * (i & 1);
    experiment_judge(s);
    CHECK_NEAR(s->load_reacts, 0.35, 0.01);
    CHECK_LE(s->load_reacts_p, 0.05);
    CHECK(experiment_load_reacts(s));
    free(s);
}

/* What explains the effects is removed from them, once enough blocks have shown it. */
static void effects_are_adjusted_for_load(void **state)
{
    (void)state;
    struct block_series series = { 0 };
    double d[EXPERIMENT_BLOCKS];
    for (int i = 0; i < 40; i++) {
        const double load = (i * 7 % 11 - 5) / 5.0, rest = 0.001 * (i * 5 % 7 - 3);
        series_add(&series, 0.05 - 0.2 * load + rest, i == 30 ? NAN : load, false);
    }
    CHECK_EQ(series_select(&series, NULL, ESTIMAND_LOADED, d), 40);
    for (int i = 0; i < 8; i++) CHECK_NEAR(d[i], series.d[i], 0); /* nothing is known yet */
    for (int i = 8; i < 40; i++)
        CHECK_NEAR(d[i], i == 30 ? series.d[i] : 0.05 + 0.001 * (i * 5 % 7 - 3), 0.002);
}

static void planning_stays_within_its_bounds(void **state)
{
    (void)state;
    struct experiment_spec s = { .margin = 0.01, .min_blocks = 6, .max_blocks = 32 };
    assert_int_equal(plan_blocks(&s, 0), 7);
    assert_int_equal(plan_blocks(&s, 1), 32);
    assert_int_equal(plan_blocks(&s, NAN), 32);
    /* sd as large as the margin: the method's worked figure is 8 by z; looking every time costs as many
     * again. */
    const int n = plan_blocks(&s, 0.01);
    CHECK_GE(n, 12);
    CHECK_LE(n, 22);
}

static double normal(uint64_t *random)
{
    double u[2];
    for (int i = 0; i < 2; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        u[i] = ((double)(*random >> 11) + 0.5) / 9007199254740992.0;
    }
    return sqrt(-2 * log(u[0])) * cos(2 * M_PI * u[1]);
}

/* Whole experiments without a worker: control, blocks, a look after each. Counts verdicts; noise of the given
 * sd in every block, `effect` in those of the comparison. */
static void simulate(int rounds, double sd, double effect, int count[VERDICT_INVALID + 1])
{
    uint64_t random = 2026;
    struct experiment_state *s = around(0, 0, 0);
    memset(count, 0, (VERDICT_INVALID + 1) * sizeof(*count));
    s->spec.min_blocks = 6;
    s->spec.max_blocks = 64;
    s->spec.control_blocks = 3;
    struct comparison *c = &s->comparison[1];
    for (int r = 0; r < rounds; r++) {
        s->control_blocks = s->blocks = c->blocks = 0;
        s->reason[0] = 0;
        while (s->control_blocks < control_wanted(s))
            s->control_d[s->control_blocks++] = sd * normal(&random);
        judge_control(s);
        do {
            c->d[c->blocks++] = effect + sd * normal(&random);
            s->blocks++;
            judge_numbers(s);
        } while (!judge_is_decided(s) && s->blocks < s->spec.max_blocks);
        experiment_judge(s);
        count[s->verdict]++;
    }
    free(s);
}

static void simulated_experiments_keep_their_promises(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    int count[VERDICT_INVALID + 1];
    static const double SD[] = { 0.002, 0.01, 0.03 };
    for (size_t i = 0; i < COUNT_OF(SD); i++) {
        simulate(ROUNDS, SD[i], 0, count); /* A against A: a false claim at most once in 20 */
        CHECK_LE(count[VERDICT_BETTER] + count[VERDICT_WORSE], ROUNDS / 20);
        CHECK_LE(count[VERDICT_INVALID], ROUNDS / 20);
        simulate(ROUNDS, SD[i], 0.04, count); /* four margins: hardly ever missed, never the wrong way */
        CHECK_LE(count[VERDICT_WORSE], 1);
        CHECK_GE(count[VERDICT_BETTER], ROUNDS * 0.90);
    }
    simulate(ROUNDS, 0.002, 0, count);
    CHECK_GE(count[VERDICT_EQUIVALENT], ROUNDS * 0.9);
}

static struct sample *quiet_samples(int n)
{
    struct sample *s = calloc((size_t)n, sizeof(*s));
    assert_non_null(s);
    for (int i = 0; i < n; i++)
        for (int m = 0; m < METRIC_SENSOR_COUNT; m++) s[i].value[m] = NAN;
    for (int i = 0; i < n; i++) {
        s[i].value[METRIC_CPU_STEAL] = 0;
        s[i].value[METRIC_CPU_FREQUENCY] = 3e9;
        s[i].value[METRIC_SWAP_IN] = 0;
        s[i].value[METRIC_OTHERS_BUSY] = 0.01;
        s[i].value[METRIC_CGROUP_OTHERS] = 0.05;
        s[i].value[METRIC_CGROUP_THROTTLED] = 1; /* its own threads use the quota up: slow, not disturbed */
        s[i].value[METRIC_ON_BATTERY] = 0;
        s[i].value[METRIC_GPU_THROTTLE] = 1; /* a GPU that the cell does not use */
    }
    return s;
}

static void contamination_names_what_happened(void **state)
{
    (void)state;
    char buf[160];
    json_t *cpu = json_object(), *gpu = json_object(), *faults = json_object();
    json_put_str(gpu, "device", "opencl:0");
    json_put_int(cpu, "major_faults", 0);
    json_put_int(faults, "major_faults", 7);
    struct sample *s = quiet_samples(10);
    assert_string_equal(contamination_reason(s, 10, cpu, 3e9, buf, sizeof(buf)), "");
    assert_string_equal(contamination_reason(NULL, 0, cpu, 3e9, buf, sizeof(buf)), "");
    assert_string_equal(contamination_reason(NULL, 0, NULL, NAN, buf, sizeof(buf)), "");
    CHECK_CONTAINS(contamination_reason(s, 10, faults, 3e9, buf, sizeof(buf)), "7 major page faults");
    CHECK_CONTAINS(contamination_reason(s, 10, gpu, 3e9, buf, sizeof(buf)), "throttled");
    CHECK_CONTAINS(contamination_reason(s, 10, cpu, 3.3e9, buf, sizeof(buf)), "clock"); /* 3.0 of 3.3: 91 % */
    assert_string_equal(contamination_reason(s, 10, cpu, 3.1e9, buf, sizeof(buf)), ""); /* 97 % */
    assert_string_equal(contamination_reason(s, 10, cpu, NAN, buf, sizeof(buf)), "");
    const struct {
        enum metric_id metric;
        double value;
        const char *word;
    } cases[] = { { METRIC_CPU_STEAL, 0.2, "hypervisor" },
                  { METRIC_SWAP_IN, 4096, "swap" },
                  { METRIC_CPU_THROTTLE, 2, "heat" },
                  { METRIC_OTHERS_BUSY, 1.0, "other programs" },
                  { METRIC_CGROUP_OTHERS, 0.9, "control group" },
                  { METRIC_ON_BATTERY, 1, "power source" } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct sample *t = quiet_samples(10);
        t[3].value[cases[i].metric] = cases[i].value;
        t[4].value[cases[i].metric] = cases[i].value;
        CHECK_CONTAINS(contamination_reason(t, 10, cpu, 3e9, buf, sizeof(buf)), cases[i].word);
        free(t);
    }
    free(s);
    json_decref(cpu);
    json_decref(gpu);
    json_decref(faults);
}

static void verdict_names_go_both_ways(void **state)
{
    (void)state;
    for (int v = VERDICT_BETTER; v <= VERDICT_INVALID; v++)
        assert_int_equal(verdict_parse(verdict_name((enum verdict)v)), v);
    assert_int_equal(verdict_parse(""), VERDICT_NONE);
    assert_int_equal(verdict_parse("good"), VERDICT_NONE);
    assert_int_equal(verdict_parse(NULL), VERDICT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_on_both_sides_of_every_boundary),
        cmocka_unit_test(shown_figures_have_one_source),
        cmocka_unit_test(fewer_than_six_blocks_claim_nothing),
        cmocka_unit_test(blocks_needed_are_enough_and_not_twice_too_many),
        cmocka_unit_test(what_makes_a_run_invalid),
        cmocka_unit_test(a_control_is_doubled_once_before_it_fails),
        cmocka_unit_test(block_order_is_fixed_by_seed_and_number),
        cmocka_unit_test(every_arm_comes_first_as_often),
        cmocka_unit_test(a_linear_drift_cancels_in_a_block),
        cmocka_unit_test(the_estimand_follows_the_disturbances),
        cmocka_unit_test(an_estimand_selects_its_blocks),
        cmocka_unit_test(a_choice_of_estimand_divides_the_stake),
        cmocka_unit_test(no_choice_of_estimand_cries_wolf),
        cmocka_unit_test(a_load_that_reacts_is_reported),
        cmocka_unit_test(effects_are_adjusted_for_load),
        cmocka_unit_test(planning_stays_within_its_bounds),
        cmocka_unit_test(simulated_experiments_keep_their_promises),
        cmocka_unit_test(contamination_names_what_happened),
        cmocka_unit_test(verdict_names_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
