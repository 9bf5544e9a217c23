/* engine/train/adam.h - a step of the optimizer: AdamW, alone or beside Muon; its schedule, and the scale
 * that keeps half-precision gradients from vanishing. */
#ifndef QDYNO_ENGINE_TRAIN_ADAM_H
#define QDYNO_ENGINE_TRAIN_ADAM_H

#include "engine/train/muon.h"

/* Weight decay is on matrices only; a gradient longer than `clip` is shortened to it (0: never). */
struct adam_options {
    double rate, beta1, beta2, epsilon, weight_decay, clip;
};

/* One step. gradients are divided by `scale` first; m and v [params], the running means, begin as zeros; t
 * counts from 1. Returns the gradient's length before clipping; not finite: nothing was changed. */
struct adam_step {
    const struct adam_options *o;
    struct network *network;
    struct muon *muon; /* takes the layers' matrices, with m as its momentum; NULL: AdamW takes all */
    float *m, *v;
    int64_t t;
    double rate, scale;
};
double adam_step(const struct adam_step *s);

/* Rises linearly over `warmup` steps, then falls along a cosine to a tenth of its peak. step from 0. */
double learning_rate(double peak, int64_t step, int64_t steps, int64_t warmup);

/* Half-precision gradients below 2^-24 are zero, above 65504 infinite: they are multiplied by a scale that is
 * halved when it was too much and doubled after many steps when it was not. */
struct loss_scale {
    float scale; /* 1 and never changed where it is not wanted */
    int good;    /* steps since it changed */
};
struct loss_scale loss_scale_begin(enum amp amp);
void loss_scale_update(struct loss_scale *s, enum amp amp, bool finite);

#endif
