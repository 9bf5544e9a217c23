/* engine/text/text_internal.h - declarations shared by the tokenizer's files.
 *
 * Both tokenizers work alike: a text is a chain of symbols, and the best pair of neighbours repeatedly
 * becomes one symbol. They differ in the priority of a pair: merge.c asks for it, spm.c and bpe.c compute it.
 */
#ifndef QDYNO_ENGINE_TEXT_INTERNAL_H
#define QDYNO_ENGINE_TEXT_INTERNAL_H

#include "engine/gguf/gguf.h"
#include "engine/text/text.h"

/* ---------------------------------------------------------------- text -> number (vocab.c) */

/* Hash index of borrowed byte strings: texts[i] -> i. The first one of equal texts wins. */
struct text_index {
    struct hash_key key; /* the texts come from a file */
    const struct gguf_string *texts;
    int32_t *slots; /* i + 1; 0 is free */
    uint32_t mask;
};
/* Room for `count` texts; false when out of memory. */
bool text_index_init(struct text_index *x, struct arena *memory, const struct gguf_string *texts,
                     int64_t count);
void text_index_add(struct text_index *x, int32_t i);
int32_t text_index_find(const struct text_index *x, const char *text, size_t n); /* -1: none */

/* ---------------------------------------------------------------- special tokens in a text (specials.c) */

struct special_slot {
    uint64_t hash;
    int32_t id;
    bool control, taken;
};

/* The special tokens of one length. */
struct special_group {
    size_t length;
    uint64_t power;    /* base^(length - 1) */
    uint64_t first[4]; /* set of the bytes that begin a token */
    struct special_slot *slots;
    uint64_t mask;
};

struct specials {
    const struct gguf_string *texts; /* of the vocabulary */
    uint64_t base;                   /* of the hash; random, because the texts come from a file */
    struct special_group *groups;    /* longest first */
    int32_t group_count;
    bool leftmost; /* OWN_LEFTMOST */
};

struct special_hit {
    size_t at;
    int32_t id;
};

/* ids [count]: the special tokens, longest text first, then smaller id first. False when out of memory. */
typedef bool special_is_control_fn(const void *ctx, int32_t id);
bool specials_init(struct specials *x, struct arena *memory, const struct gguf_string *texts,
                   const int32_t *ids, int32_t count, special_is_control_fn *is_control, const void *ctx);
/* The tokens to cut out of a text, by position; control: control tokens, too, but not where one of their
 * bytes is marked in untrusted [n] (NULL: none is). *out owned: free(). False when out of memory. */
bool specials_find(const struct specials *x, const char *text, size_t n, bool control, const char *untrusted,
                   struct special_hit **out, size_t *count);

/* ---------------------------------------------------------------- the vocabulary (vocab.c) */

#define SPM_SPACE "\xe2\x96\x81" /* U+2581: how SPM vocabularies write a space */

enum token_type { /* as stored in tokenizer.ggml.token_type */
                  TOKEN_UNDEFINED,
                  TOKEN_NORMAL,
                  TOKEN_UNKNOWN,
                  TOKEN_CONTROL,
                  TOKEN_USER_DEFINED,
                  TOKEN_UNUSED,
                  TOKEN_BYTE,
                  TOKEN_TYPE_COUNT
};

/* Bits of vocab.strips. */
enum strip { STRIP_LEFT = 1, STRIP_RIGHT = 2, SINGLE_WORD = 4, NORMALIZED = 8 };
enum { ENDS_MOST = 64 };

struct vocab {
    int32_t n;
    struct gguf_string *texts; /* [n] as stored: borrowed from the file */
    float *scores;             /* [n] */
    uint8_t *types;            /* [n] enum token_type */
    struct text_index words;   /* tokens that plain text can become: no control, unknown or byte tokens */
    int32_t byte_id[256];      /* "<0x0A>" or the byte itself as a token; -1: none */
    struct specials specials;  /* cut out of raw text first */
    struct specials messages;  /* the same where parts of a text are not trusted */
    bool leftmost;
    uint8_t *strips;         /* [n] bits of enum strip: special tokens that take spaces beside them, too */
    int32_t bos, eos, unk;   /* -1: none */
    int32_t ends[ENDS_MOST]; /* tokens that end an answer */
    int end_count;
    bool add_bos, add_eos, add_space_prefix;
    enum { SPACE_ALWAYS, SPACE_EACH, SPACE_FIRST } space; /* OWN_SPACE; SPACE_ALWAYS: the key is missing */
    enum { STRIP_STARTS, STRIP_ONE, STRIP_TOKEN } strip_space; /* OWN_STRIP_SPACE */
    bool words_begin_with_space; /* in every token, U+2581 occurs at the beginning only */
};
enum err_code vocab_load(struct vocab *v, const struct gguf *g, struct arena *memory, struct err *why);
bool vocab_is_special(const struct vocab *v, int32_t id);       /* control or unknown: no text of its own */
int32_t vocab_control(const struct vocab *v, const char *text); /* the control token of this text; -1: none */
int byte_token_value(struct gguf_string text);                  /* "<0x0A>" -> 10; -1 when not of that form */

/* ends.c: make control tokens of known end-of-turn texts, and collect the tokens that end an answer. */
void vocab_type_ends(struct vocab *v);
void vocab_find_ends(struct vocab *v, const struct gguf *g);
bool vocab_ends(const struct vocab *v, int32_t id);

/* Index the special tokens for which `takes` is true; texts [v->n]: v->texts, or what stands for them. */
typedef bool special_takes_fn(const struct vocab *v, int32_t id);
enum err_code vocab_index_specials(struct specials *out, const struct vocab *v,
                                   const struct gguf_string *texts, special_takes_fn *takes,
                                   struct arena *memory, struct err *why);

/* ---------------------------------------------------------------- pieces of a text (fragments.c) */

/* A piece of a text: plain text (id -1) or a special token. */
struct fragment {
    size_t from, to;
    int32_t id;
};
struct fragments {
    struct fragment *items; /* owned: free() */
    size_t count, cap;
};
/* Cut the special tokens of x out of a text, with the spaces beside them that they take. User-defined tokens
 * are always recognised. Control tokens only on request, because untrusted text must not be able to produce
 * "<|im_end|>". False when out of memory. */
bool fragments_split(const struct vocab *v, const struct specials *x, const char *text, size_t n,
                     bool control, const char *untrusted, struct fragments *out);

/* ---------------------------------------------------------------- merging (merge.c) */

struct symbol {
    int32_t prev, next; /* -1 at the ends */
    int32_t at, len;    /* bytes of the text; len 0: was merged into its left neighbour */
    int32_t id;         /* token id (SPM, BPE) of the symbol, -1: none */
};

struct merge {
    uint64_t order; /* priority in the high half (smaller first), left symbol in the low half */
    int32_t right, size, id;
};

/* Scratch of one encode call, reused from word to word. {0} is empty. */
struct merger {
    struct symbol *symbols;
    int64_t count, symbol_cap;
    struct merge *heap;
    int64_t heap_count, heap_cap;
};

/* Priority and id of the symbol that l and r merge into. False: they do not merge. */
typedef bool merge_pair_fn(const void *ctx, const char *text, const struct symbol *l, const struct symbol *r,
                           uint32_t *worth, int32_t *id);

void merger_free(struct merger *m);
/* Append a symbol to the chain; false when out of memory. Start each text with m->count = 0. */
bool merger_add(struct merger *m, int32_t at, int32_t len, int32_t id);
/* Merge until nothing merges: O(n log n). Walk the result from symbol 0 along `next`. False: out of memory */
bool merger_run(struct merger *m, merge_pair_fn *pair, const void *ctx, const char *text);

/* ---------------------------------------------------------------- SPM and BPE */

/* SPM: encode one fragment of text (with plain spaces), appended to out. */
enum err_code spm_encode(const struct vocab *v, struct merger *m, const char *text, size_t n,
                         bool space_first, struct token_list *out, struct err *why);
void spm_piece(const struct vocab *v, int32_t id, struct str *out);
void spm_unescape(struct gguf_string text, struct str *out); /* spaces for U+2581 */
/* A text as SentencePiece vocabularies write it: spaces are U+2581; space_first puts one before it. */
void spm_escape(const char *text, size_t n, bool space_first, struct str *out);
/* Append the byte tokens of text; "unknown" for bytes without one. */
enum err_code spm_push_bytes(const struct vocab *v, const char *text, int32_t n, struct token_list *out,
                             struct err *why);

/* Unigram (unigram.c). The scores are in OWN_SCORES. ERR_FORMAT: they are missing or no numbers; no "unknown"
 * token; a piece that is too long. ERR_NOMEM. `v` must outlive it. */
struct unigram;
enum err_code unigram_open(struct unigram **out, const struct gguf *g, const struct vocab *v,
                           struct err *why);
void unigram_close(struct unigram *u); /* NULL is fine */
/* Append the tokens of a word of n bytes with U+2581 for spaces. ERR_USAGE: more than 128 MiB; ERR_NOMEM. */
enum err_code unigram_encode(const struct unigram *u, const char *text, size_t n, struct token_list *out,
                             struct err *why);

struct bpe; /* what cuts text into words, and makes tokens of words by BPE or Unigram */
enum err_code bpe_open(struct bpe **out, const struct gguf *g, struct vocab *v, struct err *why);
void bpe_close(struct bpe *b);
const char *bpe_pre(const struct bpe *b);
bool bpe_is_of_characters(const struct bpe *b); /* and not of bytes */
bool bpe_is_unigram(const struct bpe *b);
/* A part of a text. first: it is the beginning of the whole text; control: control tokens that are looked for
 * after the replacements are recognised. */
struct bpe_part {
    const char *text;
    size_t n;
    bool first, control;
};
enum err_code bpe_encode(const struct bpe *b, struct merger *m, const struct bpe_part *part,
                         struct token_list *out, struct err *why);
void bpe_piece(const struct bpe *b, int32_t id, struct str *out);

/* ---------------------------------------------------------------- pre-tokenizers (pretokenize.c) */

struct pretokenizer;
struct pre_info {
    const char *name; /* tokenizer.ggml.pre */
    bool whole_words; /* a word that is a token is not merged (llama-3) */
    bool add_bos;     /* default when the metadata has no add_bos_token */
    bool characters;  /* merges characters, with U+2581 for spaces and byte tokens for what has no token */
};

/* One way to cut text (families.c). Each pattern is applied to the pieces that the one before left. */
enum { FAMILY_PATTERNS = 7 }; /* one more than the longest list */
struct family {
    struct pre_info info;
    const char *patterns[FAMILY_PATTERNS]; /* PCRE2; NULL ends the list */
};
extern const struct family TEXT_FAMILIES[];
extern const size_t TEXT_FAMILY_COUNT;

/* Errors: ERR_FORMAT (unknown name, listing the known), ERR_INTERNAL (PCRE2), ERR_NOMEM. */
enum err_code pretokenizer_open(struct pretokenizer **out, struct gguf_string name, struct err *why);
/* With the patterns that the file itself has (text.h: OWN_PRE). ERR_FORMAT: bad patterns; ERR_NOMEM. */
enum err_code pretokenizer_open_own(struct pretokenizer **out, const struct gguf *g, struct err *why);
void pretokenizer_close(struct pretokenizer *p);
const struct pre_info *pretokenizer_info(const struct pretokenizer *p);

/* Cut text into words that cover it without gaps: ends[0..*count) are their ends. Owned: free(). */
enum err_code pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n, size_t **ends,
                                 size_t *count, struct err *why);

/* ---------------------------------------------------------------- normal forms (normalized.c) */

/* "(*NFC)" and its kin: the form's number; -1: it is an expression. */
int normal_form(struct gguf_string expression);
/* Append valid UTF-8 in this form. False when out of memory. */
bool normal_form_apply(int form, const char *text, size_t n, struct str *out);

/* ---------------------------------------------------------------- replacements (rewrite.c) */

/* *out owned: rewrites_close; NULL: the file has none. ERR_FORMAT: OWN_REWRITES is malformed. ERR_NOMEM. `g`
 * must outlive it. */
struct rewrites;
enum err_code rewrites_open(struct rewrites **out, const struct gguf *g, struct err *why);
void rewrites_close(struct rewrites *r); /* NULL is fine */
/* Put `text` with all replacements made into the empty *out (owned, also after an error: str_free).
 * ERR_FORMAT: a match takes too many steps, or the text becomes far longer; ERR_NOMEM, ERR_INTERNAL (PCRE2).
 */
enum err_code rewrites_apply(const struct rewrites *r, const char *text, size_t n, struct str *out,
                             struct err *why);

#endif
