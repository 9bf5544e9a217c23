/* Proves: the e-values are the method's worked figures and what numerical integration of their models gives;
 * the coin's evidence is a fair game, summed over every sign pattern; intervals are exactly what it has not
 * refuted; Holm and O'Brien-Fleming agree with other programs.
 *
 * References computed with SciPy 1.17 and statsmodels 0.15. */
#include "tests/check.h"

#include <math.h>

#include "advisor/stats/stats.h"

/* Darwin's maize, height of crossed less self-fertilized plants (Fisher 1935): a data set every textbook has.
 */
static const double DARWIN[15] = { 49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48 };

/* n values of mean `effect` and standard deviation 1. */
static void standardized(double *x, int n, double effect)
{
    for (int i = 0; i < n; i++) x[i] = sin(1.3 * i * i + 0.4);
    const double mean = stats_mean(x, n), sd = stats_sd(x, n);
    for (int i = 0; i < n; i++) x[i] = (x[i] - mean) / sd + effect;
}

static void sign_evalue_stops_where_the_method_says(void **state)
{
    (void)state;
    CHECK_NEAR(stats_sign_evalue(8, 8), 256 / 9.0, 1e-11); /* 28.44 */
    CHECK_NEAR(stats_sign_evalue(7, 7), 16, 1e-11);
    CHECK_NEAR(stats_sign_evalue(11, 12), 26.2564, 1e-4);
    CHECK_NEAR(stats_sign_evalue(1, 12), stats_sign_evalue(11, 12), 1e-10);
    CHECK_NEAR(stats_sign_evalue(0, 0), 1, 1e-15);
    double all = 0; /* over the coin's own distribution it is 1 on average */
    for (int k = 0; k <= 30; k++)
        all += stats_sign_evalue(k, 30) *
               (stats_binomial_cdf(k, 30, 0.5) - stats_binomial_cdf(k - 1, 30, 0.5));
    CHECK_NEAR(all, 1, 1e-11);
    CHECK_NAN(stats_sign_evalue(-1, 5));
    CHECK_NAN(stats_sign_evalue(6, 5));
}

static void t_evalue_stops_where_the_method_says(void **state)
{
    (void)state;
    const struct {
        double effect;
        int crosses;
    } worked[] = { { 2, 7 }, { 1, 14 } };
    for (size_t i = 0; i < sizeof(worked) / sizeof(worked[0]); i++) {
        double x[14];
        standardized(x, worked[i].crosses - 1, worked[i].effect);
        CHECK_LT(stats_t_evalue(x, worked[i].crosses - 1, 1), 20);
        standardized(x, worked[i].crosses, worked[i].effect);
        CHECK_GE(stats_t_evalue(x, worked[i].crosses, 1), 20);
    }
    /* The integral of the noncentral t density over N(0, g), over the central one. */
    CHECK_NEAR(stats_t_evalue(DARWIN, 15, 1), 1.8169477669, 1e-8);
    CHECK_NEAR(stats_t_evalue(DARWIN, 7, 1), 0.4357334037, 1e-8);
    CHECK_NEAR(stats_t_evalue(DARWIN, 15, 0.25), 2.3494728094, 1e-8);
}

static void t_evalue_at_its_edges(void **state)
{
    (void)state;
    const double zero[4] = { 0 }, same[5] = { 3, 3, 3, 3, 3 }, hole[3] = { 1, NAN, 2 };
    CHECK_NEAR(stats_t_evalue(same, 1, 1), 1, 0);
    CHECK_NEAR(stats_t_evalue(zero, 4, 1), 1 / sqrt(5), 1e-15); /* t = 0 */
    CHECK_NEAR(stats_t_evalue(same, 5, 1), 36, 1e-11);          /* t infinite: (1 + n)^((n-1)/2) */
    CHECK_NAN(stats_t_evalue(hole, 3, 1));
    CHECK_NAN(stats_t_evalue(same, 5, 0));
    double scaled[15];
    for (int i = 0; i < 15; i++) scaled[i] = 1e-6 * DARWIN[i];
    CHECK_NEAR(stats_t_evalue(scaled, 15, 1), stats_t_evalue(DARWIN, 15, 1), 1e-11);
}

static void factor_is_where_the_t_evalue_reaches_its_level(void **state)
{
    (void)state;
    CHECK(isinf(stats_anytime_factor(4, 1, 0.05)));
    CHECK(!isinf(stats_anytime_factor(5, 1, 0.05)));
    CHECK(isinf(stats_anytime_factor(3, 1, 0.10)));
    CHECK(!isinf(stats_anytime_factor(4, 1, 0.10)));
    CHECK(isinf(stats_anytime_factor(1, 1, 0.05)));
    CHECK_NAN(stats_anytime_factor(8, 1, 0));
    for (int n = 5; n <= 200; n += 13) {
        double x[200];
        const double c = stats_anytime_factor(n, 1, 0.05);
        standardized(x, n, c / sqrt(n));
        CHECK_NEAR(stats_t_evalue(x, n, 1) / 20, 1, 1e-9);
        CHECK_GT(c, stats_t_quantile(0.975, n - 1)); /* looking often has a price */
    }
}

static void coin_evalue_is_the_bet_its_model_asks_for(void **state)
{
    (void)state;
    /* The odds from integrating the model over effect and scale on a grid, step by step. */
    CHECK_NEAR(stats_coin_evalue(DARWIN, 2), 0.595089502, 1e-5);
    CHECK_NEAR(stats_coin_evalue(DARWIN, 7), 1.431689131, 1e-5);
    CHECK_NEAR(stats_coin_evalue(DARWIN, 15), 10.715917716, 1e-4);
    double x[15], y[15];
    for (int i = 0; i < 15; i++) x[i] = DARWIN[i] - 60;
    CHECK_NEAR(stats_coin_evalue(x, 15), 0.5 * (89.9271085 + 16384 / 210.0), 1e-3); /* a zero has no sign */
    for (int i = 0; i < 15; i++) y[i] = -1e-7 * x[i]; /* neither unit nor direction matters */
    CHECK_NEAR(stats_coin_evalue(y, 15), stats_coin_evalue(x, 15), 1e-9);
    const double zero[9] = { 0 }, hole[3] = { 1, 2, NAN };
    CHECK_NEAR(stats_coin_evalue(zero, 9), 1, 1e-15); /* nothing happened, nothing was bet */
    CHECK_NEAR(stats_coin_evalue(x, 1), 1, 1e-15);
    CHECK_NEAR(stats_coin_evalue(x, 0), 1, 1e-15);
    CHECK_NAN(stats_coin_evalue(hole, 3));
    CHECK_NAN(stats_anytime_p(hole, 3));
    double most = 1;
    for (int i = 0; i <= 15; i++) {
        most = fmax(most, stats_coin_evalue(x, i));
        CHECK_NEAR(stats_anytime_p(x, i) * most, 1, 1e-12);
    }
    x[14] = 1e3; /* evidence against it later does not take back what was seen */
    CHECK_LT(stats_coin_evalue(x, 15), most);
    CHECK_LE(stats_anytime_p(x, 15), 1 / stats_coin_evalue(x, 14));
}

/* Whatever the sizes, over all sign patterns the evidence is 1 on average, and no more than 1 in 20 ever sees
 * it reach 20. Student's is not: with sizes that repeat it cries wolf, which is why it is only a companion.
 */
static void coin_evalue_is_fair_whatever_the_sizes(void **state)
{
    (void)state;
    enum { N = 13, PATTERNS = 1 << N };
    const double sizes[3][N] = { { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 },
                                 { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9 },
                                 { 1, 1e3, 1, 1, 1e-3, 2, 1, 40, 1, 1, 0.5, 1, 1 } };
    int t_reached = 0;
    for (int s = 0; s < 3; s++) {
        double mean = 0;
        int reached = 0;
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            double x[N];
            bool seen = false, t_seen = false;
            for (int i = 0; i < N; i++) {
                x[i] = pattern >> i & 1 ? sizes[s][i] : -sizes[s][i];
                seen |= stats_coin_evalue(x, i + 1) >= 20;
                t_seen |= i >= 5 && stats_t_evalue(x, i + 1, 1) >= 20;
            }
            mean += stats_coin_evalue(x, N) / PATTERNS;
            reached += seen;
            if (s == 0) t_reached += t_seen;
        }
        CHECK_NEAR(mean, 1, 1e-12);
        CHECK_GT(reached, 0);
        CHECK_LE(20 * reached, PATTERNS);
    }
    CHECK_GT(t_reached * 1.0 / PATTERNS, 0.035); /* and grows beyond 5 % with more blocks: bench stats */
}

static void anytime_interval_holds_what_is_not_refuted(void **state)
{
    (void)state;
    CHECK_EQ(stats_anytime_fewest(0.05), 7);
    CHECK_EQ(stats_anytime_fewest(0.10), 6);
    CHECK_NAN(stats_anytime_interval(DARWIN, 6, 0.95).lower);
    CHECK_NEAR(stats_anytime_interval(DARWIN, 6, 0.95).estimate, stats_mean(DARWIN, 6), 0);
    double x[64];
    for (int n = 7; n <= 64; n += 3) {
        standardized(x, n, 1.5);
        if (n % 2) x[n / 2] += 9; /* with and without an outlier */
        const struct interval i = stats_anytime_interval(x, n, 0.95);
        CHECK_LE(i.lower, i.estimate);
        CHECK_LE(i.estimate, i.upper);
        const double bounds[2] = { i.lower, i.upper }, step = 1e-4 * (i.upper - i.lower);
        for (int side = 0; side < 2; side++) { /* refuted just outside, and ever after; not just inside */
            const double away = side ? step : -step;
            for (int k = -1; k < 400; k++) {
                double y[64];
                const double off = k < 1 ? k : exp(0.03 * k);
                for (int j = 0; j < n; j++) y[j] = x[j] - (bounds[side] + (off + 0.05) * away);
                CHECK_EQ(stats_coin_evalue(y, n) >= 20, k >= 0);
            }
        }
    }
}

static void anytime_interval_at_its_edges(void **state)
{
    (void)state;
    const double same[8] = { 2, 2, 2, 2, 2, 2, 2, 2 };
    const struct interval flat = stats_anytime_interval(same, 8, 0.95);
    CHECK_EQ(flat.lower, 2);
    CHECK_EQ(flat.upper, 2);
    CHECK_NAN(stats_anytime_interval(same, 5, 0.95).upper);
    const double hole[8] = { 1, 2, 3, NAN, 5, 6, 7, 8 };
    CHECK_NAN(stats_anytime_interval(hole, 8, 0.95).lower);
    CHECK_NAN(stats_anytime_interval(same, 8, 1).lower);
    /* One wild block moves the mean, not what is refuted; the interval still holds its estimate. */
    double x[40];
    standardized(x, 40, 0);
    x[39] = 400;
    const struct interval i = stats_anytime_interval(x, 40, 0.95);
    CHECK_NEAR(i.estimate, stats_mean(x, 40), 1e-12);
    CHECK_LT(i.lower, 0);
    CHECK_GT(i.lower, -2);
    CHECK_GE(i.upper, i.estimate);
    CHECK_LT(i.upper, 20);
    /* A regime that turns around in the middle has no constant effect: nothing fits, so nothing is claimed.
     */
    for (int k = 0; k < 40; k++) x[k] = (k < 20 ? 1 : -1) * (1 + 0.01 * sin(k));
    const struct interval none = stats_anytime_interval(x, 40, 0.95);
    CHECK(!(none.lower > 0));
    CHECK(!(none.upper < 0));
}

static void planning_for_looks_after_every_block(void **state)
{
    (void)state;
    const double z = stats_normal_quantile(0.8);
    for (double ratio = 0.3; ratio < 5; ratio *= 1.4) {
        const int n = stats_anytime_blocks_for(ratio, 1, 0.95, 0.8);
        CHECK_GE(n, 7);
        CHECK_LE((stats_anytime_factor(n, 1, 0.05) + z) * ratio / sqrt(n), 1);
        if (n > 8) CHECK_GT((stats_anytime_factor(n - 1, 1, 0.05) + z) * ratio / sqrt(n - 1), 1);
    }
    assert_int_equal(stats_anytime_blocks_for(0.38, 1, 0.95, 0.8), 7); /* the fewest must be clear */
    assert_int_equal(stats_anytime_blocks_for(0.41, 1, 0.95, 0.8), 8);
    assert_int_equal(stats_anytime_blocks_for(1, 1, 0.95, 0.8), 19);
    assert_int_equal(stats_anytime_blocks_for(2, 1, 0.95, 0.8), 70);
    CHECK_EQ(stats_anytime_blocks_for(0, 0.01, 0.95, 0.8), 7);
    CHECK_GE(stats_anytime_blocks_for(NAN, 0.01, 0.95, 0.8), 1000000);
    CHECK_GE(stats_anytime_blocks_for(1, 1e-9, 0.95, 0.8), 1000000);
    CHECK_GE(stats_anytime_blocks_for(1, 1, 0.95, 1), 1000000);
}

static void holm_agrees_with_statsmodels(void **state)
{
    (void)state;
    double p[] = { 0.01, 0.04, 0.03, 0.005, 0.02 };
    const double want[] = { 0.04, 0.06, 0.06, 0.025, 0.06 };
    stats_holm(p, 5, p); /* in place */
    for (int i = 0; i < 5; i++) CHECK_NEAR(p[i], want[i], 1e-15);
    double tied[] = { 0.02, 0.02, NAN }, out[3];
    stats_holm(tied, 3, out);
    CHECK_NEAR(out[0], 0.06, 1e-15);
    CHECK_NEAR(out[1], 0.06, 1e-15);
    CHECK_NAN(out[2]);
    double large[] = { 0.6, 0.5 };
    stats_holm(large, 2, large);
    CHECK_EQ(large[0], 1);
    CHECK_EQ(large[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sign_evalue_stops_where_the_method_says),
        cmocka_unit_test(t_evalue_stops_where_the_method_says),
        cmocka_unit_test(t_evalue_at_its_edges),
        cmocka_unit_test(factor_is_where_the_t_evalue_reaches_its_level),
        cmocka_unit_test(coin_evalue_is_the_bet_its_model_asks_for),
        cmocka_unit_test(coin_evalue_is_fair_whatever_the_sizes),
        cmocka_unit_test(anytime_interval_holds_what_is_not_refuted),
        cmocka_unit_test(anytime_interval_at_its_edges),
        cmocka_unit_test(planning_for_looks_after_every_block),
        cmocka_unit_test(holm_agrees_with_statsmodels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
