/* Cuts special tokens out of a text, with the flags of tokenizer.json: spaces beside them that they take, and
 * words that they must not be a part of. */
#include <stdlib.h>

#include <utf8proc.h>

#include "engine/text/text_internal.h"
#include "kernels/kernels.h"

static bool fragments_push(struct fragments *f, size_t from, size_t to, int32_t id)
{
    if (from == to) return true;
    if (f->count == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        struct fragment *items = realloc(f->items, cap * sizeof *items);
        if (!items) return false;
        f->items = items;
        f->cap = cap;
    }
    f->items[f->count++] = (struct fragment){ from, to, id };
    return true;
}

/* Bytes of the white space character at text[at..n); 0: there is none. */
static size_t space_at(const char *text, size_t at, size_t n)
{
    uint32_t c = 0;
    const size_t used = str_utf8_next(text + at, n - at, &c);
    const bool space = (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
                       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
                       c == 0x205f || c == 0x3000;
    return used && space ? used : 0;
}

/* Bytes of the white space character that ends text[from..at); 0: there is none. */
static size_t space_before(const char *text, size_t from, size_t at)
{
    for (size_t used = 1; used <= 3 && used <= at - from; used++)
        if (space_at(text, at - used, at) == used) return used;
    return 0;
}

/* A letter, digit or "_", as in \w of the tokenizers library. */
static bool is_word_char(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((int32_t)c);
    return c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) ||
           k == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d;
}

static bool is_alone(const char *text, size_t from, size_t to, size_t n)
{
    uint32_t c;
    size_t before = from;
    while (before > 0 && before > from - MIN(from, 4) && ((unsigned char)text[before - 1] & 0xc0) == 0x80)
        before--;
    if (before > 0) before--;
    if (from && str_utf8_next(text + before, from - before, &c) && is_word_char(c)) return false;
    return to == n || !str_utf8_next(text + to, n - to, &c) || !is_word_char(c);
}

bool fragments_split(const struct vocab *v, const struct specials *x, const char *text, size_t n,
                     bool control, const char *untrusted, struct fragments *out)
{
    struct special_hit *hits;
    size_t count, done = 0;
    if (!x->group_count) return fragments_push(out, 0, n, -1);
    if (!specials_find(x, text, n, control, untrusted, &hits, &count)) return false;
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        size_t at = hits[i].at, end = at + x->texts[hits[i].id].len;
        const uint8_t strips = v->strips ? v->strips[hits[i].id] : 0;
        if (strips & SINGLE_WORD && !is_alone(text, at, end, n)) continue;
        while (strips & STRIP_LEFT && space_before(text, done, at)) at -= space_before(text, done, at);
        ok = fragments_push(out, done, at, -1) && fragments_push(out, hits[i].at, end, hits[i].id);
        const size_t next = i + 1 < count ? hits[i + 1].at : n;
        while (strips & STRIP_RIGHT && space_at(text, end, next)) end += space_at(text, end, next);
        done = end;
    }
    free(hits);
    return ok && fragments_push(out, done, n, -1);
}
