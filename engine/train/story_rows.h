/* engine/train/story_rows.h - what a model reads: rows of tokens made of stories.
 *
 * A row begins with BOS and a story. Behind a story comes, by the toss of a coin, EOS and BOS or a newline,
 * and then the next one, until the row is full; so a model learns to stop, and to go on. Every eighth row
 * begins in the middle of a story, as the windows of an evaluation do. Rows are numbered like stories:
 * nothing is remembered between them. */
#ifndef QDYNO_ENGINE_TRAIN_STORY_ROWS_H
#define QDYNO_ENGINE_TRAIN_STORY_ROWS_H

#include "engine/train/corpus.h"

struct story_rows {
    const struct corpus *corpus;
    const struct tokenizer *tokenizer;
    uint64_t seed;
    int ctx;
    int32_t bos, eos;
};

/* tokens and targets [ctx]: target i is what follows token i, -1 where that is BOS. ERR_NOMEM. */
enum err_code story_rows_train(const struct story_rows *l, uint64_t row, int32_t *tokens, int32_t *targets,
                               struct err *why);

/* An examination: whole held-out stories between BOS and EOS, as many as fit, the rest of the row not
 * counted. */
struct held_out_row {
    uint64_t number;   /* of the first story; moves on */
    int stories;       /* in this row */
    int64_t counted;   /* targets */
    double floor_nats; /* -log p of what is counted: the stories, and that each ends */
};
/* ERR_USAGE: the next story does not fit in a row. */
enum err_code story_rows_held_out(const struct story_rows *l, struct held_out_row *e, int32_t *tokens,
                                  int32_t *targets, struct err *why);

#endif
