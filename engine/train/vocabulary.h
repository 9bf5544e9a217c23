/* engine/train/vocabulary.h - a vocabulary learned from a text: byte-pair encoding, in the form SPM files
 * have.
 *
 * Again and again the two neighbours that stand side by side most often become one token, whose score is
 * minus its turn; tokenizing by score (engine/spm.c) repeats the same merges. Tokens are words' parts:
 * letters, with or without the space before them. Digits, marks and everything else stay single characters,
 * and what is not printable ASCII goes byte by byte, so any text can be written and read back. */
#ifndef QDYNO_ENGINE_TRAIN_VOCABULARY_H
#define QDYNO_ENGINE_TRAIN_VOCABULARY_H

#include "engine/gguf/gguf.h"

struct vocabulary {
    struct arena memory;
    int64_t n, merged;         /* tokens; of them, made by merging */
    struct gguf_string *texts; /* [n] */
    float *scores;             /* [n] */
    int32_t *types;            /* [n] as in tokenizer.ggml.token_type */
};

enum { VOCABULARY_BOS = 1, VOCABULARY_EOS = 2, VOCABULARY_LEAST = 3 + 256 + 95 };

/* Deterministic: the most frequent pair, of equals the first in byte order. *out: vocabulary_free, whatever
 * is returned. ERR_USAGE: fewer than VOCABULARY_LEAST tokens wanted, or more than the text has pairs for;
 * ERR_NOMEM.
 */
enum err_code vocabulary_train(struct vocabulary *out, const char *text, size_t n, int64_t tokens,
                               struct err *why);
void vocabulary_free(struct vocabulary *v);

/* The tokenizer's metadata (tokenizer.ggml.*), a failure of which is told by gguf_writer_commit. */
void vocabulary_put(const struct vocabulary *v, struct gguf_writer *w);

#endif
