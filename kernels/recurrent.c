/* Recurrent layers (recurrent.h): divides convolutions by channels and recurrences by heads among the
 * threads. */
#include "kernels/recurrent.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu.h"

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* log(1 + e^x) */
static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static float *state_of(const struct recurrent_rows *r, int row)
{
    return r->state + r->seq[row] * r->state_stride;
}

/* Run fn on the pool, or on the calling thread when the work is small. */
static void recurrence_run(struct backend *b, int64_t elements, threadpool_fn *fn, void *arg)
{
    if (cpu_runs_alone(elements))
        threadpool_run_alone(b->pool, fn, arg);
    else
        threadpool_run(b->pool, fn, arg);
}

/* ---------------------------------------------------------------- convolution */

struct convolution_job {
    const struct convolution *p;
    struct recurrent_kernels k;
    const struct vector_kernels *vec;
};

enum { CHANNELS_AT_ONCE = 256 };

/* n <= CHANNELS_AT_ONCE channels from c on, of all rows. */
static void convolve_channels(const struct convolution_job *job, int64_t c, int64_t n)
{
    const struct convolution *p = job->p;
    const int past = p->taps - 1;
    for (int i = 0; i < p->rows.n; i++) {
        float now[CHANNELS_AT_ONCE], out[CHANNELS_AT_ONCE], *state = state_of(&p->rows, i) + c;
        const float *x = p->x + i * p->x_stride + c, *u[CONVOLUTION_TAPS_MAX];
        float *y = p->y + i * p->y_stride + c;
        for (int t = 0; t < past; t++) {
            if (p->rows.pos[i] == 0) memset(state + t * p->channels, 0, (size_t)n * sizeof *state);
            u[t] = state + t * p->channels;
        }
        u[past] = now;
        memcpy(now, x, (size_t)n * sizeof *now);
        for (int64_t j = 0; p->before && j < n; j++) now[j] *= p->before[i * p->x_stride + c + j];
        job->k.convolve(&(struct convolution_step){ .taps = p->taps,
                                                    .channels = n,
                                                    .w = p->w + c,
                                                    .w_stride = p->channels,
                                                    .bias = p->bias ? p->bias + c : NULL,
                                                    .u = u,
                                                    .out = out });
        if (p->silu) job->vec->activate[ACT_SILU](out, NULL, n, out);
        for (int64_t j = 0; j < n; j++) y[j] = out[j] * (p->after ? p->after[i * p->x_stride + c + j] : 1);
        for (int t = 0; t < past; t++)
            memcpy(state + t * p->channels, t + 1 < past ? u[t + 1] : now, (size_t)n * sizeof *state);
    }
}

static void convolve_member(void *arg, int member, int size)
{
    const struct convolution_job *job = arg;
    const int64_t pieces = (job->p->channels + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE;
    int64_t from, to;
    member_share(pieces, member, size, &from, &to);
    for (int64_t i = from; i < to; i++)
        convolve_channels(job, i * CHANNELS_AT_ONCE,
                          MIN((int64_t)CHANNELS_AT_ONCE, job->p->channels - i * CHANNELS_AT_ONCE));
}

void backend_convolve(struct backend *b, const struct convolution *p)
{
    struct convolution_job job = { .p = p, .k = b->host->recurrent, .vec = &b->host->vec };
    assert(p->taps >= 2 && p->taps <= CONVOLUTION_TAPS_MAX);
    recurrence_run(b, p->rows.n * p->channels * p->taps, convolve_member, &job);
}

/* ---------------------------------------------------------------- recurrence */

struct recurrence_job {
    const struct recurrence *p;
    struct recurrent_kernels k;
    const struct vector_kernels *vec;
};

enum { ROWS_AT_ONCE = 16 };

/* Rows of one head on their way through the recurrence. */
struct head_rows {
    float k[ROWS_AT_ONCE][RECURRENCE_DIM_MAX], q[ROWS_AT_ONCE][RECURRENCE_DIM_MAX];
    float v[ROWS_AT_ONCE][RECURRENCE_DIM_MAX], o[ROWS_AT_ONCE][RECURRENCE_DIM_MAX];
    float decay[ROWS_AT_ONCE], by[ROWS_AT_ONCE];
};

static float scalar_of(const struct head_scalars *s, const struct recurrence *p, int row, int head)
{
    return s->x[row * p->x_stride + (int64_t)(head / s->run) * s->step + head % s->run];
}

/* y = by * x / |x| */
static void set_length(const struct vector_kernels *vec, const float *x, int n, float eps, float by, float *y)
{
    float sum;
    vec->dots(x, n, 1, n, x, &sum);
    const float scale = by / sqrtf(sum + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * scale;
}

/* Inputs of `count` rows from `row` on. */
static void load_rows(const struct recurrence_job *job, int head, int row, int count, struct head_rows *h)
{
    const struct recurrence *p = job->p;
    const int group = p->interleaved ? head % p->groups : head / (p->heads / p->groups);
    const size_t key_bytes = (size_t)p->key_dim * sizeof(float);
    for (int t = 0; t < count; t++) {
        const int64_t at = (row + t) * p->x_stride, key = at + (int64_t)group * p->key_dim;
        const float step = softplus(scalar_of(&p->dt, p, row + t, head) + p->dt_bias[head]);
        h->decay[t] = expf(step * p->a[head]);
        memcpy(h->v[t], p->v + at + (int64_t)head * p->value_dim, (size_t)p->value_dim * sizeof(float));
        if (p->kind == RECURRENCE_DELTA) {
            set_length(job->vec, p->k + key, p->key_dim, p->eps, 1, h->k[t]);
            set_length(job->vec, p->q + key, p->key_dim, p->eps, 1 / sqrtf((float)p->key_dim), h->q[t]);
            h->by[t] = sigmoid(scalar_of(&p->beta, p, row + t, head));
        } else {
            memcpy(h->k[t], p->k + key, key_bytes);
            memcpy(h->q[t], p->q + key, key_bytes);
            h->by[t] = step;
        }
    }
}

/* Outputs of these rows: the norm or the direct term, and the gate. */
static void finish_rows(const struct recurrence_job *job, int head, int row, int count, struct head_rows *h)
{
    const struct recurrence *p = job->p;
    const float direct = p->d ? p->d[head] : 0;
    for (int t = 0; t < count; t++) {
        float *o = h->o[t];
        const int64_t z = (row + t) * p->x_stride + (int64_t)head * p->value_dim;
        if (p->kind == RECURRENCE_DELTA)
            job->vec->norm_rms(o, p->norm, NULL, p->value_dim, p->eps, o);
        else
            for (int j = 0; j < p->value_dim; j++) o[j] += direct * h->v[t][j];
        job->vec->activate[ACT_SILU](p->z + z, o, p->value_dim,
                                     p->y + (row + t) * p->y_stride + (int64_t)head * p->value_dim);
    }
}

/* Rows of the same sequence from `row` on, at most ROWS_AT_ONCE; a row with position 0 comes first. */
static int rows_together(const struct recurrent_rows *r, int row)
{
    int count = 1;
    while (count < ROWS_AT_ONCE && row + count < r->n && r->seq[row + count] == r->seq[row] &&
           r->pos[row + count] != 0)
        count++;
    return count;
}

static void run_head(const struct recurrence_job *job, int head)
{
    const struct recurrence *p = job->p;
    const int64_t size = (int64_t)p->key_dim * p->value_dim;
    struct head_rows h;
    for (int row = 0; row < p->rows.n;) {
        const int count = rows_together(&p->rows, row);
        float *state = state_of(&p->rows, row) + head * size;
        if (p->rows.pos[row] == 0) memset(state, 0, (size_t)size * sizeof *state);
        load_rows(job, head, row, count, &h);
        job->k.recur(&(struct recurrence_step){ .delta = p->kind == RECURRENCE_DELTA,
                                                .rows = count,
                                                .key_dim = p->key_dim,
                                                .value_dim = p->value_dim,
                                                .k = h.k[0],
                                                .q = h.q[0],
                                                .key_stride = RECURRENCE_DIM_MAX,
                                                .v = h.v[0],
                                                .v_stride = RECURRENCE_DIM_MAX,
                                                .decay = h.decay,
                                                .by = h.by,
                                                .state = state,
                                                .o = h.o[0],
                                                .o_stride = RECURRENCE_DIM_MAX });
        finish_rows(job, head, row, count, &h);
        row += count;
    }
}

static void recur_member(void *arg, int member, int size)
{
    const struct recurrence_job *job = arg;
    int64_t from, to;
    member_share(job->p->heads, member, size, &from, &to);
    for (int64_t h = from; h < to; h++) run_head(job, (int)h);
}

void backend_recur(struct backend *b, const struct recurrence *p)
{
    struct recurrence_job job = { .p = p, .k = b->host->recurrent, .vec = &b->host->vec };
    assert(p->key_dim <= RECURRENCE_DIM_MAX && p->value_dim <= RECURRENCE_DIM_MAX &&
           p->heads % p->groups == 0);
    recurrence_run(b, (int64_t)p->rows.n * p->heads * p->key_dim * p->value_dim, recur_member, &job);
}
