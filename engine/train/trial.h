/* engine/train/trial.h - training as a workload: the first steps of the bundled model's training, timed.
 *
 * Every run begins from nothing: a fresh network, the same rows for the same seed. What two settings differ
 * in (mixed precision, checkpoints, trimming, batch) is then all that differs. No model file is read or
 * written. */
#ifndef QDYNO_ENGINE_TRAIN_TRIAL_H
#define QDYNO_ENGINE_TRAIN_TRIAL_H

#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "engine/train/network.h"

struct trial;
/* Corpus and vocabulary; settings from the config (threads, isa and the keys of training). *out owned:
 * trial_close. ERR_USAGE: a key that means nothing here, or a setting that cannot be; ERR_IO: no folder for a
 * temporary file; ERR_ABSENT: that isa; ERR_NOMEM. */
enum err_code trial_open(struct trial **out, const struct config *c, struct err *why);
void trial_close(struct trial *t); /* NULL is fine */

struct trial_info {
    char name[128]; /* what is trained, for people */
    int64_t params;
    struct network_memory memory; /* of one run */
    int64_t optimizer_bytes;
    int threads, ctx;
    uint32_t isa;
    struct config config; /* with threads and isa as they are */
};
void trial_describe(const struct trial *t, struct trial_info *out);

struct trial_result {
    double seconds; /* of the steps: rows to tokens, forwards, backwards, optimizer, trimming */
    int64_t steps, skipped, tokens;
    double first_loss, loss; /* mean nats a target of the first and of the last step */
    char work_hash[17];      /* of the rows read: equal hashes = same work */
    char output_hash[17];    /* of the losses: equal = same arithmetic */
};
/* `steps` steps. What the last run left is given back first; what this one needs stays until the next, or
 * trial_rest: memory between steps can be looked at. progress as in cell_run. ERR_USAGE: more steps than the
 * training has; ERR_CANCELLED; ERR_NOMEM. */
typedef bool trial_progress_fn(void *ctx, int done, int of, double seconds);
enum err_code trial_run(struct trial *t, struct trial_result *out, int steps, uint64_t seed,
                        trial_progress_fn *progress, void *ctx, struct err *why);
void trial_rest(struct trial *t); /* give the last run's memory back to the system */

#endif
