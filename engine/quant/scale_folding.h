/* engine/quant/scale_folding.h - moves scales between the inputs of matrices and their weights without
 * changing what the model computes. Internal to engine/quant/.
 *
 * Dividing input k of a matrix by s[k] and multiplying column k of its weights by s[k] cancels. The division
 * costs nothing at run time when it is folded into whatever produces the input: the weight and bias of a
 * norm, or rows of the preceding matrix if only sums and products lie between. Where no producer can absorb
 * the division, the fold has an obstacle, and that input stays unscaled. SmoothQuant and AWQ are built on
 * this. Source: Xiao et al., "SmoothQuant", 2022, section 4. */
#ifndef QDYNO_ENGINE_QUANT_SCALE_FOLDING_H
#define QDYNO_ENGINE_QUANT_SCALE_FOLDING_H

#include "engine/quant/methods.h"

enum fold_input { FOLD_ATTENTION, FOLD_ATTENTION_OUT, FOLD_FEED_FORWARD, FOLD_DOWN, FOLD_COUNT };
enum { FOLD_CONSUMERS_MAX = 5 };

/* One input of a layer: what produces it and which matrices consume it. The producer is either a norm, or the
 * last n rows of a matrix. */
struct fold {
    const char *input;                     /* printable: "the attention's input" */
    const char *obstacle;                  /* why its scale cannot be folded; NULL: it can be */
    struct layer_vector *norm, *norm_bias; /* the producing norm, and its bias or NULL; NULL: a matrix */
    struct layer_matrix *producer;         /* the producing matrix; NULL: a norm */
    struct layer_vector *producer_bias;    /* NULL: none */
    struct layer_matrix *consumers[FOLD_CONSUMERS_MAX];
    int consumer_count; /* 0: not a separate input (parallel blocks that share a norm count as one) */
    int64_t n;          /* number of inputs */
};

/* Find the inputs of a layer: out [FOLD_COUNT], which borrows from the job. ERR_FORMAT: bad metadata. */
enum err_code folds_find(struct layer_job *job, struct fold *out, struct err *why);

/* Divide the input by scales [n], all > 0, and multiply the consumers' columns by them. */
void fold_apply(const struct fold *f, const float *scales);

#endif
