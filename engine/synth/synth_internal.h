/* engine/synth/synth_internal.h - declarations shared by the files of engine/synth. */
#ifndef QDYNO_ENGINE_SYNTH_INTERNAL_H
#define QDYNO_ENGINE_SYNTH_INTERNAL_H

#include "engine/gguf/gguf.h"

/* ---------------------------------------------------------------- vocabulary (synth_vocab.c) */

/* Write the metadata tokenizer.ggml.* of a vocabulary of `size` tokens. ERR_USAGE: the size is too small.
 * ERR_NOMEM. */
enum err_code synth_vocab_spm(struct gguf_writer *w, int64_t size, struct err *why);
enum err_code synth_vocab_bpe(struct gguf_writer *w, int64_t size, const char *pre, struct err *why);

#endif
