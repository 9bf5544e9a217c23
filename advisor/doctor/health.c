/* advisor/doctor/health.c - see doctor.h. Each check looks at one part of the installation and reports what
 * it found and what to do. A check never changes anything; those of the worker and of the sensors take up to
 * a second. */
#include "advisor/doctor/doctor.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "advisor/run/run.h"
#include "base/cut/cut.h"
#include "db/db.h"
#include "engine/parallel/parallel.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/probe/probe.h"
#include "telemetry/sensors/sensors.h"

const char *const HEALTH_STATES[] = { "ok", "note", "bad" };

/* Hands one finding to the caller. advice: "" if there is nothing to do. */
static void health_report(const struct health_case *c, enum health_state state, const char *advice,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void health_report(const struct health_case *c, enum health_state state, const char *advice,
                          const char *fmt, ...)
{
    struct health_finding f = { .state = state, .advice = advice };
    va_list args;
    va_start(args, fmt);
    text_cutv(f.found, sizeof f.found, fmt, args);
    va_end(args);
    c->report(c->ctx, &f);
}

const char *gpu_title(const struct gpu_identity *u, char *buf, size_t size)
{
    const bool named = !strncasecmp(u->name, u->vendor, strlen(u->vendor));
    snprintf(buf, size, "%s%s%s", named ? "" : u->vendor, named ? "" : " ", u->name);
    return buf;
}

static void check_machine(const struct health_case *c)
{
    char text[160];
    if (c->machine)
        health_report(c, HEALTH_OK, "", "%s", machine_short(c->machine, text, sizeof text));
    else
        health_report(c, HEALTH_BAD, "mount /proc and /sys", "%s", c->no_machine);
}

static void check_isa(const struct health_case *c)
{
    struct err why = { 0 };
    uint32_t usable;
    char text[256];
    if (isa_usable(&usable, &why)) {
        health_report(c, HEALTH_BAD, "correct or unset QDYNO_ISA", "%s", why.message);
        return;
    }
    bool less = usable != isa_detect();
    health_report(c, less ? HEALTH_NOTE : HEALTH_OK,
                  less ? "QDYNO_ISA hides instruction sets: unset it for full speed" : "", "%s",
                  isa_names(usable, text, sizeof text));
}

static void check_memory(const struct health_case *c)
{
    char all[32], free_now[32], limit[32];
    if (!c->machine) return;
    const struct machine *m = c->machine;
    str_from_bytes(m->memory_bytes, all, sizeof all);
    str_from_bytes(m->memory_available_bytes, free_now, sizeof free_now);
    str_from_bytes(m->cgroup_memory_bytes, limit, sizeof limit);
    bool tight = m->memory_available_bytes >= 0 && m->memory_available_bytes < (int64_t)1 << 29;
    health_report(c, tight ? HEALTH_NOTE : HEALTH_OK,
                  tight ? "close other programs: a machine that swaps gives invalid measurements" : "",
                  "%s, %s available%s%s", all, free_now, m->cgroup_memory_bytes >= 0 ? ", cgroup limit " : "",
                  m->cgroup_memory_bytes >= 0 ? limit : "");
}

static void check_governor(const struct health_case *c)
{
    if (!c->machine || !*c->machine->governor)
        health_report(c, HEALTH_NOTE, "", "not readable%s",
                      c->machine && *c->machine->hypervisor ? " in this virtual machine" : "");
    else if (strcmp(c->machine->governor, "performance"))
        health_report(c, HEALTH_NOTE, "for steadier results: cpupower frequency-set -g performance", "%s",
                      c->machine->governor);
    else
        health_report(c, HEALTH_OK, "", "performance");
}

static void check_power(const struct health_case *c)
{
    if (!c->machine)
        health_report(c, HEALTH_NOTE, "", "not known");
    else if (c->machine->on_battery)
        health_report(c, HEALTH_NOTE, "connect the power supply: clock rates vary on battery", "on battery");
    else
        health_report(c, HEALTH_OK, "", "mains");
}

/* Reads the GPUs, in the order of machine_detect. Two samples, because some values are differences. */
static int read_gpus(struct gpu_reading *out)
{
    struct telemetry *t = NULL;
    double row[METRIC_SENSOR_COUNT];
    if (telemetry_open(&t, "", NULL)) return 0;
    telemetry_sample(t, row);
    clock_sleep_ns(50000000);
    telemetry_sample(t, row);
    const int n = MIN(telemetry_gpus(t, out, MACHINE_GPUS), MACHINE_GPUS);
    telemetry_close(t);
    return n;
}

/* Appends the important readings that the board does not provide. */
static void list_missing(const struct gpu_reading *r, struct str *out)
{
    static const char *const WANTED[] = { "busy_ratio",          "mem_used_bytes", "power_watts",
                                          "temperature_celsius", "energy_joules",  "core_hertz" };
    for (int i = 0; i < GPU_FIELD_COUNT; i++)
        for (size_t k = 0; k < COUNT_OF(WANTED); k++)
            if (!strcmp(GPU_FIELDS[i].name, WANTED[k]) && isnan(gpu_field_get(r, &GPU_FIELDS[i])))
                str_printf(out, " %s", WANTED[k]);
    if (!r->throttle_known) str_append(out, " throttle_reasons");
}

static void check_gpu(const struct health_case *c)
{
    if (!c->machine || !c->machine->gpus) {
        health_report(c, HEALTH_NOTE, "none needed: models run on the CPU", "no GPU found");
        return;
    }
    struct gpu_reading reading[MACHINE_GPUS];
    const int read = read_gpus(reading);
    for (int i = 0; i < c->machine->gpus; i++) {
        const struct gpu_identity *u = &c->machine->gpu[i];
        struct str missing = { 0 };
        char name[120];
        const bool lost = i < read && reading[i].lost;
        char use[64] = "sensors only: models run on the CPU";
        const struct device_info *o = device_of_gpu(u, c->device, c->n_devices);
        if (o) snprintf(use, sizeof use, "device=%s runs models on it", o->name);
        const char *advice = *u->trouble ? u->trouble
                             : lost ? "look for its errors in the kernel log (dmesg), then reset it or reboot"
                                    : use;
        if (i < read && !lost) list_missing(&reading[i], &missing);
        health_report(c, lost ? HEALTH_BAD : HEALTH_NOTE, advice, "%s, driver %s%s%s",
                      gpu_title(u, name, sizeof name), *u->driver ? u->driver : "n/a",
                      lost          ? ", lost: it no longer answers on the bus"
                      : missing.len ? "; does not report:"
                                    : "",
                      str_text(&missing));
        str_free(&missing);
    }
}

static void check_opencl(const struct health_case *c)
{
    if (!c->devices_known) {
        health_report(
            c, HEALTH_BAD,
            "repair or reinstall the driver, or remove its file from /etc/OpenCL/vendors; device=cpu needs none",
            "%s", c->no_devices);
        return;
    }
    if (!c->n_devices)
        health_report(
            c, HEALTH_NOTE,
            "for a GPU install the OpenCL package of its driver; to try OpenCL on the CPU: apt install pocl-opencl-icd",
            "no OpenCL device");
    for (int i = 0; i < c->n_devices; i++) {
        const struct device_info *o = &c->device[i];
        char bytes[32];
        health_report(
            c, HEALTH_OK, "", "%s: %s, driver %s, %s", o->name, o->model, *o->driver ? o->driver : "n/a",
            o->memory_bytes >= 0 ? str_from_bytes(o->memory_bytes, bytes, sizeof bytes) : "memory n/a");
    }
}

/* One row for each reason why existing sensors may not be read, with what to do about it. */
static void report_denied(const struct health_case *c, const struct telemetry *t)
{
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) {
        struct str names = { 0 };
        bool denied, listed = false;
        const char *why = telemetry_absence(t, i, &denied);
        for (int k = 0; k < METRIC_SENSOR_COUNT && denied; k++) {
            bool also;
            if (strcmp(telemetry_absence(t, k, &also), why) || !also) continue;
            listed |= k < i;
            str_printf(&names, " %s", METRICS[k].name);
        }
        if (denied && !listed)
            health_report(c, HEALTH_NOTE, why, "no permission to read:%s", str_text(&names));
        str_free(&names);
    }
}

static void check_sensors(const struct health_case *c)
{
    struct telemetry *t = NULL;
    struct err why = { 0 };
    double row[METRIC_SENSOR_COUNT];
    int have = 0;
    if (telemetry_open(&t, "", &why)) {
        health_report(c, HEALTH_BAD, "mount /proc", "%s", why.message);
        return;
    }
    telemetry_monitor_process(t, getpid());
    telemetry_sample(t, row);
    clock_sleep_ns(50000000);
    telemetry_sample(t, row);
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) have += isfinite(row[i]);
    const bool power = isfinite(row[METRIC_CPU_POWER]) || isfinite(row[METRIC_GPU_POWER]);
    health_report(c, power ? HEALTH_OK : HEALTH_NOTE,
                  power ? "" : "`qdyno telemetry` says why the others are missing",
                  "%d of %d sensors answer, with those of one's own process%s", have, METRIC_SENSOR_COUNT,
                  power ? "" : "; no power sensor, so no energy per token");
    report_denied(c, t);
    telemetry_close(t);
}

/* Present conditions that make runs slow, fail or vary. */
static void check_troubles(const struct health_case *c)
{
    enum { LATEST = 50 };
    struct telemetry *t = NULL;
    struct db *db = NULL;
    struct run_row *runs = NULL;
    struct trouble found[TROUBLES_MAX];
    double row[METRIC_SENSOR_COUNT];
    int n_runs = 0;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) row[i] = NAN;
    if (!c->machine) return;
    if (!telemetry_open(&t, "", NULL)) {
        telemetry_sample(t, row);
        clock_sleep_ns(200000000);
        telemetry_sample(t, row);
        telemetry_close(t);
    }
    if (!db_open(&db, c->db_path, NULL)) db_run_list(db, NULL, LATEST, &runs, &n_runs, NULL);
    char busiest[256] = "";
    if (row[METRIC_OTHERS_BUSY] > contamination_limit(METRIC_OTHERS_BUSY)) /* else no program is named */
        machine_busiest(busiest, sizeof busiest, "", &(struct own_processes){ 1, { getpid() } },
                        BUSIEST_WINDOW_MS);
    const struct trouble_case now = { .machine = c->machine,
                                      .row = row,
                                      .busiest = busiest,
                                      .runs = runs,
                                      .n_runs = n_runs,
                                      .devices_known = c->devices_known,
                                      .device = c->device,
                                      .n_devices = c->n_devices };
    const int n = troubles_find(found, &now);
    for (int i = 0; i < n; i++) health_report(c, HEALTH_NOTE, found[i].advice, "%s", found[i].found);
    if (!n) health_report(c, HEALTH_OK, "", "nothing found that would slow down or stop a run");
    for (int i = 0; i < n_runs; i++) run_row_free(&runs[i]);
    free(runs);
    db_close(db);
}

static void check_ceilings(const struct health_case *c)
{
    struct machine_ceilings limits;
    bool found = false;
    char when[32];
    if (!c->machine || ceilings_load(&limits, c->machine->id, &found, NULL) || !found)
        health_report(c, HEALTH_NOTE, "qdyno detect --probe", "not measured yet");
    else
        health_report(c, limits.kernels.measured ? HEALTH_OK : HEALTH_NOTE,
                      limits.kernels.measured ? ""
                                              : "for narrower predictions: qdyno detect --kernels (55 s)",
                      "%.1f GB/s read, measured at %s%s", limits.read_bytes_s_all * 1e-9,
                      clock_iso8601(limits.measured_unix_ms, when, sizeof when),
                      limits.kernels.measured ? "; kernels timed" : "");
}

static void check_model(const struct health_case *c)
{
    struct err why = { 0 };
    char *path = NULL;
    struct gguf *g = NULL;
    struct model_shape s;
    if (file_share(&path, "models/bundled.gguf", &why) || gguf_open(&g, path, &why) ||
        model_shape_read(&s, g, &why))
        health_report(c, HEALTH_BAD,
                      "reinstall, or set QDYNO_SHARE to the folder that contains models/bundled.gguf", "%s",
                      why.message);
    else
        health_report(c, HEALTH_OK, "", "%s%s", path,
                      s.random_weights ? " (random weights: quality figures mean nothing)" : "");
    gguf_close(g);
    free(path);
}

static void check_worker(const struct health_case *c)
{
    struct err why = { 0 };
    struct config usual;
    struct arm *arm = NULL;
    char *path = NULL;
    config_default(&usual);
    enum err_code rc = file_share(&path, "models/bundled.gguf", &why);
    struct arm_spec spec = { .model = path, .config = &usual, .ctx = 32, .log = c->log };
    if (!rc) rc = arm_open(&arm, &spec, NULL, NULL, &why);
    if (rc)
        health_report(c, HEALTH_BAD, "bench and A/B need this process: fix the cause in the message", "%s",
                      why.message);
    else
        health_report(c, HEALTH_OK, "", "starts and loads the bundled model in %.2f s",
                      json_get_num(arm_description(arm), "load_s", NAN));
    arm_close(arm);
    free(path);
}

static void check_ranks(const struct health_case *c)
{
    struct err why = { 0 };
    if (ranks_possible(&why))
        health_report(c, HEALTH_NOTE, "only parallel= and detect --ranks need it (docs/ranks.md)", "%s",
                      why.message);
    else
        health_report(c, HEALTH_OK, "", "Open MPI is there, for a model that several processes run");
}

static void check_database(const struct health_case *c)
{
    struct err why = { 0 };
    struct db *db = NULL;
    if (db_open(&db, c->db_path, &why) || db_check(db, &why)) {
        health_report(c, HEALTH_BAD, "move the file away, or choose another one with --db", "%s",
                      why.message);
    } else {
        const int waiting = MAX(0, db_spool_count(db)), traces = MAX(0, db_trace_due_count(db));
        health_report(c, waiting || traces ? HEALTH_NOTE : HEALTH_OK,
                      waiting  ? "`qdyno push --url URL` sends them"
                      : traces ? "`qdyno push --otlp URL` sends them"
                               : "",
                      "%s, %d outcome%s waiting to be pushed, %d run%s waiting for a collector", db_path(db),
                      waiting, str_plural(waiting), traces, str_plural(traces));
    }
    db_close(db);
}

static void check_places(const struct health_case *c)
{
    static const struct {
        enum file_place place;
        const char *name;
    } PLACES[] = {
        { .place = FILE_DATA, .name = "data" },
        { .place = FILE_CACHE, .name = "cache" },
        { .place = FILE_CONFIG, .name = "config" },
    };
    for (size_t i = 0; i < COUNT_OF(PLACES); i++) {
        struct err why = { 0 };
        char *path = NULL, room[32];
        struct statvfs fs;
        if (file_place(&path, PLACES[i].place, &why)) {
            health_report(c, HEALTH_BAD, "set HOME or the XDG variable to a writable folder", "%s: %s",
                          PLACES[i].name, why.message);
        } else if (access(path, W_OK)) {
            health_report(c, HEALTH_BAD, "make it writable", "%s: %s: %s", PLACES[i].name, path,
                          strerror(errno));
        } else {
            int64_t left = statvfs(path, &fs) ? -1 : (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
            bool tight = left >= 0 && left < (int64_t)1 << 30;
            health_report(c, tight ? HEALTH_NOTE : HEALTH_OK,
                          tight ? "free some space: a quantized copy of a model needs about its size" : "",
                          "%s: %s, %s free", PLACES[i].name, path, str_from_bytes(left, room, sizeof room));
        }
        free(path);
    }
}

const struct health_check HEALTH_CHECKS[] = {
    { .name = "machine", .run = check_machine },     { .name = "instruction sets", .run = check_isa },
    { .name = "memory", .run = check_memory },       { .name = "frequency", .run = check_governor },
    { .name = "power source", .run = check_power },  { .name = "GPU", .run = check_gpu },
    { .name = "OpenCL", .run = check_opencl },       { .name = "sensors", .run = check_sensors },
    { .name = "troubles", .run = check_troubles },   { .name = "ceilings", .run = check_ceilings },
    { .name = "bundled model", .run = check_model }, { .name = "worker", .run = check_worker },
    { .name = "ranks", .run = check_ranks },         { .name = "database", .run = check_database },
    { .name = "folders", .run = check_places },
};
const size_t HEALTH_CHECK_COUNT = COUNT_OF(HEALTH_CHECKS);
