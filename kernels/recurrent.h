/* kernels/recurrent.h - layers that keep a state of constant size instead of keys and values: the gated delta
 * net, Mamba-2 and short convolutions. Part of kernels/kernels.h, which includes it.
 *
 * Unlike other operations, these run on the host's threads on every backend, and all their addresses are host
 * memory. A state belongs to one sequence of one layer; rows of a sequence come in the order of their
 * positions, and a row with position 0 starts from a state of zeros. The order of the numbers in a state
 * differs between instruction sets. */
#ifndef QDYNO_KERNELS_RECURRENT_H
#define QDYNO_KERNELS_RECURRENT_H

#include <stdbool.h>
#include <stdint.h>

struct backend;

/* The rows of a batch and the states of their sequences. */
struct recurrent_rows {
    int n;
    const int32_t *seq, *pos; /* [n] */
    float *state;             /* of sequence 0 */
    int64_t state_stride;     /* floats from one sequence's state to the next one's */
};

/* Causal convolution with one filter for each channel. With u = x * before,
 *   y[i] = act(bias + sum over t < taps of w[t] * u[i - (taps - 1) + t]) * after[i]
 * where i - 1 is the row before in the same sequence. The state is the last taps - 1 rows of u, [taps -
 * 1][channels]. */
struct convolution {
    struct recurrent_rows rows;
    int taps; /* 2 to CONVOLUTION_TAPS_MAX */
    int64_t channels;
    const float *w;              /* [taps][channels], the last one for the current row */
    const float *bias;           /* [channels]; NULL: none */
    bool silu;                   /* act is SiLU; false: none */
    const float *x;              /* [n][channels] */
    const float *before, *after; /* as x; NULL: 1 */
    int64_t x_stride;            /* of x, before and after */
    float *y;                    /* may be x */
    int64_t y_stride;
};
enum { CONVOLUTION_TAPS_MAX = 16 };
void backend_convolve(struct backend *b, const struct convolution *p);

/* Scalars of heads within a row: head h's is at [h / run * step + h % run]. */
struct head_scalars {
    const float *x;
    int run, step;
};

enum recurrence_kind {
    RECURRENCE_DELTA, /* gated delta net: Yang et al., arXiv 2412.06464 */
    RECURRENCE_SCAN,  /* Mamba-2: Dao and Gu, arXiv 2405.21060 */
};

/* A recurrence over a matrix M [key_dim][value_dim] for each head, which starts as zeros and is the state:
 *   DELTA  k and q divided by their lengths, q also by sqrt(key_dim); b = sigmoid(beta);
 *          M *= exp(softplus(dt + dt_bias) * a);  M += k (b (v - M^T k))^T;  o = M^T q;
 *          y = norm(o) * silu(z), norm: RMS over the head, with weights and eps
 *   SCAN   s = softplus(dt + dt_bias);  M = M exp(s a) + s k v^T;  o = M^T q + d v;  y = o * silu(z)
 * k and q are shared by several heads: head h has those of group h % groups (interleaved) or h / (heads /
 * groups). */
struct recurrence {
    struct recurrent_rows rows;
    enum recurrence_kind kind;
    int heads, groups, key_dim, value_dim; /* key_dim up to RECURRENCE_DIM_MAX, also value_dim */
    bool interleaved;
    const float *q, *k;           /* [n][groups][key_dim] */
    const float *v, *z;           /* [n][heads][value_dim] */
    struct head_scalars dt, beta; /* beta: DELTA only */
    int64_t x_stride;             /* floats from row to row of all of these */
    const float *a, *dt_bias;     /* [heads]; a is negative */
    const float *d;               /* SCAN: [heads] */
    const float *norm;            /* DELTA: [value_dim] */
    float eps;
    float *y; /* [n][heads][value_dim]; may be z */
    int64_t y_stride;
};
enum { RECURRENCE_DIM_MAX = 256 };
void backend_recur(struct backend *b, const struct recurrence *p);

#endif
