/* qdyno detect: what this machine is, and with --probe how fast it is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/doctor/doctor.h"
#include "engine/parallel/parallel.h"
#include "kernels/kernels.h"
#include "telemetry/recording/recording.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/devices.h"
#include "tui/cli/lib/other_machine.h"

/* clang-format off */
const struct cli_flag FLAGS_DETECT[] = {
    { .name = "--probe",
      .help = "measure read bandwidth and arithmetic now (up to 10 s, plus some seconds per OpenCL device) "
              "and store the results for later commands" },
    { .name = "--kernels",
      .help = "also time our own kernels (up to 55 s) and store the times: predictions need them" },
    { .name = "--shapes", .value = "DEVICE",
      .help = "find the fastest shapes of matrix products on an OpenCL device, e.g. opencl:0 (minutes), "
              "and store them" },
    { .name = "--ranks", .value = "N", .kind = FLAG_INT, .min = 2, .max = RANKS_MAX,
      .help = "start N processes and measure how long exchanges between them take (seconds; docs/ranks.md)" },
    { .name = "--hosts", .needs = "--ranks", .value = "FILE",
      .help = "with --ranks: machines on which mpirun starts them, one a line, this one first" },
    { .name = "--record", .value = "DIR",
      .help = "record this machine in the new folder DIR, for --machine; names, serial numbers and UUIDs "
              "are masked" },
    { .name = "--private", .needs = "--record", .help = "with --record: mask nothing" },
    { .name = "--machine", .value = "DIR|FILE",
      .help = "show the machine recorded in DIR, or described by a document of `qdyno detect -o json`" },
    { .name = NULL },
};
/* clang-format on */

#define MACHINE(member) MEMBER(struct machine, member)
static const struct column COLUMNS[] = {
    COL("id", "machine", MEMBER_AS(struct machine, id, STRING)),
    COL("host", "host", MACHINE(host)),
    COL("cpu", "processor", MACHINE(cpu)),
    COL("sockets", "sockets", MEMBER_AS(struct machine, sockets, INT_OR_NULL)),
    COL("cores", "cores", MEMBER_AS(struct machine, cores, INT_OR_NULL)),
    COL("processors", "processors", MEMBER_AS(struct machine, processors, INT_OR_NULL)),
    COL("numa_nodes", "NUMA nodes", MEMBER_AS(struct machine, numa_nodes, INT_OR_NULL)),
    COL("isa", "instruction sets"),
    COL("isa_usable", "usable (QDYNO_ISA)"),
    COL("l1d_bytes", "L1 data cache per core", .kind = COLUMN_BYTES, MACHINE(cache_bytes[0])),
    COL("l2_bytes", "L2 cache per core", .kind = COLUMN_BYTES, MACHINE(cache_bytes[1])),
    COL("l3_bytes", "L3 cache", .kind = COLUMN_BYTES, MACHINE(cache_bytes[2])),
    COL("memory_bytes", "memory", .kind = COLUMN_BYTES, MACHINE(memory_bytes)),
    COL("memory_available_bytes", "memory available", .kind = COLUMN_BYTES, MACHINE(memory_available_bytes)),
    COL("cgroup_memory_bytes", "memory limit (cgroup)", .kind = COLUMN_BYTES, MACHINE(cgroup_memory_bytes)),
    COL("cgroup_cpus", "processor limit (cgroup)", .digits = 2, MACHINE(cgroup_cpus)),
    COL("usable_processors", "processors that qdyno may use",
        MEMBER_AS(struct machine, usable_processors, INT_OR_NULL)),
    COL("usable_cores", "cores that qdyno may use", MEMBER_AS(struct machine, usable_cores, INT_OR_NULL)),
    COL("usable_threads", "threads by default", MEMBER_AS(struct machine, usable_threads, INT_OR_NULL)),
    COL("gpus", "GPUs", MACHINE(gpus)),
    COL("gpu_names", "GPU"),
    COL("opencl_devices", "OpenCL devices", .kind = COLUMN_INT),
    COL("os", "system", MACHINE(os)),
    COL("kernel", "kernel", MACHINE(kernel)),
    COL("governor", "frequency governor", MACHINE(governor)),
    COL("hypervisor", "hypervisor", MACHINE(hypervisor)),
    COL("power_source", "power source"),
    COL("power_sensors", "power sensors"),
    COL("read_bytes_s_1", "read bandwidth, 1 thread (GB/s)", .kind = COLUMN_NUM, .scale = 1e-9, .digits = 2),
    COL("read_bytes_s_all", "read bandwidth, all threads (GB/s)", .kind = COLUMN_NUM, .scale = 1e-9,
        .digits = 2),
};

DOCUMENT(DETECT, "qdyno.detect/1", COLUMNS, .record = true,
         .members = "ceilings.* opencl[].* machine.* recording.*");

static void put_gpus(json_t *row, const struct machine *m)
{
    struct str names = { 0 };
    for (int i = 0; i < m->gpus; i++) {
        char bytes[32];
        const struct gpu_identity *u = &m->gpu[i];
        str_printf(&names, "%s%s", i ? "; " : "", u->name);
        if (u->memory_bytes > 0)
            str_printf(&names, " %s", str_from_bytes(u->memory_bytes, bytes, sizeof bytes));
        if (*u->driver) str_printf(&names, " (driver %s)", u->driver);
        if (u->compute_major >= 0) str_printf(&names, " sm_%d%d", u->compute_major, u->compute_minor);
    }
    json_put_str(row, "gpu_names", names.len ? str_text(&names) : NULL);
    str_free(&names);
}

/* Which power sensors answer. Energy figures need one. */
static void put_power(json_t *row, const char *root)
{
    struct telemetry *t = NULL;
    struct gpu_reading gpu[MACHINE_GPUS];
    struct energy_reading energy[1];
    double now[METRIC_SENSOR_COUNT];
    bool processor = false, card = false;
    if (!telemetry_open(&t, root, NULL)) {
        telemetry_sample(t, now);
        processor = telemetry_energy(t, energy, 1) > 0;
        const int n = MIN(telemetry_gpus(t, gpu, MACHINE_GPUS), MACHINE_GPUS);
        for (int i = 0; i < n; i++) card |= isfinite(gpu[i].power_watts) || isfinite(gpu[i].energy_joules);
        telemetry_close(t);
    }
    json_put_str(row, "power_sensors",
                 processor ? card ? "processor GPU" : "processor"
                 : card    ? "GPU"
                           : NULL);
}

static void put_machine(json_t *row, const struct machine *m)
{
    char isa[256];
    document_put(&DOCUMENT_DETECT, row, struct machine, m);
    json_put_str(row, "isa", isa_names(m->isa, isa, sizeof isa));
    put_gpus(row, m);
    json_put_str(row, "power_source",
                 !m->has_battery ? "mains"
                 : m->on_battery ? "battery"
                                 : "mains, with battery");
}

/* "55.1 GB/s", "n/a". */
static const char *rate_text(double per_s, const char *unit, char *buf, size_t size)
{
    snprintf(buf, size, isfinite(per_s) ? "%.4g %s" : "n/a", per_s * 1e-9, unit);
    return buf;
}

/* Read bandwidth by number of threads, and of single NUMA nodes. */
static void note_reads(struct table *t, const struct machine_ceilings *c)
{
    char own[32], all[32];
    for (int i = 0; i < c->reads; i++)
        table_note(t, "read bandwidth, %d threads: %s", c->read[i].threads,
                   rate_text(c->read[i].bytes_s, "GB/s", all, sizeof all));
    for (int i = 0; i < c->nodes; i++)
        table_note(t, "memory of NUMA node %d: threads of the node read %s, all threads %s", i,
                   rate_text(c->node[i].own_bytes_s, "GB/s", own, sizeof own),
                   rate_text(c->node[i].all_bytes_s, "GB/s", all, sizeof all));
}

static void note_ceilings(struct table *t, const struct machine_ceilings *c)
{
    char when[32];
    note_reads(t, c);
    table_note(t, "arithmetic (Gop/s, a multiply-add is 2):        1 thread   %d threads", c->threads_all);
    for (int i = 0; i < c->count; i++) {
        char one[32], all[32];
        snprintf(one, sizeof one, isfinite(c->row[i].ops_s_1) ? "%.1f" : "n/a", c->row[i].ops_s_1 * 1e-9);
        snprintf(all, sizeof all, isfinite(c->row[i].ops_s_all) ? "%.1f" : "n/a", c->row[i].ops_s_all * 1e-9);
        table_note(t, "  %-12s %-16s %26s %11s", c->row[i].name, c->row[i].isa, one, all);
    }
    if (c->others_busy_ratio > CEILINGS_LOADED_RATIO)
        table_note(
            t,
            "measured under load: other programs used %.0f %% of the processors meanwhile, so the limits of this machine "
            "are higher than these; measure again when it is quiet",
            100 * c->others_busy_ratio);
    table_note(t, "measured %s%s", clock_iso8601(c->measured_unix_ms, when, sizeof when),
               c->kernels.measured ? "; kernel times are stored, too" : "");
}

/* c NULL: not measured. here: the table describes this machine. */
static void put_ceilings(struct table *t, json_t *row, const struct machine_ceilings *c, bool here)
{
    json_put(t->extra, "ceilings", c ? ceilings_to_json(c) : json_null());
    if (!c) {
        table_note(t, "limits not measured yet: run `qdyno detect --probe`%s",
                   here ? "" : " on that machine");
        return;
    }
    json_put_num(row, "read_bytes_s_1", c->read_bytes_s_1);
    json_put_num(row, "read_bytes_s_all", c->read_bytes_s_all);
    note_ceilings(t, c);
}

/* One line of details for each GPU. */
static void note_gpus(struct table *t, const struct machine *m)
{
    for (int i = 0; i < m->gpus; i++) {
        const struct gpu_identity *u = &m->gpu[i];
        char bytes[32], name[120], capability[24] = "";
        if (u->compute_major >= 0)
            snprintf(capability, sizeof capability, ", sm_%d%d", u->compute_major, u->compute_minor);
        const bool sensors = strcmp(u->source, "kernel") && strcmp(u->source, "opencl");
        table_note(t, "GPU %d: %s, %s%s, driver %s%s%s, %s%s", i, gpu_title(u, name, sizeof name),
                   u->memory_bytes > 0 ? str_from_bytes(u->memory_bytes, bytes, sizeof bytes) : "memory n/a",
                   capability, *u->driver ? u->driver : "n/a", *u->bus ? ", at " : "", u->bus,
                   sensors ? "sensors from " : "no sensors; named by ", u->source);
        if (*u->trouble) table_note(t, "       %s", u->trouble);
    }
}

/* ---------------------------------------------------------------- OpenCL */

static void note_measured(struct table *t, const struct device_ceilings *c)
{
    const struct {
        const char *name;
        double per_s;
        const char *unit;
    } FIGURES[] = {
        { .name = "reads", .per_s = c->read_bytes_s, .unit = "GB/s" },
        { .name = "copies", .per_s = c->copy_bytes_s, .unit = "GB/s" },
        { .name = "f32", .per_s = c->f32_ops_s, .unit = "Gop/s" },
        { .name = "fp16", .per_s = c->f16_ops_s, .unit = "Gop/s" },
        { .name = "int8", .per_s = c->int8_ops_s, .unit = "Gop/s" },
        { .name = "host to device", .per_s = c->to_device_bytes_s, .unit = "GB/s" },
        { .name = "device to host", .per_s = c->from_device_bytes_s, .unit = "GB/s" },
    };
    struct str line = { 0 };
    char rate[32];
    for (size_t i = 0; i < COUNT_OF(FIGURES); i++)
        str_printf(&line, "%s%s %s", i ? ", " : "", FIGURES[i].name,
                   rate_text(FIGURES[i].per_s, FIGURES[i].unit, rate, sizeof rate));
    table_note(t, "       measured: %s", str_text(&line));
    str_free(&line);
}

static void note_device(struct table *t, const struct machine *m, const struct device_info *d)
{
    struct str line = { 0 };
    char bytes[32], abilities[64], pci[24] = "";
    const int gpu = device_gpu(m, d);
    device_abilities(d, abilities, sizeof abilities);
    str_printf(&line, "%s: %s (%s, driver %s), ", d->name, *d->model ? d->model : "no name",
               *d->platform ? d->platform : "platform n/a", *d->driver ? d->driver : "n/a");
    str_printf(&line, "%s%s, ",
               d->memory_bytes >= 0 ? str_from_bytes(d->memory_bytes, bytes, sizeof bytes) : "memory n/a",
               d->shares_memory ? " of the machine's memory" : "");
    if (d->compute_units >= 0) str_printf(&line, "%d compute units, ", d->compute_units);
    str_append(&line, *abilities ? abilities : "f32 only");
    if (*d->pci) snprintf(pci, sizeof pci, ", at %s", d->pci);
    if (gpu >= 0)
        str_printf(&line, "; same board as GPU %d", gpu);
    else if (d->gpu)
        str_printf(&line, "%s; no sensors", pci);
    else
        str_append(&line, "; not a GPU");
    table_note(t, "%s", str_text(&line));
    str_free(&line);
}

/* List the OpenCL devices. c: what each can do, as measured by `detect --probe`; NULL: not measured. trouble:
 * the error of devices_list. */
static void put_devices(struct table *t, json_t *row, const struct machine *m, const struct devices *all,
                        const struct machine_ceilings *c, const struct err *trouble)
{
    json_put(t->extra, "opencl", trouble->code ? json_null() : devices_to_json(all, m));
    if (trouble->code) {
        table_note(t, "OpenCL devices unknown: %s", trouble->message);
        return;
    }
    json_put_int(row, "opencl_devices", all->count);
    if (!all->count) table_note(t, "no OpenCL device: models run on the CPU (device=cpu)");
    for (int i = 0; i < all->count; i++) {
        note_device(t, m, &all->device[i]);
        const struct opencl_measured *known = c ? ceilings_opencl(c, &all->device[i]) : NULL;
        if (known) note_measured(t, &known->can);
    }
}

/* Measures each OpenCL device. A failure is only logged; the limits of that device stay unknown. */
static void measure_devices(const struct cli_global *g, const struct devices *all, struct machine_ceilings *c)
{
    static const double SECONDS = 0.3; /* for each of about seven measurements */
    struct progress progress;
    progress_init(&progress, g);
    c->opencl_count = 0;
    for (int i = 0; i < MIN(all->count, (int)CEILINGS_OPENCL) && !cli_is_interrupted(g); i++) {
        const struct device_info *d = &all->device[i];
        struct opencl_measured *to = &c->opencl[c->opencl_count];
        struct err why = { 0 };
        *to = (struct opencl_measured){ 0 };
        snprintf(to->name, sizeof to->name, "%s", d->name);
        snprintf(to->model, sizeof to->model, "%s", d->model);
        snprintf(to->driver, sizeof to->driver, "%s", d->driver);
        progress_show(&progress, "measuring %s, %s", d->name, d->model);
        if (devices_measure(&to->can, d->name, SECONDS, &why))
            log_write(&g->log, LOG_WARN, "%s was not measured: %s", d->name, why.message);
        else
            c->opencl_count++;
    }
    progress_clear(&progress);
}

static void note_origin(struct table *t, const json_t *about)
{
    const char *date = json_get_str(about, "date", NULL);
    table_note(t, "%s%s%s, not this machine", json_get_str(about, "origin", "origin unknown"),
               date ? " " : "", date ? date : "");
}

/* --machine: prints the machine of a folder or a document. */
static int other_machine_show(const struct cli_global *g, const struct cli_args *a, const char *path)
{
    struct err why = { 0 };
    struct other_machine d;
    struct table t;
    if (args_has(a, "--probe") || args_has(a, "--kernels") || args_has(a, "--shapes") ||
        args_has(a, "--record")) {
        err_set(
            &why, ERR_USAGE,
            "--machine describes another machine, so it cannot be combined with --probe, --kernels, --shapes or --record, which measure this one");
        return cli_fail(a, &why);
    }
    if (other_machine_open(&d, path, &why)) return cli_fail(a, &why);
    json_t *row = table_record(&t, &DOCUMENT_DETECT);
    put_machine(row, &d.machine);
    if (*d.recording.root) put_power(row, d.recording.root);
    put_ceilings(&t, row, d.ceilings_known ? &d.ceilings : NULL, false);
    note_gpus(&t, &d.machine);
    json_put(t.extra, "opencl", json_null());
    note_origin(&t, d.recording.about);
    json_put(t.extra, "machine", machine_to_json(&d.machine));
    json_put(t.extra, "recording", d.recording.about ? json_incref(d.recording.about) : json_null());
    int status = cli_finish(g, a, &t, EXIT_DONE);
    other_machine_close(&d);
    return status;
}

struct measuring {
    const struct cli_global *g;
    struct progress progress;
};

static bool detect_on_kernel(void *ctx, const char *what, double done)
{
    struct measuring *m = ctx;
    progress_show(&m->progress, "timing kernels: %s  %.0f %%", what, 100 * fmin(done, 1));
    return !cli_is_interrupted(m->g);
}

static enum err_code measure_kernels(const struct cli_global *g, const struct machine *m,
                                     struct machine_ceilings *c, uint32_t usable, struct err *why)
{
    struct measuring measuring = { .g = g };
    progress_init(&measuring.progress, g);
    enum err_code rc = kernel_times_measure(&c->kernels, usable, 0, detect_on_kernel, &measuring, why);
    progress_clear(&measuring.progress);
    if (rc || usable != isa_detect()) return rc; /* QDYNO_ISA hides a part of the machine */
    return ceilings_save(c, m->id, why);
}

static bool detect_on_shape(void *ctx, int done, int of)
{
    struct measuring *m = ctx;
    progress_show(&m->progress, "timing shapes of matrix products: %d of %d", done, of);
    return !cli_is_interrupted(m->g);
}

static enum err_code measure_shapes(const struct cli_global *g, const char *device, struct err *why)
{
    struct measuring measuring = { .g = g };
    struct db *d = NULL;
    char *line = NULL;
    progress_init(&measuring.progress, g);
    enum err_code rc = opencl_shapes_measure(&line, device, detect_on_shape, &measuring, why);
    progress_clear(&measuring.progress);
    if (!rc) rc = db_open(&d, NULL, why);
    if (!rc) rc = db_shapes_put(d, line, why);
    db_close(d);
    free(line);
    return rc;
}

/* Measures what the flags demand, and reads the rest from the cache. */
static enum err_code detect_measure(const struct cli_global *g, const struct cli_args *a,
                                    const struct devices *all, struct machine *m, struct machine_ceilings *c,
                                    bool *known, struct err *why)
{
    uint32_t usable;
    enum err_code rc = isa_usable(&usable, why);
    if (!rc)
        rc = cli_machine(g,
                         args_has(a, "--probe")     ? PROBE_FRESH
                         : args_has(a, "--kernels") ? PROBE_IF_MISSING
                                                    : PROBE_CACHED,
                         m, c, known, why);
    if (!rc && args_has(a, "--probe")) {
        measure_devices(g, all, c);
        if (usable == isa_detect()) rc = ceilings_save(c, m->id, why);
    }
    if (!rc && args_has(a, "--kernels")) rc = measure_kernels(g, m, c, usable, why);
    if (!rc && args_has(a, "--shapes")) rc = measure_shapes(g, args_text(a, "--shapes", ""), why);
    return rc;
}

int command_detect(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 }, no_devices = { 0 };
    struct devices devices;
    struct machine m;
    struct machine_ceilings c;
    struct table t;
    bool known;
    uint32_t usable;
    char isa[256];
    const char *other = args_text(a, "--machine", NULL), *folder = args_text(a, "--record", NULL);
    if (other) return other_machine_show(g, a, other);
    if (args_has(a, "--ranks")) return detect_ranks(g, a);
    devices_list(&devices, DEVICES_SECONDS, &no_devices);
    if (isa_usable(&usable, &why) || detect_measure(g, a, &devices, &m, &c, &known, &why))
        return cli_fail(a, &why);
    json_t *ceilings = known ? ceilings_to_json(&c) : NULL;
    if (folder && recording_make(folder, args_has(a, "--private"), ceilings, &why)) {
        json_decref(ceilings);
        return cli_fail(a, &why);
    }
    json_decref(ceilings);
    json_t *row = table_record(&t, &DOCUMENT_DETECT);
    put_machine(row, &m);
    json_put_str(row, "isa_usable", isa_names(usable, isa, sizeof isa));
    put_power(row, "");
    put_ceilings(&t, row, known ? &c : NULL, true);
    note_gpus(&t, &m);
    put_devices(&t, row, &m, &devices, known ? &c : NULL, &no_devices);
    if (args_has(a, "--shapes"))
        table_note(&t, "the fastest shapes of matrix products on %s were measured and stored",
                   args_text(a, "--shapes", ""));
    if (folder)
        table_note(&t, "recorded in %s%s", folder,
                   args_has(a, "--private") ? "" : ": host and group names, serial numbers and UUIDs masked");
    json_put(t.extra, "machine", machine_to_json(&m));
    return cli_finish(g, a, &t, EXIT_DONE);
}
