/* Learns a vocabulary from the distinct words of a text and their counts. There are thousands of words, not
 * millions, so all pairs are simply counted again for each merge. */
#include "engine/train/vocabulary.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char SPACE[] = "\xe2\x96\x81"; /* U+2581 */
enum { SPACE_LEN = sizeof SPACE - 1, NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };

/* A word of the text and its current symbols. The text is as in the source, so a leading space is one
 * character. */
struct word {
    const char *text; /* points into the source text */
    int len, symbols;
    int64_t times;
    int *ends; /* [symbols]: end of each symbol in text */
};

struct words {
    struct word *items;
    int64_t count, cap;
};

/* ---------------------------------------------------------------- collecting words */

static int word_compare(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    int order = memcmp(x->text, y->text, (size_t)MIN(x->len, y->len));
    return order ? order : x->len - y->len;
}

/* Append a word. False: out of memory. */
static bool words_add(struct words *w, const char *text, size_t len)
{
    if (w->count == w->cap) {
        int64_t cap = w->cap ? 2 * w->cap : 4096;
        struct word *items = realloc(w->items, (size_t)cap * sizeof *items);
        if (!items) return false;
        w->items = items;
        w->cap = cap;
    }
    w->items[w->count++] = (struct word){ .text = text, .len = (int)len, .times = 1 };
    return true;
}

/* Sort, and merge equal words by adding their counts. Called whenever the list is full, which keeps it short.
 */
static void words_deduplicate(struct words *w)
{
    int64_t kept = 0;
    qsort(w->items, (size_t)w->count, sizeof *w->items, word_compare);
    for (int64_t i = 0; i < w->count; i++)
        if (kept && !word_compare(&w->items[kept - 1], &w->items[i]))
            w->items[kept - 1].times += w->items[i].times;
        else
            w->items[kept++] = w->items[i];
    w->count = kept;
}

/* Collect runs of letters with the space before them; very long ones are cut. */
static bool words_collect(struct words *w, const char *text, size_t n)
{
    enum { LONGEST = 64 };
    int64_t full = 1 << 16;
    for (size_t i = 0; i < n;) {
        size_t from = i;
        if (text[i] == ' ') i++;
        while (i < n && i - from < LONGEST && isalpha((unsigned char)text[i]) &&
               !((unsigned char)text[i] & 0x80))
            i++;
        if (i - from >= 2 && !words_add(w, text + from, i - from)) return false;
        if (i == from) i++;
        if (w->count < full) continue;
        words_deduplicate(w);
        full = MAX(full, 2 * w->count);
    }
    words_deduplicate(w);
    return true;
}

/* Start with one symbol for each character. */
static bool words_cut(struct words *w, struct arena *memory)
{
    for (int64_t i = 0; i < w->count; i++) {
        struct word *x = &w->items[i];
        x->ends = arena_alloc(memory, (size_t)x->len * sizeof *x->ends);
        if (!x->ends) return false;
        for (x->symbols = 0; x->symbols < x->len; x->symbols++) x->ends[x->symbols] = x->symbols + 1;
    }
    return true;
}

/* ---------------------------------------------------------------- pairs */

/* Two neighbouring symbols, identified by their joined text: the tokenizer does not distinguish how a text
 * was split either. */
struct pair {
    const char *text;
    int len;
    int64_t times;
};

struct pairs {
    struct hash_key key; /* the text comes from a file */
    struct pair *slots;
    uint64_t mask;
    int64_t count;
};

/* The slot of a pair in the hash table, or an empty one. */
static struct pair *pair_slot(const struct pairs *p, const char *text, int len)
{
    for (uint64_t at = hash_keyed(&p->key, text, (size_t)len);; at++) {
        struct pair *s = &p->slots[at & p->mask];
        if (!s->text || (s->len == len && !memcmp(s->text, text, (size_t)len))) return s;
    }
}

static bool pair_is_better(const struct pair *a, const struct pair *b)
{
    if (!b->text || a->times != b->times) return !b->text || a->times > b->times;
    int order = memcmp(a->text, b->text, (size_t)MIN(a->len, b->len));
    return order ? order < 0 : a->len < b->len;
}

/* The most frequent pair; its text is NULL when no pair occurs twice. */
static struct pair pairs_find_best(const struct words *w, struct pairs *p)
{
    struct pair best = { 0 };
    memset(p->slots, 0, (size_t)(p->mask + 1) * sizeof *p->slots);
    for (int64_t i = 0; i < w->count; i++) {
        const struct word *x = &w->items[i];
        for (int s = 0; s + 1 < x->symbols; s++) {
            const int from = s ? x->ends[s - 1] : 0, len = x->ends[s + 1] - from;
            struct pair *slot = pair_slot(p, x->text + from, len);
            if (!slot->text) *slot = (struct pair){ x->text + from, len, 0 };
            slot->times += x->times;
        }
    }
    for (uint64_t i = 0; i <= p->mask; i++)
        if (p->slots[i].text && p->slots[i].times > 1 && pair_is_better(&p->slots[i], &best))
            best = p->slots[i];
    return best;
}

/* Join all occurrences of a pair. */
static void words_merge(struct words *w, struct pair pair)
{
    for (int64_t i = 0; i < w->count; i++) {
        struct word *x = &w->items[i];
        int kept = 0, from = 0;
        for (int s = 0; s < x->symbols; s++) {
            const bool joins = s + 1 < x->symbols && x->ends[s + 1] - from == pair.len &&
                               !memcmp(x->text + from, pair.text, (size_t)pair.len);
            if (joins) s++;
            from = x->ends[kept++] = x->ends[s];
        }
        x->symbols = kept;
    }
}

/* ---------------------------------------------------------------- the vocabulary */

/* Append a token. False: out of memory. */
static bool vocabulary_add(struct vocabulary *v, const char *text, size_t n, int32_t type, float score)
{
    char escaped[128];
    size_t at = 0;
    if (n && text[0] == ' ') {
        memcpy(escaped, SPACE, SPACE_LEN);
        at = SPACE_LEN;
        text++, n--;
    }
    memcpy(escaped + at, text, n);
    const char *copy = arena_strndup(&v->memory, escaped, at + n);
    if (!copy) return false;
    v->texts[v->n] = (struct gguf_string){ copy, at + n };
    v->types[v->n] = type;
    v->scores[v->n++] = score;
    return true;
}

/* Add the special tokens and one token for each byte. */
static bool vocabulary_add_special(struct vocabulary *v)
{
    char text[8];
    bool ok = vocabulary_add(v, "<unk>", 5, UNKNOWN, 0) && vocabulary_add(v, "<s>", 3, CONTROL, 0) &&
              vocabulary_add(v, "</s>", 4, CONTROL, 0);
    for (int b = 0; ok && b < 256; b++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        ok = vocabulary_add(v, text, 6, BYTE, 0);
    }
    return ok;
}

/* Single characters come last with the lowest scores: the tokenizer never prefers them over merges. */
static bool vocabulary_add_characters(struct vocabulary *v)
{
    bool ok = true;
    for (char c = ' '; ok && c <= '~'; c++) ok = vocabulary_add(v, &c, 1, NORMAL, -(float)v->n);
    return ok;
}

/* Merge the most frequent pairs until the vocabulary is full. */
static enum err_code vocabulary_merge_pairs(struct vocabulary *v, struct words *w, struct pairs *p,
                                            int64_t tokens, struct err *why)
{
    const int64_t wanted = tokens - VOCABULARY_LEAST;
    for (; v->merged < wanted; v->merged++) {
        const struct pair best = pairs_find_best(w, p);
        if (!best.text)
            return err_set(why, ERR_USAGE,
                           "a vocabulary of %" PRId64
                           " is too large for this text, which supports at most %" PRId64,
                           tokens, v->merged + VOCABULARY_LEAST);
        if (!vocabulary_add(v, best.text, (size_t)best.len, NORMAL, -(float)v->merged))
            return err_set(why, ERR_NOMEM, "out of memory for a vocabulary");
        words_merge(w, best);
    }
    return ERR_OK;
}

/* Allocate the hash table and the vocabulary. */
static bool vocabulary_reserve(struct vocabulary *v, struct words *w, struct pairs *p, int64_t tokens)
{
    int64_t symbols = 0;
    uint64_t size = 1024;
    for (int64_t i = 0; i < w->count; i++) symbols += w->items[i].len;
    while (size < 2 * (uint64_t)symbols) size *= 2;
    p->mask = size - 1;
    p->slots = calloc(size, sizeof *p->slots);
    v->texts = arena_alloc(&v->memory, (size_t)tokens * sizeof *v->texts);
    v->scores = arena_alloc(&v->memory, (size_t)tokens * sizeof *v->scores);
    v->types = arena_alloc(&v->memory, (size_t)tokens * sizeof *v->types);
    return p->slots && v->texts && v->scores && v->types && words_cut(w, &v->memory);
}

enum err_code vocabulary_train(struct vocabulary *out, const char *text, size_t n, int64_t tokens,
                               struct err *why)
{
    struct words w = { 0 };
    struct pairs p = { 0 };
    hash_key_make(&p.key);
    *out = (struct vocabulary){ 0 };
    if (tokens < VOCABULARY_LEAST || tokens > 1 << 20)
        return err_set(why, ERR_USAGE, "a vocabulary of %" PRId64 " tokens: expected %d to %d", tokens,
                       VOCABULARY_LEAST, 1 << 20);
    enum err_code rc = ERR_OK;
    if (!words_collect(&w, text, n) || !vocabulary_reserve(out, &w, &p, tokens) ||
        !vocabulary_add_special(out))
        rc = err_set(why, ERR_NOMEM, "out of memory for a vocabulary");
    if (!rc) rc = vocabulary_merge_pairs(out, &w, &p, tokens, why);
    if (!rc && !vocabulary_add_characters(out))
        rc = err_set(why, ERR_NOMEM, "out of memory for a vocabulary");
    free(p.slots);
    free(w.items);
    return rc;
}

void vocabulary_free(struct vocabulary *v)
{
    arena_free(&v->memory);
    *v = (struct vocabulary){ 0 };
}

void vocabulary_put(const struct vocabulary *v, struct gguf_writer *w)
{
    const uint64_t n = (uint64_t)v->n;
    gguf_writer_put_string(w, "tokenizer.ggml.model", "llama");
    gguf_writer_put_string(w, "tokenizer.ggml.pre", "default");
    gguf_writer_put_strings(w, "tokenizer.ggml.tokens", v->texts, n);
    gguf_writer_put_array(w, "tokenizer.ggml.scores", GGUF_F32, v->scores, n);
    gguf_writer_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->types, n);
    gguf_writer_put_u32(w, "tokenizer.ggml.bos_token_id", VOCABULARY_BOS);
    gguf_writer_put_u32(w, "tokenizer.ggml.eos_token_id", VOCABULARY_EOS);
    gguf_writer_put_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_put_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_put_bool(w, "tokenizer.ggml.add_eos_token", false);
    gguf_writer_put_bool(w, "tokenizer.ggml.add_space_prefix", true);
}
