/* BPE: the pre-tokenizer cuts the text into words, each byte of a word starts as one symbol, and neighbouring
 * symbols are merged in the order of the rules' ranks. In families of characters (gemma4) each character
 * starts as one symbol, spaces are U+2581, and what has no token becomes byte tokens, as in spm.c.
 *
 * Other vocabularies store bytes as printable characters (GPT-2's table: a space is U+0120). The merge rules
 * become one hash table (left token, right token) -> (rank, token), so that encoding compares ids only. A
 * rule whose parts or result are not in the vocabulary could only produce symbols without an id, so it is
 * skipped. Unigram vocabularies (unigram.c) differ only in how a word becomes tokens. */
#include "engine/text/text_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

struct rule {
    int32_t left, right, result; /* result -1: free slot */
    uint32_t rank;
};

enum { ALPHABET = 324 }; /* 256 bytes, the 68 unprintable ones moved up to 256.. */

struct bpe {
    const struct vocab *vocab;
    struct pretokenizer *pre;
    struct rewrites *rewrites; /* made before text is cut; NULL: none */
    struct unigram *unigram;   /* NULL: BPE */
    struct arena memory;
    struct gguf_string *normal_texts; /* of normalized tokens; NULL: there are none */
    struct specials normalized;       /* looked for after the replacements */
    struct hash_key key;              /* the rules come from a file */
    struct rule *rules;
    uint64_t mask;
    int32_t byte_id[256];      /* token of one byte; -1: the vocabulary has none */
    uint32_t letter[256];      /* byte -> the character that stands for it */
    int16_t byte_of[ALPHABET]; /* character -> byte; -1: not in the alphabet */
};

/* GPT-2's bytes_to_unicode: printable Latin-1 bytes keep their value, the others are numbered from 256. */
static void bpe_fill_alphabet(struct bpe *b)
{
    uint32_t next = 256;
    memset(b->byte_of, 0xff, sizeof b->byte_of);
    for (uint32_t i = 0; i < 256; i++) {
        bool stays = (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
        b->letter[i] = stays ? i : next++;
        b->byte_of[b->letter[i]] = (int16_t)i;
    }
}

static void bpe_find_byte_tokens(struct bpe *b)
{
    for (int i = 0; i < 256; i++) {
        char text[4];
        size_t n = str_utf8_put(b->letter[i], text);
        b->byte_id[i] = text_index_find(&b->vocab->words, text, n);
    }
}

/* ---------------------------------------------------------------- rules */

static struct rule *bpe_rule_slot(const struct bpe *b, int32_t left, int32_t right)
{
    const int32_t pair[] = { left, right };
    for (uint64_t at = hash_keyed(&b->key, pair, sizeof pair);; at++) {
        struct rule *r = &b->rules[at & b->mask];
        if (r->result < 0 || (r->left == left && r->right == right)) return r;
    }
}

/* Add the rule "left right". `left` may begin with a space itself. */
static void bpe_add_rule(struct bpe *b, struct gguf_string text, uint32_t rank)
{
    const char *space = text.len > 1 ? memchr(text.data + 1, ' ', text.len - 1) : NULL;
    char joined[512];
    if (!space || text.len > sizeof joined) return;
    size_t left_n = (size_t)(space - text.data), right_n = text.len - left_n - 1;
    const struct text_index *words = &b->vocab->words;
    memcpy(joined, text.data, left_n);
    memcpy(joined + left_n, space + 1, right_n);
    struct rule r = { .left = text_index_find(words, text.data, left_n),
                      .right = text_index_find(words, space + 1, right_n),
                      .result = text_index_find(words, joined, left_n + right_n),
                      .rank = rank };
    if (r.left < 0 || r.right < 0 || r.result < 0) return;
    struct rule *slot = bpe_rule_slot(b, r.left, r.right);
    if (slot->result < 0) *slot = r;
}

static enum err_code bpe_load_rules(struct bpe *b, const struct gguf *g, struct err *why)
{
    const struct gguf_kv *kv = gguf_kv_find(g, "tokenizer.ggml.merges");
    if (kv && (kv->type != GGUF_ARRAY || kv->element != GGUF_STRING || kv->count > INT32_MAX / 4))
        return err_set(why, ERR_FORMAT, "tokenizer.ggml.merges: expected a list of strings");
    uint64_t count = kv ? kv->count : 0, size = 16;
    while (size < count * 2) size *= 2;
    b->rules = malloc(size * sizeof *b->rules);
    if (!b->rules) return err_set(why, ERR_NOMEM, "out of memory for %" PRIu64 " merges", count);
    hash_key_make(&b->key);
    b->mask = size - 1;
    for (uint64_t i = 0; i < size; i++) b->rules[i] = (struct rule){ -1, -1, -1, 0 };
    for (uint64_t i = 0; i < count; i++) bpe_add_rule(b, gguf_kv_string(kv, i), (uint32_t)i);
    return ERR_OK;
}

static bool is_normalized(const struct vocab *v, int32_t id)
{
    return v->strips && v->strips[id] & NORMALIZED;
}

static enum err_code bpe_normalize(const struct bpe *b, const char *text, size_t n, struct str *out,
                                   struct err *why);

/* Index the tokens that are looked for after the replacements, by what these make of their texts. */
static enum err_code bpe_index_normalized(struct bpe *b, struct err *why)
{
    const struct vocab *v = b->vocab;
    int32_t count = 0;
    for (int32_t i = 0; i < v->n; i++) count += is_normalized(v, i);
    if (!count) return ERR_OK;
    b->normal_texts = arena_alloc(&b->memory, (size_t)v->n * sizeof *b->normal_texts);
    if (!b->normal_texts) return err_set(why, ERR_NOMEM, "out of memory for special tokens");
    enum err_code rc = ERR_OK;
    for (int32_t i = 0; i < v->n && !rc; i++) {
        if (!is_normalized(v, i)) continue;
        struct str text = { 0 };
        rc = bpe_normalize(b, v->texts[i].data, v->texts[i].len, &text, why);
        char *copy = rc ? NULL : arena_strndup(&b->memory, str_text(&text), text.len);
        if (!rc && !copy) rc = err_set(why, ERR_NOMEM, "out of memory for special tokens");
        b->normal_texts[i] = (struct gguf_string){ copy, copy ? text.len : 0 };
        str_free(&text);
    }
    return rc ? rc : vocab_index_specials(&b->normalized, v, b->normal_texts, is_normalized, &b->memory, why);
}

enum err_code bpe_open(struct bpe **out, const struct gguf *g, struct vocab *v, struct err *why)
{
    struct gguf_string pre = gguf_get_string(g, "tokenizer.ggml.pre"),
                       model = gguf_get_string(g, "tokenizer.ggml.model");
    struct bpe *b = *out = calloc(1, sizeof *b);
    if (!b) return err_set(why, ERR_NOMEM, "out of memory for the tokenizer");
    b->vocab = v;
    bpe_fill_alphabet(b);
    bpe_find_byte_tokens(b);
    if (gguf_string_is(model, "gemma4")) pre = model; /* the model's name also names its pre-tokenizer */
    /* files without the key are older than it; "default" is what their converter meant */
    if (!pre.len) pre = (struct gguf_string){ "default", strlen("default") };
    enum err_code rc = gguf_string_is(pre, OWN_PRE) ? pretokenizer_open_own(&b->pre, g, why)
                                                    : pretokenizer_open(&b->pre, pre, why);
    if (!rc) rc = bpe_load_rules(b, g, why);
    if (!rc) rc = rewrites_open(&b->rewrites, g, why);
    if (!rc && gguf_string_is(model, OWN_UNIGRAM))
        rc = pretokenizer_info(b->pre)->characters
                 ? unigram_open(&b->unigram, g, v, why)
                 : err_set(why, ERR_FORMAT,
                           "tokenizer " OWN_UNIGRAM ": expected words of characters (" OWN_CHARACTERS ")");
    if (!rc) rc = bpe_index_normalized(b, why);
    if (rc) {
        bpe_close(b);
        *out = NULL;
        return rc;
    }
    const struct pre_info *info = pretokenizer_info(b->pre);
    v->add_bos = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", info->add_bos);
    /* the first gemma4 files say false by mistake; the model was never trained without BOS */
    if (info->characters && info->add_bos) v->add_bos = true;
    return ERR_OK;
}

void bpe_close(struct bpe *b)
{
    if (!b) return;
    pretokenizer_close(b->pre);
    rewrites_close(b->rewrites);
    unigram_close(b->unigram);
    arena_free(&b->memory);
    free(b->rules);
    free(b);
}

const char *bpe_pre(const struct bpe *b)
{
    return pretokenizer_info(b->pre)->name;
}

bool bpe_is_of_characters(const struct bpe *b)
{
    return pretokenizer_info(b->pre)->characters;
}

bool bpe_is_unigram(const struct bpe *b)
{
    return b->unigram != NULL;
}

/* ---------------------------------------------------------------- encoding */

static bool bpe_pair(const void *ctx, const char *text, const struct symbol *l, const struct symbol *r,
                     uint32_t *worth, int32_t *id)
{
    (void)text;
    if (l->id < 0 || r->id < 0) return false;
    const struct rule *rule = bpe_rule_slot(ctx, l->id, r->id);
    *worth = rule->rank;
    *id = rule->result;
    return rule->result >= 0;
}

/* Do all bytes of a character have a token? */
static bool has_byte_tokens(const struct vocab *v, const char *text, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (v->byte_id[(unsigned char)text[i]] < 0) return false;
    return true;
}

/* Encode the merged symbols of a word. A character without a token becomes byte tokens; where the vocabulary
 * lacks these, a run of such characters is one "unknown". */
static enum err_code bpe_push_symbols(const struct bpe *b, struct merger *m, const char *word,
                                      struct token_list *out, struct err *why)
{
    const bool characters = pretokenizer_info(b->pre)->characters;
    if (!merger_run(m, bpe_pair, b, word)) return err_set(why, ERR_NOMEM, "out of memory tokenizing");
    enum err_code rc = ERR_OK;
    bool was_unknown = false;
    for (int32_t i = 0; !rc && i >= 0; i = m->symbols[i].next) {
        const struct symbol *y = &m->symbols[i];
        int32_t id = y->id >= 0 ? y->id : b->vocab->unk;
        const bool bytes = y->id < 0 && characters && has_byte_tokens(b->vocab, word + y->at, y->len),
                   unknown = y->id < 0 && characters && !bytes, again = unknown && was_unknown;
        was_unknown = unknown;
        if (bytes)
            rc = spm_push_bytes(b->vocab, word + y->at, y->len, out, why);
        else if (id >= 0 && !again)
            rc = token_list_push(out, id, why); /* no token and no "unknown" token: the bytes are dropped */
    }
    return rc;
}

/* A word of characters. A run of line feeds that is a token is taken whole: rules cannot express it. */
static enum err_code bpe_encode_characters(const struct bpe *b, struct merger *m, const char *word, size_t n,
                                           struct token_list *out, struct err *why)
{
    const struct text_index *words = &b->vocab->words;
    int32_t whole = word[0] == '\n' ? text_index_find(words, word, n) : -1;
    if (whole >= 0) return token_list_push(out, whole, why);
    m->count = 0;
    for (size_t at = 0; at < n;) {
        uint32_t c;
        size_t len = str_utf8_next(word + at, n - at, &c);
        if (!merger_add(m, (int32_t)at, (int32_t)len, text_index_find(words, word + at, len)))
            return err_set(why, ERR_NOMEM, "out of memory tokenizing");
        at += len;
    }
    return bpe_push_symbols(b, m, word, out, why);
}

/* The token of a whole word; -1: the word is not a token. */
static int32_t bpe_whole_word(const struct bpe *b, const char *word, size_t n)
{
    char text[512];
    size_t len = 0;
    if (n > sizeof text / 2) return -1;
    for (size_t i = 0; i < n; i++) len += str_utf8_put(b->letter[(unsigned char)word[i]], text + len);
    return text_index_find(&b->vocab->words, text, len);
}

static enum err_code bpe_encode_word(const struct bpe *b, struct merger *m, const char *word, size_t n,
                                     struct token_list *out, struct err *why)
{
    const struct pre_info *info = pretokenizer_info(b->pre);
    if (b->unigram) return unigram_encode(b->unigram, word, n, out, why);
    if (info->characters) return bpe_encode_characters(b, m, word, n, out, why);
    if (info->whole_words) {
        int32_t id = bpe_whole_word(b, word, n);
        if (id >= 0) return token_list_push(out, id, why);
    }
    m->count = 0;
    for (size_t i = 0; i < n; i++)
        if (!merger_add(m, (int32_t)i, 1, b->byte_id[(unsigned char)word[i]]))
            return err_set(why, ERR_NOMEM, "out of memory tokenizing");
    return bpe_push_symbols(b, m, word, out, why);
}

static enum err_code bpe_encode_words(const struct bpe *b, struct merger *m, const char *text, size_t n,
                                      struct token_list *out, struct err *why)
{
    size_t *ends, count;
    if (n > INT32_MAX) return err_set(why, ERR_USAGE, "a text of %zu bytes is too long: at most 2 GiB", n);
    enum err_code rc = pretokenizer_split(b->pre, text, n, &ends, &count, why);
    for (size_t i = 0, from = 0; !rc && i < count; from = ends[i++])
        rc = bpe_encode_word(b, m, text + from, ends[i] - from, out, why);
    free(ends);
    return rc;
}

/* Does this part of a text get a space in front? */
static bool gets_space(const struct vocab *v, const char *text, size_t n, bool first)
{
    if (v->space == SPACE_ALWAYS) return v->add_space_prefix;
    const size_t space = sizeof SPM_SPACE - 1;
    const bool has = text[0] == ' ' || (n >= space && !memcmp(text, SPM_SPACE, space));
    return !has && (v->space == SPACE_EACH || first);
}

/* A piece without special tokens, after replacements, whose spaces are those of the text. */
static enum err_code bpe_encode_spaced(const struct bpe *b, struct merger *m, const char *text, size_t n,
                                       bool first, struct token_list *out, struct err *why)
{
    struct str s = { 0 };
    spm_escape(text, n, n > 0 && gets_space(b->vocab, text, n, first), &s);
    enum err_code rc = s.failed ? err_set(why, ERR_NOMEM, "out of memory tokenizing %zu bytes", n)
                                : bpe_encode_words(b, m, str_text(&s), s.len, out, why);
    str_free(&s);
    return rc;
}

/* Are spaces a matter of the replacements, before special tokens are looked for again? */
static bool escapes_first(const struct bpe *b)
{
    return pretokenizer_info(b->pre)->characters && b->vocab->space == SPACE_ALWAYS;
}

/* The replacements of a text, with U+2581 for spaces where these belong to them. */
static enum err_code bpe_normalize(const struct bpe *b, const char *text, size_t n, struct str *out,
                                   struct err *why)
{
    struct str escaped = { 0 };
    enum err_code rc = ERR_OK;
    if (b->rewrites)
        rc = rewrites_apply(b->rewrites, text, n, out, why);
    else
        str_append_n(out, text, n);
    if (rc || !escapes_first(b)) return rc;
    spm_escape(str_text(out), out->len, out->len > 0 && b->vocab->add_space_prefix, &escaped);
    str_free(out);
    *out = escaped;
    return out->failed ? err_set(why, ERR_NOMEM, "out of memory tokenizing %zu bytes", n) : ERR_OK;
}

static enum err_code bpe_encode_normalized(const struct bpe *b, struct merger *m, const struct bpe_part *part,
                                           struct token_list *out, struct err *why)
{
    const bool spaced = pretokenizer_info(b->pre)->characters && !escapes_first(b);
    struct fragments all = { 0 };
    enum err_code rc = fragments_split(b->vocab, &b->normalized, part->text, part->n, part->control, NULL,
                                       &all)
                           ? ERR_OK
                           : err_set(why, ERR_NOMEM, "out of memory tokenizing %zu bytes", part->n);
    for (size_t i = 0; i < all.count && !rc; i++) {
        const struct fragment *f = &all.items[i];
        const char *from = part->text + f->from;
        if (f->id >= 0)
            rc = token_list_push(out, f->id, why);
        else
            rc = spaced ? bpe_encode_spaced(b, m, from, f->to - f->from, part->first && !f->from, out, why)
                        : bpe_encode_words(b, m, from, f->to - f->from, out, why);
    }
    free(all.items);
    return rc;
}

enum err_code bpe_encode(const struct bpe *b, struct merger *m, const struct bpe_part *part,
                         struct token_list *out, struct err *why)
{
    if (!b->rewrites && !escapes_first(b)) return bpe_encode_normalized(b, m, part, out, why);
    struct str text = { 0 };
    enum err_code rc = bpe_normalize(b, part->text, part->n, &text, why);
    if (!rc)
        rc = bpe_encode_normalized(
            b, m,
            &(struct bpe_part){
                .text = str_text(&text), .n = text.len, .first = part->first, .control = part->control },
            out, why);
    str_free(&text);
    return rc;
}

void bpe_piece(const struct bpe *b, int32_t id, struct str *out)
{
    if (b->normal_texts && b->normal_texts[id].data) {
        spm_unescape(b->normal_texts[id], out);
        return;
    }
    if (pretokenizer_info(b->pre)->characters) {
        spm_piece(b->vocab, id, out);
        return;
    }
    struct gguf_string t = b->vocab->texts[id];
    bool literal = vocab_is_special(b->vocab, id) || b->vocab->types[id] == TOKEN_USER_DEFINED;
    for (size_t i = 0; i < t.len;) {
        uint32_t c;
        size_t used = str_utf8_next(t.data + i, t.len - i, &c);
        int byte = !literal && c < ALPHABET ? b->byte_of[c] : -1;
        char as_byte = (char)byte;
        str_append_n(out, byte >= 0 ? &as_byte : t.data + i, byte >= 0 ? 1 : used);
        i += used;
    }
}
