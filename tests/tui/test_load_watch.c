/* Proves: what a server says is read as it was written, and anything else is refused; a histogram of counts
 * that were kept while a load ran shows their place, their share below a limit and the limit itself. */
#include "tests/check.h"
#include "tests/tui/fixture.h"

#include <math.h>
#include <stdlib.h>

static void a_server_is_read(void **state)
{
    (void)state;
    struct snapshot *s = fixture_server();
    struct server_watch w = { .error = "old" };
    json_t *o = json_object(), *outcomes = json_object(), *cache = json_object();
    json_put(o, "load", live_to_json(&s->server.live));
    json_put_int(cache, "blocks", 40);
    json_put_int(cache, "spared", 3);
    json_put_int(cache, "waiting", 0);
    json_put_str(cache, "map", "01#-.");
    json_put(o, "occupancy", cache);
    json_put_int(outcomes, "overloaded", 5);
    json_put(o, "outcomes", outcomes);
    json_put_str(o, "model", "m");
    json_put_int(o, "max_sequences", 16);
    CHECK(server_watch_read(&w, o));
    CHECK(w.known);
    CHECK_EQ(w.live.arrived, s->server.live.arrived);
    CHECK_EQ(w.live.gap.n, s->server.live.gap.n);
    CHECK_EQ(w.live.limits, 2);
    CHECK_EQ(w.overloaded, 5);
    CHECK_EQ(w.max_sequences, 16);
    CHECK_EQ(w.occupancy.spared, 3);
    CHECK(w.occupancy.serves);
    CHECK_STR(w.occupancy.map, "01#-.");
    json_decref(o);
    o = json_object();
    const struct server_watch before = w;
    CHECK(!server_watch_read(&w, o));
    CHECK(!server_watch_read(&w, json_null()));
    assert_memory_equal(&before, &w, sizeof w);
    json_decref(o);
    free(s);
}

static void limits_are_found(void **state)
{
    (void)state;
    struct live l = {
        .limits = 4,
        .limit = { { LOAD_ITL_MAX, 0.2 }, { LOAD_ITL_P99, 0.06 }, { LOAD_TTFT, 0.5 }, { LOAD_E2E, 9 } }
    };
    CHECK_NEAR(live_limit(&l, false)->seconds, 0.06, 0);
    CHECK_NEAR(live_limit(&l, true)->seconds, 0.5, 0);
    l.limits = 0;
    assert_null(live_limit(&l, true));
    CHECK_STR(schedule_after("schedule=fcfs"), "prefill_first");
    CHECK_STR(schedule_after("schedule=dynamic"), "fcfs");
    CHECK_STR(schedule_after("no settings"), "fcfs");
}

static void histograms(void **state)
{
    (void)state;
    struct live_times t = { 0 };
    struct latency_histogram l;
    latency_histogram_of_live(&l, &t, 0.1);
    CHECK_EQ(l.n, 0);
    for (int i = 0; i < 900; i++) live_times_add(&t, 0.010);
    for (int i = 0; i < 100; i++) live_times_add(&t, 0.100);
    latency_histogram_of_live(&l, &t, 0.05);
    CHECK_EQ(l.n, 1000);
    CHECK_NEAR(l.within, 0.9, 1e-9);
    CHECK_NEAR(l.p50, 0.010, 0.0005);
    CHECK_NEAR(l.p99, 0.100, 0.005);
    CHECK(l.lo < 0.0101 && l.hi > 0.0999);
    int most = 0, filled = 0;
    for (int i = 0; i < LATENCY_BINS; i++) {
        most = l.bin[i] > l.bin[most] ? i : most;
        filled += l.bin[i] > 0;
    }
    CHECK_LT(most, LATENCY_BINS / 8); /* the 0.010 are at the left end */
    CHECK_LE(filled, LATENCY_BINS / 4);
    latency_histogram_of_live(&l, &t, 1); /* near enough to be on the axis */
    CHECK(l.hi > 1);
    CHECK_NEAR(l.within, 1, 1e-9);
    latency_histogram_of_live(&l, &t, 100); /* too far away */
    CHECK(l.hi < 1);
    latency_histogram_of_live(&l, &t, 0);
    CHECK_NAN(l.within);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_server_is_read),
                                        cmocka_unit_test(limits_are_found), cmocka_unit_test(histograms) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
