/* The loops of rows_loops.h. A file that includes this one defines ROWS_LOOPS, the name of the table, and
 * WIDE, the number of floats in a vector. The compiler vectorizes the loops (-O3); exp is a polynomial.
 * Internal. */
#include "engine/train/rows_loops.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

static float row_dot(const float *a, const float *b, int64_t n)
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

/* exp(x) with a relative error of 2e-7 for x from -60 to 60; x is limited to that range, beyond which 1 +
 * exp(x) does not change. A wider range would let subnormal numbers occur in divisions by 1 + exp(x), because
 * the compiler evaluates both branches, and they are a hundred times slower. */
static inline float fast_exp(float x)
{
    const float low = x < -60 ? -60 : x, clamped = low > 60 ? 60 : low;
    const float magic = 12582912; /* adding 1.5 * 2^23 rounds to a whole number in the low bits */
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

/* The largest of n > 0 numbers. Partial maxima, because the compiler would compare one after the other. */
static float row_largest(const float *x, int64_t n)
{
    float part[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) part[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) part[j] = x[i + j] > part[j] ? x[i + j] : part[j];
    for (int j = 0; i + j < n; j++) part[j] = x[i + j] > part[j] ? x[i + j] : part[j];
    for (int j = 1; j < LANES; j++) part[0] = part[j] > part[0] ? part[j] : part[0];
    return part[0];
}

/* ---------------------------------------------------------------- norm */

static float inverse_rms(const float *x, int64_t cols, float eps)
{
    return 1 / sqrtf(row_dot(x, x, cols) / (float)cols + eps);
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

/* Each thread sums some columns over all rows. */
static void norm_weight_share(const void *arg, int64_t from, int64_t to)
{
    const struct norm_back *p = arg;
    float *restrict dw = p->dw;
    for (int64_t i = 0; i < p->rows; i++) {
        const float *x = p->x + i * p->cols, *dy = p->dy + i * p->cols, inverse = p->inverse[i];
        for (int64_t c = from; c < to; c++) dw[c] += dy[c] * x[c] * inverse;
    }
}

/* ---------------------------------------------------------------- gated activation */

static void swiglu_share(const void *arg, int64_t from, int64_t to)
{
    const struct swiglu *p = arg;
    const float *gate = p->gate_in, *up = p->up_in;
    float *restrict s = p->s;
    for (int64_t i = from; i < to; i++) s[i] = gate[i] / (1 + fast_exp(-gate[i])) * up[i];
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

/* ---------------------------------------------------------------- attention's softmax */

/* Replace x by exp(scale * (x - peak)); returns the sum. */
static float row_exp_sum(float *restrict x, int64_t n, float scale)
{
    const float peak = row_largest(x, n);
    float part[LANES] = { 0 };
    for (int64_t i = 0; i < n; i++) x[i] = fast_exp(scale * (x[i] - peak));
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) part[j] += x[i + j];
    for (int j = 0; i + j < n; j++) part[j] += x[i + j];
    for (int width = LANES / 2; width; width /= 2)
        for (int j = 0; j < width; j++) part[j] += part[j + width];
    return part[0];
}

/* Rows of the causal matrix get longer. Each thread takes rows i and n-1-i in pairs, which together cost the
 * same for every i. */
static void softmax_share(const void *arg, int64_t from, int64_t to)
{
    const struct softmax *p = arg;
    for (int64_t k = from; k < to; k++) {
        const int64_t i = k % 2 ? p->n - 1 - k / 2 : k / 2;
        float *restrict s = p->s + i * p->n;
        const float total = row_exp_sum(s, i + 1, p->scale), inverse = 1 / total;
        for (int64_t j = 0; j <= i; j++) s[j] *= inverse;
        memset(s + i + 1, 0, (size_t)(p->n - i - 1) * sizeof *s);
    }
}

static void softmax_back_share(const void *arg, int64_t from, int64_t to)
{
    const struct softmax *q = arg;
    for (int64_t k = from; k < to; k++) {
        const int64_t i = k % 2 ? q->n - 1 - k / 2 : k / 2;
        const float *p = q->p + i * q->n;
        float *restrict d = q->s + i * q->n;
        const float mean = row_dot(p, d, i + 1);
        for (int64_t j = 0; j <= i; j++) d[j] = p[j] * (d[j] - mean) * q->scale;
        memset(d + i + 1, 0, (size_t)(q->n - i - 1) * sizeof *d);
    }
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
        const float peak = row_largest(z, p->cols);
        float part[LANES] = { 0 };
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

/* Sum of e^(z - peak) over a row; *peak is its maximum. */
static double whole_exponentials(const float *z, int64_t n, float *peak)
{
    const float most = row_largest(z, n);
    float part[LANES] = { 0 };
    int64_t c0 = 0;
    for (; c0 + LANES <= n; c0 += LANES)
        for (int j = 0; j < LANES; j++) part[j] += fast_exp(z[c0 + j] - most);
    for (int j = 0; c0 + j < n; j++) part[j] += fast_exp(z[c0 + j] - most);
    double total = 0;
    for (int j = 0; j < LANES; j++) total += (double)part[j];
    *peak = most;
    return total;
}

/* ln(p / q) = teacher - logits - (difference of their log sums). Summed in double, because most terms cancel.
 */
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

/* ---------------------------------------------------------------- embedding */

static void gather_share(const void *arg, int64_t from, int64_t to)
{
    const struct gathering *g = arg;
    const int64_t cols = g->table->cols;
    for (int64_t i = from; i < to; i++)
        memcpy(g->y + i * cols, g->table->data + g->ids[i] * cols, (size_t)cols * sizeof *g->y);
}

/* Split by columns, because several rows may add to the same row of the table. */
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

/* ---------------------------------------------------------------- numbers one by one */

static void mix_share(const void *arg, int64_t from, int64_t to)
{
    const struct mixing *p = arg;
    for (int64_t i = from; i < to; i++) p->out[i] = p->by_a * p->a[i] + p->by_b * p->b[i];
}

static void adam_share(const void *arg, int64_t from, int64_t to)
{
    const struct adam_rows p = *(const struct adam_rows *)arg;
    const float *g = p.gradient;
    float *restrict x = p.x, *restrict m = p.m, *restrict v = p.v;
    for (int64_t i = from; i < to; i++) {
        const float gradient = g[i] * p.by;
        m[i] = p.beta1 * m[i] + (1 - p.beta1) * gradient;
        v[i] = p.beta2 * v[i] + (1 - p.beta2) * gradient * gradient;
        x[i] = x[i] * p.keep - p.rate * m[i] / (sqrtf(v[i] * p.grown) + p.epsilon);
    }
}

/* ---------------------------------------------------------------- turning round */

typedef float wide __attribute__((vector_size(4 * WIDE)));
typedef int wide_int __attribute__((vector_size(4 * WIDE)));

static inline wide wide_load(const float *x)
{
    wide v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* Elements of a followed by b, in the order `from`. */
static inline wide wide_pick(wide a, wide b, wide_int from)
{
#ifdef __clang__ /* has no such instruction for indexes in a variable */
    wide v;
    for (int j = 0; j < WIDE; j++) v[j] = from[j] < WIDE ? a[from[j]] : b[from[j] - WIDE];
    return v;
#else
    return __builtin_shuffle(a, b, from);
#endif
}

/* Transpose a block: out[j][i] = x[i][j] for i, j < WIDE. Each of log2(WIDE) rounds interleaves rows i and
 * i + WIDE/2, after which every number is in its place. */
static inline void turn_block(const float *x, int64_t x_stride, float *out, int64_t out_stride)
{
    wide a[WIDE], b[WIDE];
    wide_int low, high;
    for (int j = 0; j < WIDE; j++) {
        low[j] = j / 2 + j % 2 * WIDE;
        high[j] = low[j] + WIDE / 2;
    }
    for (int i = 0; i < WIDE; i++) a[i] = wide_load(x + i * x_stride);
    for (int round = 1; round < WIDE; round *= 2) {
        for (int i = 0; i < WIDE / 2; i++) {
            b[2 * i] = wide_pick(a[i], a[i + WIDE / 2], low);
            b[2 * i + 1] = wide_pick(a[i], a[i + WIDE / 2], high);
        }
        memcpy(a, b, sizeof a);
    }
    for (int j = 0; j < WIDE; j++) memcpy(out + j * out_stride, &a[j], sizeof a[j]);
}

enum { TURN = 16 };

static void turn_tile(const struct turning *t, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    if (r1 - r0 == TURN && c1 - c0 == TURN) {
        for (int64_t c = c0; c < c1; c += WIDE)
            for (int64_t r = r0; r < r1; r += WIDE)
                turn_block(t->x + r * t->x_stride + c, t->x_stride, t->out + c * t->rows + r, t->rows);
        return;
    }
    for (int64_t c = c0; c < c1; c++)
        for (int64_t r = r0; r < r1; r++) t->out[c * t->rows + r] = t->x[r * t->x_stride + c];
}

/* Transpose columns from..to-1 of x, which are rows of out. */
static void turn_share(const void *arg, int64_t from, int64_t to)
{
    const struct turning *t = arg;
    for (int64_t c = from; c < to; c += TURN)
        for (int64_t r = 0; r < t->rows; r += TURN)
            turn_tile(t, r, MIN(r + TURN, t->rows), c, MIN(c + TURN, to));
}

const struct rows_loops ROWS_LOOPS = {
    .norm = norm_share,
    .norm_back = norm_back_share,
    .norm_weight = norm_weight_share,
    .swiglu = swiglu_share,
    .swiglu_back = swiglu_back_share,
    .rope = rope_share,
    .softmax = softmax_share,
    .softmax_back = softmax_back_share,
    .cross_entropy = cross_entropy_share,
    .distill = distill_share,
    .gather = gather_share,
    .gather_back = gather_back_share,
    .mix = mix_share,
    .turn = turn_share,
    .adam = adam_share,
    .dot = row_dot,
};
