/* Recorded machines come from strangers: whatever files.txt and a library's answers hold, unpacking writes
 * below its folder or refuses with a message, and detection and the sensors survive what is there. Behind a
 * NUL: nvml.json. */
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/recording_files.h"
#include "telemetry/telemetry.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gpu_reading gpu[MACHINE_GPUS];
    struct err why = { 0 };
    struct machine m;
    struct telemetry *t;
    double row[METRIC_SENSOR_COUNT];
    char root[] = "/dev/shm/fuzz.XXXXXX", elsewhere[] = "/tmp/fuzz.XXXXXX", path[64], *at = root;
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (!mkdtemp(root)) at = mkdtemp(elsewhere);
    if (!at) abort();
    if (recorded_files_unpack(text, at, &why) && !*why.message) abort();
    const size_t n = strlen(text);
    if (n < size) {
        snprintf(path, sizeof path, "%s/nvml.json", at);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(data + n + 1, 1, size - n - 1, f) != size - n - 1 || fclose(f)) abort();
    }
    check_names(at);
    if (!machine_detect(&m, at, &why)) json_decref(machine_to_json(&m));
    if (!telemetry_open(&t, at, &why)) {
        telemetry_sample(t, row);
        telemetry_sample(t, row);
        const int gpus = telemetry_gpus(t, gpu, MACHINE_GPUS);
        for (int i = 0; i < gpus; i++) json_decref(gpu_reading_to_json(&gpu[i]));
        telemetry_close(t);
    }
    nftw(at, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(text);
    return 0;
}
