/* engine/train/muon.h - Muon: the momentum of a matrix is made orthogonal before it is applied.
 *
 * A step along the plain momentum is mostly along a few directions that many gradients share. Made orthogonal
 * (all singular values near 1) the rare directions count as much, and fewer steps are needed. Source: Jordan
 * and others, "Muon: an optimizer for hidden layers", 2024; the factor that makes AdamW's rate and decay
 * serve for both: Liu and others, "Muon is scalable for LLM training", arXiv 2502.16982, section 2.2. */
#ifndef QDYNO_ENGINE_TRAIN_MUON_H
#define QDYNO_ENGINE_TRAIN_MUON_H

#include "engine/train/network.h"

struct muon; /* scratch for the largest matrix; no state of its own: the momentum is the caller's */
/* *out owned: muon_close; `network` is borrowed. ERR_NOMEM. */
enum err_code muon_open(struct muon **out, struct network *network, struct err *why);
void muon_close(struct muon *u); /* NULL is fine */

/* Matrices inside the layers; embeddings, the output and norms are AdamW's. */
bool muon_takes(const struct network_tensor *t);

struct muon_step {
    const struct network_tensor *tensor;
    float *momentum; /* [rows * cols] of this tensor, begins as zeros */
    float by;        /* gradients are multiplied with it */
    double rate, weight_decay;
};
/* One step of one matrix, from the network's gradients to its weights. */
void muon_step(struct muon *u, const struct muon_step *s);

#endif
