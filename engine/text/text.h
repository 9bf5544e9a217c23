/* engine/text/text.h - text to ids and back, as the model's metadata describes it.
 *
 * SPM (tokenizer.ggml.model "llama"): merges pairs by score, falls back to bytes. BPE ("gpt2"): a
 * pre-tokenizer regular expression (PCRE2) cuts words, then bytes merge by rank; "gemma4" merges characters.
 * The pre-tokenizers are the rows of families.c; any other tokenizer.ggml.pre is ERR_FORMAT, because a guess
 * would give wrong ids. Unigram (OWN_UNIGRAM): the most probable pieces of each word. A tokenizer does not
 * change after opening: threads may share it. */
#ifndef QDYNO_ENGINE_TEXT_H
#define QDYNO_ENGINE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct gguf;
struct tokenizer;

/* tokenizer.ggml.pre of a file with expressions of its own (docs/formats.md), and the keys that it then has.
 */
#define OWN_PRE         "qdyno"
#define OWN_PATTERNS    "qdyno.tokenizer.patterns"   /* list of strings: PCRE2, applied one after the other */
#define OWN_CHARACTERS  "qdyno.tokenizer.characters" /* bool: characters are merged, not bytes */
#define OWN_WHOLE_WORDS "qdyno.tokenizer.whole_words" /* bool: a word that is a token is not merged */
/* With characters, which of the parts that special tokens divide a text into get a space in front, unless
 * they begin with one: "each" or "first", the part at the beginning of the text. Missing: by
 * tokenizer.ggml.add_space_prefix, each, whatever it begins with. */
#define OWN_SPACE "qdyno.tokenizer.space"
/* With characters: replacements made before text is cut, one after the other. A list of strings: a PCRE2
 * expression, then the text that replaces each match of it, and so on. The expressions (*NFC), (*NFD),
 * (*NFKC) and (*NFKD) stand for the normal forms of Unicode. Also with bytes. */
#define OWN_REWRITES "qdyno.tokenizer.rewrites"
/* Before these, characters are replaced by a table of SentencePiece: a list of bytes. */
#define OWN_CHARSMAP "qdyno.tokenizer.charsmap"
/* tokenizer.ggml.model of a file with a Unigram vocabulary, and its scores: one number per token, infinity
 * for tokens that no text becomes. Other programs have no name for Unigram with our expressions. */
#define OWN_UNIGRAM "qdyno-unigram"
#define OWN_SCORES  "qdyno.tokenizer.scores"
/* In any file: the ids of special tokens that take the spaces to their left or right, too. */
#define OWN_STRIP_LEFT  "qdyno.tokenizer.strip_left"
#define OWN_STRIP_RIGHT "qdyno.tokenizer.strip_right"
/* In any file: the ids of special tokens that count only where no letter, digit or "_" is beside them. */
#define OWN_SINGLE_WORD "qdyno.tokenizer.single_word"
/* In any file: the ids of special tokens that are looked for after the replacements, as they would look. */
#define OWN_NORMALIZED "qdyno.tokenizer.normalized"
/* In any file: bool: of special tokens that overlap, the first one counts, of those the longest. Else the
 * longest in the whole text. */
#define OWN_LEFTMOST "qdyno.tokenizer.leftmost"
/* With characters: what decoding removes: "one" space at the beginning, or all of the first "token". Missing:
 * one at the beginning and after special tokens. */
#define OWN_STRIP_SPACE "qdyno.tokenizer.strip_space"
/* In any file: the ids of further tokens that end an answer. */
#define OWN_ENDS "qdyno.tokenizer.ends"

enum { TEXT_FILE_LIMIT = 1 << 30 }; /* bytes of a text file that is read as a whole */

/* *out owned: tokenizer_close. `g` must outlive it. ERR_FORMAT: metadata missing, inconsistent, or of a kind
 * not supported (the message names it). ERR_ABSENT: the file has no tokenizer (ids can still be used). */
enum err_code tokenizer_open(struct tokenizer **out, const struct gguf *g, struct err *why);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

struct tokenizer_info {
    const char *kind;               /* "spm" "bpe" "unigram" */
    const char *pre;                /* pre-tokenizer name, "" for spm */
    int32_t n_vocab, bos, eos, unk; /* -1: none */
    bool add_bos, add_eos, add_space_prefix;
};
void tokenizer_describe(const struct tokenizer *t, struct tokenizer_info *out);

/* The id of the control token with this text; -1: there is none. */
int32_t tokenizer_control(const struct tokenizer *t, const char *text);

/* Does this token end an answer? These are the tokens that the metadata names (EOS, end of turn, end of
 * message, OWN_ENDS), and those that families use for it by their text, such as <|im_end|>, however the file
 * types them. */
bool tokenizer_ends(const struct tokenizer *t, int32_t id);

struct token_list {
    int32_t *ids; /* owned by the holder: token_list_free */
    int64_t n, cap;
};
void token_list_free(struct token_list *l);
enum err_code token_list_push(struct token_list *l, int32_t id, struct err *why);

enum {
    TOKENIZE_SPECIAL = 1 << 0, /* control tokens written in the text ("<s>", "<|im_end|>") become their ids */
    TOKENIZE_ADD_BOS = 1
                       << 1, /* add BOS and EOS as the model's metadata asks (add_bos_token, add_eos_token) */
};
/* Appends to *out. Any bytes are accepted: invalid UTF-8 becomes byte tokens. ERR_NOMEM,
 * ERR_INTERNAL. */
enum err_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                               struct token_list *out, struct err *why);

/* The same for a text of which parts are not to be trusted, such as the messages in a prompt: control tokens
 * are recognised (TOKENIZE_SPECIAL) unless a byte of them is marked 1 in untrusted [n]. Nothing else differs,
 * so text is cut into words across the borders of such parts. No BOS or EOS is added. */
enum err_code tokenizer_encode_partly(const struct tokenizer *t, const char *text, const char *untrusted,
                                      size_t n, struct token_list *out, struct err *why);

/* The bytes of one id, appended; control tokens give nothing unless `special`. ERR_USAGE: id outside the
 * vocabulary. */
enum err_code tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, struct str *out,
                              struct err *why);

/* A whole sequence: as tokenizer_piece, but the space that SPM puts before a text is removed again. */
enum err_code tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t n, bool special,
                               struct str *out, struct err *why);

/* ---------------------------------------------------------------- sampling */

/* Chooses one token from a row of logits. The same seed gives the same tokens. */
struct sampler_options {
    float temperature;    /* 0: greedy; then only repeat_penalty of the others matters */
    int top_k;            /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off; over the last repeat_last tokens */
    int repeat_last;
    uint64_t seed;
};
extern const struct sampler_options SAMPLER_DEFAULTS; /* greedy */

/* Do these options always choose the largest logit (the first one of equals)? Then model_forward_best can
 * replace sampler_next. */
bool sampler_is_greedy(const struct sampler_options *o);

struct sampler;
enum err_code sampler_open(struct sampler **out, const struct sampler_options *o, int32_t n_vocab,
                           struct err *why);
void sampler_close(struct sampler *s);

/* Choose from logits [n_vocab]. Stages: repeat penalty, top-k, top-p, min-p, temperature, draw. The result is
 * recorded for the repeat penalty. -1: a logit is NaN. */
int32_t sampler_next(struct sampler *s, const float *logits);
void sampler_accept(struct sampler *s, int32_t id); /* prompt tokens, for the penalty */

#endif
