/* engine/import/hf_added.h - tokens beside the vocabulary, from all files that name them. */
#ifndef QDYNO_ENGINE_IMPORT_HF_ADDED_H
#define QDYNO_ENGINE_IMPORT_HF_ADDED_H

#include "engine/import/checkpoint.h"

/* *out: a list as `added_tokens` of tokenizer.json, with an id and all flags of each token; json_decref.
 * vocab: {text: id}. ERR_FORMAT: more than 20000 tokens in another file; ERR_NOMEM. */
enum err_code hf_added_read(json_t **out, const struct checkpoint *c, const json_t *vocab, struct err *why);

#endif
