/* Filters and methods of strings. Source: Python's str methods and jinja2/filters.py. Positions count
 * characters (code points of UTF-8), as in Python. Each result keeps the marks of the bytes that it was made
 * of. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "engine/template/template_internal.h"

const struct text *tpl_text_of(struct rendering *r, struct value x)
{
    if (r->rc) return NULL;
    if (x.type == VALUE_STRING) return x.s;
    const size_t from = r->out.len;
    tpl_emit_value(r, x);
    x = tpl_take(r, from);
    return r->rc ? NULL : x.s;
}

/* ---------------------------------------------------------------- upper and lower case */

size_t tpl_next_char(const struct text *s, size_t at, uint32_t *c)
{
    return str_utf8_next(s->bytes + at, s->n - at, c);
}

static void emit_chars(struct rendering *r, const uint32_t *chars, char mark)
{
    char out[4], marks[4];
    memset(marks, mark, sizeof marks);
    for (; *chars; chars++) tpl_emit(r, out, marks, str_utf8_put(*chars, out));
}

/* Characters whose upper case is several: the ones of Unicode's SpecialCasing that occur in texts. */
static const struct {
    uint32_t c, upper[4], title[4];
} SPECIAL_CASES[] = {
    { 0xdf, { 'S', 'S' }, { 'S', 's' } },
    { 0x149, { 0x2bc, 'N' }, { 0x2bc, 'N' } },
    { 0x1f0, { 'J', 0x30c }, { 'J', 0x30c } },
    { 0x390, { 0x399, 0x308, 0x301 }, { 0x399, 0x308, 0x301 } },
    { 0x3b0, { 0x3a5, 0x308, 0x301 }, { 0x3a5, 0x308, 0x301 } },
    { 0x587, { 0x535, 0x552 }, { 0x535, 0x582 } },
    { 0x1e96, { 'H', 0x331 }, { 'H', 0x331 } },
    { 0x1e97, { 'T', 0x308 }, { 'T', 0x308 } },
    { 0x1e98, { 'W', 0x30a }, { 'W', 0x30a } },
    { 0x1e99, { 'Y', 0x30a }, { 'Y', 0x30a } },
    { 0x1e9a, { 'A', 0x2be }, { 'A', 0x2be } },
    { 0xfb00, { 'F', 'F' }, { 'F', 'f' } },
    { 0xfb01, { 'F', 'I' }, { 'F', 'i' } },
    { 0xfb02, { 'F', 'L' }, { 'F', 'l' } },
    { 0xfb03, { 'F', 'F', 'I' }, { 'F', 'f', 'i' } },
    { 0xfb04, { 'F', 'F', 'L' }, { 'F', 'f', 'l' } },
    { 0xfb05, { 'S', 'T' }, { 'S', 't' } },
    { 0xfb06, { 'S', 'T' }, { 'S', 't' } },
};

static bool has_case(uint32_t c)
{
    return utf8proc_isupper((int32_t)c) || utf8proc_islower((int32_t)c) ||
           utf8proc_category((int32_t)c) == UTF8PROC_CATEGORY_LT;
}

/* A sigma is final behind a letter and before none; characters such as the apostrophe do not count. */
static bool is_final_sigma(const struct text *s, size_t at, size_t used)
{
    bool before = false, after = false;
    uint32_t c;
    for (size_t i = 0, n; i < at; i += n) {
        n = tpl_next_char(s, i, &c);
        const int kind = utf8proc_category((int32_t)c);
        if (kind != UTF8PROC_CATEGORY_MN && c != '\'' && c != 0x2019 && c != 0xad) before = has_case(c);
    }
    for (size_t i = at + used, n; before && i < s->n; i += n) {
        n = tpl_next_char(s, i, &c);
        const int kind = utf8proc_category((int32_t)c);
        if (kind == UTF8PROC_CATEGORY_MN || c == '\'' || c == 0x2019 || c == 0xad) continue;
        after = has_case(c);
        break;
    }
    return before && !after;
}

enum letter_case { LETTER_LOWER, LETTER_UPPER, LETTER_TITLE };

static void emit_recased(struct rendering *r, const struct text *s, size_t at, size_t used,
                         enum letter_case to)
{
    uint32_t c, out[3] = { 0 };
    const char mark = s->marks ? s->marks[at] : 0;
    tpl_next_char(s, at, &c);
    if (c == 0xfffd || !c) { /* the replacement character, or a byte that is not valid UTF-8 */
        tpl_emit(r, s->bytes + at, s->marks ? s->marks + at : NULL, used);
        return;
    }
    for (size_t i = 0; to != LETTER_LOWER && i < COUNT_OF(SPECIAL_CASES); i++)
        if (SPECIAL_CASES[i].c == c) {
            emit_chars(r, to == LETTER_UPPER ? SPECIAL_CASES[i].upper : SPECIAL_CASES[i].title, mark);
            return;
        }
    out[0] = (uint32_t)(to == LETTER_UPPER   ? utf8proc_toupper((int32_t)c)
                        : to == LETTER_TITLE ? utf8proc_totitle((int32_t)c)
                                             : utf8proc_tolower((int32_t)c));
    if (to == LETTER_LOWER && c == 0x3a3 && tpl_steps(r, s->n / 4) && is_final_sigma(s, at, used))
        out[0] = 0x3c2;
    if (to == LETTER_LOWER && c == 0x130) out[0] = 'i', out[1] = 0x307;
    emit_chars(r, out, mark);
}

/* True if there is a letter with case and no letter has the other case: str.isupper, str.islower. */
bool tpl_has_case(const struct text *s, bool upper)
{
    bool any = false;
    uint32_t c;
    for (size_t at = 0; at < s->n;) {
        at += tpl_next_char(s, at, &c);
        if (!has_case(c)) continue;
        if (upper ? !utf8proc_isupper((int32_t)c) : !utf8proc_islower((int32_t)c)) return false;
        any = true;
    }
    return any;
}

/* The lower case of the upper case of characters that become several, and of the final sigma. */
static struct value fn_casefold(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = x.s;
    const size_t from = r->out.len;
    uint32_t c;
    (void)a;
    for (size_t at = 0, used; at < s->n && !r->rc; at += used) {
        used = tpl_next_char(s, at, &c);
        uint32_t out[4] = { (uint32_t)utf8proc_tolower((int32_t)c) };
        for (size_t i = 0; i < COUNT_OF(SPECIAL_CASES); i++)
            for (int k = 0; k < 4 && SPECIAL_CASES[i].c == c; k++)
                out[k] = (uint32_t)utf8proc_tolower((int32_t)SPECIAL_CASES[i].upper[k]);
        if (c == 0x3c2) out[0] = 0x3c3;
        if (c == 0x130) out[0] = 'i', out[1] = 0x307;
        if (c == 0xfffd || !c)
            tpl_emit(r, s->bytes + at, s->marks ? s->marks + at : NULL, used);
        else
            emit_chars(r, out, s->marks ? s->marks[at] : 0);
    }
    return tpl_take(r, from);
}

enum casing { UPPER, LOWER, CAPITALIZE, TITLE_METHOD, TITLE_FILTER, SWAP };

/* The title filter starts a word after white space, a hyphen or a bracket; the title method after each
 * character that is no letter. The others follow Python's methods of the same name. */
static struct value text_recase(struct rendering *r, struct value x, enum casing how)
{
    const struct text *s = tpl_text_of(r, x);
    const size_t from = r->out.len;
    bool starts = true;
    uint32_t c;
    for (size_t at = 0, used; s && at < s->n && !r->rc; at += used) {
        used = tpl_next_char(s, at, &c);
        const bool first = starts;
        if (how == CAPITALIZE) starts = false;
        if (how == TITLE_METHOD) starts = !has_case(c);
        if (how == TITLE_FILTER) starts = tpl_is_space(c) || (c < 0x80 && strchr("-({[<", (int)c));
        const bool upper = how == SWAP ? utf8proc_islower((int32_t)c)
                                       : how == UPPER || (how != LOWER && first);
        const bool title = upper && (how == CAPITALIZE || how == TITLE_METHOD);
        const bool stays = how == SWAP && !has_case(c);
        emit_recased(r, s, at, used, title ? LETTER_TITLE : upper || stays ? LETTER_UPPER : LETTER_LOWER);
    }
    return tpl_take(r, from);
}

static struct value fn_upper(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return text_recase(r, x, UPPER);
}

static struct value fn_lower(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return text_recase(r, x, LOWER);
}

static struct value fn_capitalize(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return text_recase(r, x, CAPITALIZE);
}

static struct value fn_swapcase(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return text_recase(r, x, SWAP);
}

static struct value fn_title_method(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return text_recase(r, x, TITLE_METHOD);
}

static struct value fn_title_filter(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return text_recase(r, x, TITLE_FILTER);
}

/* ---------------------------------------------------------------- strip */

static bool is_stripped(const struct text *chars, const char *p, size_t n, uint32_t c)
{
    return chars ? chars->n && memmem(chars->bytes, chars->n, p, n) != NULL : tpl_is_space(c);
}

enum { LEFT = 1, RIGHT = 2 };

static struct value text_strip(struct rendering *r, struct value x, struct args *a, int sides)
{
    const struct text *s = tpl_text_of(r, x), *chars = tpl_arg_text(r, a, 0, "chars");
    uint32_t c;
    if (!s || !tpl_steps(r, s->n / 16)) return TPL_UNDEFINED;
    size_t from = 0, to = s->n;
    while ((sides & LEFT) && from < to) {
        const size_t used = tpl_next_char(s, from, &c);
        if (!is_stripped(chars, s->bytes + from, used, c)) break;
        from += used;
    }
    while ((sides & RIGHT) && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s->bytes[at] & 0xc0) == 0x80) at--;
        const size_t used = str_utf8_next(s->bytes + at, to - at, &c);
        if (used != to - at || !is_stripped(chars, s->bytes + at, used, c)) break;
        to = at;
    }
    return tpl_part(r, s, from, to);
}

static struct value fn_strip(struct rendering *r, struct value x, struct args *a)
{
    return text_strip(r, x, a, LEFT | RIGHT);
}

static struct value fn_lstrip(struct rendering *r, struct value x, struct args *a)
{
    return text_strip(r, x, a, LEFT);
}

static struct value fn_rstrip(struct rendering *r, struct value x, struct args *a)
{
    return text_strip(r, x, a, RIGHT);
}

/* ---------------------------------------------------------------- split, join, replace */

/* Split at white space, at most `most` times (-1: everywhere). */
static struct value text_split_words(struct rendering *r, const struct text *s, int64_t most)
{
    struct value out = tpl_list(r, false);
    uint32_t c;
    for (size_t at = 0, used; at < s->n && !r->rc;) {
        used = tpl_next_char(s, at, &c);
        if (tpl_is_space(c)) {
            at += used;
            continue;
        }
        size_t to = at;
        while (to < s->n && (used = tpl_next_char(s, to, &c), !tpl_is_space(c))) to += used;
        if (most >= 0 && (int64_t)out.list->n == most) {
            tpl_list_add(r, out.list, tpl_part(r, s, at, s->n));
            break;
        }
        tpl_list_add(r, out.list, tpl_part(r, s, at, to));
        at = to;
    }
    return out;
}

/* The same from the right: the rest is at the beginning. */
static struct value text_split_words_right(struct rendering *r, const struct text *s, int64_t most)
{
    struct value all = text_split_words(r, s, -1), out = tpl_list(r, false);
    if (r->rc || (int64_t)all.list->n <= most) return all;
    const size_t skip = all.list->n - (size_t)most;
    const struct text *last = all.list->items[skip - 1].s;
    const size_t end = (size_t)(last->bytes + last->n - s->bytes);
    struct value rest = tpl_part(r, s, 0, end);
    tpl_list_add(r, out.list, rest);
    for (size_t i = skip; i < all.list->n && !r->rc; i++) tpl_list_add(r, out.list, all.list->items[i]);
    return out;
}

/* Split at a separator. With maxsplit, rsplit leaves the rest at the beginning, split at the end. So all
 * separators are counted first. */
static struct value text_split(struct rendering *r, struct value x, struct args *a, bool from_right)
{
    const struct text *s = x.s, *by = tpl_arg_text(r, a, 0, "sep");
    const int64_t most = tpl_arg_int(r, a, 1, "maxsplit", -1);
    if (r->rc || !tpl_steps(r, s->n / 16)) return TPL_UNDEFINED;
    if (!by)
        return from_right && most >= 0 ? text_split_words_right(r, s, most) : text_split_words(r, s, most);
    if (!by->n) return tpl_fail(r, "split: expected a separator that is not empty");
    size_t count = 0, skip = 0, from = 0;
    for (size_t at = 0; at < s->n; count++) {
        const char *p = memmem(s->bytes + at, s->n - at, by->bytes, by->n);
        if (!p) break;
        at = (size_t)(p - s->bytes) + by->n;
    }
    if (most >= 0 && count > (size_t)most) skip = count - (size_t)most;
    struct value out = tpl_list(r, false);
    const size_t first = from_right ? skip : 0, last = from_right ? count : count - skip;
    for (size_t i = 0, at = 0; i < last && !r->rc; i++) {
        const char *p = memmem(s->bytes + at, s->n - at, by->bytes, by->n);
        const size_t to = (size_t)(p - s->bytes);
        at = to + by->n;
        if (i < first) continue;
        tpl_list_add(r, out.list, tpl_part(r, s, from, to));
        from = at;
    }
    tpl_list_add(r, out.list, tpl_part(r, s, from, s->n));
    return out;
}

static struct value fn_split(struct rendering *r, struct value x, struct args *a)
{
    return text_split(r, x, a, false);
}

static struct value fn_rsplit(struct rendering *r, struct value x, struct args *a)
{
    return text_split(r, x, a, true);
}

/* Where the line that begins at `at` ends, and where the next one begins, with the line ends of Python. */
size_t tpl_line_end(const struct text *s, size_t at, size_t *next)
{
    for (size_t used; at < s->n; at += used) {
        uint32_t c;
        used = tpl_next_char(s, at, &c);
        const bool ends = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
                          c == 0x2029;
        if (!ends) continue;
        *next = at + used;
        if (c == '\r' && *next < s->n && s->bytes[*next] == '\n') ++*next;
        return at;
    }
    return *next = s->n;
}

static struct value fn_splitlines(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = x.s;
    struct value keep = tpl_arg(r, a, 0, "keepends", tpl_bool(false)), out = tpl_list(r, false);
    for (size_t at = 0, next; at < s->n && !r->rc; at = next) {
        const size_t to = tpl_line_end(s, at, &next);
        tpl_list_add(r, out.list, tpl_part(r, s, at, tpl_truth(r, keep) ? next : to));
    }
    return out;
}

static struct value fn_join(struct rendering *r, struct value x, struct args *a)
{
    const struct list *l = tpl_iterate(r, tpl_arg_required(r, a, 0, "iterable"));
    const size_t from = r->out.len;
    for (size_t i = 0; l && i < l->n && !r->rc; i++) {
        if (i) tpl_emit_text(r, x.s);
        if (l->items[i].type != VALUE_STRING)
            return tpl_fail(r, "join: expected strings, found a %s", tpl_type_name(l->items[i]));
        tpl_emit_text(r, l->items[i].s);
    }
    return tpl_take(r, from);
}

static struct value fn_replace(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = tpl_text_of(r, x), *old = tpl_arg_text(r, a, 0, "old"),
                      *with = tpl_arg_text(r, a, 1, "new");
    int64_t most = tpl_arg_int(r, a, 2, "count", -1);
    if (!r->rc && (!old || !with)) return tpl_fail(r, "replace: expected the old and the new text");
    if (r->rc || !tpl_steps(r, s->n / 16)) return TPL_UNDEFINED;
    const size_t from = r->out.len;
    for (size_t at = 0; !r->rc;) {
        const bool between = !old->n && at <= s->n;
        const char *p = !most     ? NULL
                        : between ? s->bytes + at
                                  : memmem(s->bytes + at, s->n - at, old->bytes, old->n);
        const size_t to = p ? (size_t)(p - s->bytes) : s->n;
        tpl_emit(r, s->bytes + at, s->marks ? s->marks + at : NULL, to - at);
        if (!p) break;
        most -= most > 0;
        tpl_emit_text(r, with);
        at = to + old->n;
        if (between) { /* an empty `old` matches before each character */
            uint32_t c;
            const size_t used = at < s->n ? tpl_next_char(s, at, &c) : 0;
            if (!used) break;
            tpl_emit(r, s->bytes + at, s->marks ? s->marks + at : NULL, used);
            at += used;
        }
    }
    return tpl_take(r, from);
}

static struct value fn_encode(struct rendering *r, struct value x, struct args *a)
{
    (void)x;
    a->used = a->n;
    return tpl_fail(r, "the method encode of strings is not supported");
}

const struct function TPL_STRING_METHODS[] = {
    { "encode", fn_encode },
    { "strip", fn_strip },
    { "lstrip", fn_lstrip },
    { "rstrip", fn_rstrip },
    { "split", fn_split },
    { "rsplit", fn_rsplit },
    { "splitlines", fn_splitlines },
    { "join", fn_join },
    { "replace", fn_replace },
    { "upper", fn_upper },
    { "lower", fn_lower },
    { "title", fn_title_method },
    { "capitalize", fn_capitalize },
    { "swapcase", fn_swapcase },
    { "casefold", fn_casefold },
    { "format", tpl_format_method },
    { "format_map", tpl_format_map_method },
    { NULL, NULL },
};

const struct function TPL_STRING_FILTERS[] = {
    { "upper", fn_upper },
    { "lower", fn_lower },
    { "capitalize", fn_capitalize },
    { "title", fn_title_filter },
    { "trim", fn_strip },
    { "replace", fn_replace },
    { NULL, NULL },
};
