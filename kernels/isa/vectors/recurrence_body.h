/* kernels/isa/vectors/recurrence_body.h - the recurrence on columns of a head's state, for vectors of LANES
 * floats. Included by one file for each instruction set, which defines LANES. */
#include <math.h>

#include "kernels/kernel_set.h"

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline __attribute__((always_inline)) vec spread(float x)
{
    return x - (vec){ 0 };
}

/* `count` vectors of columns from j on. Columns are independent of each other, so few enough are taken that
 * their part of the state stays in the first-level cache for all rows. Sums of even and odd i are kept apart,
 * because one sum would wait for its own additions. */
enum { VECTORS = 2 };

static inline __attribute__((always_inline)) void run_columns(const struct recurrence_step *p, int j,
                                                              int count)
{
    const int even = p->key_dim & ~1, width = count * LANES;
    for (int t = 0; t < p->rows; t++) {
        const float *k = p->k + t * p->key_stride, *q = p->q + t * p->key_stride,
                    *v = p->v + t * p->v_stride + j;
        const vec decay = spread(p->decay[t]), by = spread(p->by[t]);
        vec add[VECTORS], sum[2][VECTORS];
        float *m = p->state + (int64_t)j * p->key_dim;
#pragma GCC unroll 2
        for (int c = 0; c < count; c++) sum[0][c] = sum[1][c] = (vec){ 0 };
        for (int i = 0; i < even && p->delta; i += 2) {
#pragma GCC unroll 2
            for (int u = 0; u < 2; u++)
#pragma GCC unroll 2
                for (int c = 0; c < count; c++)
                    sum[u][c] += spread(k[i + u]) * *(const vec *)(m + (i + u) * width + c * LANES);
        }
#pragma GCC unroll 2
        for (int c = 0; c < count; c++) {
            add[c] = sum[0][c] + sum[1][c];
            if (even < p->key_dim && p->delta)
                add[c] += spread(k[even]) * *(const vec *)(m + even * width + c * LANES);
            add[c] = by * (*(const vec *)(v + c * LANES) - decay * add[c]);
            sum[0][c] = sum[1][c] = (vec){ 0 };
        }
        for (int i = 0; i < even; i += 2) {
#pragma GCC unroll 2
            for (int u = 0; u < 2; u++)
#pragma GCC unroll 2
                for (int c = 0; c < count; c++) {
                    vec *at = (vec *)(m + (i + u) * width + c * LANES);
                    const vec now = decay * *at + spread(k[i + u]) * add[c];
                    *at = now;
                    sum[u][c] += spread(q[i + u]) * now;
                }
        }
#pragma GCC unroll 2
        for (int c = 0; c < count; c++) {
            vec out = sum[0][c] + sum[1][c];
            if (even < p->key_dim) {
                vec *at = (vec *)(m + even * width + c * LANES);
                *at = decay * *at + spread(k[even]) * add[c];
                out += spread(q[even]) * *at;
            }
            *(vec *)(p->o + t * p->o_stride + j + c * LANES) = out;
        }
    }
}

static void run_column(const struct recurrence_step *p, int j)
{
    for (int t = 0; t < p->rows; t++) {
        const float *k = p->k + t * p->key_stride, *q = p->q + t * p->key_stride;
        float add = 0, out = 0, *m = p->state + (int64_t)j * p->key_dim;
        for (int i = 0; i < p->key_dim && p->delta; i++) add += k[i] * m[i];
        add = p->by[t] * (p->v[t * p->v_stride + j] - p->decay[t] * add);
        for (int i = 0; i < p->key_dim; i++) {
            m[i] = p->decay[t] * m[i] + k[i] * add;
            out += q[i] * m[i];
        }
        p->o[t * p->o_stride + j] = out;
    }
}

static void recur(const struct recurrence_step *p)
{
    int j = 0;
    for (; j + VECTORS * LANES <= p->value_dim; j += VECTORS * LANES) run_columns(p, j, VECTORS);
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
