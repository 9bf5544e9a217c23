/* GPTQ in two steps. The first depends on the inputs only: the order of the columns, and the upper triangular
 * factor U of the inverse Hessian, H^-1 = U^T U. The second walks over a matrix's columns with them.
 *
 * The reference gets U from three operations (factorize, invert, factorize). One factorization is enough: if
 * H = R R^T for an upper triangular R, then U = R^-1. R is the ordinary Cholesky factor L of the matrix with
 * rows and columns reversed. So the Hessian is copied in reverse, factorized and inverted in place, and
 * U[i][j] is element [n-1-i][n-1-j] of that inverse. This runs in binary64, because small pivots of U are
 * differences of large numbers. */
#include "engine/quant/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gptq_factor {
    struct linear_algebra *la;
    struct gptq_options o;
    int64_t cols, group;
    double damp;
    int32_t *walk;    /* [cols]: the i-th column to be quantized is input walk[i] */
    bool *dead;       /* [cols], by input: it was 0 in all samples */
    double *inverse;  /* [cols][cols]: L^-1 of the reversed Hessian in walk order */
    bool stored_walk; /* codes are stored in walk order, because groups follow it */
};

enum err_code gptq_check(const struct gptq_options *o, int64_t cols, struct err *why)
{
    if (o->bits != 2 && o->bits != 3 && o->bits != 4 && o->bits != 8)
        return err_set(why, ERR_USAGE, "gptq: bits is %d, expected 2, 3, 4 or 8", o->bits);
    if (o->group_size != -1 && (o->group_size < 1 || cols % o->group_size))
        return err_set(why, ERR_USAGE,
                       "gptq: group_size is %lld, expected -1 or a divisor of the %lld inputs",
                       (long long)o->group_size, (long long)cols);
    if (!(o->damp_percent > 0 && o->damp_percent < 1))
        return err_set(why, ERR_USAGE, "gptq: damp_percent is %g, expected more than 0 and less than 1",
                       o->damp_percent);
    if (!(o->damp_auto_increment >= 0 && o->damp_auto_increment < 1))
        return err_set(why, ERR_USAGE, "gptq: damp_auto_increment is %g, expected 0 to 1",
                       o->damp_auto_increment);
    if (!(o->mse >= 0 && o->mse <= 16))
        return err_set(why, ERR_USAGE, "gptq: mse is %g, expected 0 (off) or an exponent such as 2.4",
                       o->mse);
    if (o->blocksize < 1)
        return err_set(why, ERR_USAGE, "gptq: blocksize is %lld, expected 1 or more",
                       (long long)o->blocksize);
    if (o->desc_act && o->act_group_aware)
        return err_set(why, ERR_USAGE,
                       "gptq: desc_act and act_group_aware exclude each other: both set the column order");
    return ERR_OK;
}

/* ---------------------------------------------------------------- order of columns */

struct ranked_input {
    double value;
    int32_t index;
};

/* By falling value. Equal values keep their order, which the reference leaves undefined. */
static int ranked_input_compare(const void *a, const void *b)
{
    const struct ranked_input *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

/* act_group_aware: sort inputs within each group, then groups by their largest value. */
static void factor_order_by_group(struct ranked_input *inputs, struct ranked_input *groups,
                                  const struct gptq_factor *f)
{
    const int64_t count = f->cols / f->group;
    for (int64_t g = 0; g < count; g++) {
        qsort(inputs + g * f->group, (size_t)f->group, sizeof *inputs, ranked_input_compare);
        groups[g] = (struct ranked_input){ inputs[g * f->group].value, (int32_t)g };
    }
    qsort(groups, (size_t)count, sizeof *groups, ranked_input_compare);
    for (int64_t g = 0; g < count; g++)
        for (int64_t i = 0; i < f->group; i++)
            f->walk[g * f->group + i] = inputs[groups[g].index * f->group + i].index;
}

/* Choose the order in which columns are quantized (act-order). */
static enum err_code factor_choose_order(struct gptq_factor *f, const float *hessian, struct err *why)
{
    struct ranked_input *inputs = malloc(2 * sizeof *inputs * (size_t)f->cols);
    if (!inputs)
        return err_set(why, ERR_NOMEM, "gptq: out of memory ordering %lld inputs", (long long)f->cols);
    for (int64_t k = 0; k < f->cols; k++)
        inputs[k] = (struct ranked_input){ f->dead[k] ? 1 : (double)hessian[k * f->cols + k], (int32_t)k };
    if (f->o.act_group_aware) {
        factor_order_by_group(inputs, inputs + f->cols, f);
    } else {
        if (f->o.desc_act) qsort(inputs, (size_t)f->cols, sizeof *inputs, ranked_input_compare);
        for (int64_t k = 0; k < f->cols; k++) f->walk[k] = inputs[k].index;
    }
    f->stored_walk = f->o.desc_act && !f->o.static_groups;
    free(inputs);
    return ERR_OK;
}

/* ---------------------------------------------------------------- factor of the inverse Hessian */

/* Find dead inputs, whose diagonal is 0. The diagonal must be finite, not negative, and not all zero. */
static enum err_code factor_find_dead(struct gptq_factor *f, const float *hessian, struct err *why)
{
    int64_t dead = 0;
    for (int64_t k = 0; k < f->cols; k++) {
        const float d = hessian[k * f->cols + k];
        if (!(d >= 0 && d < INFINITY))
            return err_set(why, ERR_FORMAT,
                           "gptq: the Hessian's diagonal is %g at input %lld: the calibration contains "
                           "NaN or infinity",
                           (double)d, (long long)k);
        f->dead[k] = d == 0;
        dead += d == 0;
    }
    if (dead == f->cols)
        return err_set(why, ERR_FORMAT,
                       "gptq: all %lld inputs are 0 for the whole calibration text, so no weight matters; "
                       "use rtn for this matrix",
                       (long long)f->cols);
    return ERR_OK;
}

/* Copying the Hessian in reverse walk order, with damping. */
struct hessian_copy {
    const struct gptq_factor *f;
    const float *hessian;
    double added; /* damping, added to the diagonal */
    int *bad;     /* [members]: 1 when a thread met NaN or infinity */
};

/* Thread function: fills some rows of the lower triangle of f->inverse. */
static void hessian_copy_rows(void *arg, int member, int size)
{
    const struct hessian_copy *r = arg;
    const struct gptq_factor *f = r->f;
    const int64_t n = f->cols;
    for (int64_t i = member; i < n; i += size) {
        const int64_t a = f->walk[n - 1 - i];
        double *row = f->inverse + i * n;
        for (int64_t j = 0; j <= i; j++) {
            const int64_t b = f->walk[n - 1 - j];
            row[j] = (double)(a > b ? r->hessian[a * n + b] : r->hessian[b * n + a]);
            if (!isfinite(row[j])) r->bad[member] = 1;
        }
        if (f->dead[a]) row[i] = 1;
        row[i] += r->added;
    }
}

/* Copy the damped Hessian to f->inverse. ERR_FORMAT: it contains NaN or infinity. */
static enum err_code factor_read_hessian(struct gptq_factor *f, const float *hessian, double mean,
                                         struct err *why)
{
    struct threadpool *pool = linear_algebra_pool(f->la);
    const int members = threadpool_size(pool);
    struct hessian_copy r = {
        .f = f, .hessian = hessian, .added = f->damp * mean, .bad = calloc((size_t)members, sizeof(int))
    };
    if (!r.bad) return err_set(why, ERR_NOMEM, "gptq: out of memory");
    threadpool_run(pool, hessian_copy_rows, &r);
    int bad = 0;
    for (int i = 0; i < members; i++) bad |= r.bad[i];
    free(r.bad);
    if (bad)
        return err_set(why, ERR_FORMAT,
                       "gptq: the Hessian contains NaN or infinity, and so does the calibration");
    return ERR_OK;
}

static double factor_mean_diagonal(const struct gptq_factor *f, const float *hessian)
{
    double sum = 0;
    for (int64_t k = 0; k < f->cols; k++) sum += f->dead[k] ? 1 : (double)hessian[k * f->cols + k];
    return sum / (double)f->cols;
}

/* Factorize and invert; on failure with more and more damping. */
static enum err_code factor_compute(struct gptq_factor *f, const float *hessian, struct err *why)
{
    const double mean = factor_mean_diagonal(f, hessian);
    for (f->damp = f->o.damp_percent;; f->damp += f->o.damp_auto_increment) {
        enum err_code rc = factor_read_hessian(f, hessian, mean, why);
        if (rc) return rc;
        rc = linear_cholesky(f->la, f->inverse, f->cols, why);
        if (!rc) return linear_lower_inverse(f->la, f->inverse, f->cols, why);
        if (!(f->o.damp_auto_increment > 0) || f->damp + f->o.damp_auto_increment >= 1)
            return err_prefix(
                why,
                "gptq: the Hessian is not positive definite with damp_percent %g (a larger one, "
                "or damp_auto_increment, helps)",
                f->damp);
    }
}

enum err_code gptq_factor_new(struct gptq_factor **out, struct linear_algebra *la, const float *hessian,
                              int64_t cols, const struct gptq_options *o, struct err *why)
{
    *out = NULL;
    enum err_code rc = gptq_check(o, cols, why);
    if (rc) return rc;
    struct gptq_factor *f = calloc(1, sizeof *f);
    if (!f) return err_set(why, ERR_NOMEM, "gptq: out of memory");
    f->la = la, f->o = *o, f->cols = cols, f->group = o->group_size < 0 ? cols : o->group_size;
    f->o.blocksize = MIN(o->blocksize, cols);
    f->walk = malloc(sizeof *f->walk * (size_t)cols);
    f->dead = malloc(sizeof *f->dead * (size_t)cols);
    f->inverse = malloc(sizeof *f->inverse * (size_t)cols * (size_t)cols);
    if (!f->walk || !f->dead || !f->inverse)
        rc = err_set(why, ERR_NOMEM, "gptq: out of memory for the factor of %lld inputs", (long long)cols);
    if (!rc) rc = factor_find_dead(f, hessian, why);
    if (!rc) rc = factor_choose_order(f, hessian, why);
    if (!rc) rc = factor_compute(f, hessian, why);
    if (rc) {
        gptq_factor_free(f);
        return rc;
    }
    *out = f;
    return ERR_OK;
}

void gptq_factor_free(struct gptq_factor *f)
{
    if (!f) return;
    free(f->walk);
    free(f->dead);
    free(f->inverse);
    free(f);
}

double gptq_factor_damp(const struct gptq_factor *f)
{
    return f->damp;
}

const int32_t *gptq_factor_order(const struct gptq_factor *f)
{
    return f->stored_walk ? f->walk : NULL;
}

/* ---------------------------------------------------------------- quantization grids */

struct grid {
    float scale, zero, most; /* value = scale * (code - zero), codes 0 .. most */
};

static float grid_code(const struct grid *g, float w)
{
    const float c = rintf(w / g->scale) + g->zero;
    return c < 0 ? 0 : c > g->most ? g->most : c;
}

static float grid_value(const struct grid *g, float code)
{
    return g->scale * (code - g->zero);
}

/* The scale as f16 stores it, limited so that it is neither 0 nor infinite. */
static float scale_as_f16(float s)
{
    const float least = 0x1p-24f, most = 65504;
    return f16_to_f32(f16_from_f32(s < least ? least : s > most ? most : s));
}

/* The grid for weights from low to high. */
static struct grid grid_of_range(const struct gptq_options *o, float low, float high)
{
    struct grid g = { .most = (float)((1 << o->bits) - 1) };
    g.scale = (high - low) / g.most;
    if (o->half_scales) g.scale = scale_as_f16(g.scale);
    const float zero = o->sym ? (g.most + 1) / 2 : rintf(-low / g.scale);
    g.zero = zero > g.most ? g.most : zero;
    return g;
}

/* Sum |error|^exponent of n weights; stops early once it reaches `enough`. */
static double grid_error(const struct grid *g, const float *w, int64_t n, double exponent, double enough)
{
    double error = 0;
    for (int64_t i = 0; i < n && error < enough; i++)
        error += pow(fabs((double)(grid_value(g, grid_code(g, w[i])) - w[i])), exponent);
    return error;
}

/* The grid for a group of n weights; with mse, the best of 80 grids that clip more and more. */
static struct grid grid_of(const struct gptq_options *o, const float *w, int64_t n)
{
    float low = 0, high = 0;
    for (int64_t i = 0; i < n; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
    }
    if (o->sym) {
        high = -low > high ? -low : high;
        low = -high; /* also without negative weights; the reference then clips at 7/15 of the range */
    }
    if (low == high) low = -1, high = 1;
    struct grid best = grid_of_range(o, low, high);
    if (!(o->mse > 0)) return best;
    double least = INFINITY;
    for (int i = 0; i < 80; i++) {
        const float p = 1 - (float)i / 100;
        const struct grid g = grid_of_range(o, p * low, p * high);
        const double error = grid_error(&g, w, n, o->mse, least);
        if (error < least) least = error, best = g;
    }
    return best;
}

/* ---------------------------------------------------------------- walk over columns */

/* Rows that a thread takes at a time: a whole number of cache lines in every array. */
enum { ROWS = 16 };

struct walk {
    const struct gptq_factor *f;
    struct threadpool *pool;
    float *weights; /* [rows][cols]: the caller's, in the original order */
    float *w;       /* [rows][cols] in walk order: corrected weights, then dequantized values */
    int64_t rows;
    struct gptq_codes *out;
    int64_t begin, end; /* columns of the current block */
    float *u;           /* [end - begin][cols - begin]: rows begin..end-1 of U from column begin on */
    float *errors;      /* [rows][blocksize]: corrected rounding errors of the current block */
    double *loss;       /* [rows] */
    float *scratch;     /* [members][blocksize] */
};

/* Group of the i-th column of the walk. */
static int64_t walk_group(const struct walk *s, int64_t i)
{
    const struct gptq_factor *f = s->f;
    return (f->stored_walk ? i : f->walk[i]) / f->group;
}

/* Take the next rows of the shared work. */
static void walk_next_rows(const struct walk *s, int64_t *from, int64_t *to)
{
    *from = threadpool_next(s->pool, 1) * ROWS;
    *to = MIN(*from + ROWS, s->rows);
}

/* Compute and store the grid of one group. */
static void walk_set_grid(const struct walk *s, int64_t row, int64_t group, const float *w)
{
    const struct gptq_factor *f = s->f;
    const struct grid g = grid_of(&f->o, w, f->group);
    s->out->scales[row * (f->cols / f->group) + group] = g.scale;
    s->out->zeros[row * (f->cols / f->group) + group] = g.zero;
}

/* Thread function: copy weights to walk order, 0 for dead inputs; compute static grids. */
static void walk_gather_rows(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct walk *s = arg;
    const struct gptq_factor *f = s->f;
    for (int64_t row, to;;) {
        walk_next_rows(s, &row, &to);
        if (row >= s->rows) return;
        for (; row < to; row++) {
            float *natural = s->weights + row * f->cols, *w = s->w + row * f->cols;
            for (int64_t k = 0; k < f->cols; k++) natural[k] = f->dead[k] ? 0 : natural[k];
            for (int64_t i = 0; i < f->cols; i++) w[i] = natural[f->walk[i]];
            for (int64_t g = 0; f->o.static_groups && g < f->cols / f->group; g++)
                walk_set_grid(s, row, g, natural + g * f->group);
        }
    }
}

/* Thread function: copy the current block's rows of U as f32. */
static void walk_read_factor(void *arg, int member, int size)
{
    const struct walk *s = arg;
    const int64_t n = s->f->cols, wide = n - s->begin;
    for (int64_t i = s->begin + member; i < s->end; i += size) {
        const double *from = s->f->inverse + (n - 1 - i) * n;
        float *to = s->u + (i - s->begin) * wide;
        for (int64_t j = s->begin; j < n; j++) to[j - s->begin] = j < i ? 0 : (float)from[n - 1 - j];
    }
}

/* Quantize the current block's columns of one row. */
static void walk_row(const struct walk *s, int64_t row, float *w1)
{
    const struct gptq_factor *f = s->f;
    const int64_t begin = s->begin, count = s->end - begin, wide = f->cols - begin,
                  groups = f->cols / f->group;
    float *w = s->w + row * f->cols, *errors = s->errors + row * f->o.blocksize;
    memcpy(w1, w + begin, (size_t)count * sizeof *w1);
    for (int64_t i = 0; i < count; i++) {
        const int64_t group = walk_group(s, begin + i), at = row * groups + group;
        /* From w, not w1: as in the reference, corrections within this block do not affect the grids of
         * groups that start inside it. */
        if ((begin + i) % f->group == 0 && !f->o.static_groups) walk_set_grid(s, row, group, w + begin + i);
        const struct grid g = { s->out->scales[at], s->out->zeros[at], (float)((1 << f->o.bits) - 1) };
        const float code = grid_code(&g, w1[i]), q = grid_value(&g, code), *u = s->u + i * wide;
        const float error = (w1[i] - q) / u[i];
        for (int64_t j = i + 1; j < count; j++) w1[j] -= error * u[j];
        w1[i] = q;
        errors[i] = error;
        s->loss[row] += (double)error * (double)error;
        const int64_t stored = f->stored_walk ? begin + i : f->walk[begin + i];
        s->out->codes[row * f->cols + stored] = (uint8_t)code;
    }
    memcpy(w + begin, w1, (size_t)count * sizeof *w1);
}

/* Thread function: quantize the current block's columns of some rows. */
static void walk_block(void *arg, int member, int size)
{
    (void)size;
    const struct walk *s = arg;
    for (int64_t row, to;;) {
        walk_next_rows(s, &row, &to);
        if (row >= s->rows) return;
        for (; row < to; row++) walk_row(s, row, s->scratch + member * s->f->o.blocksize);
    }
}

/* Thread function: copy dequantized values back to the original order. */
static void walk_scatter_rows(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct walk *s = arg;
    const struct gptq_factor *f = s->f;
    for (int64_t row, to;;) {
        walk_next_rows(s, &row, &to);
        if (row >= s->rows) return;
        for (; row < to; row++)
            for (int64_t i = 0; i < f->cols; i++)
                s->weights[row * f->cols + f->walk[i]] = s->w[row * f->cols + i];
    }
}

/* Quantize block by block. After each, correct all later columns with one matrix product. */
static void walk_columns(struct walk *s)
{
    const struct gptq_factor *f = s->f;
    for (s->begin = 0; s->begin < f->cols; s->begin = s->end) {
        s->end = MIN(s->begin + f->o.blocksize, f->cols);
        const int64_t count = s->end - s->begin, wide = f->cols - s->begin;
        threadpool_run(s->pool, walk_read_factor, s);
        threadpool_run(s->pool, walk_block, s);
        const struct linear_product corrections = {
            .rows = s->rows,
            .cols = wide - count,
            .inner = count,
            .alpha = -1,
            .a = s->errors,
            .a_stride = f->o.blocksize,
            .b = s->u + count,
            .b_stride = wide,
            .c = s->w + s->end,
            .c_stride = f->cols,
        };
        linear_multiply_add(f->la, &corrections);
    }
}

/* Corrections multiply weights with each other; from weights up to 1e30 they stay finite. */
static enum err_code weights_check(const float *w, int64_t rows, int64_t cols, struct err *why)
{
    for (int64_t i = 0; i < rows * cols; i++)
        if (!(fabsf(w[i]) <= 1e30f))
            return err_set(why, ERR_FORMAT,
                           "gptq: weight [%lld][%lld] is %g, expected a magnitude of at most 1e30",
                           (long long)(i / cols), (long long)(i % cols), (double)w[i]);
    return ERR_OK;
}

enum err_code gptq_solve(const struct gptq_factor *f, float *weights, int64_t rows, struct gptq_codes *out,
                         struct err *why)
{
    enum err_code rc = weights_check(weights, rows, f->cols, why);
    if (rc) return rc;
    struct walk s = {
        .f = f, .pool = linear_algebra_pool(f->la), .weights = weights, .rows = rows, .out = out
    };
    const size_t block = (size_t)f->o.blocksize;
    s.w = malloc(sizeof(float) * (size_t)rows * (size_t)f->cols);
    s.u = malloc(sizeof(float) * block * (size_t)f->cols);
    s.errors = malloc(sizeof(float) * block * (size_t)rows);
    s.scratch = malloc(sizeof(float) * block * (size_t)threadpool_size(s.pool));
    s.loss = calloc((size_t)rows, sizeof *s.loss);
    if (s.w && s.u && s.errors && s.scratch && s.loss) {
        threadpool_run(s.pool, walk_gather_rows, &s);
        walk_columns(&s);
        threadpool_run(s.pool, walk_scatter_rows, &s);
        out->loss = 0;
        for (int64_t row = 0; row < rows; row++) out->loss += s.loss[row];
    } else {
        rc = err_set(why, ERR_NOMEM, "gptq: out of memory for [%lld][%lld] weights", (long long)rows,
                     (long long)f->cols);
    }
    free(s.w);
    free(s.u);
    free(s.errors);
    free(s.scratch);
    free(s.loss);
    return rc;
}
