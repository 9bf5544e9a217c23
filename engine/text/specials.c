/* Finds special tokens in a text. Longer ones come first over the whole text, of equal length those with the
 * smaller id, as in llama.cpp.
 *
 * A file can contain any number of such tokens, and a text any number of them, so neither may multiply the
 * other's size: a rolling hash finds all tokens of one length in one pass over the text. Files of n bytes
 * contain tokens of at most sqrt(2n) lengths. Occurrences of one length cover at least half as many bytes as
 * there are candidates, so the list of candidates stays shorter than twice the text. */
#include "engine/text/text_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"

static const uint64_t PRIME = (UINT64_C(1) << 61) - 1;

static uint64_t product(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b % PRIME);
}

/* ---------------------------------------------------------------- the index */

/* Hash of n bytes, as of a number with these digits. */
static uint64_t hash_text(const struct specials *x, const char *text, size_t n)
{
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++) h = (product(h, x->base) + (unsigned char)text[i] + 1) % PRIME;
    return h;
}

static bool group_begins_with(const struct special_group *g, char c)
{
    return g->first[(unsigned char)c / 64] >> (unsigned char)c % 64 & 1;
}

/* The token of this text that may be used; -1: none. */
static int32_t group_find(const struct specials *x, const struct special_group *g, uint64_t hash,
                          const char *text, bool control)
{
    for (uint64_t at = hash;; at++) {
        const struct special_slot *s = &g->slots[at & g->mask];
        if (!s->taken) return -1;
        if (s->hash == hash && (control || !s->control) && !memcmp(x->texts[s->id].data, text, g->length))
            return s->id;
    }
}

/* Of equal texts the first one counts; without control tokens the first one of the others. */
static void group_add(struct specials *x, struct special_group *g, int32_t id, bool control)
{
    const char *text = x->texts[id].data;
    const uint64_t hash = hash_text(x, text, g->length);
    if (group_find(x, g, hash, text, false) >= 0 || (control && group_find(x, g, hash, text, true) >= 0))
        return;
    uint64_t at = hash;
    while (g->slots[at & g->mask].taken) at++;
    g->slots[at & g->mask] = (struct special_slot){
        .hash = hash, .id = id, .control = control, .taken = true
    };
    g->first[(unsigned char)*text / 64] |= UINT64_C(1) << (unsigned char)*text % 64;
}

static bool group_init(struct specials *x, struct special_group *g, struct arena *memory, size_t length,
                       int32_t count)
{
    uint64_t size = 4;
    while (size < (uint64_t)count * 2) size *= 2;
    *g = (struct special_group){ .length = length, .mask = size - 1, .power = 1 };
    for (size_t i = 1; i < length; i++) g->power = product(g->power, x->base);
    g->slots = arena_alloc(memory, size * sizeof *g->slots);
    return g->slots != NULL;
}

bool specials_init(struct specials *x, struct arena *memory, const struct gguf_string *texts,
                   const int32_t *ids, int32_t count, special_is_control_fn *is_control, const void *ctx)
{
    struct hash_key key;
    hash_key_make(&key);
    *x = (struct specials){ .texts = texts, .base = key.word[0] % (PRIME - 1024) + 512 };
    for (int32_t i = 0; i < count; i++) x->group_count += !i || texts[ids[i]].len != texts[ids[i - 1]].len;
    x->groups = arena_alloc(memory, (size_t)x->group_count * sizeof *x->groups);
    if (!x->groups) return false;
    struct special_group *g = x->groups;
    for (int32_t from = 0, to; from < count; from = to, g++) {
        const size_t length = texts[ids[from]].len;
        for (to = from; to < count && texts[ids[to]].len == length; to++) continue;
        if (!group_init(x, g, memory, length, to - from)) return false;
        for (int32_t i = from; i < to; i++) group_add(x, g, ids[i], is_control(ctx, ids[i]));
    }
    return true;
}

/* ---------------------------------------------------------------- occurrences */

struct hits {
    struct special_hit *items;
    size_t count, cap;
};

static bool hits_push(struct hits *h, size_t at, int32_t id)
{
    if (h->count == h->cap) {
        const size_t cap = h->cap ? h->cap * 2 : 16;
        struct special_hit *items = realloc(h->items, cap * sizeof *items);
        if (!items) return false;
        h->items = items;
        h->cap = cap;
    }
    h->items[h->count++] = (struct special_hit){ .at = at, .id = id };
    return true;
}

struct special_search {
    const struct specials *x;
    const char *text;
    size_t n;
    bool control;
    const char *untrusted; /* [n] 1: control tokens do not count here; NULL: nowhere */
    unsigned char *used;   /* [n] bytes that belong to a token already */
};

/* All tokens within these longer ones are cut out already, so an occurrence overlaps one where its ends do.
 */
static bool is_free(const struct special_search *s, size_t at, size_t length)
{
    return !s->used[at] && !s->used[at + length - 1];
}

/* Add every occurrence of a token of the group's length, by position. The hash is only moved on to positions
 * where a token may begin: by as many bytes as are between them, or anew if that is shorter. */
static bool group_search(const struct special_search *s, const struct special_group *g, struct hits *found)
{
    const uint64_t base = s->x->base;
    uint64_t hash = 0;
    size_t hashed = SIZE_MAX; /* position of `hash` */
    for (size_t at = 0; at + g->length <= s->n; at++) {
        if (!group_begins_with(g, s->text[at]) || !is_free(s, at, g->length)) continue;
        if (hashed == SIZE_MAX || at - hashed >= g->length) {
            hash = hash_text(s->x, s->text + at, g->length);
            hashed = at;
        }
        for (; hashed < at; hashed++) {
            const uint64_t out = product((unsigned char)s->text[hashed] + 1, g->power);
            hash = product((hash + PRIME - out) % PRIME, base) + (unsigned char)s->text[hashed + g->length] +
                   1;
            hash %= PRIME;
        }
        int32_t id = group_find(s->x, g, hash, s->text + at, s->control);
        if (id >= 0 && s->control && s->untrusted && memchr(s->untrusted + at, 1, g->length))
            id = group_find(s->x, g, hash, s->text + at, false);
        if (id >= 0 && !hits_push(found, at, id)) return false;
    }
    return true;
}

/* Of the tokens that begin at the first place the longest, and so on behind it. */
static bool find_leftmost(struct special_search *s, struct hits *all)
{
    const struct specials *x = s->x;
    int32_t *best = malloc((s->n + 1) * sizeof *best);
    struct hits found = { 0 };
    bool ok = best != NULL;
    for (size_t at = 0; at < s->n && ok; at++) best[at] = -1;
    for (int32_t i = 0; i < x->group_count && ok; i++) {
        found.count = 0;
        ok = group_search(s, &x->groups[i], &found);
        for (size_t k = 0; k < found.count && ok; k++)
            if (best[found.items[k].at] < 0) best[found.items[k].at] = found.items[k].id;
    }
    for (size_t at = 0; at < s->n && ok;) {
        if (best[at] >= 0) ok = hits_push(all, at, best[at]);
        at += best[at] >= 0 ? x->texts[best[at]].len : 1;
    }
    free(found.items);
    free(best);
    return ok;
}

static int by_id_and_position(const void *a, const void *b)
{
    const struct special_hit *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_position(const void *a, const void *b)
{
    const struct special_hit *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static void hits_sort(struct hits *h, int (*order)(const void *, const void *))
{
    if (h->count) qsort(h->items, h->count, sizeof *h->items, order);
}

bool specials_find(const struct specials *x, const char *text, size_t n, bool control, const char *untrusted,
                   struct special_hit **out, size_t *count)
{
    struct hits all = { 0 }, found = { 0 };
    struct special_search s = {
        .x = x, .text = text, .n = n, .control = control, .untrusted = untrusted, .used = calloc(n ? n : 1, 1)
    };
    bool ok = s.used != NULL;
    if (ok && x->leftmost) ok = find_leftmost(&s, &all);
    for (int32_t i = 0; i < x->group_count && ok && !x->leftmost; i++) {
        const struct special_group *g = &x->groups[i];
        found.count = 0;
        ok = group_search(&s, g, &found);
        hits_sort(&found, by_id_and_position);
        for (size_t k = 0; k < found.count && ok; k++) {
            const size_t at = found.items[k].at;
            if (!is_free(&s, at, g->length)) continue;
            memset(s.used + at, 1, g->length);
            ok = hits_push(&all, at, found.items[k].id);
        }
    }
    hits_sort(&all, by_position);
    free(found.items);
    free(s.used);
    if (!ok) free(all.items);
    *out = ok ? all.items : NULL;
    *count = ok ? all.count : 0;
    return ok;
}
