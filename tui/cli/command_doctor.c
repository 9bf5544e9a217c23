/* qdyno doctor: checks what is installed and usable. Each check adds rows with what was found and what to
 * do. */
#include <errno.h>
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "advisor/advise/advise.h"
#include "advisor/run/run.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/probe/probe.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/commands.h"
#include "tui/cli/documents.h"
#include "tui/cli/lib/devices.h"

static const struct column COLUMNS[] = {
    { .name = "check", .title = "check" },
    { .name = "state", .title = "state" },
    { .name = "found", .title = "found" },
    { .name = "advice", .title = "what to do" },
};

const struct document DOCUMENT_DOCTOR = {
    .schema = "qdyno.doctor/1",
    .columns = COLUMNS,
    .n_columns = COUNT_OF(COLUMNS),
    .members = "bad",
};

enum state { GOOD, NOTE, BAD };

struct doctor {
    const struct cli_global *g;
    struct table table;
    struct machine machine;
    bool machine_known, devices_known;
    struct devices devices;
    struct err no_devices; /* why the devices are unknown */
    int bad;
    const char *check; /* the row being filled */
};

/* Adds a row to the table. advice: "" if there is nothing to do. */
static void doctor_report(struct doctor *d, enum state s, const char *advice, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void doctor_report(struct doctor *d, enum state s, const char *advice, const char *fmt, ...)
{
    static const char *const NAMES[] = { "ok", "note", "bad" };
    char text[640];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_t *row = table_row(&d->table);
    json_put_str(row, "check", d->check);
    json_put_str(row, "state", NAMES[s]);
    json_put_str(row, "found", text);
    json_put_str(row, "advice", *advice ? advice : NULL);
    d->bad += s == BAD;
}

static void check_machine(struct doctor *d)
{
    struct err why = { 0 };
    char text[160];
    d->machine_known = !machine_detect(&d->machine, "", &why);
    if (d->machine_known)
        doctor_report(d, GOOD, "", "%s", machine_short(&d->machine, text, sizeof text));
    else
        doctor_report(d, BAD, "mount /proc and /sys", "%s", why.message);
}

static void check_isa(struct doctor *d)
{
    struct err why = { 0 };
    uint32_t usable;
    char text[256];
    if (isa_usable(&usable, &why)) {
        doctor_report(d, BAD, "correct or unset QDYNO_ISA", "%s", why.message);
        return;
    }
    bool less = usable != isa_detect();
    doctor_report(d, less ? NOTE : GOOD,
                  less ? "QDYNO_ISA hides instruction sets: unset it for full speed" : "", "%s",
                  isa_names(usable, text, sizeof text));
}

static void check_memory(struct doctor *d)
{
    char all[32], free_now[32], limit[32];
    if (!d->machine_known) return;
    const struct machine *m = &d->machine;
    str_from_bytes(m->memory_bytes, all, sizeof all);
    str_from_bytes(m->memory_available_bytes, free_now, sizeof free_now);
    str_from_bytes(m->cgroup_memory_bytes, limit, sizeof limit);
    bool tight = m->memory_available_bytes >= 0 && m->memory_available_bytes < (int64_t)1 << 29;
    doctor_report(d, tight ? NOTE : GOOD,
                  tight ? "close other programs: a machine that swaps gives invalid measurements" : "",
                  "%s, %s available%s%s", all, free_now, m->cgroup_memory_bytes >= 0 ? ", cgroup limit " : "",
                  m->cgroup_memory_bytes >= 0 ? limit : "");
}

static void check_governor(struct doctor *d)
{
    if (!d->machine_known || !*d->machine.governor)
        doctor_report(d, NOTE, "", "not readable%s",
                      d->machine_known && *d->machine.hypervisor ? " in this virtual machine" : "");
    else if (strcmp(d->machine.governor, "performance"))
        doctor_report(d, NOTE, "for steadier results: cpupower frequency-set -g performance", "%s",
                      d->machine.governor);
    else
        doctor_report(d, GOOD, "", "performance");
}

static void check_power(struct doctor *d)
{
    if (d->machine_known && d->machine.on_battery)
        doctor_report(d, NOTE, "connect the power supply: clock rates vary on battery", "on battery");
    else
        doctor_report(d, GOOD, "", "mains");
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

static void check_gpu(struct doctor *d)
{
    if (!d->machine_known || !d->machine.gpus) {
        doctor_report(d, NOTE, "none needed: models run on the CPU", "no GPU found");
        return;
    }
    struct gpu_reading reading[MACHINE_GPUS];
    const int read = read_gpus(reading);
    for (int i = 0; i < d->machine.gpus; i++) {
        const struct gpu_identity *u = &d->machine.gpu[i];
        struct str missing = { 0 };
        char name[120];
        const bool lost = i < read && reading[i].lost;
        char use[64] = "sensors only: models run on the CPU";
        const struct device_info *o = d->devices_known ? device_of_gpu(&d->devices, u) : NULL;
        if (o) snprintf(use, sizeof use, "device=%s runs models on it", o->name);
        const char *advice = *u->trouble ? u->trouble
                             : lost ? "look for its errors in the kernel log (dmesg), then reset it or reboot"
                                    : use;
        if (i < read && !lost) list_missing(&reading[i], &missing);
        doctor_report(d, lost ? BAD : NOTE, advice, "%s, driver %s%s%s", cli_gpu_name(u, name, sizeof name),
                      *u->driver ? u->driver : "n/a",
                      lost          ? ", lost: it no longer answers on the bus"
                      : missing.len ? "; does not report:"
                                    : "",
                      str_text(&missing));
        str_free(&missing);
    }
}

static void check_opencl(struct doctor *d)
{
    if (!d->devices_known) {
        doctor_report(
            d, BAD,
            "repair or reinstall the driver, or remove its file from /etc/OpenCL/vendors; device=cpu needs none",
            "%s", d->no_devices.message);
        return;
    }
    if (!d->devices.count)
        doctor_report(
            d, NOTE,
            "for a GPU install the OpenCL package of its driver; to try OpenCL on the CPU: apt install pocl-opencl-icd",
            "no OpenCL device");
    for (int i = 0; i < d->devices.count; i++) {
        const struct device_info *o = &d->devices.device[i];
        char bytes[32];
        doctor_report(d, GOOD, "", "%s: %s, driver %s, %s", o->name, o->model, *o->driver ? o->driver : "n/a",
                      o->memory_bytes >= 0 ? str_from_bytes(o->memory_bytes, bytes, sizeof bytes)
                                           : "memory n/a");
    }
}

/* One row for each reason why existing sensors may not be read, with what to do about it. */
static void report_denied(struct doctor *d, const struct telemetry *t)
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
        if (denied && !listed) doctor_report(d, NOTE, why, "no permission to read:%s", str_text(&names));
        str_free(&names);
    }
}

static void check_sensors(struct doctor *d)
{
    struct telemetry *t = NULL;
    struct err why = { 0 };
    double row[METRIC_SENSOR_COUNT];
    int have = 0;
    if (telemetry_open(&t, "", &why)) {
        doctor_report(d, BAD, "mount /proc", "%s", why.message);
        return;
    }
    telemetry_monitor_process(t, getpid());
    telemetry_sample(t, row);
    clock_sleep_ns(50000000);
    telemetry_sample(t, row);
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) have += isfinite(row[i]);
    const bool power = isfinite(row[METRIC_CPU_POWER]) || isfinite(row[METRIC_GPU_POWER]);
    doctor_report(d, power ? GOOD : NOTE, power ? "" : "`qdyno telemetry` says why the others are missing",
                  "%d of %d sensors answer%s", have, METRIC_SENSOR_COUNT,
                  power ? "" : "; no power sensor, so no energy per token");
    report_denied(d, t);
    telemetry_close(t);
}

/* Present conditions that make runs slow, fail or vary. */
static void check_troubles(struct doctor *d)
{
    enum { LATEST = 50 };
    struct telemetry *t = NULL;
    struct db *db = NULL;
    struct run_row *runs = NULL;
    struct trouble found[TROUBLES_MAX];
    double row[METRIC_SENSOR_COUNT];
    int n_runs = 0;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) row[i] = NAN;
    if (!d->machine_known) return;
    if (!telemetry_open(&t, "", NULL)) {
        telemetry_sample(t, row);
        clock_sleep_ns(200000000);
        telemetry_sample(t, row);
        telemetry_close(t);
    }
    if (!db_open(&db, d->g->db_path, NULL)) db_run_list(db, NULL, LATEST, &runs, &n_runs, NULL);
    const struct trouble_case now = { .machine = &d->machine,
                                      .row = row,
                                      .runs = runs,
                                      .n_runs = n_runs,
                                      .devices_known = d->devices_known,
                                      .device = d->devices.device,
                                      .n_devices = d->devices.count };
    const int n = troubles_find(found, &now);
    for (int i = 0; i < n; i++) doctor_report(d, NOTE, found[i].advice, "%s", found[i].found);
    if (!n) doctor_report(d, GOOD, "", "nothing found that would slow down or stop a run");
    for (int i = 0; i < n_runs; i++) run_row_free(&runs[i]);
    free(runs);
    db_close(db);
}

static void check_ceilings(struct doctor *d)
{
    struct machine_ceilings c;
    bool found = false;
    char when[32];
    if (!d->machine_known || ceilings_load(&c, d->machine.id, &found, NULL) || !found)
        doctor_report(d, NOTE, "qdyno detect --probe", "not measured yet");
    else
        doctor_report(d, c.kernels.measured ? GOOD : NOTE,
                      c.kernels.measured ? "" : "for narrower predictions: qdyno detect --kernels (55 s)",
                      "%.1f GB/s read, measured at %s%s", c.read_bytes_s_all * 1e-9,
                      clock_iso8601(c.measured_unix_ms, when, sizeof when),
                      c.kernels.measured ? "; kernels timed" : "");
}

static void check_model(struct doctor *d)
{
    struct err why = { 0 };
    char *path = NULL;
    struct gguf *g = NULL;
    struct model_shape s;
    if (file_share(&path, "models/bundled.gguf", &why) || gguf_open(&g, path, &why) ||
        model_shape_read(&s, g, &why))
        doctor_report(d, BAD, "reinstall, or set QDYNO_SHARE to the folder that contains models/bundled.gguf",
                      "%s", why.message);
    else
        doctor_report(d, GOOD, "", "%s%s", path,
                      s.random_weights ? " (random weights: quality figures mean nothing)" : "");
    gguf_close(g);
    free(path);
}

static void check_worker(struct doctor *d)
{
    struct err why = { 0 };
    struct config c;
    struct arm *arm = NULL;
    char *path = NULL;
    config_default(&c);
    enum err_code rc = file_share(&path, "models/bundled.gguf", &why);
    struct arm_spec spec = { .model = path, .config = &c, .ctx = 32, .log = &d->g->log };
    if (!rc) rc = arm_open(&arm, &spec, NULL, NULL, &why);
    if (rc)
        doctor_report(d, BAD, "bench and A/B need this process: fix the cause in the message", "%s",
                      why.message);
    else
        doctor_report(d, GOOD, "", "starts and loads the bundled model in %.2f s",
                      json_get_num(arm_description(arm), "load_s", NAN));
    arm_close(arm);
    free(path);
}

static void check_database(struct doctor *d)
{
    struct err why = { 0 };
    struct db *db = NULL;
    if (db_open(&db, d->g->db_path, &why) || db_check(db, &why)) {
        doctor_report(d, BAD, "move the file away, or choose another one with --db", "%s", why.message);
    } else {
        const int waiting = MAX(0, db_spool_count(db)), traces = MAX(0, db_trace_due_count(db));
        doctor_report(d, waiting || traces ? NOTE : GOOD,
                      waiting  ? "`qdyno push --url URL` sends them"
                      : traces ? "`qdyno push --otlp URL` sends them"
                               : "",
                      "%s, %d outcomes waiting to be pushed, %d runs waiting for a collector", db_path(db),
                      waiting, traces);
    }
    db_close(db);
}

static void check_places(struct doctor *d)
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
            doctor_report(d, BAD, "set HOME or the XDG variable to a writable folder", "%s: %s",
                          PLACES[i].name, why.message);
        } else if (access(path, W_OK)) {
            doctor_report(d, BAD, "make it writable", "%s: %s: %s", PLACES[i].name, path, strerror(errno));
        } else {
            int64_t left = statvfs(path, &fs) ? -1 : (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
            bool tight = left >= 0 && left < (int64_t)1 << 30;
            doctor_report(d, tight ? NOTE : GOOD,
                          tight ? "free some space: a quantized copy of a model needs about its size" : "",
                          "%s: %s, %s free", PLACES[i].name, path, str_from_bytes(left, room, sizeof room));
        }
        free(path);
    }
}

static void check_terminal(struct doctor *d)
{
    const char *term = getenv("TERM");
    bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    if (!isatty(STDOUT_FILENO))
        doctor_report(d, NOTE, "only the dashboard needs a terminal", "standard output is not a terminal");
    else if (!term || !*term || !strcmp(term, "dumb"))
        doctor_report(d, NOTE, "set TERM, e.g. xterm-256color", "TERM is %s",
                      term && *term ? term : "not set");
    else
        doctor_report(d, utf8 ? GOOD : NOTE, utf8 ? "" : "use a UTF-8 locale for finer graphs (LANG=C.UTF-8)",
                      "%s, %s", term, nl_langinfo(CODESET));
}

static const struct {
    const char *name;
    void (*run)(struct doctor *d);
} CHECKS[] = {
    { .name = "machine", .run = check_machine },     { .name = "instruction sets", .run = check_isa },
    { .name = "memory", .run = check_memory },       { .name = "frequency", .run = check_governor },
    { .name = "power source", .run = check_power },  { .name = "GPU", .run = check_gpu },
    { .name = "OpenCL", .run = check_opencl },       { .name = "sensors", .run = check_sensors },
    { .name = "troubles", .run = check_troubles },   { .name = "ceilings", .run = check_ceilings },
    { .name = "bundled model", .run = check_model }, { .name = "worker", .run = check_worker },
    { .name = "database", .run = check_database },   { .name = "folders", .run = check_places },
    { .name = "terminal", .run = check_terminal },
};

/* On a terminal: problems first. */
static int print_for_people(const struct cli_args *a, const struct doctor *d, int status)
{
    enum { WIDTH = 100, LEAST = 60 };
    struct winsize size = { 0 };
    struct str text = { 0 };
    const bool known = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col > 0;
    doctor_text(&text, d->table.rows, known ? MAX(MIN((int)size.ws_col, (int)WIDTH), (int)LEAST) : WIDTH);
    str_printf(&text, "\n%s", str_text(&d->table.notes));
    char *safe = text.failed ? NULL : sink_text(SINK_TERMINAL, str_text(&text));
    str_free(&text);
    if (!safe) return cli_fail_memory(a);
    fputs(safe, stdout);
    free(safe);
    return status;
}

int command_doctor(const struct cli_global *g, const struct cli_args *a)
{
    struct doctor d = { .g = g };
    d.devices_known = !devices_list(&d.devices, DEVICES_SECONDS, &d.no_devices);
    table_init(&d.table, &DOCUMENT_DOCTOR);
    for (size_t i = 0; i < COUNT_OF(CHECKS); i++) {
        d.check = CHECKS[i].name;
        CHECKS[i].run(&d);
    }
    json_put_int(d.table.extra, "bad", d.bad);
    table_note(&d.table, d.bad ? "%d checks failed" : "everything that qdyno needs is present", d.bad);
    const int end = d.bad ? EXIT_WORSE : EXIT_DONE;
    const bool people = g->output == OUTPUT_MD && !g->output_given && isatty(STDOUT_FILENO);
    const int status = people ? print_for_people(a, &d, end) : cli_print(g, a, &d.table, end);
    table_done(&d.table);
    return status;
}
