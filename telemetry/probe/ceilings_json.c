/* telemetry/probe/ceilings_json.c - ceilings as JSON, and their cache file. */
#include "telemetry/probe/probe.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields/fields.h"
#include "telemetry/probe/ceilings.h"

enum { CEILINGS_SCHEMA = 1 };

#define GPU_FIELD(name, KIND)    JSON_FIELD(struct gpu_ceilings, name, #name, KIND)
#define OPENCL_FIELD(name, KIND) JSON_FIELD(struct device_ceilings, name, #name, KIND)
static const struct json_field GPU_CEILINGS[] = {
    GPU_FIELD(read_bytes_s, NUM), GPU_FIELD(f32_ops_s, NUM),    GPU_FIELD(tf32_ops_s, NUM),
    GPU_FIELD(f16_ops_s, NUM),    GPU_FIELD(bf16_ops_s, NUM),   GPU_FIELD(fp8_ops_s, NUM),
    GPU_FIELD(int8_ops_s, NUM),   GPU_FIELD(link_bytes_s, NUM), GPU_FIELD(power_watts, NUM),
    GPU_FIELD(unified, BOOL),
};
static const struct json_field OPENCL_CEILINGS[] = {
    OPENCL_FIELD(read_bytes_s, NUM),        OPENCL_FIELD(copy_bytes_s, NUM),
    OPENCL_FIELD(f32_ops_s, NUM),           OPENCL_FIELD(f16_ops_s, NUM),
    OPENCL_FIELD(int8_ops_s, NUM),          OPENCL_FIELD(to_device_bytes_s, NUM),
    OPENCL_FIELD(from_device_bytes_s, NUM),
};
static const struct json_field READ_FIELDS[] = {
    JSON_FIELD(struct ceiling_read, threads, "threads", INT),
    JSON_FIELD(struct ceiling_read, bytes_s, "bytes_s", NUM),
};
static const struct json_field NODE_FIELDS[] = {
    JSON_FIELD(struct ceiling_node, own_bytes_s, "own_bytes_s", NUM),
    JSON_FIELD(struct ceiling_node, all_bytes_s, "all_bytes_s", NUM),
};
static const struct json_field ARITHMETIC_FIELDS[] = {
    JSON_FIELD(struct ceiling_arithmetic, name, "name", TEXT),
    JSON_FIELD(struct ceiling_arithmetic, isa, "isa", TEXT),
    JSON_FIELD(struct ceiling_arithmetic, ops_s_1, "ops_s_1", NUM),
    JSON_FIELD(struct ceiling_arithmetic, ops_s_all, "ops_s_all", NUM),
};

/* A ceiling is positive or unknown, so that a damaged file cannot cause a division by zero. */
static double ceiling_known(double v)
{
    return v > 0 && isfinite(v) ? v : NAN;
}

static double ceiling_number(const json_t *object, const char *key)
{
    return ceiling_known(json_get_num(object, key, NAN));
}

/* All numbers of a struct of ceilings. */
static void ceilings_check(void *of, const struct json_field *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double *v = (double *)(void *)((char *)of + f[i].offset);
        if (f[i].kind == JSON_FIELD_NUM) *v = ceiling_known(*v);
    }
}

/* Sets the fields of the struct at `to`, which is zero before; all its numbers are ceilings. */
static void ceilings_get(void *to, const json_t *object, const struct json_field *f, size_t n)
{
    json_get_fields(object, f, n, to);
    ceilings_check(to, f, n);
}

/* An array of `count` structs of `size` bytes as a list of objects. New reference. */
static json_t *rows_to_json(const void *rows, int count, size_t size, const struct json_field *f, size_t n)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        json_t *object = json_object();
        json_put_fields(object, f, n, (const char *)rows + (size_t)i * size);
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *gpu_to_json(const struct gpu_ceilings *g)
{
    json_t *object = json_object();
    struct gpu_ceilings known = *g; /* 0 is unknown, too */
    ceilings_check(&known, GPU_CEILINGS, COUNT_OF(GPU_CEILINGS));
    json_put_fields(object, GPU_CEILINGS, COUNT_OF(GPU_CEILINGS), &known);
    return object;
}

static json_t *opencl_to_json(const struct machine_ceilings *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->opencl_count; i++) {
        const struct opencl_measured *d = &c->opencl[i];
        json_t *object = json_object();
        json_put_str(object, "name", d->name);
        json_put_str(object, "model", d->model);
        json_put_str(object, "driver", d->driver);
        json_put_fields(object, OPENCL_CEILINGS, COUNT_OF(OPENCL_CEILINGS), &d->can);
        json_array_append_new(list, object);
    }
    return list;
}

json_t *ceilings_to_json(const struct machine_ceilings *c)
{
    json_t *object = json_object();
    json_put_int(object, "schema", CEILINGS_SCHEMA);
    json_put_int(object, "measured_unix_ms", c->measured_unix_ms);
    json_put_int(object, "threads_all", c->threads_all);
    json_put_num(object, "others_busy_ratio", c->others_busy_ratio);
    json_put_num(object, "read_bytes_s_1", c->read_bytes_s_1);
    json_put_num(object, "read_bytes_s_all", c->read_bytes_s_all);
    if (c->reads)
        json_put(object, "reads",
                 rows_to_json(c->read, c->reads, sizeof *c->read, READ_FIELDS, COUNT_OF(READ_FIELDS)));
    if (c->nodes)
        json_put(object, "nodes",
                 rows_to_json(c->node, c->nodes, sizeof *c->node, NODE_FIELDS, COUNT_OF(NODE_FIELDS)));
    json_put(object, "arithmetic",
             rows_to_json(c->row, c->count, sizeof *c->row, ARITHMETIC_FIELDS, COUNT_OF(ARITHMETIC_FIELDS)));
    json_put_num(object, "power_watts", c->power_watts > 0 ? c->power_watts : NAN);
    if (c->gpu.read_bytes_s > 0) json_put(object, "gpu", gpu_to_json(&c->gpu));
    if (c->opencl_count) json_put(object, "opencl", opencl_to_json(c));
    if (c->kernels.measured) json_put(object, "kernels", kernel_times_to_json(&c->kernels));
    return object;
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
        ceilings_get(&d->can, object, OPENCL_CEILINGS, COUNT_OF(OPENCL_CEILINGS));
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
        ceilings_get(&c->read[c->reads++], entry, READ_FIELDS, COUNT_OF(READ_FIELDS));
        before = (int)threads;
    }
    json_array_foreach(json_object_get(object, "nodes"), i, entry)
    {
        if (c->nodes == CEILINGS_NODES) break;
        ceilings_get(&c->node[c->nodes++], entry, NODE_FIELDS, COUNT_OF(NODE_FIELDS));
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
        ceilings_get(&c->row[i], row, ARITHMETIC_FIELDS, COUNT_OF(ARITHMETIC_FIELDS));
        c->count++;
    }
    c->power_watts = ceiling_number(object, "power_watts");
    const json_t *gpu = json_object_get(object, "gpu"), *kernels = json_object_get(object, "kernels");
    if (json_is_object(gpu)) ceilings_get(&c->gpu, gpu, GPU_CEILINGS, COUNT_OF(GPU_CEILINGS));
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
