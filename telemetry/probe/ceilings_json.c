/* telemetry/probe/ceilings_json.c - ceilings as JSON, and their cache file. */
#include "telemetry/probe/probe.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/probe/ceilings.h"

enum { CEILINGS_SCHEMA = 1 };

/* Fields that are converted by name in both directions; offset of a double. */
struct ceiling_field {
    const char *name;
    size_t offset;
};

static const struct ceiling_field GPU_CEILINGS[] = {
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

static const struct ceiling_field OPENCL_CEILINGS[] = {
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

/* A ceiling is positive or unknown, so that a damaged file cannot cause a division by zero. */
static double ceiling_number(const json_t *object, const char *key)
{
    double v = json_get_num(object, key, NAN);
    return v > 0 && isfinite(v) ? v : NAN;
}

/* Ignores devices beyond CEILINGS_OPENCL. */
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

/* Ignores entries beyond the capacity, and thread counts that are not ascending. */
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
    *c = CEILINGS_UNKNOWN;
    const json_t *rows = json_object_get(object, "arithmetic");
    if (!json_is_object(object) || !json_is_array(rows) ||
        json_get_int(object, "schema", -1) != CEILINGS_SCHEMA)
        return err_set(
            why, ERR_FORMAT,
            "the measured limits of the machine ('ceilings'): expected an object of schema %d with "
            "'arithmetic'; measure them again on that machine with `qdyno detect --probe`",
            CEILINGS_SCHEMA);
    if (json_array_size(rows) > CEILINGS_MAX)
        return err_set(why, ERR_FORMAT, "measured ceilings: %zu rows, at most %d are possible",
                       json_array_size(rows), CEILINGS_MAX);
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
        return err_set(why, ERR_USAGE, "'%s' is not a machine id", machine_id);
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
    /* an absent or damaged file is not an error: the caller measures again and replaces it */
    *found = !file_read(&text, &n, path, 1 << 20, NULL) && !json_parse(&object, text, n, NULL) &&
             !ceilings_from_json(c, object, NULL);
    if (!*found) *c = CEILINGS_UNKNOWN;
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
        if (!rc) file_make_private(path);
    }
    free(line);
    free(path);
    return rc;
}
