/* engine/train/vocabulary.h - learns a vocabulary from a text by byte-pair encoding, in the form of SPM
 * tokenizers. Internal.
 *
 * Learning repeatedly merges the most frequent pair of neighbouring tokens into a new token. A token's score
 * is minus its merge number, so tokenizing by score (SPM) repeats the merges in order. Tokens are parts of
 * words: letters, with or without the preceding space. Digits and punctuation stay single characters;
 * everything that is not printable ASCII is encoded byte by byte, so any text can be represented. Source:
 * Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", 2016. */
#ifndef QDYNO_ENGINE_TRAIN_VOCABULARY_H
#define QDYNO_ENGINE_TRAIN_VOCABULARY_H

#include "engine/gguf/gguf.h"

struct vocabulary {
    struct arena memory;
    int64_t n, merged;         /* number of tokens; of those made by merging */
    struct gguf_string *texts; /* [n] */
    float *scores;             /* [n] */
    int32_t *types;            /* [n] as in tokenizer.ggml.token_type */
};

enum { VOCABULARY_BOS = 1, VOCABULARY_EOS = 2, VOCABULARY_LEAST = 3 + 256 + 95 };

/* Learn a vocabulary of `tokens` tokens. Deterministic: of equally frequent pairs the first in byte order is
 * merged. *out: vocabulary_free, also after errors. Errors: ERR_USAGE (fewer than VOCABULARY_LEAST tokens, or
 * more than the text has pairs for), ERR_NOMEM. */
enum err_code vocabulary_train(struct vocabulary *out, const char *text, size_t n, int64_t tokens,
                               struct err *why);
void vocabulary_free(struct vocabulary *v);

/* Put the tokenizer's metadata (tokenizer.ggml.*). Errors are reported by gguf_writer_commit. */
void vocabulary_put(const struct vocabulary *v, struct gguf_writer *w);

#endif
