/* engine/train/trainer.h - state of a training run, shared by train.c, train_file.c and trial.c. Internal. */
#ifndef QDYNO_ENGINE_TRAIN_TRAINER_H
#define QDYNO_ENGINE_TRAIN_TRAINER_H

#include "kernels/kernels.h"
#include "engine/parallel/parallel.h"
#include "engine/train/learner.h"
#include "engine/train/story_rows.h"
#include "engine/train/train.h"

struct trainer {
    const struct train_options *o;
    char *path, *state_path; /* of the model; PATH.train */
    char *identity;          /* the options that determine the model, as text */
    struct corpus *corpus;
    struct gguf *gguf; /* the state file as it was opened; holds the vocabulary */
    struct tokenizer *tokenizer;
    struct story_rows source;
    struct learner learner;
    struct ranks *
        ranks; /* NULL: this process computes the steps; else they do, and `learner` is what was saved last */
    /* State that is saved: */
    int64_t step, updates, skipped; /* updates: steps that were not skipped */
    struct loss_scale scale;
    float *losses; /* [steps] */
};

/* Tokens and targets [rows][ctx]. ERR_NOMEM. Close in any case. */
struct train_rows {
    int32_t *tokens, *targets;
};
enum err_code train_rows_open(struct train_rows *r, int64_t rows, int ctx, struct err *why);
void train_rows_close(struct train_rows *r);

/* Open options, corpus, vocabulary (from PATH.train, which is created if absent) and a network of zeros. `o`
 * is borrowed. Call trainer_close in any case. */
enum err_code trainer_open(struct trainer *t, const char *path, const struct train_options *o,
                           struct err *why);
void trainer_close(struct trainer *t);
/* Options of the learner; threads 0 in them: each rank's part of the cores. */
struct learner_options trainer_learner_options(const struct train_options *o);
/* Open or close only the network and the optimizer's means: to start again with the same vocabulary. */
enum err_code trainer_open_network(struct trainer *t, struct err *why);
void trainer_close_network(struct trainer *t);

/* Run one step. Sets p->loss (mean nats a target), rate and length. r must have room for the rows of a step.
 * ERR_FORMAT: the gradient is not finite, and no loss scale explains it. */
enum err_code trainer_step(struct trainer *t, struct train_rows *r, struct train_progress *p,
                           struct err *why);
void trainer_trim(const struct trainer *t); /* after a step: return free memory if trim_every says so */

/* Open PATH.train, or create it with a new vocabulary. ERR_USAGE: it was created with other options. */
enum err_code trainer_open_state(struct trainer *t, struct err *why);
/* Load parameters and running means. *found false: PATH.train has none yet. */
enum err_code trainer_load(struct trainer *t, bool *found, struct err *why);
enum err_code trainer_save(struct trainer *t, struct err *why);
/* Write the model, with the report's figures in its metadata. */
enum err_code trainer_export(struct trainer *t, const struct train_report *r, struct err *why);

#endif
