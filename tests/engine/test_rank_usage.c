/* Proves: what a rank used is written and read back whole; what an older document lacks is unknown; shares
 * of a time are never negative; the power of other machines is known only where each of them has a meter. */
#include <math.h>

#include "engine/parallel/parallel.h"
#include "tests/check.h"

static const struct rank_usage FULL = { .cpu_s = 1.5,
                                        .work_s = 2.5,
                                        .exchange_s = 0.75,
                                        .wait_s = 0.5,
                                        .exchanged_bytes = 5LL << 33,
                                        .peak_rss_bytes = 6,
                                        .rss_bytes = 7,
                                        .plan_bytes = 8,
                                        .start_rss_bytes = 9,
                                        .weight_bytes = 10,
                                        .host = "node17",
                                        .first_of_machine = true,
                                        .machine = { .clock_s = 100,
                                                     .energy_j = 2000,
                                                     .busy_s = 40,
                                                     .temperature_celsius = 55.5,
                                                     .frequency_hertz = 3.5e9,
                                                     .mem_used_bytes = 11 } };

static void check_same(const struct rank_usage *a, const struct rank_usage *b)
{
    CHECK_NEAR(a->cpu_s, b->cpu_s, 0);
    CHECK_NEAR(a->work_s, b->work_s, 0);
    CHECK_NEAR(a->exchange_s, b->exchange_s, 0);
    CHECK_NEAR(a->wait_s, b->wait_s, 0);
    CHECK_EQ(a->exchanged_bytes, b->exchanged_bytes);
    CHECK_EQ(a->peak_rss_bytes, b->peak_rss_bytes);
    CHECK_EQ(a->rss_bytes, b->rss_bytes);
    CHECK_EQ(a->plan_bytes, b->plan_bytes);
    CHECK_EQ(a->start_rss_bytes, b->start_rss_bytes);
    CHECK_EQ(a->weight_bytes, b->weight_bytes);
    assert_string_equal(a->host, b->host);
    CHECK_EQ(a->first_of_machine, b->first_of_machine);
    CHECK_NEAR(a->machine.clock_s, b->machine.clock_s, 0);
    CHECK_NEAR(a->machine.energy_j, b->machine.energy_j, 0);
    CHECK_NEAR(a->machine.busy_s, b->machine.busy_s, 0);
    CHECK_NEAR(a->machine.temperature_celsius, b->machine.temperature_celsius, 0);
    CHECK_NEAR(a->machine.frequency_hertz, b->machine.frequency_hertz, 0);
    CHECK_EQ(a->machine.mem_used_bytes, b->machine.mem_used_bytes);
}

static void written_and_read_back(void **state)
{
    (void)state;
    struct rank_usage back = { 0 };
    json_t *o = rank_usage_to_json(&FULL);
    CHECK(rank_usage_from_json(&back, o));
    check_same(&back, &FULL);
    json_decref(o);
}

static void absent_is_unknown(void **state)
{
    (void)state;
    struct rank_usage u = FULL;
    json_t *o = NULL;
    struct err why;
    static const char OLD[] = "{\"cpu_s\":1,\"exchange_s\":0.5,\"plan_bytes\":4}";
    CHECK_OK(json_parse(&o, OLD, strlen(OLD), &why));
    CHECK(rank_usage_from_json(&u, o));
    CHECK_NEAR(u.exchange_s, 0.5, 0);
    CHECK_EQ(u.plan_bytes, 4);
    CHECK(isnan(u.work_s));
    CHECK(isnan(u.wait_s));
    CHECK_EQ(u.weight_bytes, -1);
    assert_string_equal(u.host, "");
    CHECK(!u.first_of_machine);
    CHECK(isnan(u.machine.energy_j));
    double share[RANK_SHARES];
    rank_shares(share, &u, 1, 0);
    for (int i = 0; i < RANK_SHARES; i++) CHECK(isnan(share[i]));
    json_decref(o);
    o = json_array();
    u = FULL;
    CHECK(!rank_usage_from_json(&u, o));
    CHECK(!rank_usage_from_json(&u, NULL));
    check_same(&u, &FULL);
    json_decref(o);
}

static void differences(void **state)
{
    (void)state;
    struct rank_usage now = FULL;
    now.cpu_s += 1;
    now.work_s += 2;
    now.exchange_s += 0.5;
    now.wait_s += 0.25;
    now.exchanged_bytes += 100;
    now.rss_bytes = 70;
    now.machine = (struct machine_use){ 110, 2600, 45, 60, 2e9, 12 };
    const struct rank_usage d = rank_usage_since(&now, &FULL);
    CHECK_NEAR(d.cpu_s, 1, 1e-12);
    CHECK_NEAR(d.work_s, 2, 1e-12);
    CHECK_NEAR(d.exchange_s, 0.5, 1e-12);
    CHECK_NEAR(d.wait_s, 0.25, 1e-12);
    CHECK_EQ(d.exchanged_bytes, 100);
    CHECK_EQ(d.rss_bytes, 70); /* memory is that of now */
    CHECK_EQ(d.weight_bytes, FULL.weight_bytes);
    CHECK_NEAR(d.machine.clock_s, 10, 1e-12);
    CHECK_NEAR(d.machine.energy_j, 600, 1e-12);
    CHECK_NEAR(d.machine.busy_s, 5, 1e-12);
    now.machine.clock_s = 100.09; /* too short to tell */
    CHECK_NAN(rank_usage_since(&now, &FULL).machine.busy_s);
    CHECK_NEAR(d.machine.temperature_celsius, 60, 0); /* of now, as the next two */
    CHECK_NEAR(d.machine.frequency_hertz, 2e9, 0);
    CHECK_EQ(d.machine.mem_used_bytes, 12);
}

static void check_same_number(double got, double want)
{
    CHECK_EQ(isnan(got), isnan(want));
    if (!isnan(want)) CHECK_NEAR(got, want, 1e-12);
}

static void power_of_other_machines(void **state)
{
    (void)state;
    const struct rank_usage
        MINE = { .first_of_machine = true, .machine = { .clock_s = 10, .energy_j = 5000 } },
        NEXT = { .machine = { .clock_s = NAN, .energy_j = NAN } },
        OTHER = { .first_of_machine = true, .machine = { .clock_s = 10, .energy_j = 600 } },
        LATER = { .first_of_machine = true, .machine = { .clock_s = 11, .energy_j = 330 } },
        NO_METER = { .first_of_machine = true, .machine = { .clock_s = 10, .energy_j = NAN } },
        NO_SENSORS = { .first_of_machine = true, .machine = { .clock_s = NAN, .energy_j = NAN } };
    const struct {
        struct rank_usage rank[4];
        int n;
        double watts, seconds;
    } CASES[] = {
        { { MINE }, 1, 0, 0 },
        { { MINE, NEXT }, 2, 0, 0 }, /* both on the leader's machine, which has its own meter */
        { { MINE, NEXT, OTHER, NEXT }, 4, 60, 10 },
        { { MINE, OTHER, LATER }, 3, 90, 10.5 },
        { { NO_METER, OTHER }, 2, 60, 10 },
        { { MINE, OTHER, NO_METER }, 3, NAN, 10 },
        { { MINE, NO_SENSORS }, 2, NAN, NAN },
        { { MINE, NO_SENSORS, OTHER }, 3, NAN, NAN },
        { { MINE }, 0, 0, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        double seconds;
        check_same_number(ranks_other_watts(CASES[i].rank, CASES[i].n, &seconds), CASES[i].watts);
        check_same_number(seconds, CASES[i].seconds);
    }
}

static void shares(void **state)
{
    (void)state;
    static const struct {
        struct rank_usage u;
        double share[RANK_SHARES]; /* of 4 seconds */
    } CASES[] = {
        { { .work_s = 4, .exchange_s = 2, .wait_s = 1 }, { 0.5, 0.25, 0.25 } },
        { { .work_s = 2, .exchange_s = 1, .wait_s = 1 }, { 0.25, 0.25, 0 } },
        { { .work_s = 1, .exchange_s = 2, .wait_s = 3 }, { 0, 0.5, 0 } }, /* exchanges outside of passes */
        { { .work_s = 1, .exchange_s = 9, .wait_s = 8 }, { 0, 1, 0.25 } },
        { { .work_s = 3, .exchange_s = 1, .wait_s = NAN }, { 0.5, NAN, NAN } },
        { { .work_s = NAN, .exchange_s = 1, .wait_s = 1 }, { NAN, 0.25, 0 } },
    };
    struct rank_usage all[COUNT_OF(CASES)];
    for (size_t i = 0; i < COUNT_OF(CASES); i++) all[i] = CASES[i].u;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        double share[RANK_SHARES];
        rank_shares(share, all, COUNT_OF(CASES), (int)i);
        for (int k = 0; k < RANK_SHARES; k++) {
            CHECK_EQ(isnan(share[k]), isnan(CASES[i].share[k]));
            if (!isnan(share[k])) CHECK_NEAR(share[k], CASES[i].share[k], 1e-12);
        }
    }
}

static void lists(void **state)
{
    (void)state;
    struct rank_usage out[RANKS_MAX];
    json_t *list = json_array();
    CHECK_EQ(rank_usage_list(out, list), 0);
    CHECK_EQ(rank_usage_list(out, NULL), 0);
    json_array_append_new(list, json_null());
    for (int i = 0; i < RANKS_MAX + 3; i++) json_array_append_new(list, rank_usage_to_json(&FULL));
    CHECK_EQ(rank_usage_list(out, list), RANKS_MAX); /* as many as there is room for */
    check_same(&out[RANKS_MAX - 1], &FULL);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read_back),
        cmocka_unit_test(absent_is_unknown),
        cmocka_unit_test(differences),
        cmocka_unit_test(power_of_other_machines),
        cmocka_unit_test(shares),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
