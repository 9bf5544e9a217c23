/* engine/import/hf_tokenizer.h - tokenizer.json and the chat template as metadata. */
#ifndef QDYNO_ENGINE_IMPORT_HF_TOKENIZER_H
#define QDYNO_ENGINE_IMPORT_HF_TOKENIZER_H

#include "engine/import/checkpoint.h"

/* Put the tokenizer's keys ("tokenizer.ggml.*") and the chat template into c->metadata. A checkpoint without
 * tokenizer.json gets none: it runs on token ids. ERR_FORMAT: a part of the tokenizer that is not supported.
 */
enum err_code hf_tokenizer_put(struct checkpoint *c, struct err *why);

#endif
