/* engine/train/story_rows.h - rows of tokens made of stories: what a model is trained and tested on.
 * Internal.
 *
 * A training row starts with BOS and a story. After each story, a coin toss decides between a newline (the
 * document continues) and EOS, BOS (a new document), until the row is full; so a model learns to end a text
 * and to continue one. Every eighth row starts in the middle of a story, as evaluation windows do. Rows are
 * numbered; each is computed from its number alone. */
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

/* Training row number `row`: tokens and targets [ctx]. Target i is the token after token i, or -1 (not
 * counted) where that is BOS. ERR_NOMEM. */
enum err_code story_rows_train(const struct story_rows *l, uint64_t row, int32_t *tokens, int32_t *targets,
                               struct err *why);

/* A test row: whole held-out stories, each between BOS and EOS, as many as fit; the rest is not counted. */
struct held_out_row {
    uint64_t number;   /* in: number of the first story; out: of the next row's first story */
    int stories;       /* in this row */
    int64_t counted;   /* targets that count */
    double floor_nats; /* -log p of the counted text under the grammar: its stories, and that each ends */
};
/* tokens and targets [ctx] of the row that begins with story e->number. ERR_USAGE: a context too short for
 * one story; ERR_NOMEM. */
enum err_code story_rows_held_out(const struct story_rows *l, struct held_out_row *e, int32_t *tokens,
                                  int32_t *targets, struct err *why);

#endif
