/* engine/import/hf_tokenizer.h - tokenizer.json and the chat template as metadata. */
#ifndef QDYNO_ENGINE_IMPORT_HF_TOKENIZER_H
#define QDYNO_ENGINE_IMPORT_HF_TOKENIZER_H

#include "engine/import/checkpoint.h"

/* Put the tokenizer's keys ("tokenizer.ggml.*") and the chat template into c->metadata. A checkpoint without
 * tokenizer.json gets none: it runs on token ids. ERR_FORMAT: a part of the tokenizer that is not supported.
 */
enum err_code hf_tokenizer_put(struct checkpoint *c, struct err *why);

/* Parse tokenizer.json, whose tokens may contain U+0000, which the JSON library does not take in keys:
 * U+FFFE, which no text contains, stands for it. Errors: as json_parse. */
enum err_code hf_tokenizer_parse(json_t **out, const char *text, size_t n, struct err *why);

#endif
