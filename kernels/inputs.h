/* kernels/inputs.h - activations on their way into a product: reordered, divided, rounded or made integers as
 * the weight's method prescribes (struct input_scheme of kernels.h).
 *
 * One `struct inputs` serves all products of a group: same x, same scheme. What it finds out about x (scales
 * of tokens, columns with outliers) lies in the backend's shared memory; inputs themselves are made piece by
 * piece where the drivers pack them, so that no second copy of x exists. Order of work, each of all members:
 *
 *   inputs_measure of a share of the tokens, a barrier, inputs_settle, then inputs_codes or inputs_floats.
 *
 * Every member has its own struct (a copy of the group's). The barrier may be left out where inputs_by_token
 * and the member goes on with the tokens that it measured. */
#ifndef QDYNO_KERNELS_INPUTS_H
#define QDYNO_KERNELS_INPUTS_H

#include <stdatomic.h>

#include "kernels/cpu.h"

struct inputs {
    struct input_scheme scheme;
    const struct kernel_set *k;
    const float *x;
    int64_t x_stride, cols;
    int n, zero;                  /* zero: the code of 0, of INT8_* */
    const struct small_float *to; /* of FP8_TOKEN, TF32 */
    float outlier_from; /* INT8_OUTLIERS: the least |x| that f16 rounds to the threshold; INFINITY */
    int outlier_count;  /* from inputs_settle on */
    /* In shared memory. */
    float *scale;              /* [n, up to a whole sliver] of every token's inputs; NULL: none */
    struct input_range *range; /* [members] */
    _Atomic uint64_t *marked;  /* [cols / 64] columns with outliers */
    int32_t *outlier;          /* [outlier_count] the same, ascending; valid a barrier after inputs_settle */
    uint8_t *shared;           /* what is left for the driver */
};

/* What w's inputs are treated by: as it prescribes, else as the options say. */
struct input_scheme inputs_scheme(const struct backend_options *o, const struct weight *w);
/* Of a weight that prescribes nothing. */
enum input_kind inputs_kind(const struct backend_options *o, const struct format *f, int64_t cols);
/* What INPUT_FP8_* and INPUT_TF32 round to for weights of that format. */
const struct small_float *inputs_small_float(enum input_kind kind, const struct format *f);
/* Whether products of the same x can share a struct inputs. */
bool inputs_shared(const struct backend_options *o, const struct weight *a, const struct weight *b);

static inline bool input_is_int8(enum input_kind kind)
{
    return kind >= INPUT_INT8_TOKEN && kind <= INPUT_INT8_OUTLIERS;
}

int64_t inputs_shared_bytes(int threads, int64_t rows, int64_t cols);
struct inputs inputs_of(const struct cpu *b, const struct matmul *m);

static inline bool inputs_plain(const struct inputs *in) /* x as it is */
{
    return in->scheme.kind == INPUT_FREE && !in->scheme.order && !in->scheme.divide;
}

static inline bool inputs_by_token(const struct inputs *in) /* tokens know nothing of each other */
{
    return in->scheme.kind != INPUT_INT8_TENSOR && in->scheme.kind != INPUT_INT8_OUTLIERS;
}

void inputs_measure(const struct inputs *in, int from, int to, int member);
void inputs_settle(struct inputs *in, int member, int size);

/* Stored inputs k0.. of a token. Not for each other's schemes. */
void inputs_codes(const struct inputs *in, int token, int64_t k0, int64_t k, uint8_t *code);
void inputs_floats(const struct inputs *in, int token, int64_t k0, int64_t k, float *out);

/* What the columns with outliers add to products of rows row0.. with tokens token..: y[t][r] += ... */
enum { OUTLIER_CHUNK = 64 /* columns at a time */ };
struct outlier_block {
    const struct inputs *in;
    const struct weight *w;
    int64_t row0;
    int rows;
};
/* Columns first.. (at most a chunk) of the block's rows, OUTLIER_CHUNK apart; returns how many. */
int outliers_weights(const struct outlier_block *b, int first, float *w);
/* The same columns of a token. */
void outliers_inputs(const struct inputs *in, int first, int count, int token, float *x);

/* Whether these inputs can be of that weight. Errors: ERR_USAGE, ERR_FORMAT. */
enum err_code inputs_check(const struct input_scheme *s, const struct format *f, int64_t cols,
                           struct err *why);

#endif
