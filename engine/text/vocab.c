/* Loads the vocabulary from metadata: texts, scores, types, and the ids of BOS, EOS and "unknown". */
#include "engine/text/text_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- text -> number */

bool text_index_init(struct text_index *x, struct arena *memory, const struct gguf_string *texts,
                     int64_t count)
{
    uint64_t size = 16;
    while (size < (uint64_t)count * 2) size *= 2;
    hash_key_make(&x->key);
    x->texts = texts;
    x->mask = (uint32_t)(size - 1);
    x->slots = arena_alloc(memory, size * sizeof *x->slots);
    return x->slots != NULL;
}

static int32_t *slot_of(const struct text_index *x, const char *text, size_t n)
{
    for (uint32_t at = (uint32_t)hash_keyed(&x->key, text, n);; at++) {
        int32_t *slot = &x->slots[at & x->mask];
        if (!*slot) return slot;
        struct gguf_string have = x->texts[*slot - 1];
        if (have.len == n && !memcmp(have.data, text, n)) return slot;
    }
}

void text_index_add(struct text_index *x, int32_t i)
{
    int32_t *slot = slot_of(x, x->texts[i].data, x->texts[i].len);
    if (!*slot) *slot = i + 1;
}

int32_t text_index_find(const struct text_index *x, const char *text, size_t n)
{
    return *slot_of(x, text, n) - 1;
}

/* ---------------------------------------------------------------- loading */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int byte_token_value(struct gguf_string t)
{
    if (t.len != 6 || memcmp(t.data, "<0x", 3) || t.data[5] != '>') return -1;
    int high = hex_digit(t.data[3]), low = hex_digit(t.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool vocab_is_special(const struct vocab *v, int32_t id)
{
    return v->types[id] == TOKEN_CONTROL || v->types[id] == TOKEN_UNKNOWN;
}

static enum err_code vocab_load_texts(struct vocab *v, const struct gguf *g, struct arena *memory,
                                      struct err *why)
{
    const struct gguf_kv *kv = gguf_kv_find(g, "tokenizer.ggml.tokens");
    if (!kv) return err_set(why, ERR_ABSENT, "the file has no tokenizer (tokenizer.ggml.tokens)");
    if (kv->type != GGUF_ARRAY || kv->element != GGUF_STRING || !kv->count || kv->count > INT32_MAX / 4)
        return err_set(why, ERR_FORMAT, "tokenizer.ggml.tokens: expected a list of strings");
    v->n = (int32_t)kv->count;
    v->texts = arena_alloc(memory, kv->count * sizeof *v->texts);
    v->scores = arena_alloc(memory, kv->count * sizeof *v->scores);
    v->types = arena_alloc(memory, kv->count);
    if (!v->texts || !v->scores || !v->types)
        return err_set(why, ERR_NOMEM, "out of memory for %" PRId32 " tokens", v->n);
    for (int32_t i = 0; i < v->n; i++) v->texts[i] = gguf_kv_string(kv, (uint64_t)i);
    return ERR_OK;
}

/* An optional array of numbers, one per token. *out NULL when it is absent. */
static enum err_code vocab_array(const struct gguf_kv **out, const struct gguf *g, const char *key, int32_t n,
                                 struct err *why)
{
    const struct gguf_kv *kv = *out = gguf_kv_find(g, key);
    if (!kv) return ERR_OK;
    if (kv->type != GGUF_ARRAY || kv->element == GGUF_STRING || kv->count != (uint64_t)n)
        return err_set(why, ERR_FORMAT, "%s: expected %" PRId32 " numbers, one per token; it has %" PRIu64,
                       key, n, kv->count);
    return ERR_OK;
}

static enum err_code vocab_load_scores_and_types(struct vocab *v, const struct gguf *g, struct err *why)
{
    const struct gguf_kv *scores, *types;
    enum err_code rc = vocab_array(&scores, g, "tokenizer.ggml.scores", v->n, why);
    if (!rc) rc = vocab_array(&types, g, "tokenizer.ggml.token_type", v->n, why);
    for (int32_t i = 0; !rc && i < v->n; i++) {
        double score = scores ? gguf_kv_num(scores, (uint64_t)i) : 0;
        double type = types ? gguf_kv_num(types, (uint64_t)i) : TOKEN_NORMAL;
        v->scores[i] = isnan(score) ? -INFINITY : (float)score;
        if (!(type >= 0 && type < TOKEN_TYPE_COUNT))
            rc = err_set(why, ERR_FORMAT,
                         "tokenizer.ggml.token_type: token %" PRId32 " is of type %g, expected 0 to %d", i,
                         type, TOKEN_TYPE_COUNT - 1);
        else
            v->types[i] = (uint8_t)type;
    }
    return rc;
}

/* Files express "none" by omitting the key, or by -1 in 32 bits. */
static enum err_code vocab_load_id(int32_t *out, const struct vocab *v, const struct gguf *g, const char *key,
                                   int32_t otherwise, struct err *why)
{
    int64_t id = gguf_get_int(g, key, otherwise < v->n ? otherwise : -1);
    if (id == -1 || id == UINT32_MAX) {
        *out = -1;
        return ERR_OK;
    }
    if (id < 0 || id >= v->n)
        return err_set(why, ERR_FORMAT, "%s is %" PRId64 ", the vocabulary has %" PRId32 " tokens", key, id,
                       v->n);
    *out = (int32_t)id;
    return ERR_OK;
}

static bool vocab_is_word(uint8_t type)
{
    return type != TOKEN_CONTROL && type != TOKEN_UNKNOWN && type != TOKEN_BYTE;
}

/* Are all U+2581 (spaces) of this token at its beginning? */
static bool token_spaces_lead(struct gguf_string t)
{
    const size_t n = sizeof SPM_SPACE - 1;
    size_t at = 0;
    while (t.len - at >= n && !memcmp(t.data + at, SPM_SPACE, n)) at += n;
    return !memmem(t.data + at, t.len - at, SPM_SPACE, n);
}

static enum err_code vocab_index_words(struct vocab *v, struct arena *memory, struct err *why)
{
    if (!text_index_init(&v->words, memory, v->texts, v->n))
        return err_set(why, ERR_NOMEM, "out of memory for %" PRId32 " tokens", v->n);
    v->words_begin_with_space = true;
    for (int b = 0; b < 256; b++) v->byte_id[b] = -1;
    for (int32_t i = 0; i < v->n; i++) {
        int byte = byte_token_value(v->texts[i]);
        if (byte >= 0 && v->byte_id[byte] < 0) v->byte_id[byte] = i;
        if (!vocab_is_word(v->types[i]) || !v->texts[i].len) continue;
        text_index_add(&v->words, i);
        if (!token_spaces_lead(v->texts[i])) v->words_begin_with_space = false;
    }
    for (int b = 0; b < 256;
         b++) { /* no <0x..> token: use the token whose text is the byte itself, if there is one */
        char c = (char)b;
        if (v->byte_id[b] < 0) v->byte_id[b] = text_index_find(&v->words, &c, 1);
    }
    return ERR_OK;
}

static int longer_first(const void *a, const void *b, void *texts)
{
    const struct gguf_string *t = texts;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (t[x].len != t[y].len) return t[x].len < t[y].len ? 1 : -1;
    return (x > y) - (x < y);
}

static bool special_is_control(const void *ctx, int32_t id)
{
    return vocab_is_special(ctx, id);
}

enum err_code vocab_index_specials(struct specials *out, const struct vocab *v,
                                   const struct gguf_string *texts, special_takes_fn *takes,
                                   struct arena *memory, struct err *why)
{
    int32_t count = 0, *ids = malloc((size_t)v->n * sizeof *ids);
    for (int32_t i = 0; i < v->n && ids; i++)
        if (texts[i].len && (vocab_is_special(v, i) || v->types[i] == TOKEN_USER_DEFINED) && takes(v, i))
            ids[count++] = i;
    if (count) qsort_r(ids, (size_t)count, sizeof *ids, longer_first, (void *)(uintptr_t)texts);
    const bool made = ids && specials_init(out, memory, texts, ids, count, special_is_control, v);
    free(ids);
    out->leftmost = v->leftmost;
    return made ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for special tokens");
}

/* Looked for in the raw text; in texts with messages also control tokens that are normalized, because there
 * they must not be missed, and cannot be told from what a message says after replacements. */
static bool is_raw(const struct vocab *v, int32_t id)
{
    return !v->strips || !(v->strips[id] & NORMALIZED);
}

static bool is_raw_or_control(const struct vocab *v, int32_t id)
{
    return is_raw(v, id) || vocab_is_special(v, id);
}

/* Note the special tokens of a list of ids. */
static enum err_code vocab_load_strips(struct vocab *v, const struct gguf *g, const char *key, enum strip bit,
                                       struct arena *memory, struct err *why)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv) return ERR_OK;
    if (!v->strips && !(v->strips = arena_alloc(memory, (size_t)v->n)))
        return err_set(why, ERR_NOMEM, "out of memory for %" PRId32 " tokens", v->n);
    for (uint64_t i = 0; i < kv->count; i++) {
        const double id = kv->type == GGUF_ARRAY ? gguf_kv_num(kv, i) : -1;
        if (!(id >= 0 && id < v->n))
            return err_set(why, ERR_FORMAT, "%s: expected a list of token ids below %" PRId32, key, v->n);
        v->strips[(int32_t)id] |= (uint8_t)bit;
    }
    return ERR_OK;
}

enum err_code vocab_load(struct vocab *v, const struct gguf *g, struct arena *memory, struct err *why)
{
    bool spm = gguf_string_is(gguf_get_string(g, "tokenizer.ggml.model"), "llama");
    enum err_code rc = vocab_load_texts(v, g, memory, why);
    if (!rc) rc = vocab_load_scores_and_types(v, g, why);
    if (!rc) vocab_type_ends(v);
    if (!rc) rc = vocab_index_words(v, memory, why);
    /* files that omit them mean SentencePiece's defaults */
    if (!rc) rc = vocab_load_id(&v->bos, v, g, "tokenizer.ggml.bos_token_id", spm ? 1 : -1, why);
    if (!rc) rc = vocab_load_id(&v->eos, v, g, "tokenizer.ggml.eos_token_id", spm ? 2 : -1, why);
    if (!rc) rc = vocab_load_id(&v->unk, v, g, "tokenizer.ggml.unknown_token_id", spm ? 0 : -1, why);
    if (!rc) rc = vocab_load_strips(v, g, OWN_STRIP_LEFT, STRIP_LEFT, memory, why);
    if (!rc) rc = vocab_load_strips(v, g, OWN_STRIP_RIGHT, STRIP_RIGHT, memory, why);
    if (!rc) rc = vocab_load_strips(v, g, OWN_SINGLE_WORD, SINGLE_WORD, memory, why);
    if (!rc) rc = vocab_load_strips(v, g, OWN_NORMALIZED, NORMALIZED, memory, why);
    v->leftmost = gguf_get_bool(g, OWN_LEFTMOST, false);
    if (!rc) rc = vocab_index_specials(&v->specials, v, v->texts, is_raw, memory, why);
    v->messages = v->specials; /* the same, unless a file has tokens that match normalized text only */
    if (!rc && gguf_kv_find(g, OWN_NORMALIZED))
        rc = vocab_index_specials(&v->messages, v, v->texts, is_raw_or_control, memory, why);
    if (!rc) vocab_find_ends(v, g);
    const struct gguf_string strip = gguf_get_string(g, OWN_STRIP_SPACE);
    if (strip.data) v->strip_space = gguf_string_is(strip, "token") ? STRIP_TOKEN : STRIP_ONE;
    if (!rc && v->strip_space == STRIP_ONE && !gguf_string_is(strip, "one"))
        rc = err_set(why, ERR_FORMAT, OWN_STRIP_SPACE ": expected one or token, file has '%.*s'",
                     (int)MIN(strip.len, 40), strip.data);
    v->add_bos = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", spm);
    v->add_eos = gguf_get_bool(g, "tokenizer.ggml.add_eos_token", false);
    v->add_space_prefix = gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", spm);
    const struct gguf_string space = gguf_get_string(g, OWN_SPACE);
    if (space.data) v->space = gguf_string_is(space, "first") ? SPACE_FIRST : SPACE_EACH;
    if (!rc && v->space == SPACE_EACH && !gguf_string_is(space, "each"))
        rc = err_set(why, ERR_FORMAT, OWN_SPACE ": expected each or first, file has '%.*s'",
                     (int)MIN(space.len, 40), space.data);
    return rc;
}
