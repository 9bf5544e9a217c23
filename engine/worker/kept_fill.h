/* engine/worker/kept_fill.h - the cache of a model, kept as it was when it was filled up to a workload's
 * depth.
 *
 * The cells of an experiment have the same prompts, so the first cell of a process fills the cache, and later
 * cells remove what followed the depth and start from there. Keys and values are cut at the depth. A state of
 * constant size cannot be cut: a copy of it is kept, which the memory plan contains
 * (session_state_copy_bytes). What a later cell computes has the same bits as after filling again. */
#ifndef QDYNO_ENGINE_KEPT_FILL_H
#define QDYNO_ENGINE_KEPT_FILL_H

#include "base/base.h"

struct model;

/* The first `depth` ids of each sequence's prompt. */
struct fill_ids {
    const int32_t *ids; /* [sequences][stride] */
    int stride, depth, sequences;
};

struct kept_fill {
    int depth, sequences; /* 0: nothing is kept */
    char (*hash)[17];     /* owned: [sequences] of the ids that each one has in the cache */
    char *states;         /* owned: [sequences][model_state_bytes]; NULL: the model has none */
};

/* Does the cache have these ids? It may have more sequences, which do not matter to the others. */
bool kept_fill_matches(const struct kept_fill *k, const struct model *m, const struct fill_ids *f);

/* Call when the cache has exactly these ids and no other sequences. Keeps nothing where several processes run
 * a model that has states, because these are in the other processes. ERR_NOMEM: nothing is kept. */
enum err_code kept_fill_save(struct kept_fill *k, const struct model *m, const struct fill_ids *f,
                             struct err *why);

/* Remove what the sequences have after the depth. False: that is not possible; the cache is empty, and
 * nothing is kept. */
bool kept_fill_go_back(struct kept_fill *k, struct model *m);

/* Empty the cache and forget what was kept. m NULL: the model was closed. */
void kept_fill_drop(struct kept_fill *k, struct model *m);

#endif
