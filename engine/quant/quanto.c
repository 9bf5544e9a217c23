/* Scale and shift from a group's range, and the search that moves the shifts while the mean error falls. */
#include "engine/quant/quanto.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/hqq.h"
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

static float code_of(float w, const struct quanto_group *g, float most)
{
    return round_within((w + g->shift) / g->scale, most);
}

/* ---------------------------------------------------------------- the range */

static struct quanto_group range_of(const float *w, int size, float most)
{
    float low = w[0], high = w[0];
    for (int k = 1; k < size; k++) {
        low = w[k] < low ? w[k] : low;
        high = w[k] > high ? w[k] : high;
    }
    const float scale = (high - low) / most;
    return (struct quanto_group){ scale > 0 ? scale : 1, -low };
}

/* ---------------------------------------------------------------- the search */

struct search {
    const float *w;
    const struct quanto_options *o;
    struct quanto_group *groups; /* what is tried */
    float *best;                 /* [count] shifts */
    double *errors;              /* [count]: sum of |w - dequantized| of a group */
    int64_t count;
    float most, floor;
    double beta; /* of this iteration */
};

static void measure(void *arg, int member, int size)
{
    struct search *s = arg;
    for (int64_t g = s->count * member / size; g < s->count * (member + 1) / size; g++) {
        const struct quanto_group *q = &s->groups[g];
        const float *w = s->w + g * s->o->group;
        float sum = 0;
        for (int k = 0; k < s->o->group; k++)
            sum += fabsf(w[k] - (q->scale * code_of(w[k], q, s->most) - q->shift));
        s->errors[g] = sum;
    }
}

/* The shift at which what is left of the errors after shrinking them has mean 0. */
static void move(void *arg, int member, int size)
{
    struct search *s = arg;
    for (int64_t g = s->count * member / size; g < s->count * (member + 1) / size; g++) {
        struct quanto_group *q = &s->groups[g];
        const float *w = s->w + g * s->o->group;
        float sum = 0;
        for (int k = 0; k < s->o->group; k++) {
            const float level = code_of(w[k], q, s->most) * q->scale, e = w[k] - (level - q->shift);
            sum += level - (w[k] - (fabsf(e) <= s->floor ? 0 : shrink(e, s->o->lp_norm, s->beta)));
        }
        q->shift = sum / (float)s->o->group;
    }
}

static double mean_error(struct search *s, struct threadpool *pool)
{
    threadpool_run(pool, measure, s);
    double sum = 0; /* in one order, whoever computed the parts */
    for (int64_t g = 0; g < s->count; g++) sum += s->errors[g];
    return sum / (double)(s->count * s->o->group);
}

static enum err_code search_shifts(struct search *s, struct threadpool *pool, struct err *why)
{
    s->best = malloc((size_t)s->count * sizeof *s->best + 1);
    s->errors = malloc((size_t)s->count * sizeof *s->errors + 1);
    enum err_code rc = ERR_OK;
    if (!s->best || !s->errors) {
        rc = err_set(why, ERR_NOMEM, "out of memory for the shifts of %lld groups", (long long)s->count);
        goto done;
    }
    for (int64_t g = 0; g < s->count; g++) s->best[g] = s->groups[g].shift;
    double best = mean_error(s, pool);
    s->beta = s->o->beta;
    for (int i = 0; i < s->o->iters; i++) {
        s->floor = shrink_floor(s->o->lp_norm, s->beta);
        threadpool_run(pool, move, s);
        const double error = mean_error(s, pool);
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
    struct search s = { .w = w, .o = o, .groups = groups, .count = n / o->group, .most = most };
    for (int64_t g = 0; g < s.count; g++) groups[g] = range_of(w + g * o->group, o->group, most);
    const enum err_code rc = o->optimizer == QUANTO_HQQ ? search_shifts(&s, pool, why) : ERR_OK;
    if (o->zeropoint)
        for (int64_t g = 0; g < s.count; g++)
            groups[g].shift = round_within(groups[g].shift / groups[g].scale, most);
    return rc;
}

void quanto_codes(const float *w, int64_t n, const struct quanto_options *o,
                  const struct quanto_group *groups, uint8_t *codes)
{
    const float most = (float)((1 << o->bits) - 1);
    for (int64_t i = 0; i < n; i++) {
        const struct quanto_group *g = &groups[i / o->group];
        const float code = o->zeropoint
                               ? round_within(round_between(w[i] / g->scale, -4096, 4096) + g->shift, most)
                               : code_of(w[i], g, most);
        codes[i] = (uint8_t)code;
    }
}
