/* telemetry/probe/kernel_times.c - kernel times as JSON, load sensitivity, and how computing and waiting for
 * memory combine.
 *
 * JSON names formats and variants instead of numbering them, so that a file stays valid in later versions. */
#include "telemetry/probe/probe.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const int KERNEL_ROWS_AT[KERNEL_ROWS] = { 1, 4, 16, 64, 512 };
const int64_t KERNEL_READ_AT[KERNEL_READS] = { INT64_C(1) << 20,  INT64_C(4) << 20,   INT64_C(16) << 20,
                                               INT64_C(64) << 20, INT64_C(256) << 20, INT64_C(1) << 30 };
const char *const KERNEL_VARIANT_NAMES[KERNEL_VARIANTS] = { "auto", "highest", "high", "medium", "int8" };

enum { KERNEL_TIMES_SCHEMA = 1 };

/* see kernel_time_together in probe.h */
static const double OVERLAP_POWER = 4, LEAST_WAITING_RATIO = 0.05;

double kernel_time_together(double computing_s, double waiting_s)
{
    return pow(pow(computing_s, OVERLAP_POWER) + pow(waiting_s, OVERLAP_POWER), 1 / OVERLAP_POWER);
}

double kernel_time_waiting(double all_s, double computing_s)
{
    const double rest = pow(all_s, OVERLAP_POWER) - pow(computing_s, OVERLAP_POWER);
    const double least = LEAST_WAITING_RATIO * all_s;
    return rest > 0 ? fmax(pow(rest, 1 / OVERLAP_POWER), least) : least;
}

int kernel_narrow_dim(const struct format *f)
{
    return MAX(16, f->block_weights);
}

int kernel_rows_before(int rows)
{
    int r = 0;
    while (r + 2 < KERNEL_ROWS && KERNEL_ROWS_AT[r + 1] <= rows) r++;
    return r;
}

const double KERNEL_LOAD_SENSITIVITY_ATTENTION = 0.75;

double kernel_load_sensitivity(const struct format *f, const struct backend_options *o, int rows)
{
    /* the fitted exponents at KERNEL_ROWS_AT, for kernels that multiply integers and floats; interpolated in
     * the logarithm of the rows */
    static const double INTEGERS[KERNEL_ROWS] = { 1, 0.9, 0.85, 0.55, 0.55 };
    static const double FLOATS[KERNEL_ROWS] = { 1, 0.9, 0.85, 0.85, 0.85 };
    if (rows <= 1) return 1;
    const double *at = strcmp(matmul_ceiling(f, o), "f32_fma") ? INTEGERS : FLOATS;
    const int r = kernel_rows_before(rows);
    const double from = log(KERNEL_ROWS_AT[r]), to = log(KERNEL_ROWS_AT[r + 1]);
    const double share = fmin((log(rows) - from) / (to - from), 1);
    return (1 - share) * at[r] + share * at[r + 1];
}

/* Four significant digits: more would be noise. 0, not measured, becomes null. */
static json_t *time_to_json(float v)
{
    char text[32];
    double rounded = 0;
    snprintf(text, sizeof text, "%.4g", (double)v);
    str_to_double(text, &rounded);
    return v > 0 ? json_real(rounded) : json_null();
}

static json_t *times_to_json(const float *v, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, time_to_json(v[i]));
    return list;
}

/* Anything but a positive number means not measured. */
static void times_get(float *v, int n, const json_t *list)
{
    for (int i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, (size_t)i);
        const double d = json_is_number(x) ? json_number_value(x) : 0;
        v[i] = d > 0 && isfinite(d) ? (float)d : 0;
    }
}

/* Adds v[0..n) to the object, unless none of them was measured. */
static void times_put(json_t *object, const char *key, const float *v, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++) any |= v[i] > 0;
    if (any) json_put(object, key, times_to_json(v, n));
}

/* The times of a format that have two values, for one thread and for all. */
static const struct {
    const char *key;
    size_t at; /* float [FORMAT_COUNT][2] of struct kernel_times */
} PAIRS[] = {
    { "stream", offsetof(struct kernel_times, stream) },
    { "near", offsetof(struct kernel_times, near) },
    { "row", offsetof(struct kernel_times, row) },
    { "row_short", offsetof(struct kernel_times, row_short) },
    { "edge", offsetof(struct kernel_times, edge) },
    { "attend_one", offsetof(struct kernel_times, attend_one) },
    { "attend_far", offsetof(struct kernel_times, attend_far) },
    { "narrow_one", offsetof(struct kernel_times, narrow_one) },
    { "narrow_many", offsetof(struct kernel_times, narrow_many) },
    { "apart_one", offsetof(struct kernel_times, apart_one) },
};

static float *times_pair(const struct kernel_times *k, size_t i, int format)
{
    return (float *)((char *)k + PAIRS[i].at) + 2 * (ptrdiff_t)format;
}

json_t *kernel_times_to_json(const struct kernel_times *k)
{
    json_t *object = json_object(), *formats = json_object();
    json_put_int(object, "schema", KERNEL_TIMES_SCHEMA);
    json_put_int(object, "measured_unix_ms", k->measured_unix_ms);
    json_put_int(object, "stream_bytes", k->stream_bytes);
    times_put(object, "weights_pace", k->memory_speed,
              2); /* files with the key "pace" were measured with other kernels */
    times_put(object, "compute", k->compute_speed, 2);
    times_put(object, "region", k->region, 2);
    times_put(object, "wake", &k->wake, 1);
    times_put(object, "glue", k->glue, 2);
    times_put(object, "glue_element", k->glue_element, 2);
    times_put(object, "read", k->read[0], 2 * KERNEL_READS);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        json_t *row = json_object();
        for (int v = 0; v < KERNEL_VARIANTS; v++) {
            char key[32];
            snprintf(key, sizeof key, "product_%s", KERNEL_VARIANT_NAMES[v]);
            times_put(row, key, k->product[f][v][0], 2 * KERNEL_ROWS);
            snprintf(key, sizeof key, "attend_many_%s", KERNEL_VARIANT_NAMES[v]);
            times_put(row, key, k->attend_many[f][v], 2);
        }
        for (size_t i = 0; i < COUNT_OF(PAIRS); i++) times_put(row, PAIRS[i].key, times_pair(k, i, f), 2);
        if (json_object_size(row))
            json_put(formats, FORMATS[f].name, row);
        else
            json_decref(row);
    }
    json_put(object, "formats", formats);
    return object;
}

static void format_from_json(struct kernel_times *k, const char *name, const json_t *row)
{
    const struct format *format = format_find(name);
    if (!format) return;
    const int f = (int)(format - FORMATS);
    for (int v = 0; v < KERNEL_VARIANTS; v++) {
        char key[32];
        snprintf(key, sizeof key, "product_%s", KERNEL_VARIANT_NAMES[v]);
        times_get(k->product[f][v][0], 2 * KERNEL_ROWS, json_object_get(row, key));
        snprintf(key, sizeof key, "attend_many_%s", KERNEL_VARIANT_NAMES[v]);
        times_get(k->attend_many[f][v], 2, json_object_get(row, key));
    }
    for (size_t i = 0; i < COUNT_OF(PAIRS); i++)
        times_get(times_pair(k, i, f), 2, json_object_get(row, PAIRS[i].key));
}

enum err_code kernel_times_from_json(struct kernel_times *k, const json_t *object, struct err *why)
{
    const char *name;
    json_t *row;
    memset(k, 0, sizeof *k);
    json_t *formats = json_object_get(object, "formats");
    if (json_get_int(object, "schema", -1) != KERNEL_TIMES_SCHEMA || !json_is_object(formats))
        return err_set(why, ERR_FORMAT,
                       "measured kernel times: expected an object of schema %d with 'formats'",
                       KERNEL_TIMES_SCHEMA);
    k->measured = true;
    k->measured_unix_ms = json_get_int(object, "measured_unix_ms", 0);
    k->stream_bytes = json_get_int(object, "stream_bytes", 0);
    times_get(k->memory_speed, 2, json_object_get(object, "weights_pace"));
    times_get(k->compute_speed, 2, json_object_get(object, "compute"));
    times_get(k->region, 2, json_object_get(object, "region"));
    times_get(&k->wake, 1, json_object_get(object, "wake"));
    times_get(k->glue, 2, json_object_get(object, "glue"));
    times_get(k->glue_element, 2, json_object_get(object, "glue_element"));
    times_get(k->read[0], 2 * KERNEL_READS, json_object_get(object, "read"));
    json_object_foreach(formats, name, row) format_from_json(k, name, row);
    return ERR_OK;
}
