/* engine/import/metadata.h - config.json as metadata of a model. */
#ifndef QDYNO_ENGINE_IMPORT_METADATA_H
#define QDYNO_ENGINE_IMPORT_METADATA_H

#include "engine/import/checkpoint.h"

/* Find the family, fill c->sizes and put all metadata but the tokenizer's into c->metadata. What config.json
 * has and nobody here knows becomes a key of its own under the architecture, so that arch_unknown names it.
 * ERR_FORMAT: an unknown architecture, a value that is missing or not supported. */
enum err_code metadata_put(struct checkpoint *c, struct err *why);

/* How RoPE scales positions, as config.json says it. */
struct hf_rope {
    const char *type;     /* "default", "linear", "yarn", "llama3", "longrope" */
    const json_t *values; /* what config.json gives for it; NULL: nothing */
    double base;
    int64_t dims; /* rotated values of a head */
};
enum err_code rope_read(struct hf_rope *out, const struct checkpoint *c, struct err *why);

/* The tensors with factors of RoPE frequencies that this scaling needs (llama3, longrope): at most 2, [0]
 * *count. Their data is allocated from the checkpoint's memory. */
enum { ROPE_TENSORS = 2 };
enum err_code rope_tensors(struct gguf_tensor out[ROPE_TENSORS], int *count, struct checkpoint *c,
                           struct err *why);

/* The part of metadata_put that is about RoPE. */
enum err_code rope_put(struct checkpoint *c, struct err *why);

#endif
