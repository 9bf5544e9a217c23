/* engine/text/text.h - text to ids and back, as the model's metadata describes it.
 *
 * SPM (tokenizer.ggml.model "llama"): bigram merging by score, byte fallback. BPE ("gpt2"): byte-level merges
 * by rank behind a pre-tokenizer regular expression (PCRE2): gpt-2, llama-3 (llama-bpe), qwen2, default; an
 * unknown tokenizer.ggml.pre is refused by name, never guessed. Immutable after opening: threads may share
 * it. */
#ifndef QDYNO_ENGINE_TEXT_H
#define QDYNO_ENGINE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct gguf;
struct tokenizer;

/* *out owned: tokenizer_close. `g` must outlive it. ERR_FORMAT: metadata missing, inconsistent, or of a kind
 * not supported (named). ERR_ABSENT: the file has no tokenizer at all (ids can still be used). */
enum err_code tokenizer_open(struct tokenizer **out, const struct gguf *g, struct err *why);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

struct tokenizer_info {
    const char *kind;               /* "spm" "bpe" */
    const char *pre;                /* pre-tokenizer name, "" for spm */
    int32_t n_vocab, bos, eos, unk; /* -1: none */
    bool add_bos, add_eos, add_space_prefix;
};
void tokenizer_describe(const struct tokenizer *t, struct tokenizer_info *out);

struct token_list {
    int32_t *ids; /* owned by the holder: token_list_free */
    int64_t n, cap;
};
void token_list_free(struct token_list *l);
enum err_code token_list_push(struct token_list *l, int32_t id, struct err *why);

enum {
    TOKENIZE_SPECIAL = 1 << 0, /* control tokens written in the text ("<s>", "<|im_end|>") become their ids */
    TOKENIZE_ADD_BOS = 1 << 1, /* as the model asks for (add_bos / add_eos metadata) */
};
/* Appends to *out. Any bytes are accepted (malformed UTF-8 goes through the byte tokens). ERR_NOMEM,
 * ERR_INTERNAL. */
enum err_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                               struct token_list *out, struct err *why);

/* The bytes of one id, appended; control tokens give nothing unless `special`. ERR_USAGE: id outside the
 * vocabulary. */
enum err_code tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, struct str *out,
                              struct err *why);

/* A whole sequence: as tokenizer_piece, but the space that SPM puts before a text is removed again. */
enum err_code tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t n, bool special,
                               struct str *out, struct err *why);

/* ---------------------------------------------------------------- sampling */

/* One token out of a row of logits. Deterministic by seed. */
struct sampler_options {
    float temperature;    /* 0: greedy, the others then do not matter (but repeat_penalty) */
    int top_k;            /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off; over the last repeat_last tokens */
    int repeat_last;
    uint64_t seed;
};
extern const struct sampler_options SAMPLER_DEFAULTS; /* greedy */

/* Whether these always take the largest logit, the first of equals: what model_forward_best says is what
 * sampler_next would. */
bool sampler_is_greedy(const struct sampler_options *o);

struct sampler;
enum err_code sampler_open(struct sampler **out, const struct sampler_options *o, int32_t n_vocab,
                           struct err *why);
void sampler_close(struct sampler *s);

/* Order of stages: repeat penalty, top-k, top-p, min-p, temperature, draw. Remembers the result for the
 * penalty. NaN in logits: returns -1. */
int32_t sampler_next(struct sampler *s, const float *logits);
void sampler_accept(struct sampler *s, int32_t id); /* prompt tokens, for the penalty */

#endif
