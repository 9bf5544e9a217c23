/* Proves: a tally reports all repetitions, but only undisturbed ones count for predictions; a rate without
 * tokens is unknown; what follows from a tally is combined as METRICS says; the noise of a mean is that of
 * its repetitions. */
#include <math.h>
#include <stdlib.h>

#include "advisor/run/run.h"
#include "tests/check.h"

static void count(struct cell_tally *t, double decode_s, double peak, const char *disturbed)
{
    struct err why = { 0 };
    struct measured_cell c;
    float itl[4];
    for (int i = 0; i < 4; i++) itl[i] = (float)(decode_s / 10);
    cell_init(&c);
    c.field[FIELD_GEN_TOKENS] = 10;
    c.field[FIELD_DECODE_S] = decode_s;
    c.value[METRIC_DECODE_RATE] = 10 / decode_s;
    c.value[METRIC_PEAK_MEMORY] = peak;
    c.value[METRIC_ENERGY] = 2;
    c.value[METRIC_ENERGY_HALF] = 0.25;
    c.value[METRIC_CO2] = 0.5;
    c.itl = itl;
    c.n_itl = COUNT_OF(itl);
    snprintf(c.disturbed, sizeof c.disturbed, "%s", disturbed);
    CHECK_OK(tally_add(t, &c, &why));
}

static void disturbed_repetitions_count_for_no_prediction(void **state)
{
    (void)state;
    struct cell_tally t = { 0 };
    count(&t, 1, NAN, "");
    CHECK_NEAR(t.all.peak_bytes, 0, 0); /* unknown */
    count(&t, 3, 7, "the clock dropped");
    count(&t, 1, 5, "");
    assert_int_equal(t.all.n, 3);
    assert_int_equal(t.undisturbed.n, 2);
    assert_int_equal(tally_rates(&t.undisturbed), 2);
    assert_int_equal(t.n_itl, 12);
    CHECK_NEAR(tally_decode_rate(&t.all), 30.0 / 5, 1e-12);
    CHECK_NEAR(tally_decode_rate(&t.undisturbed), 10, 1e-12);
    CHECK_NEAR(t.all.peak_bytes, 7, 0);
    CHECK_NEAR(t.undisturbed.peak_bytes, 5, 0);
    CHECK_NEAR(t.all.energy_j, 6, 0);
    CHECK_NEAR(t.undisturbed.energy_j, 4, 0);
    CHECK_NAN(tally_prefill_rate(&t.all));
    tally_free(&t);
    assert_null(t.itl);
    assert_int_equal(t.all.n, 0);
}

static void values_are_combined_as_their_rows_say(void **state)
{
    (void)state;
    struct cell_tally t = { 0 };
    double value[METRIC_COUNT];
    count(&t, 1, 9, "");
    count(&t, 3, 7, "");
    tally_values(&t, value);
    CHECK_NEAR(value[METRIC_DECODE_RATE], 20.0 / 4, 1e-12); /* total tokens over total seconds */
    CHECK_NEAR(value[METRIC_PEAK_MEMORY], 9, 0);            /* the largest */
    CHECK_NEAR(value[METRIC_ENERGY], 2, 0);                 /* the mean */
    CHECK_NEAR(value[METRIC_ENERGY_HALF], 0.25, 0);
    CHECK_NEAR(value[METRIC_CO2], 0.5, 0);
    CHECK_NEAR(value[METRIC_ITL_P50], 0.2, 1e-6); /* of all latencies together */
    CHECK_NAN(value[METRIC_PREFILL_RATE]);
    CHECK_NAN(value[METRIC_PERPLEXITY]);
    tally_free(&t);
}

/* 4 sequences that decode 20 tokens/s together take 2 of the time of one that decodes 10. */
static void a_step_of_several_rows_costs_its_time(void **state)
{
    (void)state;
    const struct tally_totals one = { .n = 3, .decode = { 10, 10, NAN } },
                              four = { .n = 3, .decode = { 20, 10, 20 } }, none = { 0 };
    double sd;
    CHECK_NEAR(tally_row_cost(&four, &one, 4, &sd), 3,
               1e-12); /* the median of 2 and 4; the third is unknown */
    CHECK_NEAR(sd, sqrt(2), 1e-12);
    CHECK_NEAR(tally_row_cost(&one, &one, 1, &sd), 1, 1e-12);
    CHECK_NAN(tally_row_cost(&four, &none, 4, &sd));
}

static void more_rates_than_fit_are_still_summed(void **state)
{
    (void)state;
    struct cell_tally t = { 0 };
    for (int i = 0; i < TALLY_RATES + 6; i++) count(&t, 2, 1, "");
    assert_int_equal(t.all.n, TALLY_RATES + 6);
    assert_int_equal(tally_rates(&t.all), TALLY_RATES);
    CHECK_NEAR(tally_decode_rate(&t.all), 5, 1e-12);
    tally_free(&t);
}

static void noise_is_of_the_mean(void **state)
{
    (void)state;
    const double rates[] = { 9, 10, 11, 10 }, equal[] = { 3, 3 };
    CHECK_NEAR(rates_noise(rates, 4), sqrt(2.0 / 3) / 10 / 2, 1e-12);
    CHECK_NEAR(rates_noise(rates, 1), 0, 0);
    CHECK_NEAR(rates_noise(equal, 2), 0, 0);
    CHECK_NEAR(rates_noise((double[]){ NAN, NAN }, 2), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disturbed_repetitions_count_for_no_prediction),
        cmocka_unit_test(values_are_combined_as_their_rows_say),
        cmocka_unit_test(a_step_of_several_rows_costs_its_time),
        cmocka_unit_test(more_rates_than_fit_are_still_summed),
        cmocka_unit_test(noise_is_of_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
