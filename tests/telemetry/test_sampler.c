/* Proves: the sampler reads each metric at its own period; windows of the ring are exact and in order; the
 * ring drops only the oldest samples; readers and the thread may run at the same time (run with
 * -DSANITIZE=thread); stopping does not wait for a sample; the cost of sampling is measured and small. */
#include "tests/telemetry/roots.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

static struct sampler_thread *start(const char *root, int tick_ms)
{
    struct sampler_thread *s;
    struct err why;
    CHECK_OK(sampler_start(&s, root, tick_ms, NULL, &why));
    return s;
}

static void wait_for_samples(struct sampler_thread *s, int n)
{
    static struct sample out[1000];
    for (int i = 0; i < 10000; i++) {
        if (sampler_window(s, 0, INT64_MAX, out, 1000) >= n) return;
        clock_sleep_ns(10 * 1000000);
    }
    fail_msg("fewer than %d samples in 100 s", n);
}

static void each_metric_at_its_period(void **state)
{
    (void)state;
    enum { TICKS = 25, MAX_SAMPLES = 400 };
    static struct sample out[MAX_SAMPLES];
    struct root r = root_get("avx2-laptop");
    struct sampler_thread *s = start(r.path, 100);
    wait_for_samples(s, TICKS);
    int n = sampler_window(s, 0, INT64_MAX, out, MAX_SAMPLES);
    int64_t missed;
    CHECK_LE(TICKS, n);
    CHECK_LE(n, sampler_ticks(s, &missed));
    CHECK_LE(0, missed);
    if (missed) print_message("the machine was too busy for %lld ticks\n", (long long)missed);
    for (int i = 0; i < n; i++) {
        CHECK(!isnan(out[i].value[METRIC_MEM_AVAILABLE]));
        if (!missed) CHECK_EQ(isnan(out[i].value[METRIC_CPU_FREQUENCY]), (i % 10 != 0));   /* 1 s */
        if (!missed) CHECK_EQ(isnan(out[i].value[METRIC_CPU_TEMPERATURE]), (i % 50 != 0)); /* 5 s */
        CHECK_NAN(out[i].value[METRIC_GPU_BUSY]);
    }
    /* the latest value outlives the tick it was read at */
    double latest[METRIC_SENSOR_COUNT];
    assert_int_equal(sampler_latest(s, latest, NULL, 0), 0);
    CHECK_NEAR(latest[METRIC_CPU_TEMPERATURE], 57, 1e-9);
    CHECK_NEAR(latest[METRIC_CPU_FREQUENCY], 1.95e9, 1);
    CHECK_NAN(latest[METRIC_GPU_POWER]);
    struct energy_reading energy[8];
    assert_int_equal(sampler_energy(s, energy, 8), 5);
    assert_int_equal(sampler_energy(s, energy, 2), 2);
    assert_string_equal(energy[0].domain, "package-0");
    CHECK_NAN(energy[0].joules); /* a recording has no rates */
    sampler_stop(s);
}

/* A person's own periods: shorter ones shorten the tick, longer ones are kept on average, the rest stays. */
static void own_periods(void **state)
{
    (void)state;
    enum { TICKS = 41, MAX_SAMPLES = 400 };
    static struct sample out[MAX_SAMPLES];
    struct sampler_periods p = { 0 };
    struct sampler_thread *s;
    struct err why;
    struct root r = root_get("avx2-laptop");
    CHECK_OK(sampler_periods_parse(&p, "mem_available_bytes=50,cpu_frequency_hertz=125", &why));
    CHECK_OK(sampler_periods_parse(&p, "cpu_temperature_celsius=1000", &why));
    CHECK_OK(sampler_start(&s, r.path, 100, &p, &why));
    wait_for_samples(s, TICKS);
    int n = sampler_window(s, 0, INT64_MAX, out, MAX_SAMPLES), clocks = 0, temperatures = 0, used = 0;
    int64_t missed;
    sampler_ticks(s, &missed);
    n = MIN(n, TICKS); /* 2 s */
    for (int i = 0; i < n; i++) {
        CHECK(!isnan(out[i].value[METRIC_MEM_AVAILABLE]));
        clocks += !isnan(out[i].value[METRIC_CPU_FREQUENCY]);
        temperatures += !isnan(out[i].value[METRIC_CPU_TEMPERATURE]);
        used += !isnan(out[i].value[METRIC_MEM_USED]);
    }
    if (!missed) {
        assert_int_equal(clocks, 1 + 2000 / 125);
        assert_int_equal(temperatures, 1 + 2);
        assert_int_equal(used, 1 + 2000 / 100);
    }
    sampler_stop(s);
}

/* Each mean is over the samples in which the sensor was due. */
static void means_of_a_window(void **state)
{
    (void)state;
    enum { MOST = 200 };
    static struct sample out[MOST];
    double row[METRIC_SENSOR_COUNT];
    struct sampler_thread *s;
    struct err why;
    struct root r = root_get("avx2-laptop");
    CHECK_OK(sampler_start(&s, r.path, 10, NULL, &why));
    wait_for_samples(s, 30);
    const int64_t to_ns = clock_ns();
    const int n = sampler_window(s, 0, to_ns, out, MOST);
    CHECK_GE(n, 30);
    sampler_means(s, out[10].t_ns, to_ns, row);
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) {
        double sum = 0;
        int known = 0;
        for (int i = 10; i < n; i++)
            if (!isnan(out[i].value[m])) {
                sum += out[i].value[m];
                known++;
            }
        if (known)
            CHECK_NEAR(row[m], sum / known, fabs(sum) * 1e-12);
        else
            CHECK_NAN(row[m]);
    }
    CHECK(!isnan(row[METRIC_MEM_USED]));
    sampler_means(s, 0, 0, row);
    CHECK_NAN(row[METRIC_MEM_USED]);
    sampler_stop(s);
}

static void bad_periods_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *says;
    } CASES[] = {
        { "cpu_temperature_celsius=999", "expected 1000 or more" },
        { "gpu_busy_ratio=100", "below the sensor's resolution" },
        { "mem_used_bytes=60001", "from 10 to 60000" },
        { "mem_used_bytes=0", "'0'" },
        { "mem_used_bytes=-5", "'-5'" },
        { "mem_used_bytes=1s", "'1s'" },
        { "mem_used_bytes=", "''" },
        { "mem_used_bytes", "SENSOR=MS" },
        { "mem_used_byte=100", "did you mean 'mem_used_bytes'?" },
        { "decode_tok_s=100", "no sensor" },
        { "swap_used_bytes=10,x=1", "'x'" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct sampler_periods p = { 0 };
        struct err why = { 0 };
        assert_int_equal(sampler_periods_parse(&p, CASES[i].settings, &why), ERR_USAGE);
        if (!strstr(why.message, CASES[i].says)) fail_msg("%s: %s", CASES[i].settings, why.message);
    }
    struct sampler_periods p = { 0 };
    struct err why;
    CHECK_OK(sampler_periods_parse(&p, "", &why));
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) assert_int_equal(p.ms[i], 0);
    /* every sensor takes its own resolution, and its default */
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++)
        for (int k = 0; k < 2; k++) {
            char setting[96];
            const int ms = k ? METRICS[i].period_ms : METRICS[i].least_ms;
            snprintf(setting, sizeof setting, "%s=%d", METRICS[i].name, ms);
            CHECK_OK(sampler_periods_parse(&p, setting, &why));
            assert_int_equal(p.ms[i], ms);
        }
}

static void windows_are_exact(void **state)
{
    (void)state;
    static struct sample all[1000], part[1000];
    struct sampler_thread *s = start("", 10);
    wait_for_samples(s, 40);
    int64_t now = clock_ns();
    int n = sampler_window(s, 0, now, all, 1000);
    CHECK_LE(40, n);
    for (int i = 1; i < n; i++) CHECK_LT(all[i - 1].t_ns, all[i].t_ns);
    /* both ends belong to the window */
    assert_int_equal(sampler_window(s, all[5].t_ns, all[9].t_ns, part, 1000), 5);
    for (int i = 0; i < 5; i++) assert_int_equal(part[i].t_ns, all[5 + i].t_ns);
    assert_int_equal(sampler_window(s, all[5].t_ns + 1, all[9].t_ns - 1, part, 1000), 3);
    assert_int_equal(sampler_window(s, all[5].t_ns, all[9].t_ns, part, 2), 2);
    assert_int_equal(part[0].t_ns, all[5].t_ns); /* the oldest of them */
    assert_int_equal(sampler_window(s, all[9].t_ns, all[5].t_ns, part, 1000), 0);
    assert_int_equal(sampler_window(s, now + 10000000000, INT64_MAX, part, 1000), 0);
    assert_int_equal(sampler_window(s, 0, all[0].t_ns - 1, part, 1000), 0);
    sampler_stop(s);
}

/* 60000 ms a tick makes a ring of 11: the first sample comes at once, and stopping does not wait for the
 * next. */
static void stopping_waits_for_no_sample(void **state)
{
    (void)state;
    struct sampler_thread *s = start("", 60000);
    wait_for_samples(s, 1);
    int64_t before = clock_ns();
    sampler_stop(s);
    CHECK_LT(clock_ns() - before, 60 * INT64_C(1000000000)); /* before the next sample */
    sampler_stop(NULL);
}

struct readers {
    struct sampler_thread *s;
    atomic_bool stop;
    atomic_int reads;
};

static void *reader_main(void *arg)
{
    struct readers *r = arg;
    struct sample out[64];
    struct energy_reading energy[4];
    double row[METRIC_SENSOR_COUNT], cores[16];
    while (!atomic_load(&r->stop)) {
        int n = sampler_window(r->s, 0, INT64_MAX, out, 64);
        for (int i = 1; i < n; i++)
            if (out[i].t_ns <= out[i - 1].t_ns) abort();
        if (sampler_latest(r->s, row, cores, 16) > 16) abort();
        if (sampler_cost_ratio(r->s) < 0) abort();
        if (sampler_ticks(r->s, NULL) < 0) abort();
        if (sampler_energy(r->s, energy, 4) > 4) abort();
        sampler_monitor_process(r->s, (int)getpid());
        atomic_fetch_add(&r->reads, 1);
    }
    return NULL;
}

static void many_readers(void **state)
{
    (void)state;
    struct readers r = { .s = start("", 10) };
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, reader_main, &r), 0);
    clock_sleep_ns(700 * 1000000);
    atomic_store(&r.stop, true);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    CHECK_LT(100, atomic_load(&r.reads));
    double row[METRIC_SENSOR_COUNT];
    double cores[64];
    CHECK_LE(1, sampler_latest(r.s, row, cores, 64));
    CHECK_LT(0, row[METRIC_PROC_RSS]); /* the watched process arrived on the thread */
    CHECK_LE(0, row[METRIC_CPU_BUSY]);
    CHECK_LE(row[METRIC_CPU_BUSY], 1);
    sampler_stop(r.s);
}

static void cost_is_measured(void **state)
{
    (void)state;
    struct sampler_thread *s = start("", 100);
    sampler_monitor_process(s, (int)getpid());
    clock_sleep_ns(3 * INT64_C(1000000000));
    double cost = sampler_cost_ratio(s);
    print_message("sampling every 100 ms costs %.3f %% of one processor\n", 100 * cost);
    CHECK_LT(0, cost);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK_LE(cost, 0.01); /* the promise; sanitizers make everything several times slower */
#endif
    sampler_stop(s);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    struct sampler_thread *s = (void *)1;
    struct err why = { 0 };
    assert_int_equal(sampler_start(&s, "", 0, NULL, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "10 to 60000");
    assert_null(s);
    assert_int_equal(sampler_start(&s, "/nonexistent", 100, NULL, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "/nonexistent/proc");
    assert_null(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_metric_at_its_period),
        cmocka_unit_test(windows_are_exact),
        cmocka_unit_test(own_periods),
        cmocka_unit_test(means_of_a_window),
        cmocka_unit_test(bad_periods_are_refused),
        cmocka_unit_test(stopping_waits_for_no_sample),
        cmocka_unit_test(many_readers),
        cmocka_unit_test(cost_is_measured),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
