/* Proves: every field of AMD and Intel GPUs is read from the drivers' files with the right unit (values
 * calculated by hand from the described machines). Throttle reasons have the same names for all vendors.
 * The binary file gpu_metrics is read only in known versions. ROCm's library provides what the files lack.
 * OpenCL adds only devices that are not yet listed. The metrics of one selected GPU exclude the others. */
#include "tests/telemetry/roots.h"

#include <ctype.h>
#include <math.h>

#include "telemetry/gpu/gpu.h"
#include "telemetry/gpu/gpu_library.h"
#include "telemetry/gpu/gpu_vendor.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

static double row[METRIC_SENSOR_COUNT];
static struct gpu_reading gpu[MACHINE_GPUS];

static int sample(const struct root *r)
{
    struct telemetry *t;
    struct err why;
    CHECK_OK(telemetry_open(&t, r->path, &why));
    telemetry_sample(t, row);
    const int n = telemetry_gpus(t, gpu, MACHINE_GPUS);
    telemetry_close(t);
    return n;
}

static struct machine detect(const char *root)
{
    struct machine m;
    struct err why;
    CHECK_OK(machine_detect(&m, root, &why));
    return m;
}

/* ---------------------------------------------------------------- AMD */

static void every_field_of_an_amd_card(void **state)
{
    (void)state;
    struct root r = root_get("amd-gpu-box");
    assert_int_equal(sample(&r), 1);
    const struct gpu_reading *g = &gpu[0];
    assert_string_equal(g->vendor, "amd");
    assert_string_equal(g->bus, "0000:03:00.0");
    CHECK_NEAR(g->busy_ratio, 0.37, 1e-12);
    CHECK_NEAR(g->memory_busy_ratio, 0.12, 1e-12);
    CHECK_NEAR(g->mem_used_bytes, 1234567168, 0);
    CHECK_NEAR(g->mem_total_bytes, 25753026560.0, 0);
    CHECK_NEAR(g->host_mem_used_bytes, 71303168, 0);
    CHECK_NEAR(g->power_watts, 57, 1e-9);
    CHECK_NAN(g->power_instant_watts);
    CHECK_NEAR(g->power_limit_watts, 339, 1e-9);
    CHECK_NEAR(g->energy_joules, 131072, 0); /* 2^33 of 2^-16 J */
    CHECK_NEAR(g->temperature_celsius, 44, 1e-9);
    CHECK_NEAR(g->hotspot_temperature_celsius, 52, 1e-9);
    CHECK_NEAR(g->memory_temperature_celsius, 58, 1e-9);
    CHECK_NEAR(g->fan_ratio, 51 / 255.0, 1e-9);
    CHECK_NEAR(g->core_hertz, 2.304e9, 1);
    CHECK_NEAR(g->core_max_hertz, 2.482e9, 1);
    CHECK_NEAR(g->memory_hertz, 1.249e9, 1);
    assert_int_equal(g->pcie_generation, 4);
    assert_int_equal(g->pcie_width, 16);
    CHECK_NEAR(g->ecc_corrected, 3, 0);
    CHECK_NEAR(g->ecc_uncorrected, 0, 0);
    CHECK(g->throttle_known);
    assert_int_equal(g->throttle_reasons, GPU_THROTTLE_POWER_CAP | GPU_THROTTLE_THERMAL);
    CHECK_NEAR(row[METRIC_GPU_THROTTLE], 1, 0);
    assert_int_equal(g->processes, 2);
    assert_int_equal(g->process[0].pid, 4242);
    CHECK_NEAR(g->process[0].mem_used_bytes, 1073741824, 0);
    assert_int_equal(g->process[1].pid, 4300);
}

/* A gpu_metrics file of 120 bytes: version, energy, reasons. */
static void metrics_write(const struct root *r, int format, int content, uint64_t energy, uint64_t reasons,
                          size_t size)
{
    unsigned char m[120] = { (unsigned char)size, 0, (unsigned char)format, (unsigned char)content };
    char path[PATH_MAX];
    memcpy(m + 24, &energy, sizeof energy);
    memcpy(m + 112, &reasons, sizeof reasons);
    snprintf(path, sizeof path, "%s/sys/class/drm/card0/device/gpu_metrics", r->path);
    unlink(path);
    FILE *f = fopen(path, "wb");
    CHECK(f);
    CHECK_EQ(fwrite(m, 1, size, f), size);
    CHECK(!fclose(f));
}

static void gpu_metrics_is_believed_where_it_is_known(void **state)
{
    (void)state;
    struct root r = root_copy("amd-gpu-box");
    static const struct {
        uint64_t bits, ours;
    } REASONS[] = {
        { 0, 0 },
        { UINT64_C(1) << 0, GPU_THROTTLE_POWER_CAP },    /* PPT0 */
        { UINT64_C(1) << 7, GPU_THROTTLE_POWER_CAP },    /* SPPT of the APU */
        { UINT64_C(1) << 16, GPU_THROTTLE_CURRENT },     /* TDC of GFX */
        { UINT64_C(1) << 36, GPU_THROTTLE_THERMAL },     /* hot spot */
        { UINT64_C(1) << 44, GPU_THROTTLE_HW_THERMAL },  /* VRHOT0 */
        { UINT64_C(1) << 47, GPU_THROTTLE_HW_THERMAL },  /* PROCHOT of GFX */
        { UINT64_C(1) << 56, GPU_THROTTLE_OTHER },       /* PPM */
        { UINT64_C(1) << 57, GPU_THROTTLE_RELIABILITY }, /* FIT */
        { UINT64_C(1) << 63, GPU_THROTTLE_OTHER },
    };
    for (size_t i = 0; i < COUNT_OF(REASONS); i++) {
        metrics_write(&r, 1, 3, 65536, REASONS[i].bits, 120);
        sample(&r);
        CHECK(gpu[0].throttle_known);
        assert_int_equal(gpu[0].throttle_reasons, REASONS[i].ours);
        CHECK_NEAR(gpu[0].energy_joules, 1, 0);
        CHECK_NEAR(row[METRIC_GPU_THROTTLE], REASONS[i].ours != 0, 0);
    }
    static const struct {
        int format, content;
        size_t size;
        bool energy, throttle;
    } VERSIONS[] = {
        { 1, 1, 120, true, false },  { 1, 2, 120, true, false },  { 1, 4, 120, true, false },
        { 1, 5, 120, false, false }, { 2, 3, 120, false, false }, /* of a processor with graphics */
        { 1, 0, 120, false, false }, { 1, 3, 119, false, false }, { 1, 3, 0, false, false },
    };
    for (size_t i = 0; i < COUNT_OF(VERSIONS); i++) {
        metrics_write(&r, VERSIONS[i].format, VERSIONS[i].content, 65536, 1, VERSIONS[i].size);
        sample(&r);
        assert_int_equal(gpu[0].throttle_known, VERSIONS[i].throttle);
        assert_int_equal(!isnan(gpu[0].energy_joules), VERSIONS[i].energy);
        CHECK_NAN(row[METRIC_GPU_THROTTLE]);
    }
    metrics_write(&r, 1, 3, UINT64_MAX, UINT64_MAX, 120); /* the driver's value for "not supported" */
    sample(&r);
    CHECK(!gpu[0].throttle_known);
    CHECK_NAN(gpu[0].energy_joules);
    root_remove(&r);
}

static void rocm_fills_what_the_files_lack(void **state)
{
    (void)state;
    struct root r = root_copy("amd-gpu-box");
    struct gpu_library *l;
    struct err why;
    setenv("QDYNO_ROCM_SMI", FAKE_ROCM, 1);
    CHECK_OK(gpu_library_open(&l, GPU_VENDOR_AMDGPU.library, "", &why));
    assert_int_equal(l->devices, 2);
    json_t *answers = gpu_library_record(l, true);
    gpu_library_close(l);
    unsetenv("QDYNO_ROCM_SMI");
    char *text = json_line(answers);
    root_write(&r, "rocm_smi.json", text);
    free(text);
    json_decref(answers);
    sample(&r); /* files first */
    CHECK_NEAR(gpu[0].energy_joules, 131072, 0);
    assert_string_equal(gpu[0].name, "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]");
    root_write(&r, "sys/class/drm/card0/device/gpu_metrics", NULL);
    root_write(&r, "usr/share/misc/pci.ids", NULL);
    sample(&r);
    CHECK_NEAR(gpu[0].energy_joules, 30.6, 1e-9);             /* 2000000 of 15.3 uJ */
    assert_string_equal(gpu[0].name, "Imaginary Instinct 1"); /* the one at its place of the bus */
    CHECK(!gpu[0].throttle_known);
    root_remove(&r);
}

/* ---------------------------------------------------------------- Intel */

static void every_field_of_intel_cards(void **state)
{
    (void)state;
    struct root r = root_copy("intel-gpu-laptop");
    assert_int_equal(sample(&r), 2);
    const struct gpu_reading *i915 = &gpu[0], *xe = &gpu[1];
    CHECK_NEAR(i915->core_hertz, 400e6, 0); /* gt0 before the older file */
    CHECK_NEAR(i915->core_max_hertz, 1250e6, 0);
    CHECK(i915->throttle_known);
    assert_int_equal(i915->throttle_reasons, GPU_THROTTLE_POWER_CAP | GPU_THROTTLE_HW_THERMAL);
    CHECK_NAN(i915->energy_joules);
    CHECK_NAN(i915->mem_used_bytes);
    CHECK_NAN(i915->temperature_celsius);
    CHECK_NEAR(xe->core_hertz, 2400e6, 0);
    CHECK_NEAR(xe->core_max_hertz, 2450e6, 0);
    CHECK(xe->throttle_known);
    CHECK_EQ(xe->throttle_reasons, 0);
    CHECK_NEAR(xe->energy_joules, 5, 1e-9);
    CHECK_NEAR(xe->power_limit_watts, 190, 1e-9);
    CHECK_NEAR(xe->temperature_celsius, 51, 1e-9);
    CHECK_NEAR(xe->memory_temperature_celsius, 56, 1e-9);
    assert_int_equal(xe->pcie_generation, 4);
    assert_int_equal(xe->pcie_width, 8);
    assert_string_equal(xe->bus, "0000:03:00.0");

    static const struct {
        const char *file;
        uint64_t ours;
    } REASONS[] = {
        { "reason_pl1", GPU_THROTTLE_POWER_CAP },         { "reason_pl2", GPU_THROTTLE_POWER_CAP },
        { "reason_pl4", GPU_THROTTLE_CURRENT },           { "reason_vr_tdc", GPU_THROTTLE_CURRENT },
        { "reason_thermal", GPU_THROTTLE_THERMAL },       { "reason_ratl", GPU_THROTTLE_THERMAL },
        { "reason_prochot", GPU_THROTTLE_HW_THERMAL },    { "reason_vr_thermalert", GPU_THROTTLE_HW_THERMAL },
        { "reason_of_a_newer_chip", GPU_THROTTLE_OTHER },
    };
    static const char FOLDER[] = "sys/class/drm/card1/device/tile0/gt0/freq0/throttle/";
    char name[160];
    snprintf(name, sizeof name, "%sstatus", FOLDER);
    root_write(&r, name, "1\n");
    for (size_t i = 0; i < COUNT_OF(REASONS); i++) {
        snprintf(name, sizeof name, "%s%s", FOLDER, REASONS[i].file);
        root_write(&r, name, "1\n");
        sample(&r);
        assert_int_equal(gpu[1].throttle_reasons, REASONS[i].ours);
        root_write(&r, name, "0\n");
    }
    root_write(&r, "sys/class/drm/card1/device/hwmon/hwmon6/power1_max", "0\n"); /* switched off */
    sample(&r);
    CHECK_NAN(gpu[1].power_limit_watts);
    root_remove(&r);
}

/* ---------------------------------------------------------------- one of several */

static void figures_of_one_gpu(void **state)
{
    (void)state;
    struct root r = root_get("nvidia-box");
    struct telemetry *t;
    struct err why;
    CHECK_OK(telemetry_open(&t, r.path, &why));
    telemetry_sample(t, row);
    const int n = telemetry_gpus(t, gpu, MACHINE_GPUS);
    assert_int_equal(n, 4);
    const double all = row[METRIC_GPU_POWER];
    double sum = 0;
    for (int i = 0; i < n; i++) {
        char place[sizeof gpu[i].bus];
        for (size_t k = 0; k < sizeof place; k++)
            place[k] = (char)toupper((unsigned char)gpu[i].bus[k]); /* as some drivers spell it */
        telemetry_select_gpu(t, place);
        telemetry_sample(t, row);
        CHECK_NEAR(row[METRIC_GPU_POWER], gpu[i].power_watts, 1e-9);
        CHECK_NEAR(row[METRIC_GPU_MEM_USED], gpu[i].mem_used_bytes, 0);
        if (isnan(gpu[i].busy_ratio)) /* one that is cut into parts: nor do the others' stand for it */
            CHECK_NAN(row[METRIC_GPU_BUSY]);
        else
            CHECK_NEAR(row[METRIC_GPU_BUSY], gpu[i].busy_ratio, 1e-12);
        sum += row[METRIC_GPU_POWER];
    }
    CHECK_NEAR(sum, all, 1e-9);
    static const char *const NOBODYS[] = { "", "0000:00:00.0" };
    for (size_t i = 0; i < COUNT_OF(NOBODYS); i++) {
        telemetry_select_gpu(t, NOBODYS[i]);
        telemetry_sample(t, row);
        CHECK_NAN(row[METRIC_GPU_POWER]);
        CHECK_NAN(row[METRIC_GPU_BUSY]);
        CHECK_NAN(row[METRIC_GPU_THROTTLE]);
    }
    telemetry_select_gpu(t, NULL);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_GPU_POWER], all, 1e-9);
    telemetry_close(t);
}

/* ---------------------------------------------------------------- OpenCL */

static void opencl_answers(const struct root *r)
{
    struct gpu_library *l;
    struct err why;
    setenv("QDYNO_OPENCL", FAKE_OPENCL, 1);
    CHECK_OK(gpu_library_open(&l, GPU_VENDOR_OPENCL.library, "", &why));
    assert_int_equal(l->devices, 2); /* a platform with nothing but a processor is passed over */
    json_t *answers = gpu_library_record(l, true);
    gpu_library_close(l);
    unsetenv("QDYNO_OPENCL");
    char *text = json_line(answers);
    root_write(r, "opencl.json", text);
    free(text);
    json_decref(answers);
}

static void opencl_adds_what_nobody_lists(void **state)
{
    (void)state;
    struct root board = root_copy("arm-board"), box = root_copy("amd-gpu-box");
    struct machine was = detect(board.path);
    opencl_answers(&board);
    opencl_answers(&box);
    struct machine m = detect(board.path);
    assert_int_equal(m.gpus, 2);
    assert_string_equal(m.gpu[0].vendor, "arm");
    assert_string_equal(m.gpu[0].name, "Mali-G610");
    assert_string_equal(m.gpu[0].driver, "r38p1");
    assert_string_equal(m.gpu[0].source, "opencl");
    assert_int_equal(m.gpu[0].memory_bytes, 4000000000);
    assert_string_equal(m.gpu[1].vendor, "amd");
    assert_string_equal(m.gpu[1].bus, "0000:03:00.0");
    assert_string_equal(m.id, was.id); /* an installed program is no other machine */
    assert_int_equal(sample(&board), 2);
    CHECK_NEAR(gpu[0].mem_total_bytes, 4e9, 0);
    CHECK_NAN(gpu[0].mem_used_bytes);
    CHECK_NAN(gpu[0].busy_ratio);
    CHECK_NAN(gpu[0].power_watts);
    CHECK(!gpu[0].throttle_known);
    CHECK_EQ(gpu[0].processes, -1);

    m = detect(box.path); /* the AMD card has a source of its own */
    assert_int_equal(m.gpus, 2);
    assert_string_equal(m.gpu[0].source, "amdgpu");
    assert_string_equal(m.gpu[1].name, "Mali-G610");
    root_remove(&board);
    root_remove(&box);

    setenv("QDYNO_OPENCL", FAKE_OPENCL, 1); /* and through the library itself */
    m = detect("");
    CHECK_LE(2, m.gpus);
    assert_string_equal(m.gpu[m.gpus - 2].name, "Mali-G610");
    setenv("QDYNO_OPENCL", "libc.so.6", 1);
    m = detect("");
    for (int i = 0; i < m.gpus; i++) CHECK_STR_NE(m.gpu[i].source, "opencl");
    unsetenv("QDYNO_OPENCL");
}

/* Cards of the same make in two sources: by their place on the bus, not by their vendor. */
static void a_second_card_is_told_by_its_place(void **state)
{
    (void)state;
    struct root box = root_copy("amd-gpu-box");
    opencl_answers(&box);
    root_write(&box, "sys/class/drm/card0/device/uevent",
               "DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:41:00.0\n");
    struct machine m = detect(box.path);
    assert_int_equal(m.gpus, 3);
    root_write(&box, "sys/class/drm/card0/device/uevent", "DRIVER=amdgpu\nPCI_ID=1002:744C\n");
    m = detect(box.path); /* without a bus address a device of the same vendor counts as the same card */
    assert_int_equal(m.gpus, 2);
    root_remove(&box);
}

int main(void)
{
    setenv("QDYNO_NVML", "/nonexistent", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_an_amd_card),
        cmocka_unit_test(gpu_metrics_is_believed_where_it_is_known),
        cmocka_unit_test(rocm_fills_what_the_files_lack),
        cmocka_unit_test(every_field_of_intel_cards),
        cmocka_unit_test(opencl_adds_what_nobody_lists),
        cmocka_unit_test(figures_of_one_gpu),
        cmocka_unit_test(a_second_card_is_told_by_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
