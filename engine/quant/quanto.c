/* Scale and shift from a group's range; with QUANTO_HQQ, a search moves the shifts while the mean error falls
 * (half-quadratic splitting, see hqq.c). */
#include "engine/quant/quanto.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/calibration.h"
#include "engine/quant/groups.h"
#include "engine/quant/hqq.h"
#include "engine/quant/static_input.h"
#include "engine/quant/rounding.h"

struct quanto_options quanto_defaults(int bits, int group)
{
    return (struct quanto_options){ .bits = bits,
                                    .group = group,
                                    .optimizer = QUANTO_MAX,
                                    .iters = 20,
                                    .lp_norm = 0.7,
                                    .beta = 10,
                                    .kappa = 1.01 };
}

int quanto_group_size(int64_t cols)
{
    if (cols <= 128) return 0;
    for (int size = 128; size >= 32; size -= 32)
        if (cols % size == 0) return size;
    return 0;
}

static float group_code(float w, const struct quanto_group *g, float most)
{
    return round_within((w + g->shift) / g->scale, most);
}

/* ---------------------------------------------------------------- the range */

/* Scale and shift from a group's smallest and largest weight. */
static struct quanto_group group_range(const float *w, int size, float most)
{
    float low = w[0], high = w[0];
    for (int k = 1; k < size; k++) {
        low = w[k] < low ? w[k] : low;
        high = w[k] > high ? w[k] : high;
    }
    const float scale = (high - low) / most;
    return (struct quanto_group){ scale > 0 ? scale : 1, -low };
}

/* ---------------------------------------------------------------- the search for shifts */

struct quanto_search {
    const float *w;
    const struct quanto_options *o;
    struct quanto_group *groups; /* [count]: current scale and shift */
    float *best;                 /* [count]: shifts with the smallest error so far */
    double *errors;              /* [count]: sum of |w - dequantized| of a group */
    int64_t count;
    float most, floor;
    double beta; /* grows by kappa in each iteration */
};

/* Thread function: compute the error of some groups. */
static void search_measure(void *arg, int member, int size)
{
    struct quanto_search *s = arg;
    for (int64_t g = s->count * member / size; g < s->count * (member + 1) / size; g++) {
        const struct quanto_group *q = &s->groups[g];
        const float *w = s->w + g * s->o->group;
        float sum = 0;
        for (int k = 0; k < s->o->group; k++)
            sum += fabsf(w[k] - (q->scale * group_code(w[k], q, s->most) - q->shift));
        s->errors[g] = sum;
    }
}

/* Move each group's shift so that the errors that remain after shrinking have mean 0. */
static void search_move(void *arg, int member, int size)
{
    struct quanto_search *s = arg;
    for (int64_t g = s->count * member / size; g < s->count * (member + 1) / size; g++) {
        struct quanto_group *q = &s->groups[g];
        const float *w = s->w + g * s->o->group;
        float sum = 0;
        for (int k = 0; k < s->o->group; k++) {
            const float level = group_code(w[k], q, s->most) * q->scale, e = w[k] - (level - q->shift);
            sum += level - (w[k] - (fabsf(e) <= s->floor ? 0 : shrink(e, s->o->lp_norm, s->beta)));
        }
        q->shift = sum / (float)s->o->group;
    }
}

static double search_mean_error(struct quanto_search *s, struct threadpool *pool)
{
    threadpool_run(pool, search_measure, s);
    double sum = 0; /* in a fixed order, whatever the number of threads */
    for (int64_t g = 0; g < s->count; g++) sum += s->errors[g];
    return sum / (double)(s->count * s->o->group);
}

/* Move shifts while the mean error falls; keeps the best ones. */
static enum err_code search_run(struct quanto_search *s, struct threadpool *pool, struct err *why)
{
    s->best = malloc((size_t)s->count * sizeof *s->best + 1);
    s->errors = malloc((size_t)s->count * sizeof *s->errors + 1);
    enum err_code rc = ERR_OK;
    if (!s->best || !s->errors) {
        rc = err_set(why, ERR_NOMEM, "out of memory for the shifts of %lld groups", (long long)s->count);
        goto done;
    }
    for (int64_t g = 0; g < s->count; g++) s->best[g] = s->groups[g].shift;
    double best = search_mean_error(s, pool);
    s->beta = s->o->beta;
    for (int i = 0; i < s->o->iters; i++) {
        s->floor = shrink_floor(s->o->lp_norm, s->beta);
        threadpool_run(pool, search_move, s);
        const double error = search_mean_error(s, pool);
        if (!(error < best)) break;
        best = error;
        for (int64_t g = 0; g < s->count; g++) s->best[g] = s->groups[g].shift;
        s->beta *= s->o->kappa;
    }
    for (int64_t g = 0; g < s->count; g++) s->groups[g].shift = s->best[g];
done:
    free(s->best);
    free(s->errors);
    return rc;
}

enum err_code quanto_solve(const float *w, int64_t n, const struct quanto_options *o, struct threadpool *pool,
                           struct quanto_group *groups, struct err *why)
{
    assert(n % o->group == 0);
    const float most = (float)((1 << o->bits) - 1);
    struct quanto_search s = { .w = w, .o = o, .groups = groups, .count = n / o->group, .most = most };
    for (int64_t g = 0; g < s.count; g++) groups[g] = group_range(w + g * o->group, o->group, most);
    const enum err_code rc = o->optimizer == QUANTO_HQQ ? search_run(&s, pool, why) : ERR_OK;
    if (o->zeropoint)
        for (int64_t g = 0; g < s.count; g++)
            groups[g].shift = round_within(groups[g].shift / groups[g].scale, most);
    return rc;
}

/* ---------------------------------------------------------------- row of METHODS */

static const struct param QUANTO_PARAMS[] = {
    { .name = "weights",
      .kind = VALUE_CHOICE,
      .choices = "int8 int4 int2 float8 float8_e5m2",
      .otherwise = "int8",
      .help =
          "type of the weights; int4 and int2 in groups of 128, or less where that does not divide rows" },
    { .name = "activations",
      .kind = VALUE_CHOICE,
      .choices = "none int8 float8",
      .otherwise = "none",
      .help = "int8, float8: with one scale for each input, from calibration; for weights of the same type" },
    { .name = "optimizer",
      .kind = VALUE_CHOICE,
      .choices = "auto absmax max hqq",
      .otherwise = "auto",
      .help = "how scales are found: absmax for 8 bits (auto), max (auto) or hqq for int4 and int2" },
    { .name = "zeropoint",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help = "int4, int2: 0 is exactly one of the codes" },
    { .name = "momentum",
      .kind = VALUE_REAL,
      .min = 0,
      .max = 1,
      .otherwise = "0.9",
      .help = "activations: weight of the previous scale in the moving average over sequences" },
    { 0 },
};

static int group_bits(const struct params *p)
{
    return params_is(p, "weights", "int4") ? 4 : params_is(p, "weights", "int2") ? 2 : 0;
}

static enum err_code quanto_check(const struct params *p, struct err *why)
{
    const bool groups = group_bits(p) > 0;
    if (groups && params_is(p, "optimizer", "absmax"))
        return err_set(why, ERR_USAGE,
                       "optimizer=absmax needs int8 or float8 weights; int4 and int2 need max or hqq");
    if (!groups && (params_is(p, "optimizer", "max") || params_is(p, "optimizer", "hqq")))
        return err_set(why, ERR_USAGE,
                       "optimizer=max and hqq need int4 or int2 weights; 8-bit weights need absmax");
    if (!groups && params_bool(p, "zeropoint"))
        return err_set(why, ERR_USAGE,
                       "zeropoint=true needs int4 or int2 weights; 8-bit weights have no shift");
    if (params_is(p, "activations", "int8") && !params_is(p, "weights", "int8"))
        return err_set(why, ERR_USAGE,
                       "activations=int8 needs weights=int8: other weights are multiplied with floats");
    if (params_is(p, "activations", "float8") && (groups || params_is(p, "weights", "int8")))
        return err_set(why, ERR_USAGE, "activations=float8 needs weights=float8 or float8_e5m2");
    return ERR_OK;
}

/* The largest group format that divides both the row and optimum-quanto's own group size. */
static const struct format *quanto_group_format(int bits, int64_t cols)
{
    const int own = quanto_group_size(cols);
    for (int size = 128; size >= 32; size /= 2) {
        const struct format *f = group_format(bits, size);
        if (f && size <= (own ? own : cols) && cols % size == 0) return f;
    }
    return group_format(bits, 128); /* does not divide this row length: the recipe falls back to f16 */
}

static const struct format *quanto_format_for(const struct params *p, int64_t cols)
{
    if (group_bits(p)) return quanto_group_format(group_bits(p), cols);
    return &FORMATS[params_is(p, "weights", "int8")     ? FORMAT_INT8
                    : params_is(p, "weights", "float8") ? FORMAT_FP8_E4M3
                                                        : FORMAT_FP8_E5M2];
}

static const char *quanto_format(const struct params *p)
{
    return quanto_format_for(p, 128)->name;
}

static const struct format *quanto_tensor_format(const struct params *p, const struct gguf *g,
                                                 const struct gguf_tensor *t)
{
    (void)g;
    return quanto_format_for(p, t->shape[0]);
}

static struct act_scheme quanto_act(const struct params *p)
{
    return (struct act_scheme){ .kind = params_is(p, "activations", "int8")     ? INPUT_INT8_STATIC
                                        : params_is(p, "activations", "float8") ? INPUT_FP8_STATIC
                                                                                : INPUT_FREE };
}

static enum calibration_need quanto_needs(const struct params *p)
{
    return params_is(p, "activations", "none") ? CALIBRATION_NONE : CALIBRATION_NEEDED;
}

/* Encode a matrix in integer groups. */
static enum err_code quanto_encode_groups(struct tensor_job *job, struct err *why)
{
    struct quanto_options o = quanto_defaults(group_bits(&job->params), (int)job->format->block_weights);
    if (params_is(&job->params, "optimizer", "hqq")) o.optimizer = QUANTO_HQQ;
    o.zeropoint = params_bool(&job->params, "zeropoint");
    const int64_t n = job->rows * job->cols, count = n / o.group;
    struct quanto_group *groups = malloc((size_t)count * sizeof *groups);
    struct group_choice *choices = malloc((size_t)count * sizeof *choices);
    enum err_code rc = groups && choices ? quanto_solve(job->x, n, &o, job->pool, groups, why)
                                         : err_set(why, ERR_NOMEM, "out of memory for '%s'", job->name);
    for (int64_t g = 0; g < count && !rc; g++) {
        const float scale = groups[g].scale, shift = groups[g].shift;
        /* The format stores weight = scale * (code - zero). quanto_solve returns weight = scale * code -
         * shift, so zero is shift / scale. With `zeropoint` its shift is a number of codes: zero itself. */
        choices[g] = (struct group_choice){ scale, o.zeropoint ? shift : shift / scale };
    }
    if (!rc) groups_encode(job->format, job->x, choices, count, job->pool, job->out);
    free(groups);
    free(choices);
    return rc;
}

/* Exponential moving average of each sequence's scale, where scale * `largest` is its largest magnitude. */
static float activation_scale(const struct calibration_input *in, double momentum, float largest)
{
    float scale = 0;
    for (int64_t b = 0; b < in->batches; b++) {
        const float low = fabsf(in->batch_min[b]), high = fabsf(in->batch_max[b]);
        const float own = (low > high ? low : high) / largest;
        scale = b == 0 ? own : (float)momentum * scale + (float)(1 - momentum) * own;
    }
    return scale > 0 ? scale : 1;
}

/* Store the scale of the input from calibration. */
static void quanto_store_input_scale(struct tensor_job *job)
{
    const bool bytes = params_is(&job->params, "activations", "int8");
    const bool wide = params_is(&job->params, "weights", "float8_e5m2");
    const float scale = activation_scale(job->input, params_real(&job->params, "momentum"),
                                         bytes  ? 127
                                         : wide ? 57344
                                                : 448);
    static_input_put(job, (struct affine){ scale, bytes ? 128 : 0 }, 255);
}

static int quanto_companions(const struct tensor_job *job, struct companion_tensor *out)
{
    return params_is(&job->params, "activations", "none") ? 0 : static_input_companion(out);
}

/* The method's `tensor`. */
static enum err_code quanto_tensor(struct tensor_job *job, struct err *why)
{
    if (group_bits(&job->params)) return quanto_encode_groups(job, why);
    if (!params_is(&job->params, "activations", "none")) {
        enum err_code rc = static_input_known(job, why);
        if (rc) return rc;
        quanto_store_input_scale(job);
    }
    job_encode_rows(job, nearest_rows);
    return ERR_OK;
}

const struct method METHOD_QUANTO = {
    .name = "quanto",
    .help =
        "optimum-quanto: int8, int4, int2 or float8 weights by absmax, range or HQQ; optional int8 activations",
    .good = "8 bits on any machine; 4 bits without calibration data",
    .bad = "2 bits; activations=int8 where a few inputs are much larger than the rest (one scale for all)",
    .params = QUANTO_PARAMS,
    .linear_only = true,
    .formats = "int8 fp8_e4m3 fp8_e5m2 u4_g32 u4_g64 u4_g128 u2_g64 u2_g128",
    .calibration = CALIBRATION_OPTIONAL,
    .check = quanto_check,
    .format = quanto_format,
    .tensor_format = quanto_tensor_format,
    .act = quanto_act,
    .needs = quanto_needs,
    .companions = quanto_companions,
    .tensor = quanto_tensor,
};
