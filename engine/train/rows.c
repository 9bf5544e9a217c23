/* Loops that the compiler turns into vectors by itself (this file is built with -O3): sums are kept in LANES
 * parts, which is the order any vector width can add them in, and exp is made of multiplications. */
#include "engine/train/rows.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

struct share {
    rows_fn *fn;
    const void *arg;
    int64_t n;
};

static void run_share(void *arg, int member, int size)
{
    const struct share *s = arg;
    s->fn(s->arg, s->n * member / size, s->n * (member + 1) / size);
}

void rows_run(struct threadpool *pool, int64_t n, rows_fn *fn, const void *arg)
{
    struct share s = { fn, arg, n };
    threadpool_run(pool, run_share, &s);
}

float rows_dot(const float *a, const float *b, int64_t n)
{
    float part[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) part[j] += a[i + j] * b[i + j];
    for (int j = 0; i + j < n; j++) part[j] += a[i + j] * b[i + j];
    for (int width = LANES / 2; width; width /= 2)
        for (int j = 0; j < width; j++) part[j] += part[j + width];
    return part[0];
}

/* Within 2e-7 of exp(x), relatively, from -60 to 60; what is beyond counts as the nearer of the two, which
 * added to 1 is the same. Wider bounds would do, but the compiler works out both ends of a division by 1 +
 * exp(x), and subnormal numbers there cost a hundred times what they are worth. */
static inline float fast_exp(float x)
{
    const float low = x < -60 ? -60 : x, clamped = low > 60 ? 60 : low;
    const float magic = 12582912; /* adding it rounds to a whole number, kept in the low bits */
    const float shifted = clamped * 1.44269504f + magic, whole = shifted - magic;
    const float r = (clamped - whole * 0.693359375f) - whole * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    union {
        float number;
        uint32_t bits;
    } power = { .number = shifted };
    power.bits = (power.bits + 127) << 23;
    return p * power.number;
}

/* ---------------------------------------------------------------- norm */

static float inverse_rms(const float *x, int64_t cols, float eps)
{
    return 1 / sqrtf(rows_dot(x, x, cols) / (float)cols + eps);
}

static void norm_share(const void *arg, int64_t from, int64_t to)
{
    const struct norm_rows *p = arg;
    for (int64_t i = from; i < to; i++) {
        const float *x = p->x + i * p->cols;
        float *restrict y = p->y + i * p->cols;
        const float inverse = inverse_rms(x, p->cols, p->eps);
        for (int64_t c = 0; c < p->cols; c++) y[c] = x[c] * inverse * p->w[c];
    }
}

void rows_norm(struct threadpool *pool, const struct norm_rows *p)
{
    rows_run(pool, p->rows, norm_share, p);
}

static void norm_back_share(const void *arg, int64_t from, int64_t to)
{
    const struct norm_back *p = arg;
    for (int64_t i = from; i < to; i++) {
        const float *x = p->x + i * p->cols, *dy = p->dy + i * p->cols;
        float *restrict dx = p->dx + i * p->cols, part[LANES] = { 0 };
        const float inverse = p->inverse[i] = inverse_rms(x, p->cols, p->eps);
        int64_t c0 = 0;
        for (; c0 + LANES <= p->cols; c0 += LANES)
            for (int j = 0; j < LANES; j++) part[j] += dy[c0 + j] * p->w[c0 + j] * x[c0 + j];
        for (int j = 0; c0 + j < p->cols; j++) part[j] += dy[c0 + j] * p->w[c0 + j] * x[c0 + j];
        for (int width = LANES / 2; width; width /= 2)
            for (int j = 0; j < width; j++) part[j] += part[j + width];
        const float mean = part[0] * inverse * inverse / (float)p->cols;
        for (int64_t c = 0; c < p->cols; c++) dx[c] += inverse * (dy[c] * p->w[c] - x[c] * mean);
    }
}

/* Columns: each sums over all rows. */
static void norm_weight_share(const void *arg, int64_t from, int64_t to)
{
    const struct norm_back *p = arg;
    float *restrict dw = p->dw;
    for (int64_t i = 0; i < p->rows; i++) {
        const float *x = p->x + i * p->cols, *dy = p->dy + i * p->cols, inverse = p->inverse[i];
        for (int64_t c = from; c < to; c++) dw[c] += dy[c] * x[c] * inverse;
    }
}

void rows_norm_back(struct threadpool *pool, const struct norm_back *p)
{
    rows_run(pool, p->rows, norm_back_share, p);
    rows_run(pool, p->cols, norm_weight_share, p);
}

/* ---------------------------------------------------------------- gated activation */

struct swiglu {
    const float *gate_in, *up_in, *ds;
    float *s, *gate, *up;
};

static void swiglu_share(const void *arg, int64_t from, int64_t to)
{
    const struct swiglu *p = arg;
    const float *gate = p->gate_in, *up = p->up_in;
    float *restrict s = p->s;
    for (int64_t i = from; i < to; i++) s[i] = gate[i] / (1 + fast_exp(-gate[i])) * up[i];
}

void rows_swiglu(struct threadpool *pool, const float *gate, const float *up, float *s, int64_t n)
{
    rows_run(pool, n, swiglu_share, &(struct swiglu){ .gate_in = gate, .up_in = up, .s = s });
}

static void swiglu_back_share(const void *arg, int64_t from, int64_t to)
{
    const struct swiglu *p = arg;
    const float *ds = p->ds;
    float *restrict gate = p->gate, *restrict up = p->up;
    for (int64_t i = from; i < to; i++) {
        const float g = gate[i], sigmoid = 1 / (1 + fast_exp(-g));
        gate[i] = ds[i] * up[i] * sigmoid * (1 + g * (1 - sigmoid));
        up[i] = ds[i] * g * sigmoid;
    }
}

void rows_swiglu_back(struct threadpool *pool, float *gate, float *up, const float *ds, int64_t n)
{
    rows_run(pool, n, swiglu_back_share, &(struct swiglu){ .gate = gate, .up = up, .ds = ds });
}

/* ---------------------------------------------------------------- positions */

static void rope_share(const void *arg, int64_t from, int64_t to)
{
    const struct rope_rows *p = arg;
    const int half = p->head_dim / 2;
    for (int64_t i = from; i < to; i++) {
        const float *c = p->cosines + i % p->ctx * half, *s = p->sines + i % p->ctx * half;
        float *x = p->x + i * p->heads * p->head_dim;
        for (int h = 0; h < p->heads; h++, x += p->head_dim)
            for (int j = 0; j < half; j++) {
                const float even = x[2 * j], odd = x[2 * j + 1], sine = p->sign * s[j];
                x[2 * j] = even * c[j] - odd * sine;
                x[2 * j + 1] = even * sine + odd * c[j];
            }
    }
}

void rows_rope(struct threadpool *pool, const struct rope_rows *p)
{
    rows_run(pool, p->rows, rope_share, p);
}

/* ---------------------------------------------------------------- attention's softmax */

struct softmax {
    const float *p;
    float *s;
    int64_t n;
    float scale;
};

/* exp(scale * (x - peak)) in place; returns the sum. */
static float exponentials(float *restrict x, int64_t n, float scale)
{
    float peak = -INFINITY, part[LANES] = { 0 };
    for (int64_t i = 0; i < n; i++) peak = x[i] > peak ? x[i] : peak;
    for (int64_t i = 0; i < n; i++) x[i] = fast_exp(scale * (x[i] - peak));
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) part[j] += x[i + j];
    for (int j = 0; i + j < n; j++) part[j] += x[i + j];
    for (int width = LANES / 2; width; width /= 2)
        for (int j = 0; j < width; j++) part[j] += part[j + width];
    return part[0];
}

/* Rows get longer, so they are dealt in turns: 0, k, 2k ... would be the usual way; the two ends of the
 * matrix together cost the same everywhere, and lie in rows i and n-1-i. */
static void softmax_share(const void *arg, int64_t from, int64_t to)
{
    const struct softmax *p = arg;
    for (int64_t k = from; k < to; k++) {
        const int64_t i = k % 2 ? p->n - 1 - k / 2 : k / 2;
        float *restrict s = p->s + i * p->n;
        const float total = exponentials(s, i + 1, p->scale), inverse = 1 / total;
        for (int64_t j = 0; j <= i; j++) s[j] *= inverse;
        memset(s + i + 1, 0, (size_t)(p->n - i - 1) * sizeof *s);
    }
}

void rows_softmax(struct threadpool *pool, float *s, int64_t n, float scale)
{
    rows_run(pool, n, softmax_share, &(struct softmax){ .s = s, .n = n, .scale = scale });
}

static void softmax_back_share(const void *arg, int64_t from, int64_t to)
{
    const struct softmax *q = arg;
    for (int64_t k = from; k < to; k++) {
        const int64_t i = k % 2 ? q->n - 1 - k / 2 : k / 2;
        const float *p = q->p + i * q->n;
        float *restrict d = q->s + i * q->n;
        const float mean = rows_dot(p, d, i + 1);
        for (int64_t j = 0; j <= i; j++) d[j] = p[j] * (d[j] - mean) * q->scale;
        memset(d + i + 1, 0, (size_t)(q->n - i - 1) * sizeof *d);
    }
}

void rows_softmax_back(struct threadpool *pool, const float *p, float *dp, int64_t n, float scale)
{
    rows_run(pool, n, softmax_back_share, &(struct softmax){ .p = p, .s = dp, .n = n, .scale = scale });
}

/* ---------------------------------------------------------------- loss */

static void cross_entropy_share(const void *arg, int64_t from, int64_t to)
{
    const struct cross_entropy *p = arg;
    for (int64_t i = from; i < to; i++) {
        float *restrict z = p->logits + i * p->cols;
        const int32_t target = p->targets[i];
        p->loss[i] = 0;
        if (target < 0) {
            if (p->scale != 0) memset(z, 0, (size_t)p->cols * sizeof *z);
            continue;
        }
        float peak = -INFINITY, part[LANES] = { 0 };
        for (int64_t c = 0; c < p->cols; c++) peak = z[c] > peak ? z[c] : peak;
        const float wanted = z[target] - peak;
        int64_t c0 = 0;
        for (; c0 + LANES <= p->cols; c0 += LANES)
            for (int j = 0; j < LANES; j++) part[j] += fast_exp(z[c0 + j] - peak);
        for (int j = 0; c0 + j < p->cols; j++) part[j] += fast_exp(z[c0 + j] - peak);
        double total = 0;
        for (int j = 0; j < LANES; j++) total += (double)part[j];
        p->loss[i] = log(total) - (double)wanted;
        if (p->scale == 0) continue;
        const float by = p->scale / (float)total;
        for (int64_t c = 0; c < p->cols; c++) z[c] = fast_exp(z[c] - peak) * by;
        z[target] -= p->scale;
    }
}

void rows_cross_entropy(struct threadpool *pool, const struct cross_entropy *p)
{
    rows_run(pool, p->rows, cross_entropy_share, p);
}

/* Sum of e^(z - peak) over a row, and its peak. */
static double whole_exponentials(const float *z, int64_t n, float *peak)
{
    float part[LANES] = { 0 }, most = -INFINITY;
    for (int64_t c = 0; c < n; c++) most = z[c] > most ? z[c] : most;
    int64_t c0 = 0;
    for (; c0 + LANES <= n; c0 += LANES)
        for (int j = 0; j < LANES; j++) part[j] += fast_exp(z[c0 + j] - most);
    for (int j = 0; c0 + j < n; j++) part[j] += fast_exp(z[c0 + j] - most);
    double total = 0;
    for (int j = 0; j < LANES; j++) total += (double)part[j];
    *peak = most;
    return total;
}

/* ln(p / q) = teacher - logits - (ln of their sums); p ln(p / q) summed in double, as most terms cancel. */
static void distill_share(const void *arg, int64_t from, int64_t to)
{
    const struct distillation *d = arg;
    for (int64_t i = from; i < to; i++) {
        float *restrict z = d->logits + i * d->cols;
        const float *restrict t = d->teacher + i * d->cols;
        float peak_z, peak_t;
        const double sum_z = whole_exponentials(z, d->cols, &peak_z);
        const double sum_t = whole_exponentials(t, d->cols, &peak_t);
        const double shift = (double)peak_z - (double)peak_t + log(sum_z) - log(sum_t);
        double loss = 0;
        for (int64_t c = 0; c < d->cols; c++)
            loss += (double)fast_exp(t[c] - peak_t) * ((double)t[c] - (double)z[c] + shift);
        d->loss[i] = loss / sum_t;
        if (d->scale == 0) continue;
        const float by_z = d->scale / (float)sum_z, by_t = d->scale / (float)sum_t;
        for (int64_t c = 0; c < d->cols; c++)
            z[c] = fast_exp(z[c] - peak_z) * by_z - fast_exp(t[c] - peak_t) * by_t;
    }
}

void rows_distill(struct threadpool *pool, const struct distillation *p)
{
    rows_run(pool, p->rows, distill_share, p);
}

/* ---------------------------------------------------------------- embedding, sums */

struct gathering {
    const struct matrix *table;
    const int32_t *ids;
    const float *dy;
    float *y;
    int64_t n;
};

static void gather_share(const void *arg, int64_t from, int64_t to)
{
    const struct gathering *g = arg;
    const int64_t cols = g->table->cols;
    for (int64_t i = from; i < to; i++)
        memcpy(g->y + i * cols, g->table->data + g->ids[i] * cols, (size_t)cols * sizeof *g->y);
}

void rows_gather(struct threadpool *pool, const struct matrix *table, const int32_t *ids, float *y, int64_t n)
{
    rows_run(pool, n, gather_share, &(struct gathering){ .table = table, .ids = ids, .y = y });
}

/* Columns: several rows may add to the same row of the table. */
static void gather_back_share(const void *arg, int64_t from, int64_t to)
{
    const struct gathering *g = arg;
    const int64_t cols = g->table->cols;
    for (int64_t i = 0; i < g->n; i++) {
        float *restrict row = g->table->data + g->ids[i] * cols;
        const float *dy = g->dy + i * cols;
        for (int64_t c = from; c < to; c++) row[c] += dy[c];
    }
}

void rows_gather_back(struct threadpool *pool, const struct matrix *table, const int32_t *ids,
                      const float *dy, int64_t n)
{
    rows_run(pool, table->cols, gather_back_share,
             &(struct gathering){ .table = table, .ids = ids, .dy = dy, .n = n });
}

struct addition {
    const float *x;
    float *y;
};

static void add_share(const void *arg, int64_t from, int64_t to)
{
    const struct addition *a = arg;
    for (int64_t i = from; i < to; i++) a->y[i] += a->x[i];
}

void rows_add(struct threadpool *pool, const float *x, float *y, int64_t n)
{
    rows_run(pool, n, add_share, &(struct addition){ x, y });
}
