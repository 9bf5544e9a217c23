/* Proves: this machine, recorded and opened again, is the same machine (fingerprint, and JSON except for
 * masked values); the folder contains nothing private, and is complete or absent; answers of libraries
 * replay through the same code; the packed text survives writing and reading, and paths that lead out of
 * the folder are refused; every shipped machine states its origin, and detecting it gives exactly its
 * golden text. */
#include "tests/telemetry/roots.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/recording/recording.h"
#include "telemetry/recording/recording_files.h"
#include "telemetry/recording/recording_mask.h"
#include "telemetry/sensors/sensors.h"
#include "base/sysfs/sysfs.h"

static char *read_text(const char *dir, const char *name)
{
    char path[PATH_MAX], *text = NULL;
    struct err why;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(file_read(&text, NULL, path, 64 << 20, &why));
    return text;
}

/* ---------------------------------------------------------------- many files in one text */

static void files_survive_their_text(void **state)
{
    (void)state;
    struct recorded_files f = { 0 };
    struct str text = { 0 };
    struct err why;
    const char bytes[] = { 0x78, 0, 1, 3, ' ', '\n' };
    recorded_files_add(&f, "/proc/b", "two\nlines", 9);
    recorded_files_add(&f, "/proc/a", "one", 3);
    recorded_files_add(&f, "/proc/a", "one more\n", 9); /* read again, further */
    recorded_files_add(&f, "/proc/a", "another", 7);    /* changed since: the first stays */
    recorded_files_add(&f, "/proc/empty", "", 0);
    recorded_files_add(&f, "/sys/fs/cgroup/unified", NULL, 0);
    recorded_files_add(&f, "/sys/class", NULL, 0); /* there by its file */
    recorded_files_add(&f, "/sys/class/x", bytes, sizeof bytes);
    recorded_files_append(&f, "/usr/ids", "1\n", 2);
    recorded_files_append(&f, "/usr/ids", "2\n", 2);
    recorded_files_append(&f, "/usr/ids", "1\n", 2);
    for (int i = 11; i >= 0; i--) {
        char path[96];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        recorded_files_add(&f, path, i == 5 ? "1\n" : "0\n", 2);
    }
    recorded_files_write(&f, &text);
    CHECK(!f.failed);
    assert_string_equal(str_text(&text),
                        "/proc/a\n one more\n"
                        "/proc/b\n two\n lines\n"
                        "/proc/empty\n \n"
                        "/sys/class/x\n:78000103200a\n"
                        "/sys/devices/system/cpu/cpu[0-4,6-11]/topology/physical_package_id\n 0\n"
                        "/sys/devices/system/cpu/cpu5/topology/physical_package_id\n 1\n"
                        "/sys/fs/cgroup/unified/\n"
                        "/usr/ids\n 1\n 2\n");
    struct root r = root_empty();
    char buf[64];
    CHECK_OK(recorded_files_unpack(str_text(&text), r.path, &why));
    assert_int_equal(sys_read(r.path, buf, sizeof buf, "/proc/b"), 9);
    assert_string_equal(buf, "two\nlines");
    assert_int_equal(sys_read(r.path, buf, sizeof buf, "/proc/empty"), 0);
    assert_int_equal(sys_read_bytes(r.path, buf, sizeof buf, "/sys/class/x"), sizeof bytes);
    assert_memory_equal(buf, bytes, sizeof bytes);
    CHECK(sys_exists(r.path, "/sys/fs/cgroup/unified"));
    for (int i = 0; i < 12; i++)
        assert_int_equal(sys_integer(r.path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i),
                         i == 5);
    root_remove(&r);
    recorded_files_free(&f);
    str_free(&text);
}

static void paths_may_share_their_content(void **state)
{
    (void)state;
    struct root r = root_empty();
    struct err why;
    char buf[16];
    CHECK_OK(recorded_files_unpack("# two\n/proc/a\n/sys/b[0,2-3]/c\n x\n\n/etc/d\n y\n", r.path, &why));
    sys_read(r.path, buf, sizeof buf, "/proc/a");
    assert_string_equal(buf, "x");
    sys_read(r.path, buf, sizeof buf, "/sys/b3/c");
    assert_string_equal(buf, "x");
    CHECK(!sys_exists(r.path, "/sys/b1"));
    sys_read(r.path, buf, sizeof buf, "/etc/d");
    assert_string_equal(buf, "y");
    root_remove(&r);
}

static void damaged_texts_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } CASES[] = {
        { "/proc/../etc/passwd\n x\n", "line 1: '/proc/../etc/passwd' is not below" },
        { "/proc/a/..\n x\n", "is not below" },
        { "/home/me\n x\n", "line 1: '/home/me' is not below" },
        { "/procx\n x\n", "is not below" },
        { " x\n", "line 1: content without a path" },
        { "/proc/a\n x\nwhat\n", "line 3: expected a path" },
        { "/proc/a\n:0\n", "line 2: expected pairs" },
        { "/proc/a\n:0g\n", "line 2: expected pairs" },
        { "/proc/a\n x\n/proc/a\n y\n", "'/proc/a' occurs twice" },
        { "/proc/cpu[0-]\n x\n", "'[0-]' is not a list" },
        { "/proc/cpu[0-99999]\n x\n", "is not a list" },
        { "/proc/a\n x\n/proc/a/b\n y\n", "cannot make folder" }, /* a file cannot hold another */
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct root r = root_empty();
        struct err why = { 0 };
        CHECK(recorded_files_unpack(CASES[i].text, r.path, &why));
        if (!strstr(why.message, CASES[i].says)) fail_msg("case %zu: %s", i, why.message);
        root_remove(&r);
    }
}

/* 40 KB of text that would be 320 MB of files. */
static void a_text_that_swells_is_refused(void **state)
{
    (void)state;
    struct root r = root_empty();
    struct str text = { 0 };
    struct err why = { 0 };
    str_append(&text, "/proc/a[0-8191]\n ");
    for (int i = 0; i < 4000; i++) str_append(&text, "0123456789");
    str_append(&text, "\n");
    assert_int_equal(recorded_files_unpack(str_text(&text), r.path, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "256 MiB");
    CHECK(!sys_exists(r.path, "/proc")); /* before anything was written */
    str_free(&text);
    root_remove(&r);
}

/* Any bytes in files.txt give files below the folder, or an error. */
static void any_bytes_are_survived(void **state)
{
    (void)state;
    char *text = read_text(TEST_SOURCE_DIR "/tests/data/machines/cgroup-container", "files.txt");
    const size_t n = strlen(text);
    uint32_t random = 1;
    for (int round = 0; round < 60; round++) {
        struct root r = root_empty();
        char *damaged = strdup(text);
        for (int k = 0; k < 8; k++) {
            random = random * 1664525u + 1013904223u;
            damaged[random % n] = (char)("/ :[],-\n#.x0"[random >> 24 & 7] +
                                         (round & 1 ? 0 : (int)(random >> 16 & 3)));
        }
        damaged[round < 30 ? n * (size_t)(round + 1) / 30 : n] = '\0';
        recorded_files_unpack(damaged, r.path, NULL);
        struct machine m;
        machine_detect(&m, r.path, NULL);
        free(damaged);
        root_remove(&r);
        round += round > 20 ? 3 : 0; /* the later rounds hold more files */
    }
    free(text);
}

/* ---------------------------------------------------------------- masking */

static void private_things_are_masked(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text, *want_path, *want;
    } CASES[] = {
        { "/proc/sys/kernel/hostname", "ellens-laptop", NULL, "masked" },
        { "/sys/class/drm/card0/device/unique_id", "3f8a2b1c", NULL, "masked" },
        { "/proc/cpuinfo", "model\t: 1\nSerial\t\t: 100000003d1a9f\nx: 2\n", NULL,
          "model\t: 1\nSerial\t\t: masked\nx: 2\n" },
        { "/proc/driver/nvidia/gpus/0000:01:00.0/information",
          "Model: \t\t X\nGPU UUID: \t GPU-0a1b2c3d-1111-2222-3333-0123456789ab\n", NULL,
          "Model: \t\t X\nGPU UUID: \t GPU-00000000-0000-0000-0000-000000000000\n" },
        { "/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=0a1b quiet mitigations=off\n", NULL,
          "mitigations=off" },
        { "/proc/self/cgroup", "0::/user.slice/x.scope\n", NULL, "0::/user.slice/masked-" },
        { "/sys/fs/cgroup/memory/docker/4f2a/memory.max", "1\n", "/sys/fs/cgroup/memory/docker/masked-",
          "1\n" },
        { "/sys/fs/cgroup/memory.max", "1\n", "/sys/fs/cgroup/memory.max", "1\n" },
        { "/sys/fs/cgroup/unified", "", "/sys/fs/cgroup/unified", "" },
        { "/sys/fs/cgroup/me.slice", "", "/sys/fs/cgroup/masked-", "" },
        { "/etc/os-release", "PRETTY_NAME=\"Debian\"\n", NULL, "PRETTY_NAME=\"Debian\"\n" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct str path = { 0 }, text = { 0 };
        recording_mask_path(CASES[i].path, &path);
        recording_mask_text(CASES[i].path, CASES[i].text, strlen(CASES[i].text), &text);
        const char *want_path = CASES[i].want_path ? CASES[i].want_path : CASES[i].path;
        CHECK(str_starts(str_text(&path), want_path));
        if (str_ends(CASES[i].want, "masked-")) /* and four digits of no meaning */
        {
            CHECK(str_starts(str_text(&text), CASES[i].want));
            CHECK_LACKS(str_text(&text), "x.scope");
        } else
            assert_string_equal(str_text(&text), CASES[i].want);
        str_free(&path);
        str_free(&text);
    }
    /* a group keeps one mask in the list of groups and in the paths, or detection would not find it */
    struct str list = { 0 }, path = { 0 };
    recording_mask_text("/proc/self/cgroup", "0::/a/b", 7, &list);
    recording_mask_path("/sys/fs/cgroup/a/b/memory.max", &path);
    char want[128];
    snprintf(want, sizeof want, "/sys/fs/cgroup%s/memory.max", str_text(&list) + 3);
    assert_string_equal(str_text(&path), want);
    str_free(&list);
    str_free(&path);
    CHECK(!recording_keeps("/proc/1234/stat"));
    CHECK(!recording_keeps("/proc/self/environ"));
    CHECK(recording_keeps("/proc/self/cgroup"));
    CHECK(recording_keeps("/proc/stat"));
    CHECK(!recording_keeps("/sys/class/kfd/kfd/proc/77/vram_1"));
}

/* ---------------------------------------------------------------- this machine */

static struct root record(bool private)
{
    struct root r = root_empty();
    struct err why;
    const size_t n = strlen(r.path);
    snprintf(r.path + n, sizeof r.path - n, "/machine");
    CHECK_OK(recording_make(r.path, private, NULL, &why));
    return r;
}

static void record_remove(struct root *r)
{
    *strrchr(r->path, '/') = '\0';
    root_remove(r);
}

/* What may differ: the name, and what is free right now. */
static json_t *comparable(const char *root)
{
    struct machine m;
    struct err why;
    CHECK_OK(machine_detect(&m, root, &why));
    json_t *o = machine_to_json(&m), *all = json_object();
    json_object_del(o, "host");
    json_object_del(o, "memory_available_bytes");
    json_put(all, "machine", o);
    json_t *settings = machine_state_to_json(root);
    json_put(all, "settings", settings);
    return all;
}

static void check_same(const json_t *a, const json_t *b)
{
    char *x = json_line(a), *y = json_line(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

static void this_machine_replays(void **state)
{
    (void)state;
    unsetenv("QDYNO_NVML");
    struct root r = record(false);
    struct recording back;
    struct machine was, now;
    struct err why;
    CHECK_OK(recording_open(&back, r.path, &why));
    assert_string_equal(json_get_str(back.about, "origin", ""), "recorded");
    CHECK(json_get_bool(back.about, "masked", false));
    CHECK(!back.ceilings);
    CHECK_OK(machine_detect(&was, "", &why));
    CHECK_OK(machine_detect(&now, back.root, &why));
    assert_string_equal(now.id, was.id);
    assert_string_equal(now.host, "masked");
    assert_int_equal(now.isa, was.isa); /* from the flags there, from CPUID here */
    json_t *here = comparable(""), *there = comparable(back.root);
    check_same(there, here);
    json_decref(here);
    json_decref(there);

    /* the sensors find what they need, too */
    struct telemetry *t;
    double row[METRIC_SENSOR_COUNT], live[METRIC_SENSOR_COUNT];
    CHECK_OK(telemetry_open(&t, back.root, &why));
    telemetry_sample(t, row);
    telemetry_close(t);
    CHECK_OK(telemetry_open(&t, "", &why));
    telemetry_sample(t, live);
    telemetry_close(t);
    static const enum metric_id FROM_FILES[] = { METRIC_MEM_USED,      METRIC_MEM_AVAILABLE,
                                                 METRIC_SWAP_USED,     METRIC_CPU_TEMPERATURE,
                                                 METRIC_CPU_FREQUENCY, METRIC_ON_BATTERY };
    for (size_t i = 0; i < COUNT_OF(FROM_FILES); i++)
        assert_int_equal(isnan(row[FROM_FILES[i]]), isnan(live[FROM_FILES[i]]));

    char unpacked[PATH_MAX];
    snprintf(unpacked, sizeof unpacked, "%s", back.root);
    recording_close(&back);
    CHECK(access(unpacked, F_OK)); /* nothing stays behind */
    record_remove(&r);
}

static void nothing_private_is_kept(void **state)
{
    (void)state;
    struct root r = record(false);
    char host[256];
    char *files = read_text(r.path, "files.txt");
    gethostname(host, sizeof host);
    struct str line = { 0 };
    str_printf(&line, "\n %s\n", host);
    CHECK_LACKS(files, str_text(&line));
    CHECK_CONTAINS(files, "/proc/sys/kernel/hostname\n masked\n");
    for (const char *p = files; (p = strstr(p, "\n/proc/")); p++)
        CHECK(p[7] < '0' || p[7] > '9'); /* no process */
    free(files);
    str_free(&line);
    record_remove(&r);

    r = record(true);
    files = read_text(r.path, "files.txt");
    CHECK_CONTAINS(files, host); /* as asked for */
    free(files);
    record_remove(&r);
}

static void a_folder_is_never_overwritten(void **state)
{
    (void)state;
    struct root r = root_empty();
    struct err why = { 0 };
    assert_int_equal(recording_make(r.path, false, NULL, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "already exists");
    struct stat st;
    CHECK(!stat(r.path, &st));
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/no/such/place", r.path);
    assert_int_equal(recording_make(path, false, NULL, &why), ERR_IO);
    snprintf(path, sizeof path, "%s/name/", r.path);
    assert_int_equal(recording_make(path, false, NULL, &why), ERR_USAGE);
    DIR *dir = opendir(r.path); /* nothing half-written */
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
    closedir(dir);
    assert_int_equal(n, 0);
    root_remove(&r);
}

/* ---------------------------------------------------------------- libraries */

static void answers_of_a_library_replay(void **state)
{
    (void)state;
    struct gpu_reading live[MACHINE_GPUS], again[MACHINE_GPUS];
    double row[METRIC_SENSOR_COUNT], row_again[METRIC_SENSOR_COUNT];
    struct telemetry *t;
    struct recording back;
    struct machine was, now;
    struct err why;
    setenv("QDYNO_NVML", FAKE_NVML, 1);
    setenv("QDYNO_FAKE_NVML", "throttled", 1);
    struct root r = record(false);
    CHECK_OK(machine_detect(&was, "", &why));
    CHECK_OK(telemetry_open(&t, "", &why));
    telemetry_sample(t, row);
    const int n = telemetry_gpus(t, live, MACHINE_GPUS);
    telemetry_close(t);
    CHECK_LE(2, n);

    setenv("QDYNO_NVML", "/nonexistent", 1); /* the library is not asked again */
    CHECK_OK(recording_open(&back, r.path, &why));
    CHECK_OK(machine_detect(&now, back.root, &why));
    assert_string_equal(now.id, was.id);
    CHECK_OK(telemetry_open(&t, back.root, &why));
    telemetry_sample(t, row_again);
    assert_int_equal(telemetry_gpus(t, again, MACHINE_GPUS), n);
    telemetry_close(t);
    for (int id = METRIC_GPU_BUSY; id <= METRIC_GPU_THROTTLE; id++)
        CHECK(row[id] == row_again[id] || (isnan(row[id]) && isnan(row_again[id])));
    for (int i = 0; i < n; i++) {
        assert_string_equal(again[i].name, live[i].name);
        assert_string_equal(again[i].bus, live[i].bus);
        assert_int_equal(again[i].throttle_reasons, live[i].throttle_reasons);
        assert_int_equal(again[i].processes, live[i].processes);
        CHECK_EQ(again[i].energy_joules, live[i].energy_joules);
    }
    CHECK(str_starts(again[0].uuid, "masked-"));
    CHECK(!str_starts(live[0].uuid, "masked-"));
    for (int i = 0; i < again[0].process_count; i++) {
        CHECK_LT(again[0].process[i].pid, 10);
        CHECK_GT(live[0].process[i].pid, 1000);
    }
    recording_close(&back);
    record_remove(&r);
    unsetenv("QDYNO_NVML");
    unsetenv("QDYNO_FAKE_NVML");
}

static void damaged_answers_mean_no_library(void **state)
{
    (void)state;
    static const char *const BAD[] = { "", "{", "[]", "{\"devices\":{}}", "{\"devices\":[]}" };
    static const char *const ODD[] = {
        "{\"devices\":[{}]}", "{\"devices\":[null]}",
        "{\"devices\":[{\"nvmlDeviceGetName\":7,\"nvmlDeviceGetMemoryInfo_v2\":[],\"nvmlDeviceGetUtilizationRates\":"
        "{\"gpu\":\"x\"},\"nvmlDeviceGetComputeRunningProcesses_v3\":[7,[],[1,null]],"
        "\"nvmlDeviceGetPowerUsage\":{\"error\":0},\"nvmlDeviceGetTemperature(0)\":{\"error\":\"x\"}}]}"
    };
    struct root r = root_copy("avx2-laptop");
    struct machine m;
    struct err why;
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        root_write(&r, "nvml.json", BAD[i]);
        CHECK_OK(machine_detect(&m, r.path, &why));
        assert_int_equal(m.gpus, 0);
    }
    for (size_t i = 0; i < COUNT_OF(ODD); i++) { /* a card of which nothing is known */
        struct telemetry *t;
        struct gpu_reading g;
        double row[METRIC_SENSOR_COUNT];
        root_write(&r, "nvml.json", ODD[i]);
        CHECK_OK(machine_detect(&m, r.path, &why));
        assert_int_equal(m.gpus, 1);
        assert_string_equal(m.gpu[0].name, "NVIDIA GPU 0");
        CHECK_OK(telemetry_open(&t, r.path, &why));
        telemetry_sample(t, row);
        assert_int_equal(telemetry_gpus(t, &g, 1), 1);
        CHECK_NAN(g.busy_ratio);
        CHECK_NAN(g.power_watts);
        CHECK_NAN(g.temperature_celsius);
        CHECK(!g.throttle_known);
        telemetry_close(t);
    }
    root_remove(&r);
}

/* ---------------------------------------------------------------- shipped machines */

/* A golden text without what is unknown is easier to read. */
static json_t *known_of(json_t *o)
{
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(o, next, key, v) if (json_is_null(v) ||
                                                  (json_is_array(v) && !json_array_size(v) &&
                                                   strcmp(key, "throttle_reasons"))) json_object_del(o, key);
    return o;
}

/* All that detection finds on a machine, and its GPUs at the first sample. */
static char *describe(const char *root)
{
    struct machine m;
    struct err why;
    struct telemetry *t;
    struct gpu_reading g[MACHINE_GPUS];
    double row[METRIC_SENSOR_COUNT];
    char text[256];
    json_t *o = json_object(), *gpus = json_array();
    CHECK_OK(machine_detect(&m, root, &why));
    json_put_str(o, "short", machine_short(&m, text, sizeof text));
    json_put(o, "machine", machine_to_json(&m));
    json_put(o, "settings", machine_state_to_json(root));
    CHECK_OK(telemetry_open(&t, root, &why));
    telemetry_sample(t, row);
    const int n = telemetry_gpus(t, g, MACHINE_GPUS);
    for (int i = 0; i < n; i++) json_array_append_new(gpus, known_of(gpu_reading_to_json(&g[i])));
    telemetry_close(t);
    json_put(o, "gpu_readings", gpus);
    char *out = json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12));
    json_decref(o);
    return out;
}

static void check_golden(const char *name, const char *got)
{
    char path[PATH_MAX];
    struct err why;
    snprintf(path, sizeof path, "%s/tests/golden/machine_%s.json", TEST_SOURCE_DIR, name);
    if (getenv("QDYNO_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "w");
        CHECK(f);
        CHECK_LT(0, fprintf(f, "%s\n", got));
        CHECK_EQ(fclose(f), 0);
        return;
    }
    char *want = NULL;
    if (file_read(&want, NULL, path, 1 << 20, &why))
        fail_msg("%s (QDYNO_UPDATE_GOLDEN=1 writes it)", why.message);
    if (str_ends(want, "\n")) want[strlen(want) - 1] = '\0';
    if (strcmp(want, got)) fail_msg("%s differs; detected now:\n%s", path, got);
    free(want);
}

static void shipped_machines_are_what_their_golden_text_says(void **state)
{
    (void)state;
    static const char *const MUST[] = { "amx-server", "avx2-laptop", "numa-server",      "cgroup-container",
                                        "nvidia-box", "amd-gpu-box", "intel-gpu-laptop", "arm-board" };
    bool seen[COUNT_OF(MUST)] = { false };
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/tests/data/machines", TEST_SOURCE_DIR);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.' || strchr(e->d_name, '.')) continue;
        char path[PATH_MAX];
        struct recording rec;
        struct err why;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        for (size_t i = 0; i < COUNT_OF(MUST); i++) seen[i] |= !strcmp(e->d_name, MUST[i]);
        CHECK_OK(recording_open(&rec, path, &why));
        const char *origin = json_get_str(rec.about, "origin", "");
        if (strcmp(origin, "recorded") && strcmp(origin, "described"))
            fail_msg("%s: recording.json must say origin recorded or described", e->d_name);
        if (!strcmp(origin, "described")) CHECK_LT(0, json_array_size(json_object_get(rec.about, "sources")));
        CHECK(*json_get_str(rec.about, "what", ""));
        char *got = describe(rec.root);
        check_golden(e->d_name, got);
        free(got);
        recording_close(&rec);
    }
    closedir(dir);
    for (size_t i = 0; i < COUNT_OF(MUST); i++)
        if (!seen[i]) fail_msg("no machine '%s'", MUST[i]);
}

/* The sensors find a shipped machine as detection does: the same memory, GPUs in the same order. */
static void shipped_machines_are_sampled(void **state)
{
    (void)state;
    static const char *const NAMES[] = {
        "amx-server",       "avx2-laptop", "numa-server", "nvidia-box",
        "intel-gpu-laptop", "amd-gpu-box", "arm-board",   "cgroup-container"
    };
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        struct root r = root_get(NAMES[i]);
        struct machine m;
        struct err why;
        struct telemetry *t;
        struct gpu_reading g[MACHINE_GPUS];
        double row[METRIC_SENSOR_COUNT], used = NAN;
        CHECK_OK(machine_detect(&m, r.path, &why));
        CHECK_OK(telemetry_open(&t, r.path, &why));
        for (int k = 0; k < 2; k++) telemetry_sample(t, row);
        CHECK_NEAR(row[METRIC_MEM_TOTAL], (double)m.memory_bytes, 0);
        CHECK_LT(0, row[METRIC_MEM_USED]);
        CHECK_LT(row[METRIC_MEM_USED], row[METRIC_MEM_TOTAL]);
        assert_int_equal(telemetry_gpus(t, g, MACHINE_GPUS), m.gpus);
        for (int k = 0; k < m.gpus; k++) {
            assert_string_equal(g[k].name, m.gpu[k].name);
            assert_string_equal(g[k].bus, m.gpu[k].bus);
            if (!isnan(g[k].mem_used_bytes)) used = (isnan(used) ? 0 : used) + g[k].mem_used_bytes;
        }
        /* counters of a recording never advance, so rates are unknown */
        static const enum metric_id RATES[] = { METRIC_CPU_BUSY, METRIC_CPU_POWER, METRIC_PSI_CPU,
                                                METRIC_SWAP_IN,  METRIC_DISK_READ, METRIC_NUMA_MISSES };
        for (size_t k = 0; k < COUNT_OF(RATES); k++) CHECK_NAN(row[RATES[k]]);
        for (int k = 0; k < m.gpus && !strcmp(NAMES[i], "intel-gpu-laptop"); k++) {
            CHECK_NAN(g[k].busy_ratio);
            CHECK_NAN(g[k].power_watts);
        }
        CHECK(isnan(used) ? isnan(row[METRIC_GPU_MEM_USED]) : row[METRIC_GPU_MEM_USED] == used);
        telemetry_close(t);
    }
}

/* The flags of the kernel and the raw leaves of the processor are two accounts of the same thing. */
static uint32_t reg(const json_t *doc, uint32_t leaf, int subleaf, const char *name)
{
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(doc, "cpuid"), i,
                       o) if (strtoul(json_get_str(o, "leaf", "1e9"), NULL, 16) == leaf &&
                              json_get_int(o, "subleaf", -1) ==
                                  subleaf) return (uint32_t)strtoul(json_get_str(o, name, "0"), NULL, 16);
    return 0;
}

static void check_cpuid(const json_t *doc, uint32_t isa)
{
    const uint32_t c1 = reg(doc, 1, 0, "ecx"), b7 = reg(doc, 7, 0, "ebx"), c7 = reg(doc, 7, 0, "ecx"),
                   d7 = reg(doc, 7, 0, "edx"), a71 = reg(doc, 7, 1, "eax");
    const uint32_t saved = (uint32_t)strtoul(json_get_str(doc, "xcr0", "0"), NULL, 16);
    const bool ymm = (saved & 6) == 6, zmm = (saved & 0xe6) == 0xe6, tiles = (saved & 0x60000) == 0x60000;
    assert_int_equal(!!(isa & ISA_SSE41), c1 >> 19 & 1);
    assert_int_equal(!!(isa & ISA_AVX2), ymm && (b7 >> 5 & 1) && (c1 >> 12 & 1));
    assert_int_equal(!!(isa & ISA_AVX512), zmm && (b7 >> 16 & 1) && (b7 >> 30 & 1));
    assert_int_equal(!!(isa & ISA_AVX512VNNI), zmm && (c7 >> 11 & 1));
    assert_int_equal(!!(isa & ISA_AVX512BF16), zmm && (a71 >> 5 & 1));
    assert_int_equal(!!(isa & ISA_AVXVNNI), ymm && (a71 >> 4 & 1));
    assert_int_equal(!!(isa & ISA_AMX), tiles && (d7 >> 24 & 1) && (d7 >> 25 & 1) && (d7 >> 22 & 1));
}

static void flags_and_cpuid_agree(void **state)
{
    (void)state;
    struct root r = root_get("amx-server");
    struct machine m;
    struct err why;
    json_t *doc = NULL;
    char *text = read_text(TEST_SOURCE_DIR "/tests/data/machines/amx-server", "cpuid.json");
    CHECK_OK(json_parse(&doc, text, strlen(text), &why));
    CHECK_OK(machine_detect(&m, r.path, &why));
    check_cpuid(doc, m.isa);
    CHECK(m.isa & ISA_AMX);
    json_decref(doc);
    free(text);
    json_t *here = machine_cpuid_to_json();
    if (here) check_cpuid(here, isa_detect());
    json_decref(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_survive_their_text),
        cmocka_unit_test(paths_may_share_their_content),
        cmocka_unit_test(damaged_texts_are_refused),
        cmocka_unit_test(a_text_that_swells_is_refused),
        cmocka_unit_test(any_bytes_are_survived),
        cmocka_unit_test(private_things_are_masked),
        cmocka_unit_test(this_machine_replays),
        cmocka_unit_test(nothing_private_is_kept),
        cmocka_unit_test(a_folder_is_never_overwritten),
        cmocka_unit_test(answers_of_a_library_replay),
        cmocka_unit_test(damaged_answers_mean_no_library),
        cmocka_unit_test(shipped_machines_are_what_their_golden_text_says),
        cmocka_unit_test(shipped_machines_are_sampled),
        cmocka_unit_test(flags_and_cpuid_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
