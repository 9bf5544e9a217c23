/* Recorded machines are untrusted. Unpacking any files.txt writes below its folder or ends in an error, and
 * detection and sensors accept whatever it wrote. The input after a NUL byte is nvml.json. */
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/recording/recording.h"
#include "telemetry/sensors/sensors.h"
#include "tests/fuzz/cost.h"

static const struct cost_ceiling CEILING = {
    .seconds = 0.5, .seconds_per_mb = 50, .mb = 32, .mb_per_mb = 100
};

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Nothing but what a machine has may lie in its folder. */
static void check_names(const char *root)
{
    static const char *const NAMES[] = { "proc", "sys", "etc", "usr", "nvml.json" };
    DIR *dir = opendir(root);
    if (!dir) abort();
    for (struct dirent *e; (e = readdir(dir));) {
        bool known = e->d_name[0] == '.';
        for (size_t i = 0; i < COUNT_OF(NAMES); i++) known |= !strcmp(e->d_name, NAMES[i]);
        if (!known) abort();
    }
    closedir(dir);
}

static void write_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}

static void look_at(const char *root)
{
    static struct gpu_reading gpu[MACHINE_GPUS];
    struct machine m;
    struct telemetry *t;
    double row[METRIC_SENSOR_COUNT];
    if (!machine_detect(&m, root, NULL)) json_decref(machine_to_json(&m));
    if (telemetry_open(&t, root, NULL)) return;
    telemetry_sample(t, row);
    telemetry_sample(t, row);
    const int gpus = telemetry_gpus(t, gpu, MACHINE_GPUS);
    for (int i = 0; i < gpus; i++) json_decref(gpu_reading_to_json(&gpu[i]));
    telemetry_close(t);
}

static void use(const uint8_t *data, size_t size)
{
    struct recording r;
    struct err why = { 0 };
    char in_memory[] = "/dev/shm/fuzz.XXXXXX", on_disk[] = "/tmp/fuzz.XXXXXX", *dir = in_memory;
    if (!mkdtemp(in_memory)) dir = mkdtemp(on_disk);
    if (!dir) abort();
    const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
    const size_t n = end ? (size_t)(end - data) : size;
    write_file(dir, "files.txt", data, n);
    if (end) write_file(dir, "nvml.json", end + 1, size - n - 1);
    if (recording_open(&r, dir, &why)) {
        if (!*why.message || *r.root) abort(); /* refused, and nothing stays behind */
    } else {
        check_names(r.root);
        look_at(r.root);
        recording_close(&r);
    }
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
