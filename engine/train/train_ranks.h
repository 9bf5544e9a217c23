/* engine/train/train_ranks.h - training by several processes (dpN): each rank has a learner and computes a
 * subtree of the sum of gradients (sums.h); then all exchange their sums, add them up in the same order, and
 * update their weights alike. So the weights have the same bits as those of one process.
 *
 * The leader keeps stories, schedule and files, and sends the rows of each step. */
#ifndef QDYNO_ENGINE_TRAIN_TRAIN_RANKS_H
#define QDYNO_ENGINE_TRAIN_TRAIN_RANKS_H

#include "engine/parallel/parallel.h"
#include "engine/train/learner.h"

/* ---------------------------------------------------------------- the leader */

/* What rank 0 says about the learners; bytes are those of one rank. */
struct train_ranks_info {
    int64_t threads;
    struct network_memory memory;
    int64_t optimizer_bytes; /* with what exchanges need */
};
/* Open a learner in each rank, with weights of network_randomize(seed). o.passes: those of all ranks
 * together, a power of 2 times the number of ranks; o.network.threads 0: each rank's part of the cores.
 * Errors: of the ranks, which have no learner then; ERR_USAGE (too many tokens a step). */
enum err_code train_ranks_open(struct ranks *r, const struct learner_options *o, uint64_t seed,
                               struct train_ranks_info *out, struct err *why);
/* Give the ranks the weights and running means of `from`. */
enum err_code train_ranks_load(struct ranks *r, const struct learner *from, struct err *why);
/* One step over tokens and targets [s->positions]. */
enum err_code train_ranks_step(struct ranks *r, const struct learner_step *s, const struct learner_rows *rows,
                               struct learner_result *out, struct err *why);
/* Get weights and running means. */
enum err_code train_ranks_save(struct ranks *r, struct learner *into, struct err *why);
enum err_code train_ranks_close(struct ranks *r, struct err *why); /* frees the learners; the ranks stay */

/* ---------------------------------------------------------------- a rank */

struct train_rank;
/* Execute a command for training. *t: NULL before the first, owned: train_rank_close. False: the command is
 * none for training, and nothing happened. */
bool train_rank_execute(struct train_rank **t, struct rank *r, const struct rank_command *c);
void train_rank_close(struct train_rank *t);                 /* NULL is fine */
int64_t train_rank_plan_bytes(const struct train_rank *t);   /* 0: NULL */
int64_t train_rank_weight_bytes(const struct train_rank *t); /* the weights and their gradients; -1: NULL */

#endif
