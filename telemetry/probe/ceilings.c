/* telemetry/probe/ceilings.c - what this machine could do: measured ceilings of memory bandwidth and
 * arithmetic, and their cache.
 *
 * Every ceiling gets an equal share of the time that is left, so a slow step (touching a gigabyte for the
 * first time) shortens the others instead of the user's patience. */
#include "telemetry/probe/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

enum { CEILINGS_SCHEMA = 1 };
static const double DEFAULT_SECONDS = 8, LEAST_SECONDS = 0.02;

/* Far beyond the last cache, so that nothing is read twice from it; at most a quarter of what is free. */
static int64_t read_buffer_bytes(void)
{
    struct machine m;
    int64_t bytes = INT64_C(256) << 20;
    if (machine_detect(&m, "", NULL)) return bytes;
    if (m.cache_bytes[2] > 0) bytes = MAX(bytes, 4 * m.cache_bytes[2]);
    bytes = MIN(bytes, INT64_C(2) << 30);
    if (m.memory_available_bytes > 0) bytes = MIN(bytes, m.memory_available_bytes / 4);
    return bytes;
}

static struct machine_ceilings ceilings_unknown(void)
{
    return (struct machine_ceilings){
        .read_bytes_s_1 = NAN, .read_bytes_s_all = NAN, .others_busy_ratio = NAN, .power_watts = NAN
    };
}

struct schedule {
    double deadline_s;
    int left, total; /* measurements */
    void (*progress)(void *ctx, const char *what, double done);
    void *ctx;
};

static double now_s(void)
{
    return (double)clock_ns() / 1e9;
}

/* Announce the next measurement; returns the seconds it may take. */
static double next_share(struct schedule *s, const char *what, int threads)
{
    char text[96];
    snprintf(text, sizeof text, "%s, %d thread%s", what, threads, threads == 1 ? "" : "s");
    if (s->progress) s->progress(s->ctx, text, 1 - (double)s->left / s->total);
    double share = (s->deadline_s - now_s()) / s->left--;
    return MAX(share, LEAST_SECONDS);
}

/* What is measured, so that the time can be shared out: read bandwidth at 1, 2, 4 ... and all threads, each
 * memory node where there are several, arithmetic with one thread and all. */
struct agenda {
    int threads[CEILINGS_READS + 2], counts; /* rising */
    struct numa *numa;                       /* NULL: one node */
    int nodes;
    int arithmetic; /* rows of CEILINGS that are usable */
    uint32_t isa;
};

static void agenda_open(struct agenda *a, uint32_t isa)
{
    const int all = threadpool_default_threads();
    *a = (struct agenda){ .isa = isa };
    for (int n = 1; n < all && a->counts <= CEILINGS_READS; n *= 2) a->threads[a->counts++] = n;
    a->threads[a->counts++] = all;
    for (size_t i = 0; i < CEILING_COUNT; i++)
        a->arithmetic += (CEILINGS[i].needs & isa) == CEILINGS[i].needs;
    if (numa_open(&a->numa, NULL)) return;
    a->nodes = MIN(numa_count(a->numa), (int)CEILINGS_NODES);
    if (a->nodes > 1) return;
    numa_close(a->numa);
    a->numa = NULL;
    a->nodes = 0;
}

static int agenda_length(const struct agenda *a)
{
    return a->counts + 2 * a->nodes + a->arithmetic * (a->counts > 1 ? 2 : 1);
}

static void probe_reads(struct machine_ceilings *out, const struct agenda *a, struct schedule *s)
{
    const int64_t bytes = read_buffer_bytes();
    for (int i = 0; i < a->counts; i++) {
        const double share = next_share(s, "memory read", a->threads[i]);
        const double speed = ceiling_read_bytes_s(&(struct ceiling_reading){ .threads = a->threads[i] },
                                                  bytes, share);
        if (i == 0) out->read_bytes_s_1 = speed;
        if (i == a->counts - 1) out->read_bytes_s_all = speed;
        if (i == 0 || i == a->counts - 1) continue;
        out->read[out->reads].threads = a->threads[i];
        out->read[out->reads++].bytes_s = speed;
    }
    for (int i = 0; i < a->nodes; i++) {
        struct ceiling_reading what = { .threads = MIN(MAX(numa_cores(a->numa, i), 1), out->threads_all),
                                        .nodes = a->numa,
                                        .node = i };
        char name[48];
        snprintf(name, sizeof name, "memory read, node %d", i);
        double share = next_share(s, name, what.threads);
        what.near = true;
        out->node[i].own_bytes_s = numa_cores(a->numa, i) ? ceiling_read_bytes_s(&what, bytes, share) : NAN;
        what.threads = out->threads_all;
        what.near = false;
        share = next_share(s, name, what.threads);
        out->node[i].all_bytes_s = ceiling_read_bytes_s(&what, bytes, share);
        out->nodes = i + 1;
    }
}

static void probe_arithmetic(struct machine_ceilings *out, const struct agenda *a, struct schedule *s)
{
    for (size_t i = 0; i < CEILING_COUNT; i++) {
        const struct ceiling *c = &CEILINGS[i];
        const bool usable = (c->needs & a->isa) == c->needs;
        double one = NAN, all = NAN;
        char what[64];
        snprintf(what, sizeof what, "%s (%s)", c->name, c->isa);
        if (usable) one = all = ceiling_ops_s(c, a->isa, 1, next_share(s, what, 1));
        if (usable && a->counts > 1)
            all = ceiling_ops_s(c, a->isa, out->threads_all, next_share(s, what, out->threads_all));
        out->row[i].ops_s_1 = one;
        out->row[i].ops_s_all = all;
        snprintf(out->row[i].name, sizeof out->row[0].name, "%s", c->name);
        snprintf(out->row[i].isa, sizeof out->row[0].isa, "%s", c->isa);
    }
    out->count = (int)CEILING_COUNT;
}

enum err_code machine_probe(struct machine_ceilings *out, uint32_t isa_usable_bits, double seconds,
                            void (*progress)(void *ctx, const char *what, double done), void *ctx,
                            struct err *why)
{
    struct agenda a;
    double row[METRIC_SENSOR_COUNT];
    struct telemetry *sensors = NULL; /* without them, nobody knows who else was running */
    *out = ceilings_unknown();
    if (!(seconds >= 0) || seconds > 3600)
        return err_set(why, ERR_USAGE, "probe time: want 0 to 3600 seconds, got %g", seconds);
    if (CEILING_COUNT > CEILINGS_MAX)
        return err_set(why, ERR_INTERNAL, "%zu ceilings, room for %d", CEILING_COUNT, CEILINGS_MAX);
    agenda_open(&a, isa_usable_bits);
    out->threads_all = a.threads[a.counts - 1];
    if (!telemetry_open(&sensors, "", NULL)) telemetry_sample(sensors, row);
    struct schedule s = { now_s() + (seconds > 0 ? seconds : DEFAULT_SECONDS), agenda_length(&a),
                          agenda_length(&a), progress, ctx };
    probe_reads(out, &a, &s);
    probe_arithmetic(out, &a, &s);
    numa_close(a.numa);
    out->measured_unix_ms = clock_unix_ms();
    if (sensors) {
        telemetry_sample(sensors, row);
        out->others_busy_ratio = row[METRIC_OTHERS_BUSY];
        telemetry_close(sensors);
    }
    if (progress) progress(ctx, "done", 1);
    return ERR_OK;
}

/* ---------------------------------------------------------------- asking them */

double ceilings_read_bytes_s(const struct machine_ceilings *c, int threads)
{
    const double one = c->read_bytes_s_1, all = fmax(c->read_bytes_s_all, one); /* of a NAN and a number:
                                                                                   the number */
    if (threads <= 1) return isnan(one) ? all : one;
    if (threads >= c->threads_all || isnan(one)) return all;
    int from = 1, to = c->threads_all;
    double low = one, high = all;
    for (int i = 0; i < c->reads; i++) {
        if (isnan(c->read[i].bytes_s)) continue;
        if (c->read[i].threads <= threads) {
            from = c->read[i].threads;
            low = c->read[i].bytes_s;
        } else if (c->read[i].threads < to) {
            to = c->read[i].threads;
            high = c->read[i].bytes_s;
        }
    }
    /* Between two counts at most in proportion to them, and no more than the greater one reaches. */
    return fmin(fmax(low, high), low * threads / from);
}

double ceilings_node_bytes_s(const struct machine_ceilings *c)
{
    double sum = 0;
    for (int i = 0; i < c->nodes; i++) sum += c->node[i].all_bytes_s;
    return c->nodes > 1 ? sum / c->nodes : NAN;
}

/* ---------------------------------------------------------------- JSON */

/* The GPU's figures by name, for both directions. */
static const struct {
    const char *name;
    size_t offset;
} GPU_CEILINGS[] = {
    { "read_bytes_s", offsetof(struct gpu_ceilings, read_bytes_s) },
    { "f32_ops_s", offsetof(struct gpu_ceilings, f32_ops_s) },
    { "tf32_ops_s", offsetof(struct gpu_ceilings, tf32_ops_s) },
    { "f16_ops_s", offsetof(struct gpu_ceilings, f16_ops_s) },
    { "bf16_ops_s", offsetof(struct gpu_ceilings, bf16_ops_s) },
    { "fp8_ops_s", offsetof(struct gpu_ceilings, fp8_ops_s) },
    { "int8_ops_s", offsetof(struct gpu_ceilings, int8_ops_s) },
    { "link_bytes_s", offsetof(struct gpu_ceilings, link_bytes_s) },
    { "power_watts", offsetof(struct gpu_ceilings, power_watts) },
};

static json_t *gpu_to_json(const struct gpu_ceilings *g)
{
    json_t *object = json_object();
    for (size_t i = 0; i < COUNT_OF(GPU_CEILINGS); i++) {
        const double v = *(const double *)((const char *)g + GPU_CEILINGS[i].offset);
        json_put_num(object, GPU_CEILINGS[i].name, v > 0 ? v : NAN);
    }
    json_put_bool(object, "unified", g->unified);
    return object;
}

/* An OpenCL device's. */
static const struct {
    const char *name;
    size_t offset;
} OPENCL_CEILINGS[] = {
    { "read_bytes_s", offsetof(struct device_ceilings, read_bytes_s) },
    { "copy_bytes_s", offsetof(struct device_ceilings, copy_bytes_s) },
    { "f32_ops_s", offsetof(struct device_ceilings, f32_ops_s) },
    { "f16_ops_s", offsetof(struct device_ceilings, f16_ops_s) },
    { "int8_ops_s", offsetof(struct device_ceilings, int8_ops_s) },
    { "to_device_bytes_s", offsetof(struct device_ceilings, to_device_bytes_s) },
    { "from_device_bytes_s", offsetof(struct device_ceilings, from_device_bytes_s) },
};

static json_t *opencl_to_json(const struct machine_ceilings *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->opencl_count; i++) {
        const struct opencl_measured *d = &c->opencl[i];
        json_t *object = json_object();
        json_put_str(object, "name", d->name);
        json_put_str(object, "model", d->model);
        json_put_str(object, "driver", d->driver);
        for (size_t k = 0; k < COUNT_OF(OPENCL_CEILINGS); k++)
            json_put_num(object, OPENCL_CEILINGS[k].name,
                         *(const double *)((const char *)&d->can + OPENCL_CEILINGS[k].offset));
        json_array_append_new(list, object);
    }
    return list;
}

const struct opencl_measured *ceilings_opencl(const struct machine_ceilings *c, const struct device_info *d)
{
    for (int i = 0; i < c->opencl_count; i++) {
        const struct opencl_measured *m = &c->opencl[i];
        if (!strcmp(m->name, d->name) && !strcmp(m->model, d->model) && !strcmp(m->driver, d->driver))
            return m;
    }
    return NULL;
}

static json_t *reads_to_json(const struct machine_ceilings *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->reads; i++) {
        json_t *object = json_object();
        json_put_int(object, "threads", c->read[i].threads);
        json_put_num(object, "bytes_s", c->read[i].bytes_s);
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *nodes_to_json(const struct machine_ceilings *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->nodes; i++) {
        json_t *object = json_object();
        json_put_num(object, "own_bytes_s", c->node[i].own_bytes_s);
        json_put_num(object, "all_bytes_s", c->node[i].all_bytes_s);
        json_array_append_new(list, object);
    }
    return list;
}

json_t *ceilings_to_json(const struct machine_ceilings *c)
{
    json_t *object = json_object(), *rows = json_array();
    json_put_int(object, "schema", CEILINGS_SCHEMA);
    json_put_int(object, "measured_unix_ms", c->measured_unix_ms);
    json_put_int(object, "threads_all", c->threads_all);
    json_put_num(object, "others_busy_ratio", c->others_busy_ratio);
    json_put_num(object, "read_bytes_s_1", c->read_bytes_s_1);
    json_put_num(object, "read_bytes_s_all", c->read_bytes_s_all);
    if (c->reads) json_put(object, "reads", reads_to_json(c));
    if (c->nodes) json_put(object, "nodes", nodes_to_json(c));
    for (int i = 0; i < c->count; i++) {
        json_t *row = json_object();
        json_put_str(row, "name", c->row[i].name);
        json_put_str(row, "isa", c->row[i].isa);
        json_put_num(row, "ops_s_1", c->row[i].ops_s_1);
        json_put_num(row, "ops_s_all", c->row[i].ops_s_all);
        json_array_append_new(rows, row);
    }
    json_put(object, "arithmetic", rows);
    json_put_num(object, "power_watts", c->power_watts > 0 ? c->power_watts : NAN);
    if (c->gpu.read_bytes_s > 0) json_put(object, "gpu", gpu_to_json(&c->gpu));
    if (c->opencl_count) json_put(object, "opencl", opencl_to_json(c));
    if (c->kernels.measured) json_put(object, "kernels", kernel_times_to_json(&c->kernels));
    return object;
}

/* A ceiling is a positive number or unknown: a damaged file must not become a division by zero. */
static double ceiling_number(const json_t *object, const char *key)
{
    double v = json_get_num(object, key, NAN);
    return v > 0 && isfinite(v) ? v : NAN;
}

/* Devices beyond those there is room for are left out. */
static void opencl_from_json(struct machine_ceilings *c, const json_t *list)
{
    size_t i;
    json_t *object;
    json_array_foreach(list, i, object)
    {
        if (c->opencl_count == CEILINGS_OPENCL) return;
        struct opencl_measured *d = &c->opencl[c->opencl_count++];
        snprintf(d->name, sizeof d->name, "%s", json_get_str(object, "name", ""));
        snprintf(d->model, sizeof d->model, "%s", json_get_str(object, "model", ""));
        snprintf(d->driver, sizeof d->driver, "%s", json_get_str(object, "driver", ""));
        for (size_t k = 0; k < COUNT_OF(OPENCL_CEILINGS); k++)
            *(double *)((char *)&d->can +
                        OPENCL_CEILINGS[k].offset) = ceiling_number(object, OPENCL_CEILINGS[k].name);
    }
}

/* Those beyond the room there is, or out of order, are left out. */
static void memory_from_json(struct machine_ceilings *c, const json_t *object)
{
    size_t i;
    json_t *entry;
    int before = 1;
    json_array_foreach(json_object_get(object, "reads"), i, entry)
    {
        const int64_t threads = json_get_int(entry, "threads", -1);
        if (c->reads == CEILINGS_READS || threads <= before || threads >= c->threads_all) continue;
        c->read[c->reads].threads = before = (int)threads;
        c->read[c->reads++].bytes_s = ceiling_number(entry, "bytes_s");
    }
    json_array_foreach(json_object_get(object, "nodes"), i, entry)
    {
        if (c->nodes == CEILINGS_NODES) break;
        c->node[c->nodes].own_bytes_s = ceiling_number(entry, "own_bytes_s");
        c->node[c->nodes++].all_bytes_s = ceiling_number(entry, "all_bytes_s");
    }
}

enum err_code ceilings_from_json(struct machine_ceilings *c, const json_t *object, struct err *why)
{
    *c = ceilings_unknown();
    const json_t *rows = json_object_get(object, "arithmetic");
    if (!json_is_object(object) || !json_is_array(rows) ||
        json_get_int(object, "schema", -1) != CEILINGS_SCHEMA)
        return err_set(why, ERR_FORMAT, "measured ceilings: want an object of schema %d with 'arithmetic'",
                       CEILINGS_SCHEMA);
    if (json_array_size(rows) > CEILINGS_MAX)
        return err_set(why, ERR_FORMAT, "measured ceilings: %zu rows, room for %d", json_array_size(rows),
                       CEILINGS_MAX);
    int64_t threads = json_get_int(object, "threads_all", -1);
    if (threads < 1 || threads > INT16_MAX)
        return err_set(why, ERR_FORMAT, "measured ceilings: threads_all is %lld", (long long)threads);
    c->threads_all = (int)threads;
    c->measured_unix_ms = json_get_int(object, "measured_unix_ms", 0);
    c->others_busy_ratio = json_get_num(object, "others_busy_ratio", NAN);
    c->read_bytes_s_1 = ceiling_number(object, "read_bytes_s_1");
    c->read_bytes_s_all = ceiling_number(object, "read_bytes_s_all");
    memory_from_json(c, object);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        snprintf(c->row[i].name, sizeof c->row[i].name, "%s", json_get_str(row, "name", ""));
        snprintf(c->row[i].isa, sizeof c->row[i].isa, "%s", json_get_str(row, "isa", ""));
        c->row[i].ops_s_1 = ceiling_number(row, "ops_s_1");
        c->row[i].ops_s_all = ceiling_number(row, "ops_s_all");
        c->count++;
    }
    c->power_watts = ceiling_number(object, "power_watts");
    const json_t *gpu = json_object_get(object, "gpu"), *kernels = json_object_get(object, "kernels");
    for (i = 0; json_is_object(gpu) && i < COUNT_OF(GPU_CEILINGS); i++)
        *(double *)((char *)&c->gpu + GPU_CEILINGS[i].offset) = ceiling_number(gpu, GPU_CEILINGS[i].name);
    c->gpu.unified = json_get_bool(gpu, "unified", false);
    opencl_from_json(c, json_object_get(object, "opencl"));
    return kernels ? kernel_times_from_json(&c->kernels, kernels, why) : ERR_OK;
}

/* ---------------------------------------------------------------- the cache */

static enum err_code cache_path(char **out, const char *machine_id, struct err *why)
{
    struct str path = { 0 };
    char *folder;
    *out = NULL;
    if (!*machine_id || strspn(machine_id, "0123456789abcdef") != strlen(machine_id))
        return err_set(why, ERR_USAGE, "'%s' is no machine id", machine_id);
    enum err_code rc = file_place(&folder, FILE_CACHE, why);
    if (rc) return rc;
    str_printf(&path, "%s/ceilings-%s.json", folder, machine_id);
    free(folder);
    *out = str_take(&path);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

enum err_code ceilings_load(struct machine_ceilings *c, const char *machine_id, bool *found, struct err *why)
{
    char *path, *text = NULL;
    size_t n;
    json_t *object = NULL;
    *found = false;
    enum err_code rc = cache_path(&path, machine_id, why);
    if (rc) return rc;
    /* absent, damaged or of another version: it is a cache, and measuring again mends it */
    *found = !file_read(&text, &n, path, 1 << 20, NULL) && !json_parse(&object, text, n, NULL) &&
             !ceilings_from_json(c, object, NULL);
    if (!*found) *c = ceilings_unknown();
    json_decref(object);
    free(text);
    free(path);
    return ERR_OK;
}

enum err_code ceilings_save(const struct machine_ceilings *c, const char *machine_id, struct err *why)
{
    char *path;
    struct atomic_file f;
    enum err_code rc = cache_path(&path, machine_id, why);
    if (rc) return rc;
    json_t *object = ceilings_to_json(c);
    char *line = json_line(object);
    json_decref(object);
    if (!line)
        rc = err_set(why, ERR_NOMEM, "out of memory saving the measured ceilings");
    else if (!(rc = atomic_file_open(&f, path, why))) {
        fprintf(f.stream, "%s\n", line);
        rc = atomic_file_commit(&f, why);
    }
    free(line);
    free(path);
    return rc;
}
