/* Proves: detection reads each recorded machine correctly (names, ISA from flags, topology, caches,
 * control group limits, GPUs, power). The fingerprint does not change with properties that may change
 * between boots, and differs with the hardware. Settings are read in all their forms. A machine survives
 * JSON. Damaged or missing files give unknown values, never a crash. */
#include "tests/telemetry/roots.h"

#include <ftw.h>
#include <math.h>

#include "kernels/kernels.h"
#include "telemetry/gpu/gpu_vendor.h"
#include "telemetry/machine/machine.h"
#include "telemetry/machine/machine_parts.h"

#define MIB        (INT64_C(1) << 20)
#define AVX512_ALL (ISA_SSE41 | ISA_AVX2 | ISA_AVX512)

/* What detection must say of each folder of tests/data/machines; -1 and NAN: unknown or no limit. */
static const struct expected {
    const char *root, *name_short, *hypervisor, *governor;
    uint32_t isa;
    int sockets, cores, processors, numa;
    int64_t l1, l2, l3, available, cgroup_memory;
    double cgroup_cpus;
    bool has_battery, on_battery;
    int gpus;
    const char *gpu_vendor, *gpu_driver;
    int64_t gpu_memory;
} EXPECTED[] = {
    { "amx-server",
      "Xeon 2c AMX·VNNI·BF16 23.6G no GPU",
      "unnamed",
      "",
      AVX512_ALL | ISA_AVX512VNNI | ISA_AVX512BF16 | ISA_AMX | ISA_AVXVNNI,
      1,
      2,
      2,
      1,
      48 << 10,
      2 * MIB,
      300 * MIB,
      -2,
      -1,
      NAN,
      false,
      false,
      0,
      NULL,
      NULL,
      -1 },
    { "avx2-laptop",
      "Core i5-8265U 4c AVX2 15.5G no GPU",
      "",
      "powersave",
      ISA_SSE41 | ISA_AVX2,
      1,
      4,
      8,
      1,
      32 << 10,
      256 << 10,
      6 * MIB,
      INT64_C(9876544) << 10,
      -1,
      NAN,
      true,
      true,
      0,
      NULL,
      NULL,
      -1 },
    { "amd-gpu-box",
      "Ryzen 5 3600 6c AVX2 31.3G Radeon RX 7900 XT",
      "",
      "schedutil",
      ISA_SSE41 | ISA_AVX2,
      1,
      6,
      12,
      1,
      32 << 10,
      512 << 10,
      32 * MIB,
      INT64_C(28000000) << 10,
      -1,
      NAN,
      false,
      false,
      1,
      "amd",
      "amdgpu",
      INT64_C(25753026560) },
    { "intel-gpu-laptop",
      "Core i3-1115G4 2c VNNI 7.58G intel GPU 8086:9A78 +1",
      "",
      "powersave",
      AVX512_ALL | ISA_AVX512VNNI,
      1,
      2,
      4,
      -1,
      48 << 10,
      1280 << 10,
      6 * MIB,
      INT64_C(5000000) << 10,
      -1,
      NAN,
      true,
      false,
      2,
      "intel",
      "i915",
      -1 },
    { "cgroup-container",
      "EPYC 7B13 8c AVX2 62.8G no GPU",
      "google",
      "",
      ISA_SSE41 | ISA_AVX2,
      1,
      8,
      16,
      -1,
      -1,
      -1,
      -1,
      2048 * MIB - 1500000000 + 400000000,
      2048 * MIB,
      1.5,
      false,
      false,
      0,
      NULL,
      NULL,
      -1 },
    { "cgroup1-container",
      "Xeon 4c AVX512 29.4G no GPU",
      "xen",
      "",
      AVX512_ALL,
      1,
      4,
      8,
      -1,
      -1,
      -1,
      -1,
      4096 * MIB - 1073741824 + 73741824,
      4096 * MIB,
      3,
      false,
      false,
      0,
      NULL,
      NULL,
      -1 },
    { "nvidia-box",
      "Xeon Gold 6148 4c AVX512 125G NVIDIA A100-PCIE-40GB +3",
      "",
      "performance",
      AVX512_ALL,
      2,
      4,
      4,
      2,
      32 << 10,
      1 * MIB,
      55 * MIB,
      INT64_C(120000000) << 10,
      -1,
      NAN,
      false,
      false,
      4,
      "nvidia",
      "550.54.15",
      INT64_C(40) << 30 },
    { "numa-server",
      "EPYC 7763 128c AVX2 0.98T no GPU",
      "",
      "performance",
      ISA_SSE41 | ISA_AVX2,
      2,
      128,
      256,
      8,
      32 << 10,
      512 << 10,
      512 * MIB,
      INT64_C(1003214848) << 10,
      -1,
      NAN,
      false,
      false,
      0,
      NULL,
      NULL,
      -1 },
    { "arm-board",
      "Cortex-A76 4c DOTPROD 7.88G no GPU",
      "",
      "ondemand",
      ISA_NEON | ISA_DOTPROD,
      1,
      4,
      4,
      -1,
      64 << 10,
      512 << 10,
      2 * MIB,
      INT64_C(7000000) << 10,
      -1,
      NAN,
      false,
      false,
      0,
      NULL,
      NULL,
      -1 },
};

static void recorded_machines_are_read_right(void **state)
{
    (void)state;
    struct err why;
    for (size_t i = 0; i < COUNT_OF(EXPECTED); i++) {
        const struct expected *e = &EXPECTED[i];
        struct root r = root_get(e->root);
        struct machine m;
        char text[256];
        CHECK_OK(machine_detect(&m, r.path, &why));
        assert_string_equal(machine_short(&m, text, sizeof text), e->name_short);
        assert_string_equal(m.hypervisor, e->hypervisor);
        assert_string_equal(m.governor, e->governor);
        assert_int_equal(m.isa, e->isa);
        assert_int_equal(m.sockets, e->sockets);
        assert_int_equal(m.cores, e->cores);
        assert_int_equal(m.processors, e->processors);
        assert_int_equal(m.numa_nodes, e->numa);
        assert_int_equal(m.cache_bytes[0], e->l1);
        assert_int_equal(m.cache_bytes[1], e->l2);
        assert_int_equal(m.cache_bytes[2], e->l3);
        CHECK(e->available == -2 ? m.memory_available_bytes > 0 : m.memory_available_bytes == e->available);
        assert_int_equal(m.cgroup_memory_bytes, e->cgroup_memory);
        CHECK(isnan(e->cgroup_cpus) ? isnan(m.cgroup_cpus) : m.cgroup_cpus == e->cgroup_cpus);
        assert_int_equal(m.has_battery, e->has_battery);
        assert_int_equal(m.on_battery, e->on_battery);
        assert_int_equal(m.gpus, e->gpus);
        if (e->gpus) {
            assert_string_equal(m.gpu[0].vendor, e->gpu_vendor);
            assert_string_equal(m.gpu[0].driver, e->gpu_driver);
            assert_int_equal(m.gpu[0].memory_bytes, e->gpu_memory);
            assert_int_equal(m.gpu[0].compute_major, !strcmp(e->root, "nvidia-box") ? 8 : -1);
        }
        assert_int_equal(strlen(m.id), 12);
        CHECK(m.kernel[0]);
        CHECK(m.host[0]);
        CHECK(m.os[0]);
        CHECK(str_starts(m.kernel, "Linux "));
    }
}

static void this_machine_is_known(void **state)
{
    (void)state;
    struct machine m;
    struct err why;
    CHECK_OK(machine_detect(&m, "", &why));
    CHECK_LE(1, m.processors);
    CHECK_LE(1, m.cores);
    CHECK_LE(1, m.sockets);
    CHECK_LT(0, m.memory_bytes);
    CHECK_LT(0, m.memory_available_bytes);
    CHECK_LE(m.memory_available_bytes, m.memory_bytes);
    CHECK(m.cpu[0]);
    CHECK(m.host[0]);
    assert_int_equal(m.isa, isa_detect());
}

static struct machine detect(const struct root *r)
{
    struct machine m;
    struct err why;
    CHECK_OK(machine_detect(&m, r->path, &why));
    return m;
}

static void fingerprint_follows_the_hardware_only(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    struct machine was = detect(&r);
    /* what changes between boots: host, kernel, a per cent of memory, the governor, the battery */
    root_write(&r, "proc/sys/kernel/hostname", "renamed\n");
    root_write(&r, "proc/sys/kernel/osrelease", "7.0.0\n");
    root_write(&r, "proc/meminfo", "MemTotal: 16084000 kB\nMemAvailable: 1 kB\n");
    root_write(&r, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    root_write(&r, "sys/class/power_supply/AC/online", "1\n");
    struct machine now = detect(&r);
    assert_string_equal(now.id, was.id);
    CHECK(!now.on_battery);
    assert_string_equal(now.governor, "performance");
    /* what does not: half of the memory gone, a new GPU */
    root_write(&r, "proc/meminfo", "MemTotal: 8042000 kB\n");
    assert_string_not_equal(detect(&r).id, was.id);
    root_write(&r, "proc/meminfo", "MemTotal: 16084000 kB\n");
    root_write(&r, "sys/class/drm/card0/device/vendor", "0x1002\n");
    assert_string_not_equal(detect(&r).id, was.id);
    root_remove(&r);
    /* and no two of our machines share one */
    for (size_t i = 0; i < COUNT_OF(EXPECTED); i++)
        for (size_t k = 0; k < i; k++) {
            struct root a = root_get(EXPECTED[i].root), b = root_get(EXPECTED[k].root);
            assert_string_not_equal(detect(&a).id, detect(&b).id);
        }
}

static void json_keeps_everything(void **state)
{
    (void)state;
    struct err why;
    for (size_t i = 0; i < COUNT_OF(EXPECTED); i++) {
        struct root r = root_get(EXPECTED[i].root);
        struct machine m = detect(&r), back;
        json_t *object = machine_to_json(&m), *again = NULL;
        char *line = json_line(object);
        CHECK_OK(json_parse(&again, line, strlen(line), &why));
        CHECK_OK(machine_from_json(&back, again, &why));
        json_t *second = machine_to_json(&back);
        CHECK(json_equal(object, second));
        assert_int_equal(back.isa, m.isa);
        assert_int_equal(back.gpus, m.gpus);
        CHECK_EQ(json_is_null(json_object_get(object, "governor")), !m.governor[0]);
        CHECK_EQ(json_is_null(json_object_get(object, "cgroup_memory_bytes")), (m.cgroup_memory_bytes < 0));
        json_decref(object);
        json_decref(again);
        json_decref(second);
        free(line);
    }
}

static void bad_json_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const char *const BAD[] = { "[]", "{\"schema\":99}", "{\"isa\":[\"avx9\"]}", "{\"isa\":[1]}" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct machine m;
        struct err why = { 0 };
        json_t *object = NULL;
        CHECK_OK(json_parse(&object, BAD[i], strlen(BAD[i]), &why));
        assert_int_equal(machine_from_json(&m, object, &why), ERR_FORMAT);
        CHECK(why.message[0]);
        json_decref(object);
    }
    /* an empty object is a machine of which nothing is known */
    struct machine m;
    struct err why;
    json_t *object = json_object();
    CHECK_OK(machine_from_json(&m, object, &why));
    CHECK_EQ(m.cores, -1);
    CHECK_EQ(m.memory_bytes, -1);
    CHECK_NAN(m.cgroup_cpus);
    CHECK_EQ(m.gpus, 0);
    CHECK(!m.isa);
    char text[128];
    assert_string_equal(machine_short(&m, text, sizeof text), "unknown CPU n/a no GPU");
    json_decref(object);
}

static void flags_are_whole_words(void **state)
{
    (void)state;
    assert_int_equal(machine_isa_from_flags(""), 0);
    assert_int_equal(machine_isa_from_flags("fpu sse4_1x avx avx512_vnni"), 0);
    assert_int_equal(machine_isa_from_flags("avx2 fma f16c"), 0); /* BMI2 is missing */
    assert_int_equal(machine_isa_from_flags("bmi2 f16c fma avx2"), ISA_AVX2);
    assert_int_equal(machine_isa_from_flags("amx_bf16 amx_tile amx_int8"), ISA_AMX);
}

static void cgroup_limits_come_from_the_tightest_level(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    root_write(&r, "sys/fs/cgroup/user.slice/memory.max", "4294967296\n");
    root_write(&r, "sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "8589934592\n");
    root_write(&r, "sys/fs/cgroup/user.slice/cpu.max", "250000 50000\n");
    root_write(&r, "sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope/cpuset.cpus.effective", "0-5\n");
    struct machine m = detect(&r);
    assert_int_equal(m.cgroup_memory_bytes, INT64_C(4294967296));
    CHECK_NEAR(m.cgroup_cpus, 5, 0);
    /* a limit above the machine's memory limits nothing */
    root_write(&r, "sys/fs/cgroup/user.slice/memory.max", "99999999999999\n");
    root_write(&r, "sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "99999999999999\n");
    assert_int_equal(detect(&r).cgroup_memory_bytes, -1);
    root_remove(&r);
}

static const char *damage; /* what every file becomes: nftw takes no argument */

static int damage_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)at;
    if (kind != FTW_F) return 0;
    unlink(path); /* some file systems wait for the disk when a file is cut and written again */
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    fputs(damage, f);
    return fclose(f);
}

static void garbage_gives_unknown(void **state)
{
    (void)state;
    static const char *const GARBAGE[] = { "",
                                           "\n",
                                           "garbage",
                                           "-1",
                                           "99999999999999999999999",
                                           ":::\n= =\ncpu cpu cpu\nprocessor\t: x\nMemTotal: x kB\n",
                                           "nan",
                                           "1e999",
                                           "0-99999999999\n",
                                           "3-1" };
    for (size_t k = 0; k < COUNT_OF(EXPECTED); k++) {
        struct root r = root_copy(EXPECTED[k].root);
        for (size_t i = 0; i < COUNT_OF(GARBAGE); i++) {
            struct err why;
            struct machine m;
            char text[256];
            damage = GARBAGE[i];
            assert_int_equal(nftw(r.path, damage_file, 16, FTW_PHYS), 0);
            CHECK_OK(machine_detect(&m, r.path, &why));
            assert_int_equal(m.memory_bytes, -1);
            assert_int_equal(m.cgroup_memory_bytes, -1);
            assert_int_equal(m.isa, 0);
            machine_short(&m, text, sizeof text);
            json_decref(machine_to_json(&m));
        }
        root_remove(&r);
    }
}

static const char *setting(const json_t *state, const char *group, const char *key)
{
    const json_t *g = json_object_get(state, group);
    assert_non_null(g);
    assert_non_null(json_object_get(g, key)); /* null when unknown, never left out */
    return json_get_str(g, key, "");
}

static void settings_are_read_as_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *group, *key, *want;
    } CASES[] = {
        { "proc/sys/kernel/osrelease", "6.9.1\n", "kernel", "release", "6.9.1" },
        { "proc/cmdline", "root=/dev/sda quiet mitigations=off memtest isolcpus=2-3 nosmt\n", "kernel",
          "cmdline", "mitigations=off isolcpus=2-3 nosmt" },
        { "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n", "kernel",
          "transparent_hugepage", "madvise" },
        { "sys/kernel/mm/transparent_hugepage/defrag", "no brackets\n", "kernel",
          "transparent_hugepage_defrag", "" },
        { "proc/sys/vm/swappiness", "60\n", "kernel", "swappiness", "60" },
        { "sys/devices/system/cpu/intel_pstate/no_turbo", "1\n", "governor", "turbo", "off" },
        { "sys/devices/system/cpu/intel_pstate/no_turbo", "0\n", "governor", "turbo", "on" },
        { "sys/devices/system/cpu/intel_pstate/no_turbo", NULL, "governor", "turbo", "" },
        { "sys/devices/system/cpu/cpufreq/boost", "1\n", "governor", "turbo", "on" },
        { "sys/devices/system/cpu/cpufreq/boost", "0\n", "governor", "turbo", "off" },
        { "sys/devices/system/cpu/cpufreq/boost", "2\n", "governor", "turbo", "" },
        { "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n", "governor", "governor",
          "performance" },
        { "sys/devices/system/cpu/smt/control", "forceoff\n", "governor", "smt", "forceoff" },
        { "proc/cpuinfo", "processor\t: 0\n", "microcode", "version", "" },
        { "proc/cpuinfo", "microcode\t: 0x2b0004\n", "microcode", "version", "0x2b0004" },
        { "sys/devices/system/cpu/cpu0/microcode/version", "0x2b0005\n", "microcode", "version", "0x2b0005" },
    };
    struct root r = root_copy("arm-board");
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        root_write(&r, CASES[i].file, CASES[i].text);
        json_t *s = machine_state_to_json(r.path);
        assert_string_equal(setting(s, CASES[i].group, CASES[i].key), CASES[i].want);
        json_decref(s);
    }
    json_t *s = machine_state_to_json(r.path);
    CHECK(json_is_null(json_object_get(json_object_get(s, "kernel"), "mitigations")));
    json_decref(s);
    root_write(&r, "sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n");
    root_write(&r, "sys/devices/system/cpu/vulnerabilities/retbleed", "Mitigation: IBRS\n");
    s = machine_state_to_json(r.path);
    const json_t *m = json_object_get(json_object_get(s, "kernel"), "mitigations");
    assert_int_equal(json_object_size(m), 2);
    assert_string_equal(json_get_str(m, "retbleed", ""), "Mitigation: IBRS");
    json_decref(s);
    root_remove(&r);

    s = machine_state_to_json("/nowhere"); /* nothing can be read: all unknown, no failure */
    assert_string_equal(setting(s, "kernel", "release"), "");
    assert_string_equal(setting(s, "microcode", "version"), "");
    json_decref(s);
}

static void no_proc_is_an_error_that_says_so(void **state)
{
    (void)state;
    struct machine m;
    struct err why = { 0 };
    assert_int_equal(machine_detect(&m, "/nonexistent", &why), ERR_IO);
    CHECK_CONTAINS(why.message, "/nonexistent/proc/cpuinfo");
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* A machine with 1000 ticks between two readings: names with spaces and parentheses, several processes of one
 * name, a new one, one that ended, and this program with a worker, which are left out. */
static void busy_programs_are_named(void **state)
{
    (void)state;
    struct process_list before, after;
    char root[] = "/tmp/qdyno-busiest-XXXXXX", path[64], text[200];
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/proc", root);
    assert_int_equal(mkdir(path, 0700), 0);
    static const char *const PIDS[] = { "10", "11", "12", "13", "20", "21", "30", "31" };
    for (size_t i = 0; i < COUNT_OF(PIDS); i++) {
        snprintf(path, sizeof path, "%s/proc/%s", root, PIDS[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    write_file(root, "proc/stat", "cpu 1000 0 500 8000 0 0 0 0\n");
    write_file(root, "proc/10/stat", "10 (cc1) R 1 1 1 0 -1 0 0 0 0 0 100 50 0 0\n");
    write_file(root, "proc/11/stat", "11 (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 5 5 0 0\n");
    write_file(root, "proc/13/stat", "13 (idle) S 1 1 1 0 -1 0 0 0 0 0 70 5 0 0\n");
    write_file(root, "proc/20/stat", "20 (qdyno) S 1 1 1 0 -1 0 0 0 0 0 10 10 0 0\n");
    write_file(root, "proc/30/stat", "30 (qdyno) S 1 1 1 0 -1 0 0 0 0 0 10 10 0 0\n");
    assert_true(process_list_read(&before, root));
    write_file(root, "proc/stat", "cpu 1600 0 600 8300 0 0 0 0\n");
    write_file(root, "proc/10/stat", "10 (cc1) R 1 1 1 0 -1 0 0 0 0 0 300 100 0 0\n");   /* 250 */
    write_file(root, "proc/12/stat", "12 (cc1) R 1 1 1 0 -1 0 0 0 0 0 30 20 0 0\n");     /* 50, new */
    write_file(root, "proc/11/stat", "11 (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 105 5 0 0\n"); /* 100 */
    write_file(root, "proc/20/stat", "20 (qdyno) S 1 1 1 0 -1 0 0 0 0 0 20 20 0 0\n");   /* 20, own */
    write_file(root, "proc/21/stat", "21 (qdyno) R 20 1 1 0 -1 0 0 0 0 0 90 10 0 0\n");  /* 100, its worker */
    write_file(root, "proc/30/stat", "30 (qdyno) S 1 1 1 0 -1 0 0 0 0 0 20 20 0 0\n"); /* another one: 20, */
    write_file(root, "proc/31/stat", "31 (exe) R 30 1 1 0 -1 0 0 0 0 0 30 10 0 0\n"); /* and its worker: 40 */
    snprintf(path, sizeof path, "%s/proc/31/exe", root);
    assert_int_equal(symlink("/usr/bin/qdyno", path), 0); /* started through /proc/self/exe */
    assert_true(process_list_read(&after, root));
    assert_string_equal(
        process_lists_compare(text, sizeof text, &before, &after, &(struct own_processes){ 1, { 20 } }),
        "cc1 30 %, a) b (c 10 %, another qdyno 6 %, processes that ended meanwhile 12 %");
    /* a server that an arm measures is no other program, and neither is its worker */
    assert_string_equal(
        process_lists_compare(text, sizeof text, &before, &after, &(struct own_processes){ 2, { 20, 30 } }),
        "cc1 30 %, a) b (c 10 %, processes that ended meanwhile 12 %");
    free(before.row);
    free(after.row);
    assert_string_equal(
        machine_busiest(text, sizeof text, "/nowhere", &(struct own_processes){ 1, { 20 } }, 1), "");
    snprintf(path, sizeof path, "rm -r %s", root);
    assert_int_equal(system(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_read_as_they_are),
        cmocka_unit_test(recorded_machines_are_read_right),
        cmocka_unit_test(this_machine_is_known),
        cmocka_unit_test(fingerprint_follows_the_hardware_only),
        cmocka_unit_test(json_keeps_everything),
        cmocka_unit_test(bad_json_is_refused_with_a_reason),
        cmocka_unit_test(flags_are_whole_words),
        cmocka_unit_test(cgroup_limits_come_from_the_tightest_level),
        cmocka_unit_test(garbage_gives_unknown),
        cmocka_unit_test(no_proc_is_an_error_that_says_so),
        cmocka_unit_test(busy_programs_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
