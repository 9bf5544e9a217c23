/* Work-group shapes of products on this device: defaults, measured shapes, and measuring them. */
#include "kernels/opencl/products.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu.h"

enum { TILE_INPUTS = 32 /* TK of products.cl */, UNIT_MAX = 32, FEW_N = PRODUCT_FEW_MAX };
enum { TILE_INT8 = 12 /* words of 32 inputs in integers.cl: codes, two scales, two minima */ };
enum { KINDS = PRODUCT_ONE_INT8 /* by rows of x; of floats, then of integers */ };

static const char *const KIND_NAMES[PRODUCT_KIND_COUNT] = {
    [PRODUCT_ONE] = "one",
    [PRODUCT_FEW] = "few",
    [PRODUCT_NARROW] = "narrow",
    [PRODUCT_WIDE] = "wide",
    [PRODUCT_ONE_INT8] = "one_int8",
    [PRODUCT_FEW_INT8] = "few_int8",
    [PRODUCT_NARROW_INT8] = "narrow_int8",
    [PRODUCT_WIDE_INT8] = "wide_int8",
};
static const char *const FAMILY_NAMES[WEIGHT_FAMILY_COUNT] = { [FAMILY_32] = "32bit",
                                                               [FAMILY_16] = "16bit",
                                                               [FAMILY_8] = "8bit",
                                                               [FAMILY_4] = "4bit",
                                                               [FAMILY_2] = "2bit" };

/* The candidate shapes. The first one marked for the kind of device is its default: for GPUs a shape without
 * weaknesses, for CPUs one that drivers compile quickly. */
enum { GPU = 1, CPU = 2 };
struct candidate {
    int devices;
    struct opencl_shape shape;
};
static const struct candidate ONE[] = {
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 2, .staged = true } },
    { .devices = CPU, .shape = { .lanes = 8, .ways = 1, .rows = 1 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 1, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 4, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 8, .rows = 1, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 64, .ways = 4, .rows = 2, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 16, .ways = 8, .rows = 2, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 1 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 2 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 4 } },
    { .devices = GPU, .shape = { .lanes = 64, .ways = 2, .rows = 2 } },
    { .devices = GPU, .shape = { .lanes = 128, .ways = 1, .rows = 2 } },
    { .devices = CPU, .shape = { .lanes = 4, .ways = 1, .rows = 2 } },
};
static const struct candidate FEW[] = {
    { .devices = GPU, .shape = { .lanes = 16, .ways = 8, .rows = 2, .staged = true } },
    { .devices = CPU, .shape = { .lanes = 8, .ways = 1, .rows = 1 } },
    { .devices = GPU, .shape = { .lanes = 16, .ways = 8, .rows = 1, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 16, .ways = 8, .rows = 4, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 16, .ways = 4, .rows = 4, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 8, .ways = 16, .rows = 2, .staged = true } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 2 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 4 } },
    { .devices = CPU, .shape = { .lanes = 4, .ways = 1, .rows = 2 } },
};
static const struct candidate NARROW[] = {
    { .devices = GPU, .shape = { .tm = 64, .tn = 16, .rm = 4, .rn = 2 } },
    { .devices = CPU, .shape = { .tm = 32, .tn = 32, .rm = 2, .rn = 2 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 16, .rm = 4, .rn = 1 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 32, .rm = 4, .rn = 4 } },
    { .devices = GPU, .shape = { .tm = 128, .tn = 16, .rm = 4, .rn = 4 } },
    { .devices = GPU, .shape = { .tm = 32, .tn = 16, .rm = 2, .rn = 2 } },
    { .devices = GPU, .shape = { .tm = 32, .tn = 32, .rm = 2, .rn = 4 } },
};
static const struct candidate WIDE[] = {
    { .devices = GPU, .shape = { .tm = 64, .tn = 64, .rm = 4, .rn = 4 } },
    { .devices = CPU, .shape = { .tm = 32, .tn = 32, .rm = 2, .rn = 2 } },
    { .devices = GPU, .shape = { .tm = 128, .tn = 64, .rm = 8, .rn = 4 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 128, .rm = 4, .rn = 8 } },
    { .devices = GPU, .shape = { .tm = 128, .tn = 128, .rm = 8, .rn = 8 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 64, .rm = 8, .rn = 4 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 64, .rm = 4, .rn = 4, .half_tiles = true } },
    { .devices = GPU, .shape = { .tm = 128, .tn = 128, .rm = 8, .rn = 8, .half_tiles = true } },
    { .devices = CPU, .shape = { .tm = 16, .tn = 32, .rm = 2, .rn = 4 } },
};
static const struct candidate ONE_INT8[] = {
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 2 } },
    { .devices = CPU, .shape = { .lanes = 8, .ways = 1, .rows = 1 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 1 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 4 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 8, .rows = 1 } },
    { .devices = GPU, .shape = { .lanes = 64, .ways = 2, .rows = 2 } },
    { .devices = GPU, .shape = { .lanes = 16, .ways = 8, .rows = 2 } },
    { .devices = GPU, .shape = { .lanes = 128, .ways = 1, .rows = 2 } },
    { .devices = GPU, .shape = { .lanes = 128, .ways = 1, .rows = 1 } },
    { .devices = CPU, .shape = { .lanes = 4, .ways = 1, .rows = 2 } },
};
static const struct candidate FEW_INT8[] = {
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 2 } },
    { .devices = CPU, .shape = { .lanes = 8, .ways = 1, .rows = 1 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 1 } },
    { .devices = GPU, .shape = { .lanes = 32, .ways = 4, .rows = 4 } },
    { .devices = GPU, .shape = { .lanes = 16, .ways = 8, .rows = 2 } },
    { .devices = GPU, .shape = { .lanes = 64, .ways = 2, .rows = 2 } },
    { .devices = CPU, .shape = { .lanes = 4, .ways = 1, .rows = 2 } },
};
static const struct candidate NARROW_INT8[] = {
    { .devices = GPU, .shape = { .tm = 64, .tn = 16, .rm = 4, .rn = 2 } },
    { .devices = CPU, .shape = { .tm = 32, .tn = 32, .rm = 2, .rn = 2 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 16, .rm = 4, .rn = 1 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 32, .rm = 4, .rn = 4 } },
    { .devices = GPU, .shape = { .tm = 128, .tn = 16, .rm = 4, .rn = 4 } },
    { .devices = GPU, .shape = { .tm = 32, .tn = 16, .rm = 2, .rn = 2 } },
};
static const struct candidate WIDE_INT8[] = {
    { .devices = GPU, .shape = { .tm = 64, .tn = 64, .rm = 4, .rn = 4 } },
    { .devices = CPU, .shape = { .tm = 32, .tn = 32, .rm = 2, .rn = 2 } },
    { .devices = GPU, .shape = { .tm = 128, .tn = 64, .rm = 8, .rn = 4 } },
    { .devices = GPU, .shape = { .tm = 128, .tn = 128, .rm = 8, .rn = 8 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 64, .rm = 8, .rn = 4 } },
    { .devices = GPU, .shape = { .tm = 64, .tn = 128, .rm = 4, .rn = 8 } },
    { .devices = CPU, .shape = { .tm = 16, .tn = 32, .rm = 2, .rn = 4 } },
};
#define CANDIDATE_LIST(array)                                                                                \
    {                                                                                                        \
        .all = array, .count = COUNT_OF(array)                                                               \
    }
static const struct {
    const struct candidate *all;
    size_t count;
} CANDIDATES[PRODUCT_KIND_COUNT] = {
    [PRODUCT_ONE] = CANDIDATE_LIST(ONE),
    [PRODUCT_FEW] = CANDIDATE_LIST(FEW),
    [PRODUCT_NARROW] = CANDIDATE_LIST(NARROW),
    [PRODUCT_WIDE] = CANDIDATE_LIST(WIDE),
    [PRODUCT_ONE_INT8] = CANDIDATE_LIST(ONE_INT8),
    [PRODUCT_FEW_INT8] = CANDIDATE_LIST(FEW_INT8),
    [PRODUCT_NARROW_INT8] = CANDIDATE_LIST(NARROW_INT8),
    [PRODUCT_WIDE_INT8] = CANDIDATE_LIST(WIDE_INT8),
};

static bool is_int8(enum product_kind kind)
{
    return kind >= PRODUCT_ONE_INT8;
}

static int device_kind(const struct opencl *o)
{
    return o->device.gpu ? GPU : CPU;
}

/* ---------------------------------------------------------------- which one */

struct opencl_shape opencl_shape_of(const struct opencl *o, enum product_kind kind, const struct format *f)
{
    struct opencl_shape s = o->tuning.shapes[kind][opencl_family(f)];
    for (const struct candidate *c = CANDIDATES[kind].all; !s.lanes && !s.tm; c++)
        if (c->devices & device_kind(o)) s = c->shape;
    if (precision_for(o->base.options.precision, f) != PRECISION_MEDIUM) s.half_tiles = false;
    s.int8 = is_int8(kind);
    return s;
}

const char *opencl_shape_options(const struct opencl_shape *s, int n, char *buf, size_t size)
{
    const char *how = s->half_tiles ? " -DHALF_TILES" : s->staged ? " -DSTAGED" : s->int8 ? " -DINT8" : "";
    if (s->tm)
        snprintf(buf, size, "-DTM=%d -DTN=%d -DRM=%d -DRN=%d%s", s->tm, s->tn, s->rm, s->rn, how);
    else /* N: of a few sizes only, for each is compiled */
        snprintf(buf, size, "-DN=%d -DLANES=%d -DWAYS=%d -DROWS=%d%s",
                 n > 4   ? FEW_N
                 : n > 2 ? 4
                         : n,
                 s->lanes, s->ways, s->rows, how);
    return buf;
}

static bool power_of_two(int n)
{
    return n > 0 && !(n & (n - 1));
}

/* Of the kinds that gemv runs. */
static bool is_few(enum product_kind kind)
{
    return kind % KINDS <= PRODUCT_FEW;
}

/* Whether the device has room for the groups of that shape, and products.cl can be cut so. */
static bool shape_fits(const struct opencl *o, enum product_kind kind, const struct opencl_shape *s)
{
    const struct device_info *d = &o->device;
    const bool int8 = is_int8(kind);
    int64_t items, numbers;
    if (int8 && (s->staged || s->half_tiles)) return false;
    if (is_few(kind)) {
        if (!power_of_two(s->lanes) || s->ways < 1 || s->rows < 1 || s->tm) return false;
        items = (int64_t)s->lanes * s->ways;
        const int64_t n = kind == PRODUCT_ONE || kind == PRODUCT_ONE_INT8 ? 1 : FEW_N;
        numbers = items * s->rows * n + (s->staged ? n * s->lanes * (UNIT_MAX + 4) : 0);
    } else {
        if (s->lanes || s->rm < 1 || s->rn < 1 || s->tm < s->rm || s->tn < s->rn) return false;
        if (s->tm % s->rm || s->tn % s->rn) return false;
        items = (int64_t)(s->tm / s->rm) * (s->tn / s->rn);
        numbers = (int64_t)(int8 ? TILE_INT8 : TILE_INPUTS) * (s->tm + s->tn + 2);
    }
    const int64_t bytes = (numbers + 16) * (int64_t)sizeof(float); /* and a table */
    return (d->group_items < 0 || items <= d->group_items) && (d->local_bytes < 0 || bytes <= d->local_bytes);
}

/* ---------------------------------------------------------------- names and texts */

static enum product_kind tuning_kind(int i)
{
    return (enum product_kind)(i / WEIGHT_FAMILY_COUNT);
}

const char *opencl_tuning_name(int i, char *buf, size_t size)
{
    snprintf(buf, size, "product.%s.%s", KIND_NAMES[tuning_kind(i)], FAMILY_NAMES[i % WEIGHT_FAMILY_COUNT]);
    return buf;
}

bool opencl_tuning_is_used(int i)
{
    return !is_int8(tuning_kind(i)) || i % WEIGHT_FAMILY_COUNT >= FAMILY_8;
}

static void shape_text(const struct opencl_shape *s, char text[OPENCL_TUNING_TEXT])
{
    if (s->tm)
        snprintf(text, OPENCL_TUNING_TEXT, "tm=%d tn=%d rm=%d rn=%d%s", s->tm, s->tn, s->rm, s->rn,
                 s->half_tiles ? " half_tiles" : "");
    else
        snprintf(text, OPENCL_TUNING_TEXT, "lanes=%d ways=%d rows=%d%s", s->lanes, s->ways, s->rows,
                 s->staged ? " staged" : "");
}

enum err_code opencl_tuning_use(struct backend *b, int i, const char *text, struct err *why)
{
    struct opencl *o = opencl_of(b);
    struct opencl_shape s = { 0 };
    char again[OPENCL_TUNING_TEXT], name[OPENCL_TUNING_TEXT];
    s.half_tiles = strstr(text, " half_tiles") != NULL;
    s.staged = strstr(text, " staged") != NULL;
    if (sscanf(text, "tm=%hu tn=%hu rm=%hu rn=%hu", &s.tm, &s.tn, &s.rm, &s.rn) != 4)
        sscanf(text, "lanes=%hu ways=%hu rows=%hu", &s.lanes, &s.ways, &s.rows);
    shape_text(&s, again);
    if (strcmp(again, text))
        return err_set(why, ERR_FORMAT, "%s: '%s' is no shape", opencl_tuning_name(i, name, sizeof name),
                       text);
    if (!opencl_tuning_is_used(i) || !shape_fits(o, tuning_kind(i), &s))
        return err_set(why, ERR_FORMAT, "%s: %s cannot run '%s'", opencl_tuning_name(i, name, sizeof name),
                       o->device.name, text);
    o->tuning.shapes[tuning_kind(i)][i % WEIGHT_FAMILY_COUNT] = s;
    return ERR_OK;
}

/* ---------------------------------------------------------------- measuring */

/* Matrices one after the other that together are beyond the caches, so that each is read from memory. */
struct tune_bench {
    struct matmul m;
    struct weight w;
    char *weights;
    int64_t bytes; /* of one */
    int matrices;
};
enum { TIMES = 9 };

static enum err_code bench_make(struct opencl *o, int i, struct tune_bench *t, struct err *why)
{
    static const enum format_id FORMAT_OF[WEIGHT_FAMILY_COUNT] = { FORMAT_F32, FORMAT_F16, FORMAT_Q8_0,
                                                                   FORMAT_Q4_0, FORMAT_Q2_K };
    static const int N[KINDS] = { 1, FEW_N, 16, 512 };
    enum { SIDE = 4096, SIDE_CPU = 512, N_CPU = 64, BEYOND_CACHES = 256 << 20 };
    const int64_t side = o->device.gpu ? SIDE : SIDE_CPU;
    const int rows = N[tuning_kind(i) % KINDS], n = o->device.gpu ? rows : MIN(rows, (int)N_CPU);
    t->w = (struct weight){ .format = &FORMATS[FORMAT_OF[i % WEIGHT_FAMILY_COUNT]],
                            .rows = side,
                            .cols = side };
    t->bytes = round_up(opencl_weight_bytes(t->w.format, side, side, 0), 1 << 12);
    t->matrices = o->device.gpu ? (int)(BEYOND_CACHES / t->bytes) + 1 : 1;
    t->weights = opencl_alloc(&o->base, (size_t)(t->bytes * t->matrices));
    float *x = opencl_alloc(&o->base, (size_t)(n * side) * sizeof *x);
    float *y = opencl_alloc(&o->base, (size_t)(n * side) * sizeof *y);
    t->m = (struct matmul){ .w = &t->w, .x = x, .x_stride = side, .n = n, .y = y, .y_stride = side };
    if (t->weights && x && y) return ERR_OK;
    return err_set(why, ERR_NOMEM, "%s: no memory to measure products with", o->device.name);
}

static void bench_free(struct opencl *o, struct tune_bench *t)
{
    void *const all[] = { t->weights, (void *)t->m.x, t->m.y };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i]) opencl_free(&o->base, all[i]);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median; the first one warms up. */
static double bench_run(struct opencl *o, struct tune_bench *t, const struct opencl_shape *s)
{
    double times[TIMES];
    for (int i = -1; i < TIMES && opencl_ok(o); i++) {
        t->w.data = t->w.owned = t->weights + (i + 1) % t->matrices * t->bytes;
        const double seconds = opencl_product(o, &t->m, s, true);
        if (i >= 0) times[i] = seconds;
    }
    if (!opencl_ok(o)) return (double)NAN;
    qsort(times, TIMES, sizeof *times, by_size);
    return times[TIMES / 2];
}

enum err_code opencl_tune(struct backend *b, int i, char text[OPENCL_TUNING_TEXT],
                          struct opencl_trial *trials, int most, int *count, struct err *why)
{
    struct opencl *o = opencl_of(b);
    const enum product_kind kind = tuning_kind(i);
    struct tune_bench t = { 0 };
    double best = INFINITY;
    enum err_code rc = bench_make(o, i, &t, why);
    *count = 0;
    for (size_t j = 0; !rc && j < CANDIDATES[kind].count; j++) {
        const struct candidate *c = &CANDIDATES[kind].all[j];
        struct opencl_shape shape = c->shape;
        shape.int8 = is_int8(kind);
        if (!(c->devices & device_kind(o)) || (shape.half_tiles && !o->device.fp16)) continue;
        struct opencl_trial trial = { .seconds = NAN };
        shape_text(&shape, trial.text);
        if (shape_fits(o, kind, &shape)) trial.seconds = bench_run(o, &t, &shape);
        if (*count < most) trials[(*count)++] = trial;
        if (trial.seconds < best) {
            best = trial.seconds;
            o->tuning.shapes[kind][i % WEIGHT_FAMILY_COUNT] = shape;
            strcpy(text, trial.text);
        }
        /* one that cannot run is none; only a lost device ends this */
        const enum err_code failed = b->ops->finish(b, why);
        if (o->lost) rc = failed;
    }
    bench_free(o, &t);
    if (!rc && isinf(best))
        rc = err_set(why, ERR_USAGE, "%s: no shape of products runs here", o->device.name);
    return rc;
}
