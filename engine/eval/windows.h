/* engine/eval/windows.h - how a text becomes windows and a window becomes forward passes. This is the only
 * place that decides which positions are scored, so all figures use the same ones. Internal to engine/eval/.
 */
#ifndef QDYNO_ENGINE_EVAL_WINDOWS_H
#define QDYNO_ENGINE_EVAL_WINDOWS_H

#include "engine/eval/eval.h"
#include "engine/model/model.h"
#include "engine/text/text.h"

/* A tokenized text, cut into `count` windows of ctx ids; the rest is dropped. */
struct windows {
    struct token_list ids; /* ids of the whole text */
    int32_t bos;           /* replaces the first id of each window; -1: none */
    int ctx;
    int64_t count;
};
/* Errors: ERR_USAGE (no tokenizer; fewer than two windows: says how many tokens there are and are needed; ctx
 * outside 4 .. the session's context), ERR_FORMAT (an id outside the vocabulary), ERR_NOMEM. Call
 * windows_done in any case. */
enum err_code windows_cut(struct windows *w, const struct model *m, const struct eval_request *r,
                          struct err *why);
void windows_done(struct windows *w);
int32_t *windows_get(struct windows *w, int64_t i); /* [ctx] ids, with BOS in place; borrowed */

/* Number of scored positions in a window: the predictions at ctx/2 .. ctx-2. */
int windows_scored(int ctx);

/* Fill rows [at_most] with the next piece of a window, from position `at` on. A piece has at most
 * `most_scored` scored rows (windows_most_scored: so many fit into memory while `models` models hold their
 * logits). Returns the number of rows, 0 at the end; *scored: how many of them want logits. */
int windows_piece(struct batch_row *rows, const int32_t *ids, int ctx, int at, int at_most, int most_scored,
                  int *scored);
int windows_most_scored(const struct model *m, int models);

#endif
