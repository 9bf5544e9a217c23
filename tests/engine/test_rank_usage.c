/* Proves: what a rank used is written and read back whole; what an older document lacks is unknown; the parts
 * of a time never become negative. */
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
                                        .host = "node17" };

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
    CHECK(isnan(rank_compute_s(&u)));
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
    const struct rank_usage d = rank_usage_since(&now, &FULL);
    CHECK_NEAR(d.cpu_s, 1, 1e-12);
    CHECK_NEAR(d.work_s, 2, 1e-12);
    CHECK_NEAR(d.exchange_s, 0.5, 1e-12);
    CHECK_NEAR(d.wait_s, 0.25, 1e-12);
    CHECK_EQ(d.exchanged_bytes, 100);
    CHECK_EQ(d.rss_bytes, 70); /* memory is that of now */
    CHECK_EQ(d.weight_bytes, FULL.weight_bytes);
    CHECK_NEAR(rank_compute_s(&d), 1.5, 1e-12);
    CHECK_NEAR(rank_compute_s(&(struct rank_usage){ .work_s = 1, .exchange_s = 2 }), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read_back),
        cmocka_unit_test(absent_is_unknown),
        cmocka_unit_test(differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
