/* engine/train/rows_loops.h - the loops behind rows.h, compiled once for each vector width. Internal.
 *
 * Sums are kept in 16 partial sums for every width, and multiplications are never fused with additions
 * (-ffp-contract=off), so every build gives the same bits. */
#ifndef QDYNO_ENGINE_TRAIN_ROWS_LOOPS_H
#define QDYNO_ENGINE_TRAIN_ROWS_LOOPS_H

#include "engine/train/rows.h"

struct swiglu {
    const float *gate_in, *up_in, *ds;
    float *s, *gate, *up;
};

struct softmax {
    const float *p;
    float *s;
    int64_t n;
    float scale;
};

struct gathering {
    const struct matrix *table;
    const int32_t *ids;
    const float *dy;
    float *y;
    int64_t n;
};

struct rows_loops {
    rows_fn *norm, *norm_back, *norm_weight, *swiglu, *swiglu_back, *rope, *softmax, *softmax_back;
    rows_fn *cross_entropy, *distill, *gather, *gather_back, *mix, *turn, *adam;
    float (*dot)(const float *a, const float *b, int64_t n);
};
extern const struct rows_loops ROWS_LOOPS_PLAIN, ROWS_LOOPS_AVX2, ROWS_LOOPS_AVX512;

#endif
