/* Proves: the distributions agree with published tables, the intervals with a case worked by hand, and NAN or
 * too few values never become a number. */
#include "tests/check.h"

#include <math.h>

#include "advisor/stats/stats.h"

static void mean_and_sd_of_a_case_worked_by_hand(void **state)
{
    (void)state;
    const double x[] = { 2, 4, 4, 4, 5, 5, 7, 9 }; /* mean 5, squares 32: sd = sqrt(32/7) */
    CHECK_NEAR(stats_mean(x, 8), 5, 1e-15);
    CHECK_NEAR(stats_sd(x, 8), 2.13808993529939517, 1e-14);
    const double far[] = { 1e9 + 1, 1e9 + 2, 1e9 + 3 }; /* the one-pass form gives 0 or worse here */
    CHECK_NEAR(stats_sd(far, 3), 1, 1e-9);
    CHECK_NAN(stats_mean(x, 0));
    CHECK_NAN(stats_sd(x, 1));
    const double hole[] = { 1, NAN, 3 };
    CHECK_NAN(stats_mean(hole, 3));
    CHECK_NAN(stats_sd(hole, 3));
}

static void quantiles_interpolate_as_type_7(void **state)
{
    (void)state;
    const double x[] = { 1, 2, 3, 4 };
    stats_sort(NULL, 0); /* undefined for qsort: UBSan ended the server after its first answer */
    CHECK_NEAR(stats_quantile_sorted(x, 4, 0.25), 1.75, 1e-15); /* R: quantile(1:4, .25) */
    CHECK_NEAR(stats_quantile_sorted(x, 4, 0.50), 2.5, 1e-15);
    CHECK_NEAR(stats_quantile_sorted(x, 4, 0), 1, 0);
    CHECK_NEAR(stats_quantile_sorted(x, 4, 1), 4, 0);
    CHECK_NEAR(stats_quantile_sorted(x, 1, 0.9), 1, 0);
    CHECK_NAN(stats_quantile_sorted(x, 0, 0.5));
    CHECK_NAN(stats_quantile_sorted(x, 4, 1.5));
}

static void normal_distribution_agrees_with_tables(void **state)
{
    (void)state;
    CHECK_NEAR(stats_normal_cdf(0), 0.5, 1e-16);
    CHECK_NEAR(stats_normal_cdf(1.959963984540054), 0.975, 1e-14);
    CHECK_NEAR(stats_normal_cdf(-6), 9.865876450376981e-10, 1e-22);
    const struct {
        double p, z;
    } known[] = { { 0.5, 0 },
                  { 0.975, 1.959963984540054 },
                  { 0.8, 0.8416212335729143 },
                  { 0.995, 2.575829303548901 },
                  { 0.999, 3.090232306167813 },
                  { 1e-9, -5.997807015007774 } };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        CHECK_NEAR(stats_normal_quantile(known[i].p), known[i].z, 1e-10);
    for (double p = 1e-12; p < 1; p += 0.00731)
        CHECK_NEAR(stats_normal_cdf(stats_normal_quantile(p)) / p, 1, 1e-10);
    CHECK_NAN(stats_normal_quantile(-0.1));
    CHECK_NAN(stats_normal_quantile(NAN));
    CHECK(isinf(stats_normal_quantile(1)));
}

static void t_distribution_agrees_with_tables(void **state)
{
    (void)state;
    /* df 1 is Cauchy: cdf = 1/2 + atan(t)/pi; df 2: 1/2 + t / (2 sqrt(2 + t^2)). */
    for (double t = -30; t <= 30; t += 0.77) {
        CHECK_NEAR(stats_t_cdf(t, 1), 0.5 + atan(t) / M_PI, 1e-14);
        CHECK_NEAR(stats_t_cdf(t, 2), 0.5 + t / (2 * sqrt(2 + t * t)), 1e-14);
    }
    const struct {
        double p, df, t;
    } known[] = {
        { 0.975, 1, 12.706204736432095 }, { 0.975, 2, 4.302652729911275 },
        { 0.975, 5, 2.570581835636314 },  { 0.95, 5, 2.015048372669157 },
        { 0.975, 10, 2.228138851964939 }, { 0.975, 31, 2.039513446396408 },
        { 0.995, 4, 4.604094871415897 },  { 0.975, 1000, 1.962339080826409 },
        { 0.8, 7, 0.8960296443137651 },
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        CHECK_NEAR(stats_t_quantile(known[i].p, known[i].df), known[i].t, 1e-9);
        CHECK_NEAR(stats_t_quantile(1 - known[i].p, known[i].df), -known[i].t, 1e-9);
    }
    for (double df = 1; df < 300; df *= 1.7)
        for (double p = 0.0005; p < 1; p += 0.0313)
            CHECK_NEAR(stats_t_cdf(stats_t_quantile(p, df), df), p, 1e-12);
    CHECK_NEAR(stats_t_quantile(0.975, 1e7), 1.959963984540054, 1e-5);
    CHECK_NAN(stats_t_cdf(NAN, 3));
    CHECK_NAN(stats_t_quantile(0.5, 0));
    CHECK_NAN(stats_t_quantile(2, 3));
}

static void interval_of_six_blocks_worked_by_hand(void **state)
{
    (void)state;
    /* mean 0.02, deviations +-0.01 in pairs: squares 6e-4, sd = sqrt(6e-4 / 5) = 0.010954451;
     * half width = 2.570581836 * 0.010954451 / sqrt(6) = 0.011496 */
    const double d[] = { 0.01, 0.03, 0.01, 0.03, 0.01, 0.03 };
    const struct interval i = stats_t_interval(d, 6, 0.95);
    CHECK_NEAR(i.estimate, 0.02, 1e-15);
    CHECK_NEAR(i.upper - i.estimate, 2.570581835636314 * sqrt(6e-4 / 5) / sqrt(6), 1e-14);
    CHECK_NEAR(i.estimate - i.lower, i.upper - i.estimate, 1e-15);
    const struct interval one = stats_t_interval(d, 1, 0.95);
    CHECK_NEAR(one.estimate, 0.01, 0);
    CHECK_NAN(one.lower);
    CHECK_NAN(one.upper);
    const struct interval none = stats_t_interval(d, 0, 0.95);
    CHECK_NAN(none.estimate);
    const double same[] = { 0, 0, 0 };
    const struct interval flat = stats_t_interval(same, 3, 0.95);
    CHECK_EQ(flat.lower, 0);
    CHECK_EQ(flat.upper, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_and_sd_of_a_case_worked_by_hand),
        cmocka_unit_test(quantiles_interpolate_as_type_7),
        cmocka_unit_test(normal_distribution_agrees_with_tables),
        cmocka_unit_test(t_distribution_agrees_with_tables),
        cmocka_unit_test(interval_of_six_blocks_worked_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
