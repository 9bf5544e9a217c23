/* telemetry/export/readings.c - the values that a scrape page shows of this machine: the latest of every
 * sensor, each GPU, and the exporting process. */
#include "telemetry/export/export.h"

#include <dirent.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"
#include "base/sysfs/sysfs.h"

/* ---------------------------------------------------------------- one process */

static double open_files(const char *process)
{
    char folder[64];
    snprintf(folder, sizeof folder, "/proc/%s/fd", process);
    DIR *d = opendir(folder);
    if (!d) return NAN;
    int n = 0;
    for (const struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* The soft limit: the first number of "Max open files   1024   524288   files". */
static double file_limit(const char *process)
{
    static const char KEY[] = "Max open files";
    char text[4096];
    double limit;
    sys_read("", text, sizeof text, "/proc/%s/limits", process);
    const char *line = strstr(text, KEY);
    return line && sscanf(line + strlen(KEY), "%lf", &limit) == 1 ? limit : NAN; /* "unlimited": NAN */
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Fields of /proc/PID/stat as proc(5) counts them. */
enum {
    STAT_STATE = 3,
    STAT_MAJOR_FAULTS = 12,
    STAT_USER = 14,
    STAT_SYSTEM = 15,
    STAT_THREADS = 20,
    STAT_START = 22,
    STAT_VIRTUAL = 23,
    STAT_RESIDENT = 24,
    STAT_FIELDS
};

static bool stat_fields(const char *process, double field[STAT_FIELDS])
{
    char text[1024];
    sys_read("", text, sizeof text, "/proc/%s/stat", process);
    char *at = strrchr(text, ')'); /* the process name before it may contain any character */
    if (!at || strlen(at) < 4) return false;
    at += 3; /* skip ") " and the state */
    for (int i = STAT_STATE + 1; i < STAT_FIELDS; i++) {
        char *end;
        field[i] = (double)strtoll(at, &end, 10);
        if (end == at) return false;
        at = end;
    }
    return true;
}

void process_read(struct process_reading *out, int pid)
{
    char process[16] = "self";
    double field[STAT_FIELDS];
    *out = (struct process_reading){ .cpu_seconds = NAN,
                                     .start_time_seconds = NAN,
                                     .resident_bytes = NAN,
                                     .virtual_bytes = NAN,
                                     .major_faults = NAN,
                                     .threads = NAN,
                                     .open_fds = NAN,
                                     .max_fds = NAN };
    if (pid > 0) snprintf(process, sizeof process, "%d", pid);
    if (!stat_fields(process, field)) return;
    const double tick = (double)sysconf(_SC_CLK_TCK);
    out->cpu_seconds = (field[STAT_USER] + field[STAT_SYSTEM]) / tick;
    out->start_time_seconds = seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME) +
                              field[STAT_START] / tick;
    out->virtual_bytes = field[STAT_VIRTUAL];
    out->resident_bytes = field[STAT_RESIDENT] * (double)sysconf(_SC_PAGESIZE);
    out->major_faults = field[STAT_MAJOR_FAULTS];
    out->threads = field[STAT_THREADS];
    out->open_fds = open_files(process);
    out->max_fds = file_limit(process);
}

/* ---------------------------------------------------------------- machine values */

void readings_take(struct readings *out, struct sampler_thread *s, const struct machine *machine)
{
    out->machine = machine;
    sampler_latest(s, out->row, NULL, 0);
    out->gpus = MIN(sampler_gpus(s, out->gpu, MACHINE_GPUS), MACHINE_GPUS);
    out->energies = sampler_energy(s, out->energy, READINGS_DOMAINS);
    out->sampler_cost_ratio = sampler_cost_ratio(s);
    int64_t missed;
    sampler_ticks(s, &missed);
    out->sampler_missed_ticks = (double)missed;
    process_read(&out->process, 0);
}

void build_export(uint32_t isa, const struct family_sink *to)
{
    char simd[128];
    const struct label labels[] = { { "version", QDYNO_VERSION },
                                    { "commit", QDYNO_COMMIT },
                                    { "compiler", __VERSION__ },
                                    { "simd", isa_names(isa, simd, sizeof simd) } };
    family_value(to, FAMILY_BUILD_INFO, labels, COUNT_OF(labels), 1);
}

void host_export(const struct machine *m, const struct family_sink *to)
{
    const struct label labels[] = { { "host", m->host },
                                    { "cpu", m->cpu },
                                    { "gpu", m->gpus > 0 ? m->gpu[0].name : "" },
                                    { "driver", m->gpus > 0 ? m->gpu[0].driver : "" },
                                    { "kernel", m->kernel },
                                    { "governor", m->governor } };
    family_value(to, FAMILY_HOST_INFO, labels, COUNT_OF(labels), 1);
}

static void sensors_export(const struct readings *r, const struct family_sink *to)
{
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) {
        const enum family_id f = family_of_sensor((enum metric_id)i);
        if (FAMILIES[f].name) family_value(to, f, NULL, 0, r->row[i]);
    }
    for (int i = 0; i < r->energies; i++)
        family_value(to, FAMILY_CPU_ENERGY, &(struct label){ "domain", r->energy[i].domain }, 1,
                     r->energy[i].joules);
    family_value(to, FAMILY_SAMPLER_COST, NULL, 0, r->sampler_cost_ratio);
    family_value(to, FAMILY_SAMPLER_MISSED, NULL, 0, r->sampler_missed_ticks);
}

/* Maps fields of a GPU reading to families; rows of the same family are adjacent. */
static const struct {
    enum family_id family;
    const char *label, *value; /* in addition to "device"; NULL: none */
    size_t offset;             /* of a double */
} GPU_NUMBERS[] = {
#define NUMBER(FAMILY, LABEL, VALUE, FIELD)                                                                  \
    {                                                                                                        \
        FAMILY_GPU_##FAMILY, LABEL, VALUE, offsetof(struct gpu_reading, FIELD)                               \
    }
    NUMBER(UTILIZATION, NULL, NULL, busy_ratio),
    NUMBER(MEMORY_BUSY, NULL, NULL, memory_busy_ratio),
    NUMBER(MEMORY_USED, NULL, NULL, mem_used_bytes),
    NUMBER(MEMORY_TOTAL, NULL, NULL, mem_total_bytes),
    NUMBER(ENERGY, NULL, NULL, energy_joules),
    NUMBER(POWER, NULL, NULL, power_watts),
    NUMBER(POWER_LIMIT, NULL, NULL, power_limit_watts),
    NUMBER(TEMPERATURE, "sensor", "gpu", temperature_celsius),
    NUMBER(TEMPERATURE, "sensor", "hotspot", hotspot_temperature_celsius),
    NUMBER(TEMPERATURE, "sensor", "memory", memory_temperature_celsius),
    NUMBER(CLOCK, "domain", "core", core_hertz),
    NUMBER(CLOCK, "domain", "memory", memory_hertz),
    NUMBER(FAN, NULL, NULL, fan_ratio),
    NUMBER(ECC_ERRORS, "kind", "corrected", ecc_corrected),
    NUMBER(ECC_ERRORS, "kind", "uncorrected", ecc_uncorrected),
    NUMBER(PCIE, "direction", "rx", pcie_rx_bytes_s),
    NUMBER(PCIE, "direction", "tx", pcie_tx_bytes_s),
#undef NUMBER
};

static const char *device_of(const struct gpu_reading *g, char buf[16])
{
    snprintf(buf, 16, "%d", g->index);
    return buf;
}

static double number_of(const struct gpu_reading *g, size_t offset)
{
    double v;
    memcpy(&v, (const char *)g + offset, sizeof v);
    return v;
}

/* Passes the samples of all GPUs for one family. */
static void gpu_numbers_export(const struct readings *r, enum family_id f, const struct family_sink *to)
{
    for (int i = 0; i < r->gpus; i++)
        for (size_t k = 0; k < COUNT_OF(GPU_NUMBERS); k++) {
            if (GPU_NUMBERS[k].family != f) continue;
            char device[16];
            const struct label labels[] = { { "device", device_of(&r->gpu[i], device) },
                                            { GPU_NUMBERS[k].label, GPU_NUMBERS[k].value } };
            family_value(to, f, labels, GPU_NUMBERS[k].label ? 2 : 1,
                         number_of(&r->gpu[i], GPU_NUMBERS[k].offset));
        }
}

static void gpu_throttle_export(const struct readings *r, const struct family_sink *to)
{
    for (int i = 0; i < r->gpus; i++)
        for (int k = 0; k < GPU_THROTTLE_COUNT && r->gpu[i].throttle_known; k++) {
            char device[16];
            const struct label labels[] = { { "device", device_of(&r->gpu[i], device) },
                                            { "reason", GPU_THROTTLES[k].name } };
            if (GPU_THROTTLES[k].limits)
                family_value(to, FAMILY_GPU_THROTTLE, labels, 2, r->gpu[i].throttle_seconds[k]);
        }
}

static void gpu_flags_export(const struct readings *r, const struct family_sink *to)
{
    char device[16];
    for (int i = 0; i < r->gpus; i++) {
        const int n = r->gpu[i].processes;
        family_value(to, FAMILY_GPU_PROCESSES, &(struct label){ "device", device_of(&r->gpu[i], device) }, 1,
                     n >= 0 ? n : (double)NAN);
    }
    for (int i = 0; i < r->gpus; i++)
        family_value(to, FAMILY_GPU_LOST, &(struct label){ "device", device_of(&r->gpu[i], device) }, 1,
                     r->gpu[i].lost);
}

static void gpu_info_export(const struct readings *r, const struct family_sink *to)
{
    for (int i = 0; i < r->gpus; i++) {
        const struct gpu_reading *g = &r->gpu[i];
        char device[16];
        const struct label labels[] = { { "device", device_of(g, device) },
                                        { "vendor", g->vendor },
                                        { "name", g->name },
                                        { "uuid", g->uuid },
                                        { "bus", g->bus } };
        family_value(to, FAMILY_GPU_INFO, labels, COUNT_OF(labels), 1);
    }
}

void process_export(const struct process_reading *p, const struct family_sink *to)
{
    const struct {
        enum family_id family;
        double value;
    } ROWS[] = {
        { FAMILY_PROCESS_CPU, p->cpu_seconds },           { FAMILY_PROCESS_START, p->start_time_seconds },
        { FAMILY_PROCESS_RESIDENT, p->resident_bytes },   { FAMILY_PROCESS_VIRTUAL, p->virtual_bytes },
        { FAMILY_PROCESS_MAJOR_FAULTS, p->major_faults }, { FAMILY_PROCESS_THREADS, p->threads },
        { FAMILY_PROCESS_OPEN_FDS, p->open_fds },         { FAMILY_PROCESS_MAX_FDS, p->max_fds },
    };
    for (size_t i = 0; i < COUNT_OF(ROWS); i++) family_value(to, ROWS[i].family, NULL, 0, ROWS[i].value);
}

void readings_export(const struct readings *r, const struct family_sink *to)
{
    if (r->machine) {
        build_export(r->machine->isa, to);
        host_export(r->machine, to);
    }
    gpu_info_export(r, to);
    sensors_export(r, to);
    for (int f = FAMILY_GPU_UTILIZATION; f < FAMILY_PROCESS_CPU; f++)
        gpu_numbers_export(r, (enum family_id)f, to);
    gpu_throttle_export(r, to);
    gpu_flags_export(r, to);
    process_export(&r->process, to);
}
