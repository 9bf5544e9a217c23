/* Proves: ranks, sign flips, counts and series agree with other programs and with cases worked by hand, and
 * are NAN where there are too few values.
 *
 * References computed with SciPy 1.17 and statsmodels 0.15. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>

#include "advisor/stats/stats.h"

/* Darwin's maize, height of crossed less self-fertilized plants (Fisher 1935). */
static const double DARWIN[15] = { 49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48 };

static void hodges_lehmann_agrees_with_scipy(void **state)
{
    (void)state;
    /* Bounds: where scipy.stats.wilcoxon(x - v) stops rejecting v. */
    struct interval i = stats_hodges_lehmann(DARWIN, 15, 0.95);
    CHECK_NEAR(i.estimate, 25, 1e-12);
    CHECK_NEAR(i.lower, 4, 1e-12);
    CHECK_NEAR(i.upper, 41.5, 1e-12);
    i = stats_hodges_lehmann(DARWIN, 15, 0.90);
    CHECK_NEAR(i.lower, 8, 1e-12);
    CHECK_NEAR(i.upper, 39.5, 1e-12);
    double x[70]; /* beyond the exact table: normal approximation with continuity correction */
    for (int k = 0; k < 70; k++) x[k] = sin(0.7 * k * k) + 0.2;
    i = stats_hodges_lehmann(x, 70, 0.95);
    CHECK_NEAR(i.estimate, 0.2875496364, 1e-9);
    CHECK_NEAR(i.lower, 0.1517660821, 1e-9);
    CHECK_NEAR(i.upper, 0.5102062817, 1e-9);
    const double six[] = { 1, 2, 3, 4, 5, 6 };
    i = stats_hodges_lehmann(six, 6, 0.95); /* unanimous at 2/64: all of them, and nothing less, is 95 % */
    CHECK_EQ(i.lower, 1);
    CHECK_EQ(i.upper, 6);
    CHECK_EQ(i.estimate, 3.5);
    i = stats_hodges_lehmann(six, 5, 0.95);
    CHECK_EQ(i.estimate, 3);
    CHECK_NAN(i.lower);
    CHECK_NAN(i.upper);
    const double hole[] = { 1, NAN };
    CHECK_NAN(stats_hodges_lehmann(hole, 2, 0.95).estimate);
    CHECK_NAN(stats_hodges_lehmann(six, 0, 0.95).estimate);
}

static void sign_flips_agree_with_fisher(void **state)
{
    (void)state;
    /* Fisher's own count by hand was 1726 of 32768. */
    CHECK_NEAR(stats_permutation_p(DARWIN, 15, 1), 1726 / 32768.0, 1e-15);
    const double six[] = { 0.01, 0.02, 0.03, 0.01, 0.02, 0.05 };
    CHECK_NEAR(stats_permutation_p(six, 6, 1), 2 / 64.0, 1e-15);
    const double none[] = { 1, -1 }, one[] = { 5 };
    CHECK_EQ(stats_permutation_p(none, 2, 1), 1);
    CHECK_EQ(stats_permutation_p(one, 1, 1), 1);
    CHECK_NAN(stats_permutation_p(one, 0, 1));
    /* Against counting every pattern, with ties that rounding must not part. */
    for (int n = 1; n <= 12; n++) {
        double x[12], sum = 0;
        for (int i = 0; i < n; i++) sum += x[i] = 0.1 * ((7 * i + n) % 5 - 1);
        int reached = 0;
        for (int pattern = 0; pattern < 1 << n; pattern++) {
            double s = 0;
            for (int i = 0; i < n; i++) s += pattern >> i & 1 ? x[i] : -x[i];
            reached += fabs(s) >= fabs(sum) - 1e-9;
        }
        CHECK_NEAR(stats_permutation_p(x, n, 1), reached / (double)(1 << n), 1e-15);
    }
}

static void sign_flips_beyond_twenty_are_drawn(void **state)
{
    (void)state;
    double x[28]; /* Darwin's and zeros: flipping a zero changes nothing, so p is the same but drawn */
    for (int i = 0; i < 28; i++) x[i] = i < 15 ? DARWIN[i] : 0;
    const double p = stats_permutation_p(x, 28, 7);
    CHECK_NEAR(p, 1726 / 32768.0, 4 * sqrt(0.0527 * 0.9473 / 9999)); /* four standard errors */
    CHECK_EQ(p, stats_permutation_p(x, 28, 7));                      /* seeded */
    CHECK_NE(p, stats_permutation_p(x, 28, 8));
    CHECK_NEAR(stats_permutation_p(x, 20, 7), 1726 / 32768.0, 1e-15); /* the last exact one */
    for (int i = 0; i < 28; i++) x[i] = 1;
    CHECK_NEAR(stats_permutation_p(x, 28, 7), 1e-4, 1e-12); /* never 0: (0 + 1) / (9999 + 1) */
}

static void binomial_agrees_with_scipy(void **state)
{
    (void)state;
    CHECK_NEAR(stats_binomial_cdf(3, 10, 0.3), 0.6496107184, 1e-12);
    CHECK_NEAR(stats_binomial_cdf(459, 1000, 0.5), 0.005194065783, 1e-12);
    CHECK_NEAR(stats_binomial_cdf(99940, 100000, 0.999), 0.9999937132948, 1e-11);
    CHECK_EQ(stats_binomial_cdf(-1, 5, 0.5), 0);
    CHECK_EQ(stats_binomial_cdf(5, 5, 0.5), 1);
    CHECK_EQ(stats_binomial_cdf(2, 5, 0), 1);
    CHECK_EQ(stats_binomial_cdf(2, 5, 1), 0);
    CHECK_NAN(stats_binomial_cdf(1, 5, 1.5));
    CHECK_NAN(stats_binomial_cdf(1, 5, NAN));
}

static void samples_for_a_percentile_are_mlperf_s(void **state)
{
    (void)state;
    const struct {
        double p;
        int slow, n;
    } known[] = { { 0.99, 0, 459 }, { 0.99, 1, 662 }, { 0.90, 0, 44 },   { 0.90, 1, 64 },
                  { 0.95, 0, 90 },  { 0.50, 0, 7 },   { 0.999, 0, 4603 } };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const int n = stats_samples_for_quantile(known[i].p, 0.99, known[i].slow);
        assert_int_equal(n, known[i].n);
        CHECK_LE(stats_binomial_cdf(known[i].slow, n, 1 - known[i].p), 0.01);
        CHECK_GT(stats_binomial_cdf(known[i].slow, n - 1, 1 - known[i].p), 0.01);
    }
    assert_int_equal(stats_samples_for_quantile(0.5, 0.75, 0), 2); /* exact: 1/4 */
    CHECK_GE(stats_samples_for_quantile(1, 0.99, 0), 1000000000);
    CHECK_GE(stats_samples_for_quantile(0.99, 0.99, -1), 1000000000);
}

static void latency_percentiles_need_samples(void **state)
{
    (void)state;
    float x[700];
    for (int i = 0; i < 700; i++) x[i] = (float)(699 - i); /* unsorted on purpose */
    CHECK_NAN(stats_latency_quantile(x, 458, 0.99));
    CHECK_NEAR(stats_latency_quantile(x + 700 - 459, 459, 0.99), 0.99 * 458, 1e-3);
    CHECK_NAN(stats_latency_quantile(x, 89, 0.95));
    CHECK(!isnan(stats_latency_quantile(x, 90, 0.95)));
    CHECK_NAN(stats_latency_quantile(x, 6, 0.50));
    CHECK(!isnan(stats_latency_quantile(x, 7, 0.50)));
    CHECK_NEAR(stats_latency_quantile(x, 700, 0.50), 349.5, 1e-3);
    CHECK_NAN(stats_latency_quantile(NULL, 0, 0.50));
    CHECK_NAN(stats_latency_quantile(x, 700, 1));
}

static void mcnemar_agrees_with_statsmodels(void **state)
{
    (void)state;
    CHECK_NEAR(stats_mcnemar(2, 11), 0.0224609375, 1e-12);
    CHECK_NEAR(stats_mcnemar(40, 62), 0.037066767439, 1e-11);
    CHECK_NEAR(stats_mcnemar(0, 6), 0.03125, 1e-14);
    CHECK_EQ(stats_mcnemar(5, 5), 1);
    CHECK_EQ(stats_mcnemar(0, 0), 1);
    CHECK_EQ(stats_mcnemar(3, 9), stats_mcnemar(9, 3));
    CHECK_LT(stats_mcnemar(400000, 500000), 1e-100);
    CHECK_GT(stats_mcnemar(400000, 400100), 0.9);
    CHECK_NAN(stats_mcnemar(-1, 4));
}

static void neighbours_that_know_of_each_other(void **state)
{
    (void)state;
    double x[25];
    for (int i = 0; i < 25; i++) x[i] = exp(sin(0.9 * i * i));
    CHECK_NEAR(stats_lag1(DARWIN, 15), -0.064544601692, 1e-11);
    CHECK_NEAR(stats_lag1(x, 25), -0.429828430287, 1e-11);
    const double slow[] = { 1, 2, 3, 4, 5, 6 }; /* products 8.75, squares 17.5: 1/2 */
    CHECK_NEAR(stats_lag1(slow, 6), 0.5, 1e-15);
    const double flat[] = { 1, 1, 1, 1 };
    CHECK_NAN(stats_lag1(flat, 4));
    CHECK_NAN(stats_lag1(slow, 2));
}

static void mser_finds_the_end_of_a_warm_up(void **state)
{
    (void)state;
    double x[40];
    for (int i = 0; i < 40; i++) x[i] = 10 + (i % 2 ? 0.1 : -0.1) + (i < 6 ? 5 - 0.5 * i : 0);
    assert_int_equal(stats_mser(x, 40), 6);
    for (int n = 1; n <= 40; n++) { /* against its definition */
        int best = 0;
        double least = INFINITY;
        for (int d = 0; d <= n / 2 && n >= 4; d++) {
            double sum = 0;
            const double mean = stats_mean(x + d, n - d);
            for (int i = d; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
            const double score = sum / ((double)(n - d) * (n - d));
            if (score < least * (1 - 1e-12)) {
                least = score;
                best = d;
            }
        }
        assert_int_equal(stats_mser(x, n), best);
    }
    for (int i = 0; i < 40; i++) x[i] = 7;
    assert_int_equal(stats_mser(x, 40), 0); /* nothing to gain: nothing is dropped */
    for (int i = 0; i < 40; i++) x[i] = i;
    assert_int_equal(stats_mser(x, 40), 20); /* never settles: half, and no more */
    x[30] = NAN;
    assert_int_equal(stats_mser(x, 40), -1);
    assert_int_equal(stats_mser(x, 3), 0);
}

/* Larger is better. */
static void dominance_needs_comparable_values(void **state)
{
    (void)state;
    CHECK(stats_dominates((const double[]){ 2, 1 }, (const double[]){ 1, 1 }, 2));
    CHECK(!stats_dominates((const double[]){ 1, 1 }, (const double[]){ 1, 1 }, 2)); /* equal */
    CHECK(!stats_dominates((const double[]){ 2, 0 }, (const double[]){ 1, 1 }, 2)); /* a trade-off */
    CHECK(stats_dominates((const double[]){ 2, NAN }, (const double[]){ 1, NAN }, 2));
    CHECK(!stats_dominates((const double[]){ 2, NAN }, (const double[]){ 1, 0 }, 2));
    CHECK(!stats_dominates((const double[]){ 2, 0 }, (const double[]){ 1, NAN }, 2));
    CHECK(!stats_dominates((const double[]){ NAN }, (const double[]){ NAN }, 1));
    CHECK(stats_dominates((const double[]){ INFINITY }, (const double[]){ 1 }, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hodges_lehmann_agrees_with_scipy),
        cmocka_unit_test(sign_flips_agree_with_fisher),
        cmocka_unit_test(sign_flips_beyond_twenty_are_drawn),
        cmocka_unit_test(binomial_agrees_with_scipy),
        cmocka_unit_test(samples_for_a_percentile_are_mlperf_s),
        cmocka_unit_test(latency_percentiles_need_samples),
        cmocka_unit_test(mcnemar_agrees_with_statsmodels),
        cmocka_unit_test(dominance_needs_comparable_values),
        cmocka_unit_test(neighbours_that_know_of_each_other),
        cmocka_unit_test(mser_finds_the_end_of_a_warm_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
