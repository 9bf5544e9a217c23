/* Filters of single values; those of strings are in strings.c, those of lists in filters_list.c. Source:
 * jinja2/filters.py and, for tojson, transformers, which passes ensure_ascii=False and does not escape HTML.
 * A filter never changes its input; it returns a new value or the input itself. Text is produced by tpl_emit
 * and taken back with tpl_take, which keeps the marks of bytes that came from messages. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/template_internal.h"

/* With boolean=true, the default also replaces values that are false. */
static struct value fn_default(struct rendering *r, struct value x, struct args *a)
{
    struct value otherwise = tpl_arg(r, a, 0, "default_value", TPL_NONE),
                 boolean = tpl_arg(r, a, 1, "boolean", tpl_bool(false));
    if (!a->n) otherwise = tpl_c_string(r, "");
    const bool missing = x.type == VALUE_UNDEFINED || (tpl_truth(r, boolean) && !tpl_truth(r, x));
    return missing ? otherwise : x;
}

static struct value fn_length(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    const int64_t n = tpl_length(r, x);
    return n < 0 ? TPL_UNDEFINED : tpl_int(n);
}

static struct value fn_string(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    const struct text *s = tpl_text_of(r, x);
    return s ? (struct value){ VALUE_STRING, { .s = s } } : TPL_UNDEFINED;
}

static struct value fn_tojson(struct rendering *r, struct value x, struct args *a)
{
    struct json_style style = { .indent = -1 };
    style.ascii = tpl_truth(r, tpl_arg(r, a, 1, "ensure_ascii", tpl_bool(false)));
    const int64_t indent = tpl_arg_int(r, a, 0, "indent", -1);
    struct value separators = tpl_arg(r, a, 2, "separators", TPL_NONE);
    style.sort = tpl_truth(r, tpl_arg(r, a, 3, "sort_keys", tpl_bool(false)));
    style.indent = (int)MIN(MAX(indent, -1), 64);
    if (separators.type == VALUE_LIST && separators.list->n == 2 &&
        separators.list->items[0].type == VALUE_STRING && separators.list->items[1].type == VALUE_STRING) {
        style.item = separators.list->items[0].s;
        style.colon = separators.list->items[1].s;
    } else if (separators.type != VALUE_NONE)
        return tpl_fail(r, "tojson: expected two strings as separators, found a %s",
                        tpl_type_name(separators));
    const size_t from = r->out.len;
    tpl_emit_json(r, x, &style, 0);
    return tpl_take(r, from);
}

static struct value fn_safe(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a; /* automatic escaping is off, so every text is safe */
    return x;
}

static struct value fn_escape(struct rendering *r, struct value x, struct args *a)
{
    static const char *const WITH[] = { "&amp;", "&lt;", "&gt;", "&#34;", "&#39;" };
    static const char FROM[] = "&<>\"'";
    (void)a;
    const struct text *s = tpl_text_of(r, x);
    const size_t from = r->out.len;
    for (size_t i = 0; s && i < s->n && !r->rc; i++) {
        const char *p = s->bytes[i] ? strchr(FROM, s->bytes[i]) : NULL;
        if (p)
            tpl_emit_c(r, WITH[p - FROM]);
        else
            tpl_emit(r, s->bytes + i, s->marks ? s->marks + i : NULL, 1);
    }
    return tpl_take(r, from);
}

/* Strings are trimmed and read as decimal numbers. */
static bool to_number(struct value x, double *out)
{
    char text[64];
    if (tpl_is_number(x)) {
        *out = tpl_number(x);
        return true;
    }
    if (x.type != VALUE_STRING || x.s->n >= sizeof text) return false;
    size_t from = 0, to = x.s->n;
    while (from < to && tpl_is_space((unsigned char)x.s->bytes[from])) from++;
    while (to > from && tpl_is_space((unsigned char)x.s->bytes[to - 1])) to--;
    memcpy(text, x.s->bytes + from, to - from);
    text[to - from] = '\0';
    return str_to_double(text, out);
}

static struct value fn_int(struct rendering *r, struct value x, struct args *a)
{
    struct value otherwise = tpl_arg(r, a, 0, "default", tpl_int(0));
    tpl_arg_int(r, a, 1, "base", 10);
    double d;
    if (x.type == VALUE_INT) return x;
    if (!to_number(x, &d) || !(fabs(d) < 9e18)) return otherwise;
    return tpl_int((int64_t)d);
}

static struct value fn_float(struct rendering *r, struct value x, struct args *a)
{
    struct value otherwise = tpl_arg(r, a, 0, "default", tpl_float(0));
    double d;
    return to_number(x, &d) ? tpl_float(d) : otherwise;
}

static struct value fn_abs(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    if (!tpl_is_number(x)) return tpl_fail(r, "abs: expected a number, found a %s", tpl_type_name(x));
    return tpl_number(x) < 0 ? tpl_unary(r, OP_NEGATE, x) : x;
}

/* method: common (to nearest even), ceil or floor. The result is a float. */
static struct value fn_round(struct rendering *r, struct value x, struct args *a)
{
    const int64_t digits = tpl_arg_int(r, a, 0, "precision", 0);
    const struct text *method = tpl_arg_text(r, a, 1, "method");
    if (!tpl_is_number(x) || digits < 0 || digits > 15)
        return tpl_fail(r, "round: expected a number, and a precision of 0 to 15");
    const double scale = pow(10, (double)digits), d = tpl_number(x) * scale;
    const bool up = method && method->n == 4 && !memcmp(method->bytes, "ceil", 4),
               down = method && method->n == 5 && !memcmp(method->bytes, "floor", 5);
    return tpl_float((up ? ceil(d) : down ? floor(d) : nearbyint(d)) / scale);
}

/* indent(width=4, first=false, blank=false): `first` also indents the first line, `blank` also empty lines.
 */
static struct value fn_indent(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = tpl_text_of(r, x);
    struct value width = tpl_arg(r, a, 0, "width", tpl_int(4));
    const bool first = tpl_truth(r, tpl_arg(r, a, 1, "first", tpl_bool(false))),
               blank = tpl_truth(r, tpl_arg(r, a, 2, "blank", tpl_bool(false)));
    const struct text spaces = { .bytes = "                                                                ",
                                 .n = width.type == VALUE_INT ? (size_t)MIN(MAX(width.i, 0), 64) : 0 };
    const struct text *by = width.type == VALUE_STRING ? width.s : &spaces;
    const size_t from = r->out.len;
    for (size_t at = 0, to; s && at < s->n && !r->rc; at = to) {
        const char *feed = memchr(s->bytes + at, '\n', s->n - at);
        to = feed ? (size_t)(feed - s->bytes) + 1 : s->n;
        const bool empty = to - at == 1 && feed;
        if ((at || first) && (blank || !empty)) tpl_emit_text(r, by);
        tpl_emit(r, s->bytes + at, s->marks ? s->marks + at : NULL, to - at);
    }
    return tpl_take(r, from);
}

/* The result, with `end`, has at most `length` characters and ends at a word unless killwords is true.
 * Text that is at most `leeway` characters too long is not cut. */
static struct value fn_truncate(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = tpl_text_of(r, x), dots = { .bytes = "...", .n = 3 };
    const int64_t length = tpl_arg_int(r, a, 0, "length", 255);
    const bool kill = tpl_truth(r, tpl_arg(r, a, 1, "killwords", tpl_bool(false)));
    const struct text *given = tpl_arg_text(r, a, 2, "end"), *end = given ? given : &dots;
    const int64_t leeway = tpl_arg_int(r, a, 3, "leeway", 5), tail = tpl_utf8_count(end);
    if (!s || length < tail || leeway < 0 || leeway > INT32_MAX || length > INT32_MAX)
        return tpl_fail(r, "truncate: expected a length of at least that of the end");
    if (tpl_utf8_count(s) <= length + leeway) return (struct value){ VALUE_STRING, { .s = s } };
    size_t to = tpl_utf8_start(s, length - tail);
    const char *space = kill || !to ? NULL : memrchr(s->bytes, ' ', to);
    if (space) to = (size_t)(space - s->bytes);
    const size_t from = r->out.len;
    tpl_emit(r, s->bytes, s->marks, to);
    tpl_emit_text(r, end);
    return tpl_take(r, from);
}

/* Where the space is odd, Python puts the extra one left if the width is odd. */
static struct value fn_center(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = tpl_text_of(r, x);
    const int64_t width = tpl_arg_int(r, a, 0, "width", 80);
    if (!s || width > 10000) return tpl_fail(r, "center: expected a width of at most 10000");
    const int64_t space = MAX(width - tpl_utf8_count(s), 0), left = space / 2 + (space & width & 1);
    const size_t from = r->out.len;
    for (int64_t i = 0; i < left; i++) tpl_emit_c(r, " ");
    tpl_emit_text(r, s);
    for (int64_t i = left; i < space; i++) tpl_emit_c(r, " ");
    return tpl_take(r, from);
}

static struct value fn_wordcount(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = tpl_text_of(r, x);
    int64_t n = 0;
    bool inside = false;
    uint32_t c;
    (void)a;
    for (size_t at = 0; s && at < s->n;) {
        at += str_utf8_next(s->bytes + at, s->n - at, &c);
        n += !inside && !tpl_is_space(c);
        inside = !tpl_is_space(c);
    }
    return tpl_int(n);
}

static struct value fn_format(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = tpl_text_of(r, x);
    struct value values = tpl_list(r, true);
    for (size_t i = 0; i < a->n && !r->rc; i++, a->used++) tpl_list_add(r, values.list, a->items[i].value);
    return r->rc ? TPL_UNDEFINED : tpl_format(r, s, values.list);
}

static struct value fn_attr(struct rendering *r, struct value x, struct args *a)
{
    return tpl_lookup(r, x, tpl_arg_required(r, a, 0, "name"), true);
}

const struct function *tpl_filter(const struct text *name)
{
    static const struct function FILTERS[] = {
        { "default", fn_default },   { "d", fn_default },
        { "length", fn_length },     { "count", fn_length },
        { "string", fn_string },     { "tojson", fn_tojson },
        { "safe", fn_safe },         { "escape", fn_escape },
        { "e", fn_escape },          { "forceescape", fn_escape },
        { "int", fn_int },           { "float", fn_float },
        { "abs", fn_abs },           { "round", fn_round },
        { "indent", fn_indent },     { "truncate", fn_truncate },
        { "center", fn_center },     { "wordcount", fn_wordcount },
        { "format", fn_format },     { "attr", fn_attr },
        { "items", tpl_dict_items }, { NULL, NULL },
    };
    const struct function *f = tpl_function_in(FILTERS, name);
    if (!f) f = tpl_function_in(TPL_STRING_FILTERS, name);
    return f ? f : tpl_function_in(TPL_LIST_FILTERS, name);
}
