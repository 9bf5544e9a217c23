/* Methods of strings that search, pad and classify. Source: Python's str methods. Positions count characters
 * (code points of UTF-8); the kinds of characters are those of Unicode (utf8proc). */
#include <string.h>

#include <utf8proc.h>

#include "engine/template/template_internal.h"

/* ---------------------------------------------------------------- beginnings, ends and search */

static bool affix_matches(const struct text *s, const struct text *part, bool at_end)
{
    return part->n <= s->n &&
           (!part->n || !memcmp(s->bytes + (at_end ? s->n - part->n : 0), part->bytes, part->n));
}

/* The part of a text that the arguments `start` and `end`, numbers `at` and at + 1, select. */
static struct text text_range(struct rendering *r, const struct text *s, struct args *a, size_t at)
{
    if (a->n <= at) return *s;
    if (!tpl_steps(r, s->n / 16)) return (struct text){ 0 };
    const int64_t n = tpl_utf8_count(s);
    int64_t from = tpl_arg_int(r, a, at, "start", 0), to = tpl_arg_int(r, a, at + 1, "end", n);
    from = from < 0 ? MAX(from + n, 0) : from;
    to = to < 0 ? MAX(to + n, 0) : MIN(to, n);
    if (from > to) return (struct text){ 0 }; /* not even an empty text is in there */
    const size_t first = tpl_utf8_start(s, from), end = tpl_utf8_start(s, to);
    return (struct text){ .bytes = s->bytes + first,
                          .marks = s->marks ? s->marks + first : NULL,
                          .n = end - first };
}

/* The argument may be a tuple of alternatives, as in Python. */
static struct value text_has_affix(struct rendering *r, struct value x, struct args *a, bool at_end)
{
    struct value parts = tpl_arg_required(r, a, 0, "prefix");
    const struct text within = text_range(r, x.s, a, 1);
    struct list one = { .items = &parts, .n = 1 };
    const struct list *l = parts.type == VALUE_LIST ? parts.list : &one;
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        if (l->items[i].type != VALUE_STRING)
            return tpl_fail(r, "startswith, endswith: expected a string, found a %s",
                            tpl_type_name(l->items[i]));
        if (within.bytes && affix_matches(&within, l->items[i].s, at_end)) return tpl_bool(true);
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

/* Where the text occurs, as a byte of s; NULL: nowhere. */
static const char *text_search(struct rendering *r, const struct text *s, struct args *a, bool last,
                               const struct text **sub)
{
    const struct text *part = *sub = tpl_arg_text(r, a, 0, "sub"), within = text_range(r, s, a, 1);
    if (!part) tpl_fail(r, "find: expected a string");
    if (r->rc || !tpl_steps(r, s->n / 8) || !within.bytes) return NULL;
    const char *found = NULL;
    for (const char *p = within.bytes, *end = p + within.n;
         (p = memmem(p, (size_t)(end - p), part->bytes, part->n)); p++) {
        found = p;
        if (!last || p == end) break;
    }
    return found;
}

/* Returns a position in characters; where the text does not occur -1, or an error if it must. */
static struct value text_find(struct rendering *r, struct value x, struct args *a, bool last, bool must)
{
    const struct text *sub;
    const char *found = text_search(r, x.s, a, last, &sub);
    if (r->rc) return TPL_UNDEFINED;
    if (!found) return must ? tpl_fail(r, "index: the text does not occur") : tpl_int(-1);
    const struct text before = { .bytes = x.s->bytes, .n = (size_t)(found - x.s->bytes) };
    return tpl_int(tpl_utf8_count(&before));
}

static struct value fn_find(struct rendering *r, struct value x, struct args *a)
{
    return text_find(r, x, a, false, false);
}

static struct value fn_rfind(struct rendering *r, struct value x, struct args *a)
{
    return text_find(r, x, a, true, false);
}

static struct value fn_index(struct rendering *r, struct value x, struct args *a)
{
    return text_find(r, x, a, false, true);
}

static struct value fn_rindex(struct rendering *r, struct value x, struct args *a)
{
    return text_find(r, x, a, true, true);
}

static struct value fn_count(struct rendering *r, struct value x, struct args *a)
{
    const struct text *part = tpl_arg_text(r, a, 0, "sub"), s = text_range(r, x.s, a, 1);
    if (!part) return r->rc ? TPL_UNDEFINED : tpl_fail(r, "count: expected a string");
    int64_t n = 0;
    if (!s.bytes) return tpl_int(0);
    if (!part->n) return tpl_int(tpl_utf8_count(&s) + 1);
    for (size_t at = 0; at < s.n && tpl_steps(r, 0); n++) {
        const char *p = memmem(s.bytes + at, s.n - at, part->bytes, part->n);
        if (!p) break;
        at = (size_t)(p - s.bytes) + part->n;
    }
    return tpl_int(n);
}

/* (before, separator, after); where the separator does not occur, the text is before it, or, from the right,
 * after it. */
static struct value text_partition(struct rendering *r, struct value x, struct args *a, bool last)
{
    const struct text *sep, *s = x.s;
    const char *found = a->n == 1 ? text_search(r, s, a, last, &sep) : NULL;
    struct value out = tpl_list(r, true), empty = tpl_c_string(r, "");
    if (a->n != 1 || r->rc || !sep->n) return tpl_fail(r, "partition: expected a separator");
    const size_t from = found ? (size_t)(found - s->bytes) : 0;
    struct value parts[3] = { found  ? tpl_part(r, s, 0, from)
                              : last ? empty
                                     : x,
                              found ? tpl_part(r, s, from, from + sep->n) : empty,
                              found  ? tpl_part(r, s, from + sep->n, s->n)
                              : last ? x
                                     : empty };
    for (int i = 0; i < 3 && !r->rc; i++) tpl_list_add(r, out.list, parts[i]);
    return out;
}

static struct value fn_partition(struct rendering *r, struct value x, struct args *a)
{
    return text_partition(r, x, a, false);
}

static struct value fn_rpartition(struct rendering *r, struct value x, struct args *a)
{
    return text_partition(r, x, a, true);
}

/* ---------------------------------------------------------------- width */

static void emit_repeated(struct rendering *r, const struct text *fill, int64_t n)
{
    for (; n > 0 && !r->rc; n--) tpl_emit_text(r, fill);
}

/* ljust, rjust and center. Where the space is odd, center puts the extra one left if the width is odd. */
static struct value text_justify(struct rendering *r, struct value x, struct args *a, int side)
{
    static const struct text SPACE = { .bytes = " ", .n = 1 };
    const int64_t width = tpl_arg_int(r, a, 0, "width", 0);
    const struct text *given = tpl_arg_text(r, a, 1, "fillchar"), *fill = given ? given : &SPACE;
    if (r->rc || width > 10000 || tpl_utf8_count(fill) != 1 || !a->n)
        return tpl_fail(r, "expected a width of at most 10000, and one character to fill with");
    const int64_t space = MAX(width - tpl_utf8_count(x.s), 0), left = side < 0 ? 0
                                                                      : side > 0
                                                                          ? space
                                                                          : space / 2 + (space & width & 1);
    const size_t from = r->out.len;
    emit_repeated(r, fill, left);
    tpl_emit_text(r, x.s);
    emit_repeated(r, fill, space - left);
    return tpl_take(r, from);
}

static struct value fn_ljust(struct rendering *r, struct value x, struct args *a)
{
    return text_justify(r, x, a, -1);
}

static struct value fn_rjust(struct rendering *r, struct value x, struct args *a)
{
    return text_justify(r, x, a, 1);
}

static struct value fn_center(struct rendering *r, struct value x, struct args *a)
{
    return text_justify(r, x, a, 0);
}

static struct value fn_zfill(struct rendering *r, struct value x, struct args *a)
{
    static const struct text ZERO = { .bytes = "0", .n = 1 };
    const int64_t width = tpl_arg_int(r, a, 0, "width", 0), n = tpl_utf8_count(x.s);
    if (r->rc || width > 10000 || !a->n) return tpl_fail(r, "zfill: expected a width of at most 10000");
    const size_t from = r->out.len, sign = x.s->n && (*x.s->bytes == '-' || *x.s->bytes == '+');
    tpl_emit(r, x.s->bytes, x.s->marks, sign);
    emit_repeated(r, &ZERO, width - n);
    tpl_emit(r, x.s->bytes + sign, x.s->marks ? x.s->marks + sign : NULL, x.s->n - sign);
    return tpl_take(r, from);
}

static struct value fn_expandtabs(struct rendering *r, struct value x, struct args *a)
{
    static const struct text SPACE = { .bytes = " ", .n = 1 };
    const int64_t size = tpl_arg_int(r, a, 0, "tabsize", 8);
    if (r->rc || size > 1000) return tpl_fail(r, "expandtabs: expected a size of at most 1000");
    const size_t from = r->out.len;
    int64_t column = 0;
    uint32_t c;
    for (size_t at = 0, used; at < x.s->n && !r->rc; at += used) {
        used = tpl_next_char(x.s, at, &c);
        if (c == '\t') {
            const int64_t n = size > 0 ? size - column % size : 0;
            emit_repeated(r, &SPACE, n);
            column += n;
            continue;
        }
        tpl_emit(r, x.s->bytes + at, x.s->marks ? x.s->marks + at : NULL, used);
        column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    return tpl_take(r, from);
}

/* ---------------------------------------------------------------- kinds of characters */

static bool is_category(uint32_t c, int first, int last)
{
    const int kind = (int)utf8proc_category((int32_t)c);
    return kind >= first && kind <= last;
}

static bool is_letter(uint32_t c)
{
    return is_category(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

static bool is_decimal(uint32_t c)
{
    return is_category(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND);
}

/* Digits that are no decimal numbers: superscripts, in circles, and the like. */
static bool is_digit(uint32_t c)
{
    static const uint32_t OTHERS[][2] = { { 0xb2, 0xb3 },     { 0xb9, 0xb9 },     { 0x1369, 0x1371 },
                                          { 0x19da, 0x19da }, { 0x2070, 0x2070 }, { 0x2074, 0x2079 },
                                          { 0x2080, 0x2089 }, { 0x2460, 0x2468 }, { 0x2474, 0x247c },
                                          { 0x2488, 0x2490 }, { 0x24ea, 0x24ea }, { 0x24f5, 0x24fd },
                                          { 0x24ff, 0x24ff }, { 0x2776, 0x277e }, { 0x2780, 0x2788 },
                                          { 0x278a, 0x2792 } };
    for (size_t i = 0; i < COUNT_OF(OTHERS); i++)
        if (c >= OTHERS[i][0] && c <= OTHERS[i][1]) return true;
    return is_decimal(c);
}

/* Chinese numerals are letters with a numeric value; they are not known here. */
static bool is_numeric(uint32_t c)
{
    return is_digit(c) || is_category(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

static bool is_alnum(uint32_t c)
{
    return is_letter(c) || is_numeric(c);
}

bool tpl_is_word_char(uint32_t c)
{
    return c == '_' || is_alnum(c);
}

bool tpl_is_printable(uint32_t c)
{
    return c == ' ' || (c != 0xfffe && !is_category(c, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_CO) &&
                        !is_category(c, UTF8PROC_CATEGORY_CN, UTF8PROC_CATEGORY_CN));
}

static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}

typedef bool kind_fn(uint32_t c);

/* True if every character is of this kind. */
static struct value text_all(struct rendering *r, const struct text *s, kind_fn *is, bool if_empty)
{
    uint32_t c;
    if (!tpl_steps(r, s->n / 8)) return TPL_UNDEFINED;
    for (size_t at = 0; at < s->n;) {
        at += tpl_next_char(s, at, &c);
        if (!is(c)) return tpl_bool(false);
    }
    return tpl_bool(s->n > 0 || if_empty);
}

#define PREDICATE(name, kind, if_empty)                                                                      \
    static struct value name(struct rendering *r, struct value x, struct args *a)                            \
    {                                                                                                        \
        (void)a;                                                                                             \
        return text_all(r, x.s, kind, if_empty);                                                             \
    }
PREDICATE(fn_isdigit, is_digit, false)
PREDICATE(fn_isdecimal, is_decimal, false)
PREDICATE(fn_isnumeric, is_numeric, false)
PREDICATE(fn_isalpha, is_letter, false)
PREDICATE(fn_isalnum, is_alnum, false)
PREDICATE(fn_isspace, tpl_is_space, false)
PREDICATE(fn_isascii, is_ascii, true)
PREDICATE(fn_isprintable, tpl_is_printable, true)

static struct value fn_isupper(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return tpl_steps(r, x.s->n / 8) ? tpl_bool(tpl_has_case(x.s, true)) : TPL_UNDEFINED;
}

static struct value fn_islower(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return tpl_steps(r, x.s->n / 8) ? tpl_bool(tpl_has_case(x.s, false)) : TPL_UNDEFINED;
}

/* Capital letters only behind characters without case, small ones only behind letters. */
static struct value fn_istitle(struct rendering *r, struct value x, struct args *a)
{
    bool any = false, inside = false;
    uint32_t c;
    (void)a;
    if (!tpl_steps(r, x.s->n / 8)) return TPL_UNDEFINED;
    for (size_t at = 0; at < x.s->n;) {
        at += tpl_next_char(x.s, at, &c);
        const bool upper = utf8proc_isupper((int32_t)c), lower = utf8proc_islower((int32_t)c);
        if ((upper && inside) || (lower && !inside)) return tpl_bool(false);
        inside = upper || lower;
        any = any || inside;
    }
    return tpl_bool(any);
}

static struct value fn_isidentifier(struct rendering *r, struct value x, struct args *a)
{
    uint32_t c;
    (void)a;
    if (!tpl_steps(r, x.s->n / 8)) return TPL_UNDEFINED;
    for (size_t at = 0; at < x.s->n;) {
        const bool first = !at;
        at += tpl_next_char(x.s, at, &c);
        if (c != '_' && !is_letter(c) && (first || !is_decimal(c))) return tpl_bool(false);
    }
    return tpl_bool(x.s->n > 0);
}

const struct function TPL_STRING_METHODS_MORE[] = {
    { "startswith", fn_startswith },
    { "endswith", fn_endswith },
    { "removeprefix", fn_removeprefix },
    { "removesuffix", fn_removesuffix },
    { "find", fn_find },
    { "rfind", fn_rfind },
    { "index", fn_index },
    { "rindex", fn_rindex },
    { "count", fn_count },
    { "partition", fn_partition },
    { "rpartition", fn_rpartition },
    { "ljust", fn_ljust },
    { "rjust", fn_rjust },
    { "center", fn_center },
    { "zfill", fn_zfill },
    { "expandtabs", fn_expandtabs },
    { "isdigit", fn_isdigit },
    { "isdecimal", fn_isdecimal },
    { "isnumeric", fn_isnumeric },
    { "isalpha", fn_isalpha },
    { "isalnum", fn_isalnum },
    { "isspace", fn_isspace },
    { "isascii", fn_isascii },
    { "isprintable", fn_isprintable },
    { "isupper", fn_isupper },
    { "islower", fn_islower },
    { "istitle", fn_istitle },
    { "isidentifier", fn_isidentifier },
    { NULL, NULL },
};
