/* Proves: NVIDIA GPUs are read through a library with NVML's interface (a stand-in built for this test):
 * the unit of every field, one reading per card, and the combined metrics. Values that one card lacks or
 * that are denied are unknown. A lost card becomes unknown and others are still read. A library that is
 * missing, broken, empty or not NVML means that there is no NVIDIA GPU. */
#include "tests/telemetry/roots.h"

#include <math.h>

#include "telemetry/gpu/gpu.h"
#include "telemetry/gpu/gpu_vendor.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

static double row[METRIC_SENSOR_COUNT];
static struct gpu_reading gpu[MACHINE_GPUS];
static int gpus;

static void sample(const char *library, const char *mode)
{
    struct telemetry *t;
    struct err why;
    setenv("QDYNO_NVML", library, 1);
    setenv("QDYNO_FAKE_NVML", mode, 1);
    CHECK_OK(telemetry_open(&t, "", &why));
    telemetry_sample(t, row);
    gpus = telemetry_gpus(t, gpu, MACHINE_GPUS);
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
    CHECK_NEAR(row[METRIC_GPU_MEM_USED], 4e8, 0); /* without what the driver keeps */
    CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 3e9, 0);
    CHECK_NEAR(row[METRIC_GPU_POWER], 300.5, 1e-9);
    CHECK_NEAR(row[METRIC_GPU_TEMPERATURE], 71, 0);
    CHECK_NEAR(row[METRIC_GPU_CLOCK], 1.98e9, 0);
    CHECK_NEAR(row[METRIC_GPU_THROTTLE], 0, 0);
    sample(FAKE_NVML, "throttled");
    CHECK_NEAR(row[METRIC_GPU_THROTTLE], 1, 0);
}

static void every_field_of_a_card(void **state)
{
    (void)state;
    sample(FAKE_NVML, "throttled");
    assert_int_equal(gpus, 2);
    const struct gpu_reading *g = &gpu[1];
    assert_string_equal(g->vendor, "nvidia");
    assert_string_equal(g->name, "Imaginary GPU 1");
    assert_string_equal(g->uuid, "GPU-0a1b2c3d-0000-0000-0000-000000000001");
    assert_string_equal(g->bus, "0000:3c:00.0");
    assert_int_equal(g->index, 1);
    CHECK_NEAR(g->busy_ratio, 0.40, 1e-12);
    CHECK_NEAR(g->memory_busy_ratio, 0.33, 1e-12);
    CHECK_NEAR(g->mem_used_bytes, 200e6, 0);
    CHECK_NEAR(g->mem_total_bytes, 2e9, 0);
    CHECK_NAN(g->host_mem_used_bytes);
    CHECK_NEAR(g->power_watts, 100.5, 1e-9);
    CHECK_NEAR(g->power_instant_watts, 210, 1e-9);
    CHECK_NEAR(g->power_limit_watts, 400, 1e-9);
    CHECK_NEAR(g->energy_joules, 5000001.5, 1e-6);
    CHECK_NEAR(g->temperature_celsius, 71, 0);
    CHECK_NEAR(g->memory_temperature_celsius, 80, 0);
    CHECK_NEAR(g->fan_ratio, 0.31, 1e-12);
    CHECK_NEAR(g->core_hertz, 1410e6, 0);
    CHECK_NEAR(g->core_max_hertz, 1980e6, 0);
    CHECK_NEAR(g->memory_hertz, 2619e6, 0);
    assert_int_equal(g->pcie_generation, 4);
    assert_int_equal(g->pcie_width, 16);
    CHECK_NEAR(g->ecc_corrected, 12, 0);
    CHECK_NEAR(g->ecc_uncorrected, 1, 0);
    CHECK(g->throttle_known);
    assert_int_equal(g->throttle_reasons, GPU_THROTTLE_THERMAL | GPU_THROTTLE_POWER_CAP);
    assert_int_equal(gpu[0].throttle_reasons, GPU_THROTTLE_IDLE);
    assert_int_equal(g->processes, 0);
    assert_int_equal(g->partitions, -1); /* a card that knows no MIG */
    assert_int_equal(gpu[0].partitions, 0);
}

/* Both lists are merged: no process twice, largest first, unknown memory last. */
static void processes_of_a_card(void **state)
{
    (void)state;
    sample(FAKE_NVML, "");
    assert_int_equal(gpu[0].processes, 4);
    assert_int_equal(gpu[0].process_count, 4);
    static const int PIDS[] = { 4002, 4004, 4001, 4003 };
    for (int i = 0; i < 4; i++) assert_int_equal(gpu[0].process[i].pid, PIDS[i]);
    CHECK_NEAR(gpu[0].process[0].mem_used_bytes, 300, 0);
    CHECK_NAN(gpu[0].process[3].mem_used_bytes);
    sample(FAKE_NVML, "crowd");
    assert_int_equal(gpu[0].processes, -1); /* unknown, not none */
    sample(FAKE_NVML, "denied");
    assert_int_equal(gpu[0].processes, -1);
    CHECK_NAN(gpu[0].ecc_uncorrected);
    CHECK_NEAR(gpu[0].power_watts, 200, 1e-9); /* other values are known */
}

static void many_processes_keep_the_largest(void **state)
{
    (void)state;
    struct gpu_reading r = { .processes = 0 };
    for (int i = 0; i < 20; i++) gpu_process_add(&r, 100 + i, (i * 7) % 20 ? (i * 7) % 20 : NAN);
    assert_int_equal(r.processes, 20);
    assert_int_equal(r.process_count, GPU_PROCESSES);
    for (int i = 0; i < GPU_PROCESSES; i++) CHECK_NEAR(r.process[i].mem_used_bytes, 19 - i, 0);
}

/* Cards that count their traffic give a rate, the others what they measure themselves. */
static void traffic_of_the_link(void **state)
{
    (void)state;
    struct telemetry *t;
    struct err why;
    setenv("QDYNO_NVML", FAKE_NVML, 1);
    setenv("QDYNO_FAKE_NVML", "", 1);
    CHECK_OK(telemetry_open(&t, "", &why));
    telemetry_sample(t, row);
    telemetry_gpus(t, gpu, MACHINE_GPUS);
    CHECK_NAN(gpu[0].pcie_tx_bytes_s);
    CHECK_NAN(gpu[0].pcie_rx_bytes_s); /* a first reading is no rate */
    const int64_t before = clock_ns();
    clock_sleep_ns(20000000);
    telemetry_sample(t, row);
    telemetry_gpus(t, gpu, MACHINE_GPUS);
    const double seconds = (double)(clock_ns() - before) / 1e9;
    CHECK_LT(0, gpu[0].pcie_tx_bytes_s);
    CHECK_LE(gpu[0].pcie_tx_bytes_s, 4000 / 0.02);
    CHECK_LE(2000 / seconds * 0.5, gpu[0].pcie_rx_bytes_s);
    CHECK_NEAR(gpu[1].pcie_tx_bytes_s, 2e6, 0);
    CHECK_NEAR(gpu[1].pcie_rx_bytes_s, 3e6, 0);
    telemetry_close(t);
}

static void a_card_may_be_lost(void **state)
{
    (void)state;
    struct telemetry *t;
    struct err why;
    setenv("QDYNO_NVML", FAKE_NVML, 1);
    setenv("QDYNO_FAKE_NVML", "lost", 1);
    CHECK_OK(telemetry_open(&t, "", &why));
    telemetry_sample(t, row);
    assert_int_equal(telemetry_gpus(t, gpu, MACHINE_GPUS), 2);
    CHECK(!gpu[1].lost);
    CHECK_LT(0, gpu[1].busy_ratio);
    CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 3e9, 0);
    for (int i = 0; i < 2; i++) {
        telemetry_sample(t, row);
        telemetry_gpus(t, gpu, MACHINE_GPUS);
        CHECK(gpu[1].lost);
        CHECK_NAN(gpu[1].busy_ratio);
        CHECK_NAN(gpu[1].mem_total_bytes);
        CHECK(!gpu[1].throttle_known);
        assert_string_equal(gpu[1].name, "Imaginary GPU 1"); /* who it was stays */
        CHECK(!gpu[0].lost);
        CHECK_NEAR(gpu[0].busy_ratio, 0.85, 1e-12);
        CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 1e9, 0); /* what is left */
    }
    telemetry_close(t);
}

/* A card in MIG mode has no utilization of its own: unknown, not 0. */
static void a_card_may_be_cut_into_parts(void **state)
{
    (void)state;
    sample(FAKE_NVML, "mig");
    assert_int_equal(gpu[0].partitions, 3);
    CHECK_NAN(gpu[0].busy_ratio);
    CHECK_NEAR(gpu[0].mem_total_bytes, 1e9, 0);
    CHECK_NEAR(row[METRIC_GPU_BUSY], 0.40, 1e-12); /* of the other card */
}

static void many_cards(void **state)
{
    (void)state;
    sample(FAKE_NVML, "many");
    assert_int_equal(gpus, 8);
    CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 36e9, 0);
    for (int i = 0; i < gpus; i++) assert_int_equal(gpu[i].index, i);
}

/* Time is counted while a reason holds. */
static void time_under_a_reason_adds_up(void **state)
{
    (void)state;
    struct telemetry *t;
    struct err why;
    setenv("QDYNO_NVML", FAKE_NVML, 1);
    setenv("QDYNO_FAKE_NVML", "throttled", 1);
    CHECK_OK(telemetry_open(&t, "", &why));
    const int64_t before = clock_ns();
    for (int i = 0; i < 3; i++) {
        telemetry_sample(t, row);
        clock_sleep_ns(10000000);
    }
    telemetry_gpus(t, gpu, MACHINE_GPUS);
    const double most = (double)(clock_ns() - before) / 1e9;
    CHECK_LE(0.02, gpu[1].throttle_seconds[1]);
    CHECK_LE(gpu[1].throttle_seconds[1], most); /* row 1: thermal */
    CHECK_EQ(gpu[1].throttle_seconds[0], gpu[1].throttle_seconds[1]);
    CHECK_NEAR(gpu[0].throttle_seconds[1], 0, 0);
    telemetry_close(t);
    for (int i = 0; i < GPU_THROTTLE_COUNT; i++) {
        char names[64];
        assert_int_equal(GPU_THROTTLES[i].bit, UINT64_C(1) << i);
        assert_string_equal(gpu_throttle_names(GPU_THROTTLES[i].bit, names, sizeof names),
                            GPU_THROTTLES[i].name);
        CHECK(*GPU_THROTTLES[i].help);
    }
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
    CHECK_CONTAINS(machine_short(&m, text, sizeof text), " Imaginary GPU 0 +1");
}

static void what_a_card_lacks_is_left_out(void **state)
{
    (void)state;
    sample(FAKE_NVML, "partial");
    CHECK_NEAR(row[METRIC_GPU_BUSY], 0.40, 1e-12);
    CHECK_NEAR(row[METRIC_GPU_MEM_TOTAL], 3e9, 0);
    CHECK_NEAR(row[METRIC_GPU_POWER], 100.5, 1e-9);
    CHECK_NEAR(gpu[0].mem_used_bytes, 250e6, 0); /* the older call's */
    CHECK_NAN(gpu[0].busy_ratio);
    CHECK_NAN(gpu[0].energy_joules);
    CHECK_NAN(gpu[0].ecc_corrected);
    CHECK(!gpu[0].throttle_known);
    CHECK_EQ(gpu[0].processes, -1);
    CHECK_EQ(gpu[0].pcie_width, -1);
    CHECK_EQ(gpu[0].partitions, -1);
    CHECK(!*gpu[0].uuid);
    CHECK(!*gpu[0].bus);
    CHECK(!gpu[0].lost);
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

/* The same list through a sampling thread, read while it is written. */
static void a_thread_shares_its_readings(void **state)
{
    (void)state;
    struct sampler_thread *thread;
    struct err why;
    setenv("QDYNO_NVML", FAKE_NVML, 1);
    setenv("QDYNO_FAKE_NVML", "many", 1);
    CHECK_OK(sampler_start(&thread, "", 10, NULL, &why));
    gpus = 0;
    for (int i = 0; i < 20000 && !(gpus == 8 && gpu[7].busy_ratio > 0); i++) {
        gpus = sampler_gpus(thread, gpu, MACHINE_GPUS);
        clock_sleep_ns(5000000);
    }
    assert_int_equal(gpus, 8);
    CHECK_NEAR(gpu[7].busy_ratio, 0.40, 1e-12);
    CHECK_NEAR(gpu[7].mem_total_bytes, 8e9, 0);
    assert_int_equal(sampler_gpus(thread, NULL, 0), 8);
    struct gpu_reading first[1];
    assert_int_equal(sampler_gpus(thread, first, 1), 8);
    assert_string_equal(first[0].name, "Imaginary GPU 0");
    sampler_stop(thread);
}

/* Cards that only the kernel names are listed, with what to do about it. */
static void cards_without_their_library(void **state)
{
    (void)state;
    struct root box = root_copy("nvidia-box"), board = root_copy("arm-board");
    struct machine m;
    struct err why;
    struct telemetry *t;
    root_write(&box, "nvml.json", NULL);
    CHECK_OK(machine_detect(&m, box.path, &why));
    assert_int_equal(m.gpus, 4);
    assert_string_equal(m.gpu[3].name, "NVIDIA A100-PCIE-40GB");
    assert_string_equal(m.gpu[3].driver, "550.54.15");
    assert_string_equal(m.gpu[3].bus, "0000:d8:00.0");
    assert_string_equal(m.gpu[3].source, "kernel");
    assert_int_equal(m.gpu[3].memory_bytes, -1);
    CHECK_CONTAINS(m.gpu[3].trouble, "libnvidia-ml1");
    CHECK_OK(telemetry_open(&t, box.path, &why));
    telemetry_sample(t, row);
    assert_int_equal(telemetry_gpus(t, gpu, MACHINE_GPUS), 4);
    CHECK_NAN(gpu[0].busy_ratio);
    CHECK_NAN(gpu[0].mem_total_bytes);
    CHECK_NAN(row[METRIC_GPU_POWER]);
    telemetry_close(t);
    root_write(&board, "sys/class/drm/card0/device/vendor", "0x10de\n");
    root_write(&board, "sys/class/drm/card0/device/uevent", "DRIVER=nouveau\nPCI_ID=10DE:1F82\n");
    CHECK_OK(machine_detect(&m, board.path, &why));
    assert_int_equal(m.gpus, 1);
    CHECK_CONTAINS(m.gpu[0].trouble, "nouveau");
    root_remove(&box);
    root_remove(&board);
    /* and the reason why there is no GPU */
    setenv("QDYNO_NVML", FAKE_NVML, 1);
    setenv("QDYNO_FAKE_NVML", "broken", 1);
    CHECK_OK(telemetry_open(&t, "", &why));
    bool denied;
    if (!telemetry_gpus(t, NULL, 0))
        CHECK_CONTAINS(telemetry_absence(t, METRIC_GPU_POWER, &denied), "modprobe nvidia");
    telemetry_close(t);
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
    CHECK_NAN(row[METRIC_GPU_BUSY]);
    CHECK_NAN(row[METRIC_GPU_MEM_TOTAL]);
    telemetry_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_cards),
        cmocka_unit_test(every_field_of_a_card),
        cmocka_unit_test(processes_of_a_card),
        cmocka_unit_test(many_processes_keep_the_largest),
        cmocka_unit_test(traffic_of_the_link),
        cmocka_unit_test(a_card_may_be_lost),
        cmocka_unit_test(a_card_may_be_cut_into_parts),
        cmocka_unit_test(many_cards),
        cmocka_unit_test(time_under_a_reason_adds_up),
        cmocka_unit_test(two_cards_identified),
        cmocka_unit_test(what_a_card_lacks_is_left_out),
        cmocka_unit_test(unusable_libraries_mean_no_gpu),
        cmocka_unit_test(a_thread_shares_its_readings),
        cmocka_unit_test(cards_without_their_library),
        cmocka_unit_test(recorded_machines_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
