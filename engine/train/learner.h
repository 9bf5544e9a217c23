/* engine/train/learner.h - what computes a step of training: a network, its optimizer and the sums of
 * gradients. Internal. A process that trains alone has one; of several processes each has one
 * (train_ranks.h). */
#ifndef QDYNO_ENGINE_TRAIN_LEARNER_H
#define QDYNO_ENGINE_TRAIN_LEARNER_H

#include "engine/train/adam.h"
#include "engine/train/network.h"
#include "engine/train/sums.h"

struct learner_options {
    struct network_options network;
    struct adam_options adam;
    enum optimizer optimizer;
    int passes; /* forward passes of this process in a step */
};

struct learner {
    struct learner_options o;
    struct network *network;
    struct muon *muon; /* NULL: AdamW for all tensors */
    float *m, *v;      /* [params]: running means of gradients and of their squares */
    struct sums sums;
};
/* A network of zeros and running means of zeros. ERR_USAGE: an impossible shape; ERR_NOMEM. Close in any
 * case; a zeroed learner may be closed. */
enum err_code learner_open(struct learner *l, const struct learner_options *o, struct err *why);
void learner_close(struct learner *l);
int64_t learner_optimizer_bytes(const struct learner *l); /* running means and sums of gradients */

/* The numbers of a step that do not depend on who computes it. Ranks get it as it is. */
struct learner_step {
    int64_t t;         /* counts updates from 1 */
    double rate;       /* learning rate */
    float scale, by;   /* of the loss; and of the gradient of a pass: scale / targets of the step */
    int64_t positions; /* tokens of the step, over all passes */
    int64_t trim;      /* 1: release the activations' memory after the step */
};
struct learner_result {
    double loss;   /* sum over targets, nats */
    double length; /* of the gradient; not finite: nothing was changed */
};
/* Gradients = the sum of o.passes passes over tokens and targets [passes][batch][ctx]. Returns the sum of
 * losses. alive(ctx) is called before each pass; may be NULL. */
struct learner_rows {
    const int32_t *tokens, *targets;
    void (*alive)(void *ctx);
    void *ctx;
};
double learner_gradients(struct learner *l, const struct learner_step *s, const struct learner_rows *r);
/* Update the weights from the gradients. Returns the gradient's length, as adam_step. */
double learner_update(struct learner *l, const struct learner_step *s);

#endif
