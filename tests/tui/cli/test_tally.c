/* Proves: all repetitions are told, only undisturbed ones teach; what was not done is no rate; the noise of a
 * mean is that of its repetitions. */
#include <math.h>
#include <stdlib.h>

#include "tests/check.h"
#include "tui/cli/tally.h"

static void count(struct tally *t, double decode_s, double peak, bool disturbed)
{
    struct err why = { 0 };
    json_t *answer = json_object(), *itl = json_array();
    json_put_num(answer, "gen_tokens", 10);
    json_put_num(answer, "decode_s", decode_s);
    json_put_num(answer, "peak_rss_bytes", peak);
    json_array_append_new(itl, json_real(decode_s / 10));
    json_put(answer, "itl_s", itl);
    CHECK_OK(tally_add(t, answer, 2, disturbed, &why));
    json_decref(answer);
}

static void disturbed_repetitions_are_told_and_do_not_teach(void **state)
{
    (void)state;
    struct tally t = { 0 };
    count(&t, 1, NAN, false);
    CHECK(!t.all.peak); /* nobody knows */
    count(&t, 3, 7, true);
    count(&t, 1, 5, false);
    CHECK(t.all.n == 3 && t.quiet.n == 2 && t.n_itl == 3 && sums_kept(&t.quiet) == 2);
    CHECK_NEAR(sums_decode_rate(&t.all), 30.0 / 5, 1e-12);
    CHECK_NEAR(sums_decode_rate(&t.quiet), 10, 1e-12);
    CHECK(t.all.peak == 7 && t.quiet.peak == 5 && t.all.energy_j == 6 && t.quiet.energy_j == 4);
    CHECK(isnan(sums_prefill_rate(&t.all)));
    tally_free(&t);
    CHECK(!t.itl && !t.all.n);
}

static void more_than_fit_are_still_summed(void **state)
{
    (void)state;
    struct tally t = { 0 };
    for (int i = 0; i < TALLY_RATES + 6; i++) count(&t, 2, 1, false);
    CHECK(t.all.n == TALLY_RATES + 6 && sums_kept(&t.all) == TALLY_RATES);
    CHECK_NEAR(sums_decode_rate(&t.all), 5, 1e-12);
    tally_free(&t);
}

static void noise_is_of_the_mean(void **state)
{
    (void)state;
    const double rates[] = { 9, 10, 11, 10 }, equal[] = { 3, 3 };
    CHECK_NEAR(rates_noise(rates, 4), sqrt(2.0 / 3) / 10 / 2, 1e-12);
    CHECK(!rates_noise(rates, 1) && !rates_noise(equal, 2) && !rates_noise((double[]){ NAN, NAN }, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disturbed_repetitions_are_told_and_do_not_teach),
        cmocka_unit_test(more_than_fit_are_still_summed),
        cmocka_unit_test(noise_is_of_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
