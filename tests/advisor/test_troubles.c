/* Proves: a machine whose sensors report nothing has no trouble; each trouble is found by its own sensor
 * value, comes with advice, and does not appear otherwise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "tests/check.h"
#include "advisor/advise/advise.h"
#include "advisor/doctor/doctor.h"

struct test_machine {
    struct machine machine;
    double row[METRIC_SENSOR_COUNT];
    const char *busiest;
    struct run_row runs[2];
    int n_runs;
    struct device_info device;
    int n_devices;
};

static void machine_without_troubles(struct test_machine *w)
{
    memset(w, 0, sizeof *w);
    w->machine = (struct machine){ .cores = 8,
                                   .processors = 16,
                                   .cgroup_cpus = NAN,
                                   .cgroup_memory_bytes = -1,
                                   .memory_bytes = INT64_C(16) << 30,
                                   .memory_available_bytes = INT64_C(12) << 30 };
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) w->row[i] = NAN;
}

static int machine_find_troubles(const struct test_machine *w, struct trouble out[TROUBLES_MAX])
{
    const struct trouble_case now = { .machine = &w->machine,
                                      .row = w->row,
                                      .busiest = w->busiest,
                                      .runs = w->runs,
                                      .n_runs = w->n_runs,
                                      .devices_known = true,
                                      .device = &w->device,
                                      .n_devices = w->n_devices };
    return troubles_find(out, &now);
}

static void expect_one(const struct test_machine *w, const char *found, const char *advice)
{
    struct trouble t[TROUBLES_MAX];
    assert_int_equal(machine_find_troubles(w, t), 1);
    if (!strstr(t[0].found, found) || !strstr(t[0].advice, advice))
        fail_msg("%s: %s", t[0].found, t[0].advice);
}

static void no_sensor_no_trouble(void **state)
{
    (void)state;
    struct test_machine w;
    struct trouble t[TROUBLES_MAX];
    machine_without_troubles(&w);
    assert_int_equal(machine_find_troubles(&w, t), 0);
    w.row[METRIC_SWAP_TOTAL] = 1e9;
    w.row[METRIC_SWAP_USED] = 0;
    w.row[METRIC_SWAP_IN] = w.row[METRIC_CPU_THROTTLE] = w.row[METRIC_CPU_STEAL] = 0;
    w.row[METRIC_OTHERS_BUSY] = 0.02;
    assert_int_equal(machine_find_troubles(&w, t), 0);
}

static void each_sensor_finds_its_trouble(void **state)
{
    (void)state;
    static const struct {
        enum metric_id sensor;
        double value;
        const char *found, *advice;
    } SIGNS[] = {
        { METRIC_SWAP_OUT, 4096, "of swap in use, with pages moving", "qdyno fit" },
        { METRIC_PSI_MEMORY, 0.2, "programs wait for memory", "smaller format" },
        { METRIC_OTHERS_BUSY, 0.5, "50 % of the CPUs", "beside this load" },
        { METRIC_CPU_STEAL, 0.1, "10 % of the CPU time", "host" },
        { METRIC_CPU_THROTTLE, 3, "for heat", "cooling" },
        { METRIC_GPU_THROTTLE, 1, "GPU is throttled", "telemetry" },
        { METRIC_CGROUP_THROTTLED, 2, "quota throttles", "CPU quota" },
    };
    for (size_t i = 0; i < COUNT_OF(SIGNS); i++) {
        struct test_machine w;
        machine_without_troubles(&w);
        w.row[SIGNS[i].sensor] = SIGNS[i].value;
        expect_one(&w, SIGNS[i].found, SIGNS[i].advice);
    }
}

static void busy_programs_are_named(void **state)
{
    (void)state;
    struct test_machine w;
    machine_without_troubles(&w);
    w.row[METRIC_OTHERS_BUSY] = 0.5;
    w.busiest = "cc1 38 %, ffmpeg 12 %";
    expect_one(&w, "other programs use 50 % of the CPUs: cc1 38 %, ffmpeg 12 %", "stop these programs");
    w.busiest = "";
    expect_one(&w, "other programs use 50 % of the CPUs", "see top");
}

static void machine_and_history(void **state)
{
    (void)state;
    struct test_machine w;
    struct trouble t[TROUBLES_MAX];
    machine_without_troubles(&w);
    w.machine.memory_available_bytes = INT64_C(1) << 30;
    expect_one(&w, "1.00G of memory available", "kv=q8_0");
    machine_without_troubles(&w);
    w.machine.cgroup_cpus = 1.5;
    expect_one(&w, "a CPU quota of the control group (cgroup) allows 1.5 CPUs on 8 cores", "threads=1");
    w.machine.usable_cores = 4; /* both limits: the quota gives fewer threads */
    w.machine.usable_threads = 1;
    expect_one(&w, "a CPU quota of the control group (cgroup) allows 1.5 CPUs on 8 cores", "threads=1");
    w.machine.cgroup_cpus = 6;
    w.machine.usable_threads = 4;
    expect_one(&w, "an affinity mask or cpuset allows 4 of 8 cores", "threads=4");
    machine_without_troubles(&w);
    w.machine.gpus = 1;
    snprintf(w.machine.gpu[0].source, sizeof w.machine.gpu[0].source, "kernel");
    expect_one(&w, "no driver answers", "driver");
    machine_without_troubles(&w);
    w.n_runs = 1;
    w.runs[0] = (struct run_row){ .id = 12,
                                  .kind = "ab",
                                  .verdict = "worse",
                                  .metric = "decode_tok_s",
                                  .label = "f16 vs q3_K",
                                  .effect_ratio = 0.8 };
    expect_one(&w, "run 12: f16 vs q3_K", "q8_0 or q4_0");
    static const char *const OTHER_REASONS[] = { "q8_0 vs q8_0,threads=1", "q4_0 vs default",
                                                 "q8_0 vs bf16" };
    for (size_t i = 0; i < COUNT_OF(OTHER_REASONS); i++) {
        snprintf(w.runs[0].label, sizeof w.runs[0].label, "%s", OTHER_REASONS[i]);
        assert_int_equal(machine_find_troubles(&w, t), 0);
    }
    snprintf(w.runs[0].label, sizeof w.runs[0].label, "default vs gptq,bits=4");
    expect_one(&w, "run 12: default vs gptq", "q8_0 or q4_0");
    snprintf(w.runs[0].verdict, sizeof w.runs[0].verdict, "better");
    assert_int_equal(machine_find_troubles(&w, t), 0);
}

static void board_without_opencl(void **state)
{
    (void)state;
    static const struct {
        const char *vendor, *package;
    } BOARDS[] = { { "nvidia", "nvidia-opencl-icd" },
                   { "amd", "mesa-opencl-icd" },
                   { "intel", "intel-opencl-icd" } };
    for (size_t i = 0; i < COUNT_OF(BOARDS); i++) {
        struct test_machine w;
        struct trouble t[TROUBLES_MAX];
        machine_without_troubles(&w);
        w.machine.gpus = 1;
        struct gpu_identity *u = &w.machine.gpu[0];
        snprintf(u->vendor, sizeof u->vendor, "%s", BOARDS[i].vendor);
        snprintf(u->source, sizeof u->source, "nvml");
        snprintf(u->bus, sizeof u->bus, "0000:3b:00.0");
        snprintf(u->driver, sizeof u->driver, "1");
        expect_one(&w, "at 0000:3b:00.0: no OpenCL driver", BOARDS[i].package);
        w.n_devices = 1; /* a CPU device */
        expect_one(&w, "no OpenCL platform has a device for it", BOARDS[i].package);
        w.device.gpu = true; /* without a PCI address it may be this board */
        assert_int_equal(machine_find_troubles(&w, t), 0);
        snprintf(w.device.pci, sizeof w.device.pci, "0000:5E:00.0");
        expect_one(&w, "no OpenCL platform", BOARDS[i].package);
        snprintf(w.device.pci, sizeof w.device.pci, "0000:3B:00.0");
        assert_int_equal(machine_find_troubles(&w, t), 0);
        const struct trouble_case unknown = { .machine = &w.machine, .row = w.row };
        assert_int_equal(troubles_find(t, &unknown), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_sensor_no_trouble),          cmocka_unit_test(busy_programs_are_named),
        cmocka_unit_test(each_sensor_finds_its_trouble), cmocka_unit_test(machine_and_history),
        cmocka_unit_test(board_without_opencl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
