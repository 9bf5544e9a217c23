/* kernels/isa/vectors/recurrence_body.h - the recurrence on columns of a head's state, for vectors of LANES
 * floats. Included by one file for each instruction set, which defines LANES. */
#include <math.h>

#include "kernels/kernel_set.h"

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline __attribute__((always_inline)) vec spread(float x)
{
    return x - (vec){ 0 };
}

/* `count` vectors of columns from j on. Columns are independent of each other: their part of the state stays
 * in the first-level cache for all rows. */
static inline __attribute__((always_inline)) void run_columns(const struct recurrence_step *p, int j,
                                                              int count)
{
    for (int t = 0; t < p->rows; t++) {
        const float *k = p->k + t * p->key_stride, *q = p->q + t * p->key_stride,
                    *v = p->v + t * p->v_stride + j;
        const vec decay = spread(p->decay[t]), by = spread(p->by[t]);
        vec add[4], out[4];
        float *m = p->state + j;
#pragma GCC unroll 4
        for (int c = 0; c < count; c++) add[c] = out[c] = (vec){ 0 };
        for (int i = 0; i < p->key_dim && p->delta; i++) {
            const vec ki = spread(k[i]);
#pragma GCC unroll 4
            for (int c = 0; c < count; c++) add[c] += ki * *(const vec *)(m + i * p->value_dim + c * LANES);
        }
#pragma GCC unroll 4
        for (int c = 0; c < count; c++) add[c] = by * (*(const vec *)(v + c * LANES) - decay * add[c]);
        for (int i = 0; i < p->key_dim; i++) {
            const vec ki = spread(k[i]), qi = spread(q[i]);
#pragma GCC unroll 4
            for (int c = 0; c < count; c++) {
                vec *at = (vec *)(m + i * p->value_dim + c * LANES);
                const vec now = decay * *at + ki * add[c];
                *at = now;
                out[c] += qi * now;
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < count; c++) *(vec *)(p->o + t * p->o_stride + j + c * LANES) = out[c];
    }
}

static void run_column(const struct recurrence_step *p, int j)
{
    for (int t = 0; t < p->rows; t++) {
        const float *k = p->k + t * p->key_stride, *q = p->q + t * p->key_stride;
        float add = 0, out = 0, *m = p->state + j;
        for (int i = 0; i < p->key_dim && p->delta; i++) add += k[i] * m[i * p->value_dim];
        add = p->by[t] * (p->v[t * p->v_stride + j] - p->decay[t] * add);
        for (int i = 0; i < p->key_dim; i++) {
            m[i * p->value_dim] = p->decay[t] * m[i * p->value_dim] + k[i] * add;
            out += q[i] * m[i * p->value_dim];
        }
        p->o[t * p->o_stride + j] = out;
    }
}

static void recur(const struct recurrence_step *p)
{
    int j = 0;
    for (; j + 4 * LANES <= p->value_dim; j += 4 * LANES) run_columns(p, j, 4);
    for (; j + LANES <= p->value_dim; j += LANES) run_columns(p, j, 1);
    for (; j < p->value_dim; j++) run_column(p, j);
}

/* out[c] = bias[c] + sum over t < taps of w[t][c] * u[t][c] */
static void convolve(const struct convolution_step *p)
{
    int64_t c = 0;
    for (; c + LANES <= p->channels; c += LANES) {
        vec sum = p->bias ? *(const vec *)(p->bias + c) : (vec){ 0 };
        for (int t = 0; t < p->taps; t++)
            sum += *(const vec *)(p->w + t * p->w_stride + c) * *(const vec *)(p->u[t] + c);
        *(vec *)(p->out + c) = sum;
    }
    for (; c < p->channels; c++) {
        float sum = p->bias ? p->bias[c] : 0;
        for (int t = 0; t < p->taps; t++) sum += p->w[t * p->w_stride + c] * p->u[t][c];
        p->out[c] = sum;
    }
}
