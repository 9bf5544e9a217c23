/* Proves: each source reads its files correctly (values calculated by hand from the recorded machines);
 * rates are NAN at first and then exact over their own period; counters that wrap or decrease are handled;
 * a process tree is followed through threads and children; absent or malformed files give NAN. */
#include "tests/telemetry/spans.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"
#include "telemetry/sensors/source.h"
#include "base/sysfs/sysfs.h"

static double row[METRIC_SENSOR_COUNT];

static void metrics_table_is_whole(void **state)
{
    (void)state;
    static const char *const UNITS[] = { "",       "bytes",    "ratio",   "celsius", "hertz",   "watts",
                                         "joules", "tokens/s", "bytes/s", "1/s",     "seconds", "grams" };
    for (int i = 0; i < METRIC_COUNT; i++) {
        const struct metric *m = &METRICS[i];
        bool unit = false;
        CHECK(m->name);
        CHECK(m->unit);
        CHECK(m->help);
        CHECK(*m->help);
        for (size_t u = 0; u < COUNT_OF(UNITS); u++) unit |= !strcmp(UNITS[u], m->unit);
        CHECK(unit);
        CHECK_EQ(strspn(m->name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(m->name));
        CHECK_LE(-1, m->better);
        CHECK_LE(m->better, 1);
        CHECK_EQ((m->kind == METRIC_SENSOR), (i < METRIC_SENSOR_COUNT));
        CHECK_EQ((m->period_ms > 0), (m->kind == METRIC_SENSOR));
        CHECK_EQ((m->least_ms > 0), (m->kind == METRIC_SENSOR));
        CHECK_LE(m->least_ms, m->period_ms);
        CHECK_EQ((m->source && m->reads), (m->kind == METRIC_SENSOR));
        bool filled = m->kind != METRIC_SENSOR;
        for (size_t k = 0; k < SOURCE_COUNT; k++)
            filled |= str_starts(SOURCES[k]->name, m->source ? m->source : "-");
        if (!filled) fail_msg("nobody fills %s: no source is called %s", m->name, m->source);
        assert_ptr_equal(metric_find(m->name), m); /* names are unique */
        /* the unit closes a sensor's name */
        if (m->kind == METRIC_SENSOR && strlen(m->unit) > 3 && !strchr(m->unit, '/'))
            CHECK(str_ends(m->name, m->unit));
    }
    assert_null(metric_find("decode"));
    CHECK_EQ(metric_sign(&METRICS[METRIC_TTFT]), -1);
    CHECK_EQ(metric_sign(&METRICS[METRIC_DECODE_RATE]), 1);
    CHECK_EQ(metric_sign(&METRICS[METRIC_CPU_BUSY]), 1); /* neither is better: a value stays as it is */
    /* scripts rely on these */
    static const char *const PROMISED[] = {
        "prefill_tok_s",      "decode_tok_s", "ttft_s",         "itl_p50_s", "itl_p95_s",
        "itl_p99_s",          "load_s",       "peak_rss_bytes", "energy_j",  "prefill_limit_share",
        "decode_limit_share", "perplexity",
    };
    for (size_t i = 0; i < COUNT_OF(PROMISED); i++) assert_non_null(metric_find(PROMISED[i]));
}

/* The manual cannot fall behind the table. On a difference the right table is written: paste it. */
static void sensors_page_holds_the_metrics(void **state)
{
    struct err why;
    struct str want = { 0 };
    char *page;
    (void)state;
    str_append(&want, "| name | unit | every | resolves | from | meaning |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) {
        const struct metric *m = &METRICS[i];
        str_printf(&want, "| `%s` | %s | %g s | %d ms | %s | %s |\n", m->name, m->unit, m->period_ms / 1e3,
                   m->least_ms, m->reads, m->help);
    }
    CHECK_OK(file_read(&page, NULL, TEST_SOURCE_DIR "/docs/sensors.md", 1 << 20, &why));
    if (!strstr(page, str_text(&want))) {
        static const char RIGHT[] = TEST_BUILD_DIR "/sensors-table.md";
        FILE *f = fopen(RIGHT, "w");
        if (f) {
            fputs(str_text(&want), f);
            fclose(f);
        }
        fail_msg("the table in docs/sensors.md is not METRICS; the right one is in %s", RIGHT);
    }
    free(page);
    str_free(&want);
}

static void rates_by_hand(void **state)
{
    (void)state;
    const int64_t S = 1000000000;
    struct rate r = { 0 };
    CHECK_NAN(rate_next(&r, 100, 0, 10 * S));
    CHECK_NEAR(rate_next(&r, 150, 0, 12 * S), 25, 1e-12);
    CHECK_NAN(rate_next(&r, 150, 0, 12 * S)); /* no time went by */
    CHECK_NEAR(rate_next(&r, 150, 0, 13 * S), 0, 0);
    CHECK_NAN(rate_next(&r, 10, 0, 14 * S)); /* stepped back: unknown, not negative */
    CHECK_NEAR(rate_next(&r, 20, 0, 15 * S), 10, 1e-12);
    CHECK_NAN(rate_next(&r, NAN, 0, 16 * S));
    CHECK_NAN(rate_next(&r, 30, 0, 17 * S)); /* a gap: starts over */
    CHECK_NEAR(rate_next(&r, 31, 0, 18 * S), 1, 1e-12);
    CHECK_NAN(rate_next(&r, -5, 1000, 19 * S)); /* no counter is negative: not a wrap */
    struct rate w = { 0 };
    rate_next(&w, 990, 1000, 0);
    CHECK_NEAR(rate_next(&w, 15, 1000, 5 * S), 5, 1e-12); /* 990 -> 1000 -> 15: 25 in 5 s */
}

static void cpu_lists_are_counted(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        int count;
    } CASES[] = { { "", 0 },   { "0", 1 },   { "0-3", 4 },  { "0-3,8,10-11", 7 }, { "3-1", -1 },
                  { "a", -1 }, { "1-", -1 }, { "1;2", -1 }, { "-1", -1 },         { "0-99999999", -1 } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++)
        assert_int_equal(sys_cpulist_count(CASES[i].list), CASES[i].count);
}

static void gauges_of_the_laptop(void **state)
{
    (void)state;
    struct root r = root_get("avx2-laptop");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CPU_FREQUENCY], 1.95e9, 1);  /* mean of 1.6 .. 2.3 GHz */
    CHECK_NEAR(row[METRIC_CPU_TEMPERATURE], 57, 1e-9); /* the package, not the hotter core or disk */
    CHECK_NEAR(row[METRIC_MEM_AVAILABLE], 9876544.0 * 1024, 0);
    CHECK_NEAR(row[METRIC_MEM_USED], (16247316.0 - 9876544) * 1024, 0);
    CHECK_NEAR(row[METRIC_SWAP_USED], 1048574.0 * 1024, 0);
    CHECK_NEAR(row[METRIC_ON_BATTERY], 1, 0);
    static const enum metric_id FIRST_NAN[] = {
        METRIC_CPU_THROTTLE, METRIC_CPU_BUSY,   METRIC_CPU_STEAL,   METRIC_CPU_POWER, METRIC_SWAP_IN,
        METRIC_PSI_CPU,      METRIC_PSI_MEMORY, METRIC_PSI_IO,      METRIC_PROC_RSS,  METRIC_PROC_CPU,
        METRIC_GPU_BUSY,     METRIC_GPU_POWER,  METRIC_OTHERS_BUSY,
    };
    for (size_t i = 0; i < COUNT_OF(FIRST_NAN); i++) CHECK_NAN(row[FIRST_NAN[i]]);
    telemetry_close(t);
}

static void temperature_falls_back(void **state)
{
    (void)state;
    static const struct {
        const char *root;
        double celsius;
    } CASES[] = {
        { "amd-gpu-box", 48.25 }, { "intel-gpu-laptop", 63 }, { "arm-board", 52.1 }, { "amx-server", NAN }
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct root r = root_get(CASES[i].root);
        struct telemetry *t = open_at(&r);
        telemetry_sample(t, row);
        if (isnan(CASES[i].celsius))
            CHECK_NAN(row[METRIC_CPU_TEMPERATURE]);
        else
            CHECK_NEAR(row[METRIC_CPU_TEMPERATURE], CASES[i].celsius, 1e-9);
        telemetry_close(t);
    }
}

/* A virtual machine's nominal clock is no measurement; APERF/MPERF make it one. */
static void clock_only_where_measured(void **state)
{
    (void)state;
    struct root server = root_get("amx-server"), box = root_get("nvidia-box");
    struct telemetry *t = open_at(&server);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_CPU_FREQUENCY]);
    telemetry_close(t);
    t = open_at(&box);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CPU_FREQUENCY], 2.9e9, 1);
    telemetry_close(t);
}

static void laptop_works(const struct root *r)
{
    /* per core 100 ticks go by: core 0 works 75 of them and loses 5, the others sleep; the recording says
     * 1000 user, 500 system, 9000 idle, 100 iowait, 10 softirq per core */
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "cpu  8070 0 4005 72720 800 0 80 5 0 0\n"
                     "cpu0 1070 0 505 9020 100 0 10 5 0 0\n");
    for (int i = 1; i < 8; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "cpu%d 1000 0 500 9100 100 0 10 0 0 0\n", i);
    snprintf(text + n, sizeof text - (size_t)n, "intr 1\n");
    root_write(r, "proc/stat", text);
    root_write(r, "proc/pressure/cpu", "some avg10=0.08 avg60=0.49 avg300=1.18 total=11373445\n");
    root_write(r, "proc/vmstat", "pswpin 510\n");
    root_write(r, "sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count", "12\n");
    root_write(r, "sys/class/powercap/intel-rapl:0/energy_uj", "262145000000\n");
}

static void laptop_power_wraps(const struct root *r)
{
    root_write(r, "sys/class/powercap/intel-rapl:0/energy_uj", "1671150\n");
}

static void rates_of_the_laptop(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    double cores[16];
    root_write(&r, "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    root_write(&r, "sys/class/powercap/intel-rapl:0/energy_uj", "262143000000\n");
    for (int i = 0; i < 8; i++) {
        char name[96];
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/thermal_throttle/core_throttle_count", i);
        root_write(&r, name, "7\n");
    }
    struct telemetry *t = open_at(&r);
    /* before the first sample no core is known */
    assert_int_equal(telemetry_cores(t, cores, 16), 0);
    struct span s = sample_after(t, row, &r, laptop_works);
    /* the recording: 7 cores idle 100 of 100, core 0 busy 75, idle 20, stolen 5 */
    CHECK_NEAR(row[METRIC_CPU_BUSY], 75.0 / 800, 1e-9);
    CHECK_NEAR(row[METRIC_CPU_STEAL], 5.0 / 800, 1e-9);
    assert_int_equal(telemetry_cores(t, cores, 16), 8);
    CHECK_NEAR(cores[0], 0.75, 1e-9);
    for (int i = 1; i < 8; i++) CHECK_NEAR(cores[i], 0, 0);
    assert_int_equal(telemetry_cores(t, cores, 2), 2);
    check_rate(row[METRIC_PSI_CPU], 0.01, s); /* 10000 us */
    CHECK_NEAR(row[METRIC_PSI_MEMORY], 0, 0);
    check_rate(row[METRIC_SWAP_IN], 10.0 * (double)sysconf(_SC_PAGESIZE), s);
    check_rate(row[METRIC_CPU_THROTTLE], 5.0, s); /* one of eight cores counted five more */
    check_rate(row[METRIC_CPU_POWER], 2.0, s);    /* 2 J of one package: psys, core and mmio are not added */
    root_write(&r, "sys/class/powercap/intel-rapl:0/energy_uj", "262143000000\n");
    s = sample_after(t, row, &r, laptop_power_wraps);
    check_rate(row[METRIC_CPU_POWER], 2.0, s);
    telemetry_close(t);
    root_remove(&r);
}

static void tree_works(const struct root *r)
{
    /* 100 and its child 200 run 20 + 10 ticks; 100 reaps a child that ran 5; 3 minor and 1 major fault each
     */
    root_write(r, "proc/100/stat",
               "100 (qdyno) S 1 100 100 0 -1 4194304 13 7 2 2 265 55 5 0 20 0 2 0 1000 99000000 "
               "2500 18446744073709551615 1 1 0\n");
    root_write(r, "proc/200/stat",
               "200 (a) R 1 (b) S 100 100 100 0 -1 4194304 93 7 10 2 1010 0 0 0 20 0 1 0 1000 "
               "99000000 3500 18446744073709551615 1 1 0\n");
    /* thread 101 ended, 102 is new */
    root_run("true");
    root_write(r, "proc/100/task/100/status",
               "voluntary_ctxt_switches:\t110\nnonvoluntary_ctxt_switches:\t13\n");
    root_write(r, "proc/100/task/102/status",
               "voluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t2\n");
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -r '%s/proc/100/task/101'", r->path);
    root_run(command);
    root_write(r, "proc/100/task/100/children", "200 ");
    /* the whole machine worked 90 ticks of 800 */
    root_write(r, "proc/stat", "cpu  8090 0 4000 72710 800 0 80 0 0 0\n");
}

static void process_tree_of_the_laptop(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    struct telemetry *t = open_at(&r);
    const double page = (double)sysconf(_SC_PAGESIZE), tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    telemetry_monitor_process(t, 100);
    struct span s = sample_after(t, row, &r, tree_works);
    CHECK_NEAR(row[METRIC_PROC_RSS], 6000 * page, 0);
    check_rate(row[METRIC_PROC_CPU], 35 * tick, s);
    check_rate(row[METRIC_PROC_MINOR_FAULTS], 6, s);
    check_rate(row[METRIC_PROC_MAJOR_FAULTS], 2, s);
    check_rate(row[METRIC_PROC_VOLUNTARY_SWITCHES], 10 + 4, s);
    check_rate(row[METRIC_PROC_INVOLUNTARY_SWITCHES], 3 + 2, s);
    CHECK_NEAR(row[METRIC_OTHERS_BUSY], (90 - 35) / 800.0, 1e-9);
    telemetry_monitor_process(t, 4711); /* not there: unknown */
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_PROC_RSS]);
    CHECK_NAN(row[METRIC_PROC_CPU]);
    telemetry_monitor_process(t, 200); /* another one starts over */
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_PROC_RSS], 3500 * page, 0);
    CHECK_NAN(row[METRIC_PROC_CPU]);
    CHECK_NAN(row[METRIC_PROC_VOLUNTARY_SWITCHES]);
    telemetry_close(t);
    root_remove(&r);
}

static void amd_gpu(void **state)
{
    (void)state;
    struct root r = root_copy("amd-gpu-box");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_GPU_BUSY], 0.37, 1e-9);
    CHECK_NEAR(row[METRIC_GPU_MEM_USED], 1234567168, 0);
    CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 25753026560.0, 0);
    CHECK_NEAR(row[METRIC_GPU_POWER], 57, 1e-9);
    CHECK_NEAR(row[METRIC_GPU_TEMPERATURE], 44, 1e-9);
    CHECK_NEAR(row[METRIC_GPU_CLOCK], 2.304e9, 1);
    CHECK_NEAR(row[METRIC_GPU_THROTTLE], 1, 0);
    /* newer chips: power1_input */
    root_write(&r, "sys/class/drm/card0/device/hwmon/hwmon4/power1_average", NULL);
    root_write(&r, "sys/class/drm/card0/device/hwmon/hwmon4/power1_input", "61500000\n");
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_GPU_POWER], 61.5, 1e-9);
    /* a second card adds memory and power, and the busier one counts */
    telemetry_close(t);
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "cp -R '%s/sys/class/drm/card0' '%s/sys/class/drm/card1'", r.path,
             r.path);
    root_run(command);
    root_write(&r, "sys/class/drm/card1/device/gpu_busy_percent", "90\n");
    t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_GPU_BUSY], 0.90, 1e-9);
    CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 2 * 25753026560.0, 0);
    CHECK_NEAR(row[METRIC_GPU_POWER], 123, 1e-9);
    CHECK_NEAR(row[METRIC_GPU_TEMPERATURE], 44, 1e-9);
    telemetry_close(t);
    root_remove(&r);
}

static void intel_gpus_rest(const struct root *r)
{
    root_write(r, "sys/class/drm/card0/gt/gt0/rc6_residency_ms", "100030\n"); /* 30 ms asleep */
    root_write(r, "sys/class/drm/card1/device/tile0/gt0/gtidle/idle_residency_ms",
               "4294967010\n");                                                          /* 10 ms */
    root_write(r, "sys/class/drm/card1/device/hwmon/hwmon6/energy1_input", "6000000\n"); /* 1 J */
}

static void intel_gpus(void **state)
{
    (void)state;
    struct root r = root_copy("intel-gpu-laptop");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_GPU_BUSY]);
    CHECK_NAN(row[METRIC_GPU_POWER]);
    struct span s = sample_after(t, row, &r, intel_gpus_rest);
    CHECK_NEAR(row[METRIC_GPU_CLOCK], 2.4e9, 1);
    CHECK_NEAR(row[METRIC_GPU_THROTTLE], 1, 0);
    CHECK_NEAR(row[METRIC_GPU_TEMPERATURE], 51, 1e-9);
    check_rate(row[METRIC_GPU_POWER], 1, s);
    check_rate(1 - row[METRIC_GPU_BUSY], 0.010, s); /* the card that slept less */
    CHECK_NAN(row[METRIC_GPU_MEM_USED]);
    telemetry_close(t);
    root_remove(&r);
}

static void absent_and_garbage_are_nan(void **state)
{
    (void)state;
    static const char *const GARBAGE[] = { "",
                                           "garbage\n",
                                           "cpu\ncpu0\n",
                                           "cpu  1 2 3\n",
                                           "some\n",
                                           "-5\n",
                                           "nan\n",
                                           "1 (x",
                                           "cpu  18446744073709551616 x\n",
                                           "max\n" };
    for (size_t g = 0; g < COUNT_OF(GARBAGE); g++) {
        struct root r = root_copy("avx2-laptop");
        struct telemetry *t = open_at(&r);
        telemetry_monitor_process(t, 100);
        telemetry_sample(t, row);
        root_write(&r, "garbage", GARBAGE[g]);
        char command[3 * PATH_MAX]; /* every file of the machine now contains garbage */
        snprintf(command, sizeof command,
                 "find '%s/proc' '%s/sys' -type f -print0 | xargs -0 -n 100 sh -c "
                 "'tee \"$@\" <\"$0\" >/dev/null' '%s/garbage'",
                 r.path, r.path, r.path);
        root_run(command);
        telemetry_sample(t, row);
        for (int i = 0; i < METRIC_SENSOR_COUNT; i++) {
            bool odd_but_legal = i == METRIC_CPU_TEMPERATURE && !strcmp(GARBAGE[g], "-5\n");
            if (!isnan(row[i]) && !odd_but_legal)
                fail_msg("'%s': %s = %g", GARBAGE[g], METRICS[i].name, row[i]);
        }
        telemetry_close(t);
        root_remove(&r);
    }
    /* nothing but /proc/stat: a success with nothing in it */
    struct root r = root_empty();
    root_write(&r, "proc/stat", "");
    struct telemetry *t;
    struct err why = { 0 };
    CHECK_OK(telemetry_open(&t, r.path, &why));
    CHECK(!why.code);
    CHECK(!why.message[0]);
    telemetry_sample(t, row);
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) CHECK_NAN(row[i]);
    telemetry_close(t);
    root_remove(&r);
}

static void no_proc_is_an_error(void **state)
{
    (void)state;
    struct root r = root_empty();
    struct telemetry *t;
    struct err why = { 0 };
    assert_int_equal(telemetry_open(&t, r.path, &why), ERR_IO);
    assert_null(t);
    CHECK_CONTAINS(why.message, "/proc/stat");
    telemetry_close(NULL);
    root_remove(&r);
}

/* On this machine: this process and a child. */
static void live_process_is_seen(void **state)
{
    (void)state;
    struct telemetry *t;
    struct err why;
    CHECK_OK(telemetry_open(&t, "", &why));
    pid_t child = fork();
    if (!child)
        for (volatile int64_t turns = 0;;) turns++;
    telemetry_monitor_process(t, (int)child);
    telemetry_sample(t, row);
    CHECK_LT(0, row[METRIC_PROC_RSS]);
    CHECK_NAN(row[METRIC_PROC_CPU]);
    clock_sleep_ns(1000000000);
    telemetry_sample(t, row);
    CHECK_LT(0, row[METRIC_PROC_CPU]);
    CHECK_LT(row[METRIC_PROC_CPU], 1.2);
    CHECK_LT(0, row[METRIC_CPU_BUSY]);
    CHECK_LE(row[METRIC_CPU_BUSY], 1);
    CHECK_LT(0, row[METRIC_MEM_AVAILABLE]);
    CHECK_LE(0, row[METRIC_PROC_INVOLUNTARY_SWITCHES]);
    CHECK_LE(0, row[METRIC_OTHERS_BUSY]);
    CHECK_LE(row[METRIC_OTHERS_BUSY], 1);
    CHECK_EQ(kill(child, SIGKILL), 0);
    waitpid(child, NULL, 0);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_PROC_RSS]); /* gone is unknown, not 0 */
    telemetry_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_table_is_whole),
        cmocka_unit_test(sensors_page_holds_the_metrics),
        cmocka_unit_test(rates_by_hand),
        cmocka_unit_test(cpu_lists_are_counted),
        cmocka_unit_test(gauges_of_the_laptop),
        cmocka_unit_test(temperature_falls_back),
        cmocka_unit_test(clock_only_where_measured),
        cmocka_unit_test(rates_of_the_laptop),
        cmocka_unit_test(process_tree_of_the_laptop),
        cmocka_unit_test(amd_gpu),
        cmocka_unit_test(intel_gpus),
        cmocka_unit_test(absent_and_garbage_are_nan),
        cmocka_unit_test(no_proc_is_an_error),
        cmocka_unit_test(live_process_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
