/* Zero points by half-quadratic splitting. Each iteration is one pass over the weights; groups only depend on
 * each other in the stopping rule, which uses the total error. */
#include "engine/quant/hqq.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/groups.h"
#include "engine/quant/rounding.h"

enum { LANES = 8 }; /* partial sums: a fixed order of addition that compilers can vectorize */

struct hqq_options hqq_defaults(int bits)
{
    return (struct hqq_options){
        .bits = bits, .group = 64, .axis = 1, .lp_norm = 0.7, .beta = 10, .iters = 20, .round_zero = bits == 4
    };
}

float shrink(float e, double lp_norm, double beta)
{
    const float size = fabsf(e);
    if (size == 0) return 0;
    const float left = size - (float)(1 / beta) * powf(size, (float)(lp_norm - 1));
    return left > 0 ? copysignf(left, e) : 0;
}

/* The |e| at which |e| = |e|^(p - 1) / beta, slightly reduced because shrink() rounds. */
float shrink_floor(double lp_norm, double beta)
{
    return (float)(0.999 * pow(beta, -1 / (2 - lp_norm)));
}

struct solver {
    const float *w;
    const struct hqq_options *o;
    struct hqq_group *groups;
    double *errors; /* [count]: sum of |w - dequantized| of a group */
    int64_t count;
    float most, floor;
};

/* The weights of group g; along axis 0 they are gathered into own [group]. */
static const float *solver_group_weights(const struct solver *s, int64_t g, float *own)
{
    const int size = s->o->group;
    if (s->o->axis == 1) return s->w + g * size;
    for (int k = 0; k < size; k++) own[k] = s->w[g + k * s->count];
    return own;
}

/* Scale from the group's range, and the zero point that maps its smallest weight to code 0. */
static struct hqq_group group_start(const float *w, int size, const struct hqq_options *o)
{
    float low = w[0], high = w[0];
    for (int k = 1; k < size; k++) {
        low = w[k] < low ? w[k] : low;
        high = w[k] > high ? w[k] : high;
    }
    const float range = high - low, most = (float)((1 << o->bits) - 1);
    float per_unit = range <= 1e-4f ? 1 : most / range;
    if (per_unit > 2e4f) per_unit = 2e4f;
    const float zero = -low * per_unit;
    return (struct hqq_group){ per_unit, o->round_zero ? rintf(zero) : zero };
}

static float lane_sum(const float lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* One iteration for one group: moves its zero point; returns the error before the move. */
static double solver_improve_group(const struct solver *s, const float *w, struct hqq_group *g)
{
    const int size = s->o->group;
    const float t = g->per_unit, z = g->zero;
    float code[HQQ_GROUP_MAX], error[HQQ_GROUP_MAX], sum[LANES] = { 0 }, shift[LANES] = { 0 }, worst = 0;
    for (int k = 0; k < size; k += LANES)
        for (int l = 0; l < LANES; l++) {
            const float c = round_within(w[k + l] * t + z, s->most), e = w[k + l] - (c - z) / t;
            code[k + l] = c, error[k + l] = e;
            sum[l] += fabsf(e);
            worst = fabsf(e) > worst ? fabsf(e) : worst;
        }
    if (worst <= s->floor)
        for (int k = 0; k < size; k += LANES)
            for (int l = 0; l < LANES; l++) shift[l] += code[k + l] - w[k + l] * t;
    else
        for (int k = 0; k < size; k++)
            shift[k % LANES] += code[k] - (w[k] - shrink(error[k], s->o->lp_norm, s->o->beta)) * t;
    g->zero = lane_sum(shift) / (float)size;
    return lane_sum(sum);
}

static void solver_start(void *arg, int member, int size)
{
    struct solver *s = arg;
    float own[HQQ_GROUP_MAX];
    for (int64_t g = s->count * member / size; g < s->count * (member + 1) / size; g++)
        s->groups[g] = group_start(solver_group_weights(s, g, own), s->o->group, s->o);
}

static void solver_improve(void *arg, int member, int size)
{
    struct solver *s = arg;
    float own[HQQ_GROUP_MAX];
    for (int64_t g = s->count * member / size; g < s->count * (member + 1) / size; g++)
        s->errors[g] = solver_improve_group(s, solver_group_weights(s, g, own), &s->groups[g]);
}

enum err_code hqq_solve(const float *w, int64_t n, const struct hqq_options *o, struct threadpool *pool,
                        struct hqq_group *groups, struct err *why)
{
    assert(o->group % LANES == 0 && o->group <= HQQ_GROUP_MAX && n % o->group == 0 && o->bits <= 8);
    struct solver s = { .w = w,
                        .o = o,
                        .groups = groups,
                        .count = n / o->group,
                        .most = (float)((1 << o->bits) - 1),
                        .floor = shrink_floor(o->lp_norm, o->beta) };
    s.errors = calloc((size_t)s.count + 1, sizeof *s.errors);
    if (!s.errors)
        return err_set(why, ERR_NOMEM, "out of memory for the errors of %lld groups", (long long)s.count);
    threadpool_run(pool, solver_start, &s);
    double best = INFINITY;
    for (int i = 0; i < o->iters; i++) {
        threadpool_run(pool, solver_improve, &s);
        double sum = 0; /* in a fixed order, whatever the number of threads */
        for (int64_t g = 0; g < s.count; g++) sum += s.errors[g];
        if (!(sum < best)) break;
        best = sum;
    }
    free(s.errors);
    return ERR_OK;
}

/* ---------------------------------------------------------------- row of METHODS */

static const struct param HQQ_PARAMS[] = {
    { .name = "bits",
      .aliases = "nbits w_bit wbits",
      .kind = VALUE_INT,
      .choices = "8 4 3 2",
      .otherwise = "4",
      .help = "bits of a code" },
    { .name = "group_size",
      .aliases = "group q_group_size",
      .kind = VALUE_INT,
      .choices = "32 64 128",
      .otherwise = "64",
      .help = "weights that share a scale and a zero point (32: 4 bits only)" },
    { .name = "axis",
      .kind = VALUE_INT,
      .choices = "1 0",
      .otherwise = "1",
      .help = "1: groups along inputs; 0: groups across rows, which cannot be stored and is rejected" },
    { .name = "lp_norm",
      .kind = VALUE_REAL,
      .min = 0.1,
      .max = 1,
      .otherwise = "0.7",
      .help = "exponent p of the error norm" },
    { .name = "beta",
      .kind = VALUE_REAL,
      .min = 0.01,
      .max = 1e5,
      .otherwise = "10",
      .help = "larger values treat more errors as outliers" },
    { .name = "iters",
      .kind = VALUE_INT,
      .min = 0,
      .max = 1000,
      .otherwise = "20",
      .help = "maximum number of iterations; they end when the error stops falling" },
    { .name = "round_zero",
      .kind = VALUE_CHOICE,
      .choices = "auto true false",
      .otherwise = "auto",
      .help = "start from whole-number zero points; auto: with 4 bits" },
    { 0 },
};

static enum err_code hqq_check(const struct params *p, struct err *why)
{
    const int bits = (int)params_int(p, "bits"), size = (int)params_int(p, "group_size");
    if (params_int(p, "axis") == 0)
        return err_set(why, ERR_USAGE,
                       "axis=0: no format stores groups across rows, because a product would need a separate "
                       "scale for each weight; use axis=1");
    if (!group_format(bits, size))
        return err_set(why, ERR_USAGE,
                       "bits=%d, group_size=%d: no format has such groups; use group_size 64 or 128", bits,
                       size);
    return ERR_OK;
}

static const char *hqq_format(const struct params *p)
{
    const struct format *f = group_format((int)params_int(p, "bits"), params_int(p, "group_size"));
    return f ? f->name : FORMATS[FORMAT_U4_G64].name; /* hqq_check refuses it */
}

/* The method's `tensor`: find the groups of the whole matrix, then encode it. */
static enum err_code hqq_tensor(struct tensor_job *job, struct err *why)
{
    struct hqq_options o = hqq_defaults((int)params_int(&job->params, "bits"));
    o.group = (int)job->format->block_weights;
    o.lp_norm = params_real(&job->params, "lp_norm");
    o.beta = params_real(&job->params, "beta");
    o.iters = (int)params_int(&job->params, "iters");
    if (!params_is(&job->params, "round_zero", "auto"))
        o.round_zero = params_is(&job->params, "round_zero", "true");
    const int64_t n = job->rows * job->cols, count = n / o.group;
    struct hqq_group *groups = malloc((size_t)count * sizeof *groups);
    struct group_choice *choices = malloc((size_t)count * sizeof *choices);
    enum err_code rc = groups && choices ? hqq_solve(job->x, n, &o, job->pool, groups, why)
                                         : err_set(why, ERR_NOMEM, "out of memory for '%s'", job->name);
    for (int64_t g = 0; g < count && !rc; g++)
        choices[g] = (struct group_choice){ 1 / groups[g].per_unit, groups[g].zero };
    if (!rc) groups_encode(job->format, job->x, choices, count, job->pool, job->out);
    free(groups);
    free(choices);
    return rc;
}

const struct method METHOD_HQQ = {
    .name = "hqq",
    .help = "groups whose zero points are optimized so that errors, outliers excluded, have mean 0",
    .good = "takes seconds and needs no data; at 3 and 2 bits clearly better than rounding to nearest",
    .bad = "2 bits on small models; ignores activations, so calibrated methods are better at 3 bits",
    .params = HQQ_PARAMS,
    .formats = "u8_g64 u8_g128 u4_g32 u4_g64 u4_g128 u3_g64 u3_g128 u2_g64 u2_g128",
    .linear_only = true,
    .check = hqq_check,
    .format = hqq_format,
    .tensor = hqq_tensor,
};
