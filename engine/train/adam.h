/* engine/train/adam.h - one optimizer step (AdamW, alone or combined with Muon), the learning-rate schedule,
 * and loss scaling for half precision. Internal. Sources: Loshchilov and Hutter, "Decoupled Weight Decay
 * Regularization", 2017; Micikevicius et al., "Mixed Precision Training", 2017. */
#ifndef QDYNO_ENGINE_TRAIN_ADAM_H
#define QDYNO_ENGINE_TRAIN_ADAM_H

#include "engine/train/muon.h"

/* Weight decay applies to matrices only. A gradient longer than `clip` is shortened to it; 0: no clipping. */
struct adam_options {
    double rate, beta1, beta2, epsilon, weight_decay, clip;
};

/* Update all weights from the network's gradients, which are first divided by `scale`. m and v [params] start
 * as zeros; t counts steps from 1. Returns the gradient's length before clipping; if it is not finite,
 * nothing was changed. */
struct adam_step {
    const struct adam_options *o;
    struct network *network;
    struct muon *muon; /* updates the layers' matrices, with m as momentum; NULL: AdamW updates all */
    float *m, *v;
    int64_t t;
    double rate, scale;
};
double adam_step(const struct adam_step *s);

/* Learning rate of `step` (from 0): linear warm-up, then a cosine down to a tenth of the peak. */
double learning_rate(double peak, int64_t step, int64_t steps, int64_t warmup);

/* Dynamic loss scaling. Half-precision gradients underflow below 2^-24 and overflow above 65504, so the loss
 * is multiplied by a scale, which is halved after an overflow and doubled after 200 steps without one. */
struct loss_scale {
    float scale; /* always 1 unless amp is AMP_FP16 */
    int good;    /* steps since the last change */
};
struct loss_scale loss_scale_begin(enum amp amp);
void loss_scale_update(struct loss_scale *s, enum amp amp, bool finite);

#endif
