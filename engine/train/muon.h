/* engine/train/muon.h - the Muon optimizer: orthogonalizes the momentum of a matrix before applying it.
 * Internal.
 *
 * The plain momentum is dominated by a few directions that many gradients share. After orthogonalization (all
 * singular values near 1) rare directions have the same weight, and training needs fewer steps. Sources:
 * Jordan et al., "Muon: an optimizer for hidden layers", 2024; the factor that lets AdamW's learning rate and
 * decay be reused: Liu et al., "Muon is scalable for LLM training", arXiv 2502.16982, 2025, section 2.2. */
#ifndef QDYNO_ENGINE_TRAIN_MUON_H
#define QDYNO_ENGINE_TRAIN_MUON_H

#include "engine/train/network.h"

struct muon; /* scratch for the largest matrix; it has no state, as the caller keeps the momentum */
/* *out owned: muon_close; `network` is borrowed. ERR_NOMEM. */
enum err_code muon_open(struct muon **out, struct network *network, struct err *why);
void muon_close(struct muon *u); /* NULL is fine */

/* Whether Muon updates this tensor: matrices of layers. AdamW updates embedding, output matrix and norms. */
bool muon_takes(const struct network_tensor *t);

struct muon_step {
    const struct network_tensor *tensor;
    float *momentum; /* [rows * cols] of this tensor, initially 0 */
    float by;        /* factor applied to gradients */
    double rate, weight_decay;
};
/* Update one matrix of the network from its gradient. */
void muon_step(struct muon *u, const struct muon_step *s);

#endif
