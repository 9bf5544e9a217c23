/* engine/synth/synth_internal.h - what the files of the model maker share; no outsider includes it. */
#ifndef QDYNO_ENGINE_SYNTH_INTERNAL_H
#define QDYNO_ENGINE_SYNTH_INTERNAL_H

#include "engine/gguf/gguf.h"

/* ---------------------------------------------------------------- vocabulary (synth_vocab.c) */

/* Put tokenizer.ggml.* for `size` tokens. Errors: ERR_USAGE (too small a vocabulary), ERR_NOMEM. */
enum err_code synth_vocab_spm(struct gguf_writer *w, int64_t size, struct err *why);
enum err_code synth_vocab_bpe(struct gguf_writer *w, int64_t size, const char *pre, struct err *why);

#endif
