/* engine/train/trainer.h - a training run and its files; shared by train.c and train_file.c. */
#ifndef QDYNO_ENGINE_TRAIN_TRAINER_H
#define QDYNO_ENGINE_TRAIN_TRAINER_H

#include "engine/engine.h"
#include "engine/train/lessons.h"
#include "engine/train/train.h"

struct trainer {
    const struct train_options *o;
    char *path, *state_path; /* the model, PATH.train */
    char *identity;          /* the options that make a model what it is, as text */
    struct corpus *corpus;
    struct gguf *gguf; /* the state file as it was opened: vocabulary */
    struct tokenizer *tokenizer;
    struct lessons lessons;
    struct network *network;
    float *m, *v;
    /* What goes on: */
    int64_t step, updates, skipped; /* updates: steps that were not skipped */
    struct loss_scale scale;
    float *losses; /* [steps] */
};

/* Open PATH.train, or begin it with a vocabulary. ERR_USAGE: begun with other options. */
enum err_code trainer_open_state(struct trainer *t, struct err *why);
/* Parameters and running means from it; *found false: it has none yet. */
enum err_code trainer_load(struct trainer *t, bool *found, struct err *why);
enum err_code trainer_save(struct trainer *t, struct err *why);
/* The model itself, with what the report says about it. */
enum err_code trainer_export(struct trainer *t, const struct train_report *r, struct err *why);

#endif
