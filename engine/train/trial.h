/* engine/train/trial.h - training as a workload to measure: the first steps of the default training run,
 * timed.
 *
 * Every run starts from scratch, with a new network and, for the same seed, the same rows. So two runs differ
 * only in their settings (mixed precision, checkpoints, trimming, batch). No model file is read or written.
 */
#ifndef QDYNO_ENGINE_TRAIN_TRIAL_H
#define QDYNO_ENGINE_TRAIN_TRIAL_H

#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "engine/train/network.h"

struct ranks; /* engine/parallel/parallel.h */

struct trial;
/* Build corpus and vocabulary, and read the settings (threads, isa, training keys) from the config. *out is
 * owned: trial_close. Errors: ERR_USAGE (a key that training does not use, or an invalid value), ERR_IO (no
 * place for a temporary file, or a rank ended), ERR_ABSENT (the machine lacks that isa, or MPI), ERR_NOMEM.
 */
enum err_code trial_open(struct trial **out, const struct config *c, struct err *why);
void trial_close(struct trial *t); /* NULL is fine */

struct trial_info {
    char name[128]; /* printable description of what is trained */
    int64_t params;
    struct network_memory memory; /* needed by one run, in each process */
    int64_t optimizer_bytes;      /* the same; with sums of gradients */
    int ranks;                    /* processes that compute; 1: this one */
    int threads, ctx;             /* threads: of each */
    uint32_t isa;
    struct config config; /* with the threads and isa that are really used */
};
void trial_describe(const struct trial *t, struct trial_info *out);

struct trial_result {
    double seconds; /* duration of the steps: tokenizing, forward, backward, optimizer, trimming */
    int64_t steps, skipped, tokens;
    double first_loss, loss; /* mean nats a target of the first and of the last step */
    char work_hash[17];      /* hash of the tokens read: equal hashes mean the same work */
    char output_hash[17];    /* hash of the losses: equal hashes mean the same arithmetic */
};
/* Run the first `steps` steps. Memory of the previous run is released first; memory of this run stays
 * allocated until the next run or trial_rest, so that memory use between steps can be observed. progress as
 * in cell_run. Errors: ERR_USAGE (more steps than the training has), ERR_CANCELLED, ERR_NOMEM. */
typedef bool trial_progress_fn(void *ctx, int done, int of, double seconds);
enum err_code trial_run(struct trial *t, struct trial_result *out, int steps, uint64_t seed,
                        trial_progress_fn *progress, void *ctx, struct err *why);
void trial_rest(struct trial *t);                 /* release the memory of the last run */
struct ranks *trial_ranks(const struct trial *t); /* that compute (parallel=); NULL: this process does */

#endif
