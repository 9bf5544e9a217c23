/* engine/train/trainer.h - a training run and its files; shared by train.c and train_file.c. */
#ifndef QDYNO_ENGINE_TRAIN_TRAINER_H
#define QDYNO_ENGINE_TRAIN_TRAINER_H

#include "kernels/kernels.h"
#include "engine/train/story_rows.h"
#include "engine/train/train.h"

struct trainer {
    const struct train_options *o;
    char *path, *state_path; /* the model, PATH.train */
    char *identity;          /* the options that make a model what it is, as text */
    struct corpus *corpus;
    struct gguf *gguf; /* the state file as it was opened: vocabulary */
    struct tokenizer *tokenizer;
    struct story_rows source;
    struct network *network;
    struct muon *muon; /* NULL: AdamW alone */
    float *m, *v;
    /* What goes on: */
    int64_t step, updates, skipped; /* updates: steps that were not skipped */
    struct loss_scale scale;
    float *losses; /* [steps] */
};

/* Tokens and targets [rows][ctx]. ERR_NOMEM; close in any case. */
struct train_rows {
    int32_t *tokens, *targets;
};
enum err_code train_rows_open(struct train_rows *r, int64_t rows, int ctx, struct err *why);
void train_rows_close(struct train_rows *r);

/* Options, corpus, vocabulary (from PATH.train, which is begun if there is none) and a network of zeros;
 * trainer_close in any case. `o` is borrowed. */
enum err_code trainer_open(struct trainer *t, const char *path, const struct train_options *o,
                           struct err *why);
void trainer_close(struct trainer *t);
/* The network and the optimizer's means alone: to begin anew. */
enum err_code trainer_open_network(struct trainer *t, struct err *why);
void trainer_close_network(struct trainer *t);

/* One step: p->loss (mean nats a target), rate, length; r has room for its rows. ERR_FORMAT: a gradient that
 * is no number and no scale to blame. */
enum err_code trainer_step(struct trainer *t, struct train_rows *r, struct train_progress *p,
                           struct err *why);
void trainer_trim(struct trainer *t); /* behind a step: where trim_every says so */

/* Open PATH.train, or begin it with a vocabulary. ERR_USAGE: begun with other options. */
enum err_code trainer_open_state(struct trainer *t, struct err *why);
/* Parameters and running means from it; *found false: it has none yet. */
enum err_code trainer_load(struct trainer *t, bool *found, struct err *why);
enum err_code trainer_save(struct trainer *t, struct err *why);
/* The model itself, with what the report says about it. */
enum err_code trainer_export(struct trainer *t, const struct train_report *r, struct err *why);

#endif
