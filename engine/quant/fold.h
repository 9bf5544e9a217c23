/* engine/quant/fold.h - inputs of matrices made smaller where their weights are made larger, and the model
 * stays the function it was. Internal to engine/quant/.
 *
 * What makes an input takes the division: a norm its weight and bias, or rows of the matrix in front of it
 * where nothing but sums and products lies between. Where nothing can take it, the fold has an obstacle, and
 * that input stays as it is. */
#ifndef QDYNO_ENGINE_QUANT_FOLD_H
#define QDYNO_ENGINE_QUANT_FOLD_H

#include "engine/quant/methods.h"

enum fold_input { FOLD_ATTENTION, FOLD_ATTENTION_OUT, FOLD_FEED_FORWARD, FOLD_DOWN, FOLD_COUNT };
enum { FOLD_READERS = 5 };

struct fold {
    const char *input;                     /* "the attention's input" */
    const char *obstacle;                  /* why it cannot be folded; NULL: it can */
    struct layer_vector *norm, *norm_bias; /* that make it (bias: or NULL); or NULL, and */
    struct layer_matrix *maker;            /* the last n rows of this one do */
    struct layer_vector *maker_bias;       /* NULL: none */
    struct layer_matrix *readers[FOLD_READERS];
    int reader_count; /* 0: there is no such input of its own (two halves that share a norm: with the first)
                       */
    int64_t n;
};

/* out [FOLD_COUNT]: borrows from the job. Errors: ERR_FORMAT (metadata). */
enum err_code folds_find(struct layer_job *job, struct fold *out, struct err *why);

/* The input is divided by scales [n] > 0, its readers' columns are multiplied. */
void fold_apply(const struct fold *f, const float *scales);

#endif
