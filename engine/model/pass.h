/* engine/model/pass.h - the rows of a batch on their way through the model, for the files that run them. */
#ifndef QDYNO_ENGINE_PASS_H
#define QDYNO_ENGINE_PASS_H

#include "engine/model/model_internal.h"

/* Buffers are swapped when only the rows with requested logits continue. */
struct pass {
    struct model *m;
    const struct site *site; /* where the pass currently runs */
    struct buffers b;
    int n;
    int wanted; /* number of rows with requested logits: m->lists.wanted[] */
};

/* The product of w and n rows of x; the caller sets where it goes. */
struct matmul pass_product(const struct pass *p, const struct bound *w, const struct bound *bias,
                           const float *x, int64_t x_stride);

/* x += scale * norm(h), with the model's residual scale; the norm is optional. */
void pass_add_rows(const struct pass *p, const struct bound *post_norm);

/* x += scale * norm(experts(h)): chooses experts for each row of h, runs them and adds their weighted sum. */
void pass_add_experts(const struct pass *p, const struct layer *l, const float *h);

#endif
