/* engine/quant/act.h - how matrices treat their inputs, as a file says it: metadata for all of a format, side
 * tensors for one matrix. docs/formats.md describes both. */
#ifndef QDYNO_ENGINE_QUANT_ACT_H
#define QDYNO_ENGINE_QUANT_ACT_H

#include "engine/quant/quant.h"

bool act_is_key(struct gguf_string key);

/* Metadata for matrices in `format`; nothing for INPUT_FREE. */
enum err_code act_put(struct gguf_writer *w, const struct act_scheme *act, const struct format *format);

/* How one matrix of the file treats its inputs; *out owned (act_free), NULL when it is like any other.
 * ERR_FORMAT: unknown kind; a side tensor of wrong type or size, or with values that cannot be. */
enum err_code act_read(struct input_scheme **out, const struct gguf *g, const struct gguf_tensor *matrix,
                       struct err *why);
void act_free(struct input_scheme *s); /* NULL is fine */

/* How tensor `t` of file `g` will treat its inputs under the config's recipe, for plans: what cannot be read
 * is INPUT_FREE here and refused by act_read. */
enum input_kind act_planned(const struct config *c, const struct gguf *g, const struct gguf_tensor *t);

#endif
