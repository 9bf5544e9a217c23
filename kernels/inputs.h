/* kernels/inputs.h - activation quantization: reorder, divide and round the inputs of a product as its weight
 * prescribes (struct input_scheme of kernels.h).
 *
 * One `struct inputs` serves a group of products with the same x and the same scheme. Scales of tokens and
 * the list of outlier columns are computed once and kept in the backend's shared scratch memory. The
 * quantized inputs themselves are produced piece by piece where the drivers pack them, so no second copy of x
 * exists. Every thread works on its own copy of the struct, in this order:
 *
 *   1. inputs_measure for its share of the tokens
 *   2. a barrier
 *   3. inputs_combine
 *   4. inputs_codes or inputs_floats
 *
 * If inputs_by_token, a thread that continues with the tokens it measured itself needs no barrier. */
#ifndef QDYNO_KERNELS_INPUTS_H
#define QDYNO_KERNELS_INPUTS_H

#include <stdatomic.h>

#include "kernels/cpu.h"

struct inputs {
    struct input_scheme scheme;
    const struct kernel_set *k;
    const float *x;
    int64_t x_stride, cols;
    int n, zero;                  /* tokens; INT8_*: the code of 0 */
    const struct small_float *to; /* FP8_*, TF32, INT8_OUTLIERS: the format that floats are rounded to */
    float outlier_from; /* INT8_OUTLIERS: smallest |x| that f16 rounds to the threshold or above; else
                           INFINITY */
    int outlier_count;  /* set by inputs_combine */
    /* In shared memory: */
    float *scale;              /* [n rounded up to SLIVER] scale of each token; NULL: the kind has none */
    struct input_range *range; /* [threads] least and largest input that each thread has seen */
    _Atomic uint64_t *marked;  /* [cols / 64, rounded up] bit set of columns with outliers */
    int32_t *outlier;          /* [outlier_count] their indexes, ascending; valid one barrier after
                                  inputs_combine */
    uint8_t *shared;           /* rest of the shared memory, for the driver */
};

/* The activation quantization for products with w: what w prescribes, or what the options choose. */
struct input_scheme inputs_scheme(const struct backend_options *o, const struct weight *w);
/* The kind for weights that prescribe nothing. */
enum input_kind inputs_kind(const struct backend_options *o, const struct format *f, int64_t cols);
/* The float format that INPUT_FP8_* and INPUT_TF32 round to for weights of format f. */
const struct small_float *inputs_small_float(enum input_kind kind, const struct format *f);
/* Whether products of the same x can share a struct inputs. */
bool inputs_shared(const struct backend_options *o, const struct weight *a, const struct weight *b);

static inline bool input_is_int8(enum input_kind kind)
{
    return kind >= INPUT_INT8_TOKEN && kind <= INPUT_INT8_OUTLIERS;
}

int64_t inputs_shared_bytes(int threads, int64_t rows, int64_t cols);
struct inputs inputs_of(const struct cpu *b, const struct matmul *m);

static inline bool inputs_plain(const struct inputs *in) /* x is used unchanged */
{
    return in->scheme.kind == INPUT_FREE && !in->scheme.order && !in->scheme.divide;
}

/* Whether the codes of a token depend on the other tokens of the product, too. */
static inline bool input_depends_on_batch(enum input_kind kind)
{
    return kind == INPUT_INT8_TENSOR || kind == INPUT_INT8_OUTLIERS;
}

static inline bool inputs_by_token(const struct inputs *in) /* a token's scale depends on that token only */
{
    return !input_depends_on_batch(in->scheme.kind);
}

/* Find scales and outlier columns of tokens [from, to); then combine the results of all threads. */
void inputs_measure(const struct inputs *in, int from, int to, int member);
void inputs_combine(struct inputs *in, int member, int size);

/* Inputs k0 .. k0 + k - 1 of a token, in the order of the weight's columns: as 8-bit codes (kinds INT8_*) or
 * as rounded floats (all other kinds). */
void inputs_codes(const struct inputs *in, int token, int64_t k0, int64_t k, uint8_t *code);
void inputs_floats(const struct inputs *in, int token, int64_t k0, int64_t k, float *out);

/* Outlier columns are multiplied as floats and added to the integer products. */
enum { OUTLIER_CHUNK = 64 /* most outlier columns processed at once */ };
/* Rows [row0, row0 + rows) of a weight matrix. */
struct outlier_block {
    const struct inputs *in;
    const struct weight *w;
    int64_t row0;
    int rows;
};
/* Weights of outlier columns first .. (at most OUTLIER_CHUNK of them): w[rows][OUTLIER_CHUNK]. Returns the
 * number of columns. */
int outliers_weights(const struct outlier_block *b, int first, float *w);
/* The inputs of the same columns for one token, rounded to f16: x[count]. */
void outliers_inputs(const struct inputs *in, int first, int count, int token, float *x);

/* Check that a scheme is valid for weights of format f with `cols` columns. Errors: ERR_USAGE, ERR_FORMAT. */
enum err_code inputs_check(const struct input_scheme *s, const struct format *f, int64_t cols,
                           struct err *why);

#endif
