/* tests/kernels/input_schemes.h - helpers of the tests of activation quantization: a backend for n rows, a
 * random permutation, the largest magnitude. */
#ifndef QDYNO_TESTS_KERNELS_INPUT_SCHEMES_H
#define QDYNO_TESTS_KERNELS_INPUT_SCHEMES_H

#include "tests/kernels/numbers.h"

static inline float largest_in(const float *x, int64_t n)
{
    float top = 0;
    for (int64_t i = 0; i < n; i++) top = MAX(top, fabsf(x[i]));
    return top;
}

static inline void shuffle(struct rng *r, int32_t *order, int64_t n)
{
    for (int64_t i = 0; i < n; i++) order[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int j = rng_below(r, (int)i + 1);
        const int32_t other = order[j];
        order[j] = order[i], order[i] = other;
    }
}

static inline struct backend *backend_for(uint32_t isa, enum precision precision, enum activations act, int n,
                                          int64_t cols)
{
    struct err why;
    struct backend *b = NULL;
    const struct backend_options o = { .threads = 2, .isa = isa, .precision = precision, .activations = act };
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = n, .cols = cols }, &why));
    return b;
}

#endif
