/* Proves: NVIDIA GPUs are read through a library with NVML's interface (a stand-in built for this test):
 * units and merging of two cards, what one card lacks is left out, and a library that is missing, broken,
 * empty or no NVML at all means "no NVIDIA GPU", quietly. */
#include "tests/telemetry/roots.h"

#include <math.h>

#include "telemetry/sensors.h"

static double row[METRIC_SENSOR_COUNT];

static void sample(const char *library, const char *mode)
{
    struct telemetry *t;
    struct err why;
    setenv("QDYNO_NVML", library, 1);
    setenv("QDYNO_FAKE_NVML", mode, 1);
    CHECK_OK(telemetry_open(&t, "", &why));
    telemetry_sample(t, row);
    telemetry_close(t);
}

static struct machine detect(const char *library, const char *mode)
{
    struct machine m;
    struct err why;
    setenv("QDYNO_NVML", library, 1);
    setenv("QDYNO_FAKE_NVML", mode, 1);
    CHECK_OK(machine_detect(&m, "", &why));
    return m;
}

static void two_cards(void **state)
{
    (void)state;
    sample(FAKE_NVML, "");
    CHECK_NEAR(row[METRIC_GPU_BUSY], 0.85, 1e-12);
    CHECK_NEAR(row[METRIC_GPU_MEM_USED], 5e8, 0);
    CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 3e9, 0);
    CHECK_NEAR(row[METRIC_GPU_POWER], 300.5, 1e-9);
    CHECK_NEAR(row[METRIC_GPU_TEMPERATURE], 71, 0);
    CHECK_NEAR(row[METRIC_GPU_CLOCK], 1.98e9, 0);
    CHECK_NEAR(row[METRIC_GPU_THROTTLE], 0, 0);
    sample(FAKE_NVML, "throttled");
    CHECK_NEAR(row[METRIC_GPU_THROTTLE], 1, 0);
}

static void two_cards_identified(void **state)
{
    (void)state;
    struct machine m = detect(FAKE_NVML, "");
    assert_int_equal(m.gpus, 2);
    assert_string_equal(m.gpu[0].vendor, "nvidia");
    assert_string_equal(m.gpu[1].name, "Imaginary GPU 1");
    assert_string_equal(m.gpu[1].driver, "550.00.01");
    assert_int_equal(m.gpu[1].memory_bytes, 2000000000);
    assert_int_equal(m.gpu[1].compute_major, 9);
    assert_int_equal(m.gpu[1].compute_minor, 1);
    char text[256];
    CHECK(strstr(machine_short(&m, text, sizeof text), " Imaginary GPU 0 +1"));
}

static void what_a_card_lacks_is_left_out(void **state)
{
    (void)state;
    sample(FAKE_NVML, "partial");
    CHECK_NEAR(row[METRIC_GPU_BUSY], 0.40, 1e-12);
    CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 3e9, 0);
    CHECK_NEAR(row[METRIC_GPU_POWER], 100.5, 1e-9);
    struct machine m = detect(FAKE_NVML, "partial");
    assert_int_equal(m.gpu[0].compute_major, -1);
    assert_int_equal(m.gpu[0].memory_bytes, 1000000000);
}

static void unusable_libraries_mean_no_gpu(void **state)
{
    (void)state;
    struct machine without = detect("/nonexistent/libnvidia-ml.so.1", "");
    const struct {
        const char *library, *mode;
    } CASES[] = { { "/nonexistent/libnvidia-ml.so.1", "" },
                  { FAKE_NVML, "broken" },
                  { FAKE_NVML, "empty" },
                  { "/etc/os-release", "" }, /* no library */
                  { "libc.so.6", "" } };     /* a library of something else */
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct machine m = detect(CASES[i].library, CASES[i].mode);
        assert_int_equal(m.gpus, without.gpus);
        assert_string_equal(m.id, without.id);
        sample(CASES[i].library, CASES[i].mode);
    }
}

/* A recording of another machine must not show the GPUs of this one. */
static void recorded_machines_do_not_mix(void **state)
{
    (void)state;
    struct root r = root_get("avx2-laptop");
    struct machine m;
    struct telemetry *t;
    struct err why;
    setenv("QDYNO_NVML", FAKE_NVML, 1);
    setenv("QDYNO_FAKE_NVML", "", 1);
    CHECK_OK(machine_detect(&m, r.path, &why));
    assert_int_equal(m.gpus, 0);
    CHECK_OK(telemetry_open(&t, r.path, &why));
    telemetry_sample(t, row);
    CHECK(isnan(row[METRIC_GPU_BUSY]) && isnan(row[METRIC_GPU_MEM_TOTAL]));
    telemetry_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_cards),
        cmocka_unit_test(two_cards_identified),
        cmocka_unit_test(what_a_card_lacks_is_left_out),
        cmocka_unit_test(unusable_libraries_mean_no_gpu),
        cmocka_unit_test(recorded_machines_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
