/* Filters and methods of strings. Source: Python's str methods and jinja2/filters.py. Positions count
 * characters (code points of UTF-8), as in Python. Each result keeps the marks of the bytes that it was made
 * of. */
#include <stdlib.h>
#include <string.h>

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

/* Ranges of capital letters; the small letter is c + delta. With delta 1, capital and small letters
 * alternate, capital first. Source: the simple case mappings of Unicode for Latin, Greek, Cyrillic and
 * Armenian. */
static const struct {
    uint32_t from, to;
    int delta;
} CASES[] = { { .from = 'A', .to = 'Z', .delta = 32 },      { .from = 0xc0, .to = 0xd6, .delta = 32 },
              { .from = 0xd8, .to = 0xde, .delta = 32 },    { .from = 0x100, .to = 0x12f, .delta = 1 },
              { .from = 0x132, .to = 0x137, .delta = 1 },   { .from = 0x139, .to = 0x148, .delta = 1 },
              { .from = 0x14a, .to = 0x177, .delta = 1 },   { .from = 0x178, .to = 0x178, .delta = -121 },
              { .from = 0x179, .to = 0x17e, .delta = 1 },   { .from = 0x386, .to = 0x386, .delta = 38 },
              { .from = 0x388, .to = 0x38a, .delta = 37 },  { .from = 0x38c, .to = 0x38c, .delta = 64 },
              { .from = 0x38e, .to = 0x38f, .delta = 63 },  { .from = 0x391, .to = 0x3ab, .delta = 32 },
              { .from = 0x400, .to = 0x40f, .delta = 80 },  { .from = 0x410, .to = 0x42f, .delta = 32 },
              { .from = 0x460, .to = 0x481, .delta = 1 },   { .from = 0x48a, .to = 0x4bf, .delta = 1 },
              { .from = 0x4d0, .to = 0x52f, .delta = 1 },   { .from = 0x531, .to = 0x556, .delta = 48 },
              { .from = 0x1e00, .to = 0x1e95, .delta = 1 }, { .from = 0x1ea0, .to = 0x1eff, .delta = 1 },
              { .from = 0xff21, .to = 0xff3a, .delta = 32 } };

/* The upper or lower case form of c; c itself if it has none or its alphabet is not in CASES. */
static uint32_t letter_recase(uint32_t c, bool upper)
{
    if (c == 0x3c2 && upper) return 0x3a3; /* Greek final sigma */
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const uint32_t from = CASES[i].from, to = CASES[i].to;
        const int delta = CASES[i].delta;
        if (delta == 1) {
            if (c < from || c > to) continue;
            const bool is_upper = (c - from) % 2 == 0;
            return is_upper == upper ? c : upper ? c - 1 : c + 1;
        }
        if (!upper && c >= from && c <= to) return (uint32_t)((int)c + delta);
        if (upper && (int)c - delta >= (int)from && (int)c - delta <= (int)to && c != 0x3c2)
            return (uint32_t)((int)c - delta);
    }
    return c;
}

static void emit_recased(struct rendering *r, const struct text *s, size_t at, size_t used, bool upper)
{
    uint32_t c;
    char out[4], marks[4];
    str_utf8_next(s->bytes + at, used, &c);
    if (c == 0xfffd) { /* the replacement character, or a byte that is not valid UTF-8 */
        tpl_emit(r, s->bytes + at, s->marks ? s->marks + at : NULL, used);
        return;
    }
    memset(marks, s->marks ? s->marks[at] : 0, sizeof marks);
    if (c == 0xdf && upper) { /* sharp s */
        tpl_emit(r, "SS", marks, 2);
        return;
    }
    tpl_emit(r, out, marks, str_utf8_put(letter_recase(c, upper), out));
}

static size_t text_next(const struct text *s, size_t at, uint32_t *c)
{
    return str_utf8_next(s->bytes + at, s->n - at, c);
}

/* Approximates Unicode's letters by ranges: beyond ASCII, everything but spaces, punctuation, and the signs
 * of multiplication and division. */
static bool is_letter(uint32_t c)
{
    return (c | 32) - 'a' < 26u || (c >= 0xaa && !tpl_is_space(c) && c != 0xd7 && c != 0xf7 &&
                                    !(c >= 0x2010 && c <= 0x206f) && !(c >= 0x3000 && c <= 0x3004));
}

/* True if there is a letter with case and no letter has the other case: str.isupper, str.islower. */
bool tpl_has_case(const struct text *s, bool upper)
{
    bool any = false;
    uint32_t c;
    for (size_t at = 0; at < s->n; at += text_next(s, at, &c)) {
        text_next(s, at, &c);
        if (letter_recase(c, !upper) == c && letter_recase(c, upper) == c)
            continue; /* c is not a letter, or has no case */
        if (letter_recase(c, upper) != c) return false;
        any = true;
    }
    return any;
}

enum casing { UPPER, LOWER, CAPITALIZE, TITLE_METHOD, TITLE_FILTER };

/* The title filter starts a word after white space, a hyphen or a bracket; the title method after each
 * character that is no letter. The others follow Python's methods of the same name. */
static struct value text_recase(struct rendering *r, struct value x, enum casing how)
{
    const struct text *s = tpl_text_of(r, x);
    const size_t from = r->out.len;
    bool starts = true;
    uint32_t c;
    for (size_t at = 0, used; s && at < s->n && !r->rc; at += used) {
        used = text_next(s, at, &c);
        const bool first = starts;
        if (how == CAPITALIZE) starts = false;
        if (how == TITLE_METHOD) starts = !is_letter(c);
        if (how == TITLE_FILTER) starts = tpl_is_space(c) || (c < 0x80 && strchr("-({[<", (int)c));
        emit_recased(r, s, at, used, how == UPPER || (how > LOWER && first));
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
        const size_t used = text_next(s, from, &c);
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
        used = text_next(s, at, &c);
        if (tpl_is_space(c)) {
            at += used;
            continue;
        }
        size_t to = at;
        while (to < s->n && (used = text_next(s, to, &c), !tpl_is_space(c))) to += used;
        if (most >= 0 && (int64_t)out.list->n == most) {
            struct value rest = tpl_part(r, s, at,
                                         s->n); /* Python strips white space at the end of the rest */
            tpl_list_add(r, out.list, text_strip(r, rest, &(struct args){ 0 }, RIGHT));
            break;
        }
        tpl_list_add(r, out.list, tpl_part(r, s, at, to));
        at = to;
    }
    return out;
}

/* Split at a separator. With maxsplit, rsplit leaves the rest at the beginning, split at the end. So all
 * separators are counted first. */
static struct value text_split(struct rendering *r, struct value x, struct args *a, bool from_right)
{
    const struct text *s = x.s, *by = tpl_arg_text(r, a, 0, "sep");
    const int64_t most = tpl_arg_int(r, a, 1, "maxsplit", -1);
    if (r->rc || !tpl_steps(r, s->n / 16)) return TPL_UNDEFINED;
    if (!by && from_right && most >= 0) return tpl_fail(r, "rsplit with a limit needs a separator here");
    if (!by) return text_split_words(r, s, most);
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

static struct value fn_splitlines(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = x.s;
    struct value keep = tpl_arg(r, a, 0, "keepends", tpl_bool(false)), out = tpl_list(r, false);
    for (size_t at = 0; at < s->n && !r->rc;) {
        size_t to = at;
        while (to < s->n && s->bytes[to] != '\n' && s->bytes[to] != '\r') to++;
        size_t next = to + (to < s->n);
        if (next < s->n && s->bytes[to] == '\r' && s->bytes[next] == '\n') next++;
        tpl_list_add(r, out.list, tpl_part(r, s, at, tpl_truth(r, keep) ? next : to));
        at = next;
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
            const size_t used = at < s->n ? text_next(s, at, &c) : 0;
            if (!used) break;
            tpl_emit(r, s->bytes + at, s->marks ? s->marks + at : NULL, used);
            at += used;
        }
    }
    return tpl_take(r, from);
}

/* The value of "{}", "{0}" or "{name}" in a format; `next` counts those without a number. */
static struct value format_field(struct rendering *r, struct args *a, const char *field, size_t n,
                                 size_t *next)
{
    char name[64];
    int64_t at;
    if (n >= sizeof name) return tpl_fail(r, "format: expected a name of less than %zu bytes", sizeof name);
    memcpy(name, field, n);
    name[n] = '\0';
    if (strpbrk(name, ":!.[")) return tpl_fail(r, "format: '{%s}' is not supported, {} and {name} are", name);
    if (!n) return tpl_arg_required(r, a, (*next)++, "");
    if (str_to_i64(name, &at) && at >= 0 && at < 1000) return tpl_arg_required(r, a, (size_t)at, name);
    return tpl_arg_required(r, a, 1000, name);
}

/* "{}".format(...): fields without conversions and format specifications. */
static struct value fn_format(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = x.s;
    const size_t from = r->out.len;
    for (size_t i = 0, next = 0; i < s->n && !r->rc; i++) {
        const char c = s->bytes[i];
        const bool twice = i + 1 < s->n && s->bytes[i + 1] == c;
        const char *end = c == '{' && !twice ? memchr(s->bytes + i, '}', s->n - i) : NULL;
        if (end) {
            const size_t n = (size_t)(end - s->bytes) - i - 1;
            struct value v = format_field(r, a, s->bytes + i + 1, n, &next);
            if (!r->rc) tpl_emit_value(r, v);
            i += n + 1;
            continue;
        }
        if ((c == '{' || c == '}') && !twice) return tpl_fail(r, "format: a single '%c' in the text", c);
        tpl_emit(r, s->bytes + i, s->marks ? s->marks + i : NULL, 1);
        i += c == '{' || c == '}';
    }
    a->used = a->n;
    return tpl_take(r, from);
}

/* ---------------------------------------------------------------- predicates and search */

static bool affix_matches(const struct text *s, const struct text *part, bool at_end)
{
    return part->n <= s->n &&
           (!part->n || !memcmp(s->bytes + (at_end ? s->n - part->n : 0), part->bytes, part->n));
}

/* The argument may be a tuple of alternatives, as in Python. */
static struct value text_has_affix(struct rendering *r, struct value x, struct args *a, bool at_end)
{
    struct value parts = tpl_arg_required(r, a, 0, "prefix");
    struct list one = { .items = &parts, .n = 1 };
    const struct list *l = parts.type == VALUE_LIST ? parts.list : &one;
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        if (l->items[i].type != VALUE_STRING)
            return tpl_fail(r, "startswith, endswith: expected a string, found a %s",
                            tpl_type_name(l->items[i]));
        if (affix_matches(x.s, l->items[i].s, at_end)) return tpl_bool(true);
    }
    return tpl_bool(false);
}

static struct value fn_startswith(struct rendering *r, struct value x, struct args *a)
{
    return text_has_affix(r, x, a, false);
}

static struct value fn_endswith(struct rendering *r, struct value x, struct args *a)
{
    return text_has_affix(r, x, a, true);
}

static struct value text_remove_affix(struct rendering *r, struct value x, struct args *a, bool at_end)
{
    const struct text *part = tpl_arg_text(r, a, 0, at_end ? "suffix" : "prefix");
    if (!part || !affix_matches(x.s, part, at_end)) return x;
    return at_end ? tpl_part(r, x.s, 0, x.s->n - part->n) : tpl_part(r, x.s, part->n, x.s->n);
}

static struct value fn_removeprefix(struct rendering *r, struct value x, struct args *a)
{
    return text_remove_affix(r, x, a, false);
}

static struct value fn_removesuffix(struct rendering *r, struct value x, struct args *a)
{
    return text_remove_affix(r, x, a, true);
}

/* Returns a position in characters, -1 if the text does not occur. */
static struct value text_find(struct rendering *r, struct value x, struct args *a, bool last)
{
    const struct text *part = tpl_arg_text(r, a, 0, "sub");
    if (!part || !tpl_steps(r, x.s->n / 8))
        return r->rc ? TPL_UNDEFINED : tpl_fail(r, "find: expected a string");
    const char *found = NULL;
    for (const char *p = x.s->bytes, *end = p + x.s->n;
         (p = memmem(p, (size_t)(end - p), part->bytes, part->n)); p++) {
        found = p;
        if (!last || p == end) break;
    }
    if (!found) return tpl_int(-1);
    const struct text before = { .bytes = x.s->bytes, .n = (size_t)(found - x.s->bytes) };
    return tpl_int(tpl_utf8_count(&before));
}

static struct value fn_find(struct rendering *r, struct value x, struct args *a)
{
    return text_find(r, x, a, false);
}

static struct value fn_rfind(struct rendering *r, struct value x, struct args *a)
{
    return text_find(r, x, a, true);
}

static struct value fn_count(struct rendering *r, struct value x, struct args *a)
{
    const struct text *part = tpl_arg_text(r, a, 0, "sub");
    if (!part) return r->rc ? TPL_UNDEFINED : tpl_fail(r, "count: expected a string");
    int64_t n = 0;
    if (!part->n) return tpl_int(tpl_utf8_count(x.s) + 1);
    for (size_t at = 0; at < x.s->n && tpl_steps(r, 0); n++) {
        const char *p = memmem(x.s->bytes + at, x.s->n - at, part->bytes, part->n);
        if (!p) break;
        at = (size_t)(p - x.s->bytes) + part->n;
    }
    return tpl_int(n);
}

typedef bool kind_fn(uint32_t c);

static bool is_digit(uint32_t c)
{
    return c - '0' < 10u;
}

static bool is_alnum(uint32_t c)
{
    return is_digit(c) || is_letter(c);
}

/* True if the text is not empty and every character is of this kind. */
static struct value text_all(const struct text *s, kind_fn *is)
{
    uint32_t c;
    for (size_t at = 0; at < s->n; at += text_next(s, at, &c)) {
        text_next(s, at, &c);
        if (!is(c)) return tpl_bool(false);
    }
    return tpl_bool(s->n > 0);
}

static struct value fn_isdigit(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return text_all(x.s, is_digit);
}

static struct value fn_isalpha(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return text_all(x.s, is_letter);
}

static struct value fn_isalnum(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return text_all(x.s, is_alnum);
}

static struct value fn_isspace(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return text_all(x.s, tpl_is_space);
}

static struct value fn_isupper(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(tpl_has_case(x.s, true));
}

static struct value fn_islower(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(tpl_has_case(x.s, false));
}

const struct function TPL_STRING_METHODS[] = {
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
    { "startswith", fn_startswith },
    { "endswith", fn_endswith },
    { "removeprefix", fn_removeprefix },
    { "removesuffix", fn_removesuffix },
    { "find", fn_find },
    { "rfind", fn_rfind },
    { "count", fn_count },
    { "isdigit", fn_isdigit },
    { "isalpha", fn_isalpha },
    { "isalnum", fn_isalnum },
    { "isspace", fn_isspace },
    { "isupper", fn_isupper },
    { "islower", fn_islower },
    { "format", fn_format },
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
