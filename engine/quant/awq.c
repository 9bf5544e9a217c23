/* The numerical parts of AWQ. awq_layer.c decides which matrices share a scale and where it is folded. */
#include "engine/quant/awq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t awq_group_size(const struct awq_options *o, int64_t cols)
{
    return o->group_size < 0 ? cols : o->group_size;
}

/* ---------------------------------------------------------------- quantization grid */

static float awq_largest_code(const struct awq_options *o)
{
    return (float)((1 << o->bits) - 1);
}

static float clamp(float v, float low, float high)
{
    return v < low ? low : v > high ? high : v;
}

struct awq_grid awq_grid_of(const struct awq_options *o, const float *w, int64_t n)
{
    const float top = awq_largest_code(o), least = 1e-5f;
    float low = w[0], high = w[0];
    for (int64_t i = 1; i < n; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
    }
    if (o->zero_point) {
        const float scale = MAX(high - low, least) / top;
        return (struct awq_grid){ scale, clamp(-rintf(low / scale), 0, top) };
    }
    const float largest = MAX(-low, high), middle = (top + 1) / 2;
    return (struct awq_grid){ MAX(largest, least) / (middle - 1), middle };
}

float awq_code(const struct awq_options *o, const struct awq_grid *g, float w)
{
    return clamp(rintf(w / g->scale) + g->zero, 0, awq_largest_code(o));
}

void awq_quantize_group(const struct awq_options *o, const float *w, float *to, int64_t n)
{
    const struct awq_grid g = awq_grid_of(o, w, n);
    for (int64_t i = 0; i < n; i++) to[i] = (awq_code(o, &g, w[i]) - g.zero) * g.scale;
}

/* ---------------------------------------------------------------- scales */

/* Computing relative weight magnitudes; threads take whole groups of columns. */
struct shares_job {
    const struct awq_options *o;
    const float *w;
    int64_t rows, cols;
    double *sum;
    struct threadpool *pool;
};

/* Thread function of awq_weight_shares. */
static void shares_add(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct shares_job *job = arg;
    const int64_t n = awq_group_size(job->o, job->cols);
    for (int64_t g; (g = threadpool_next(job->pool, 1)) < job->cols / n;) {
        double *sum = job->sum + g * n;
        for (int64_t row = 0; row < job->rows; row++) {
            const float *w = job->w + row * job->cols + g * n;
            float largest = 0;
            for (int64_t i = 0; i < n; i++) largest = fabsf(w[i]) > largest ? fabsf(w[i]) : largest;
            largest += 1e-6f;
            for (int64_t i = 0; i < n; i++) sum[i] += (double)(fabsf(w[i]) / largest);
        }
    }
}

void awq_weight_shares(const struct awq_options *o, const float *w, int64_t rows, int64_t cols, double *sum,
                       struct threadpool *pool)
{
    struct shares_job job = { o, w, rows, cols, sum, pool };
    threadpool_run(pool, shares_add, &job);
}

void awq_scales(const struct awq_options *o, const float *inputs, const float *shares, int64_t cols,
                double ratio, float *scales)
{
    float low = INFINITY, high = 0;
    for (int64_t k = 0; k < cols; k++) {
        float s = powf(inputs[k], (float)ratio);
        if (o->duo_scaling) s /= powf(shares[k], (float)(1 - ratio)) + 1e-4f;
        scales[k] = s = MAX(s, 1e-4f); /* an input that is always 0 must not cause a division by 0 */
        low = MIN(low, s), high = MAX(high, s);
    }
    const float middle = sqrtf(high * low); /* normalize: the geometric middle becomes 1 */
    for (int64_t k = 0; k < cols; k++) {
        scales[k] /= middle;
        if (!isfinite(scales[k])) scales[k] = 1;
    }
}

enum err_code awq_search(const struct awq_options *o, const float *inputs, const float *shares, int64_t cols,
                         awq_loss_fn *loss, void *ctx, float *scales, double *ratio, struct err *why)
{
    float *candidate = malloc((size_t)cols * sizeof *candidate);
    enum err_code rc = candidate ? ERR_OK : err_set(why, ERR_NOMEM, "awq: out of memory");
    double least = INFINITY;
    for (int i = 0; i < o->n_grid && !rc; i++) {
        const double r = (double)i / o->n_grid;
        double lost = NAN;
        awq_scales(o, inputs, shares, cols, r, candidate);
        rc = loss(ctx, candidate, &lost, why);
        if (rc || !(lost < least)) continue;
        least = lost;
        memcpy(scales, candidate, (size_t)cols * sizeof *scales);
        if (ratio) *ratio = r;
    }
    free(candidate);
    if (!rc && least == INFINITY)
        rc = err_set(why, ERR_FORMAT,
                     "awq: no scale gives a finite loss: the calibration contains NaN or infinity");
    return rc;
}

/* ---------------------------------------------------------------- clipping */

struct clip_job {
    const struct awq_options *o;
    float *w, *limits, *scratch; /* scratch [members][2][group] */
    int64_t rows, cols;
    const float *gram;
    struct threadpool *pool;
};

/* d^T G d, the squared output error for a weight error d [n]; G is symmetric, given by its lower triangle. */
static double group_output_error(const float *d, const float *gram, int64_t n, float *sums)
{
    double error = 0;
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int64_t i = 0; i < n; i++) {
        const float *row = gram + i * n;
        for (int64_t j = 0; j < i; j++) sums[j] += d[i] * row[j];
    }
    for (int64_t i = 0; i < n; i++)
        error += (double)d[i] * (2 * (double)sums[i] + (double)(d[i] * gram[i * n + i]));
    return error;
}

/* The clipping limit of one group with the smallest output error, tried from the largest magnitude down. */
static float clip_find_limit(const struct clip_job *job, const float *w, const float *gram, int64_t n,
                             float *scratch)
{
    const struct awq_options *o = job->o;
    float largest = 0, best = 0, *clipped = scratch, *sums = scratch + n;
    double least = INFINITY;
    for (int64_t i = 0; i < n; i++) largest = fabsf(w[i]) > largest ? fabsf(w[i]) : largest;
    best = largest;
    const int tries = MAX((int)(o->max_shrink * o->n_grid), 1);
    for (int t = 0; t < tries; t++) {
        const float limit = largest * (float)(1 - (double)t / o->n_grid);
        for (int64_t i = 0; i < n; i++) clipped[i] = clamp(w[i], -limit, limit);
        awq_quantize_group(o, clipped, clipped, n);
        for (int64_t i = 0; i < n; i++) clipped[i] -= w[i];
        const double error = group_output_error(clipped, gram, n, sums);
        if (error < least) least = error, best = limit;
    }
    return best;
}

/* Thread function of awq_clip: clips some rows. */
static void clip_rows(void *arg, int member, int size)
{
    (void)size;
    const struct clip_job *job = arg;
    const int64_t n = awq_group_size(job->o, job->cols), groups = job->cols / n;
    float *scratch = job->scratch + 2 * n * member;
    for (int64_t row; (row = threadpool_next(job->pool, 1)) < job->rows;)
        for (int64_t g = 0; g < groups; g++) {
            float *w = job->w + row * job->cols + g * n;
            const float limit = clip_find_limit(job, w, job->gram + g * n * n, n, scratch);
            for (int64_t i = 0; i < n; i++) w[i] = clamp(w[i], -limit, limit);
            if (job->limits) job->limits[row * groups + g] = limit;
        }
}

enum err_code awq_clip(const struct awq_options *o, float *w, int64_t rows, int64_t cols, const float *gram,
                       float *limits, struct threadpool *pool, struct err *why)
{
    struct clip_job job = { o, w, limits, NULL, rows, cols, gram, pool };
    job.scratch = malloc(2 * sizeof(float) * (size_t)awq_group_size(o, cols) * (size_t)threadpool_size(pool));
    if (!job.scratch) return err_set(why, ERR_NOMEM, "awq: out of memory");
    threadpool_run(pool, clip_rows, &job);
    free(job.scratch);
    return ERR_OK;
}
