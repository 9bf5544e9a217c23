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
const char *const KERNEL_VARIANT_NAMES[KERNEL_VARIANTS] = {
    [KERNEL_VARIANT_AUTO] = PRECISION_NAME_AUTO,
    [KERNEL_VARIANT_HIGHEST] = PRECISION_NAME_HIGHEST,
    [KERNEL_VARIANT_HIGH] = PRECISION_NAME_HIGH,
    [KERNEL_VARIANT_MEDIUM] = PRECISION_NAME_MEDIUM,
    [KERNEL_VARIANT_INT8] = "int8",
};

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

/* Arrays of floats under their keys in JSON. */
struct times_field {
    const char *key;
    size_t offset; /* of the first float in struct kernel_times */
    int n;         /* floats */
};
#define TIMES(key, member)                                                                                   \
    {                                                                                                        \
        key, offsetof(struct kernel_times, member),                                                          \
            (int)(sizeof(((struct kernel_times *)0)->member) / sizeof(float))                                \
    }
static const struct times_field MACHINE_TIMES[] = {
    TIMES("weights_pace", memory_speed), /* files with the key "pace" were measured with other kernels */
    TIMES("compute", compute_speed),     TIMES("region", region), TIMES("wake", wake), TIMES("glue", glue),
    TIMES("glue_element", glue_element), TIMES("read", read),
};
/* Of each format: the member has such an array for each row of FORMATS. */
static const struct times_field FORMAT_TIMES[] = {
    TIMES("stream", stream[0]),
    TIMES("near", near[0]),
    TIMES("row", row[0]),
    TIMES("row_short", row_short[0]),
    TIMES("edge", edge[0]),
    TIMES("attend_one", attend_one[0]),
    TIMES("attend_far", attend_far[0]),
    TIMES("narrow_one", narrow_one[0]),
    TIMES("narrow_many", narrow_many[0]),
    TIMES("apart_one", apart_one[0]),
};

/* The array of a field; format: index in FORMATS, 0 for MACHINE_TIMES. */
static float *times_at(const struct kernel_times *k, const struct times_field *f, int format)
{
    return (float *)((char *)k + f->offset) + (ptrdiff_t)f->n * format;
}

json_t *kernel_times_to_json(const struct kernel_times *k)
{
    json_t *object = json_object(), *formats = json_object();
    json_put_int(object, "schema", KERNEL_TIMES_SCHEMA);
    json_put_int(object, "measured_unix_ms", k->measured_unix_ms);
    json_put_int(object, "stream_bytes", k->stream_bytes);
    for (size_t i = 0; i < COUNT_OF(MACHINE_TIMES); i++)
        times_put(object, MACHINE_TIMES[i].key, times_at(k, &MACHINE_TIMES[i], 0), MACHINE_TIMES[i].n);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        json_t *row = json_object();
        for (int v = 0; v < KERNEL_VARIANTS; v++) {
            char key[32];
            snprintf(key, sizeof key, "product_%s", KERNEL_VARIANT_NAMES[v]);
            times_put(row, key, k->product[f][v][0], 2 * KERNEL_ROWS);
            snprintf(key, sizeof key, "attend_many_%s", KERNEL_VARIANT_NAMES[v]);
            times_put(row, key, k->attend_many[f][v], 2);
        }
        for (size_t i = 0; i < COUNT_OF(FORMAT_TIMES); i++)
            times_put(row, FORMAT_TIMES[i].key, times_at(k, &FORMAT_TIMES[i], f), FORMAT_TIMES[i].n);
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
    for (size_t i = 0; i < COUNT_OF(FORMAT_TIMES); i++)
        times_get(times_at(k, &FORMAT_TIMES[i], f), FORMAT_TIMES[i].n,
                  json_object_get(row, FORMAT_TIMES[i].key));
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
    for (size_t i = 0; i < COUNT_OF(MACHINE_TIMES); i++)
        times_get(times_at(k, &MACHINE_TIMES[i], 0), MACHINE_TIMES[i].n,
                  json_object_get(object, MACHINE_TIMES[i].key));
    json_object_foreach(formats, name, row) format_from_json(k, name, row);
    return ERR_OK;
}
