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
    style.ascii = tpl_truth(r, tpl_arg(r, a, 0, "ensure_ascii", tpl_bool(false)));
    struct value indent = tpl_arg(r, a, 1, "indent", TPL_NONE),
                 separators = tpl_arg(r, a, 2, "separators", TPL_NONE);
    style.sort = tpl_truth(r, tpl_arg(r, a, 3, "sort_keys", tpl_bool(false)));
    if (indent.type == VALUE_STRING)
        style.indent = 0, style.indent_by = indent.s;
    else if (indent.type == VALUE_INT || indent.type == VALUE_BOOL)
        style.indent = (int)MIN(MAX(indent.type == VALUE_BOOL ? indent.b : indent.i, 0), 64);
    else if (indent.type != VALUE_NONE)
        return tpl_fail(r, "tojson: expected a number or a string as indent, found a %s",
                        tpl_type_name(indent));
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

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
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
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        const char c = x.s->bytes[i];
        const bool between = i > from && i + 1 < to && is_digit(text[n - 1]) && is_digit(x.s->bytes[i + 1]);
        if (!c || strchr("xXpP(", c)) return false; /* C reads hexadecimal numbers, Python does not */
        if (c != '_' || !between) text[n++] = c;
    }
    text[n] = '\0';
    return str_to_double(text, out);
}

static int digit_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
}

/* int(text, base) of Python: signs, "_" between digits, and 0x, 0o, 0b of the base or of base 0. False: it is
 * no such number, or has more than 63 bits (`large`). */
static bool text_to_int(const struct text *s, int64_t base, int64_t *out, bool *large)
{
    static const char PREFIX[] = "xob";
    static const int BASES[] = { 16, 8, 2 };
    const char *p = s->bytes, *end = p + s->n;
    while (p < end && tpl_is_space((unsigned char)*p)) p++;
    while (end > p && tpl_is_space((unsigned char)end[-1])) end--;
    const bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    const char *kind = end - p > 2 && *p == '0' ? strchr(PREFIX, p[1] | 32) : NULL;
    const bool zero = base == 0;
    if (zero) base = 10;
    if (kind && *kind && (zero || base == BASES[kind - PREFIX])) {
        base = BASES[kind - PREFIX];
        p += 2 + (p[2] == '_');
    }
    int64_t value = 0;
    bool digit = false;
    for (*large = false; p < end; p++) {
        if (*p == '_' && digit && p + 1 < end && p[1] != '_') continue;
        if (digit_value(*p) >= base) return false;
        digit = true;
        *large = *large || __builtin_mul_overflow(value, base, &value) ||
                 __builtin_sub_overflow(value, digit_value(*p), &value);
    }
    *large = *large || (!negative && value == INT64_MIN);
    *out = *large ? 0 : negative ? value : -value;
    return digit && !*large;
}

static struct value fn_int(struct rendering *r, struct value x, struct args *a)
{
    struct value otherwise = tpl_arg(r, a, 0, "default", tpl_int(0));
    const int64_t base = tpl_arg_int(r, a, 1, "base", 10);
    int64_t i;
    double d;
    bool large = false;
    if (x.type == VALUE_INT) return x;
    if (x.type == VALUE_UNDEFINED) return tpl_fail(r, "int: the value is undefined");
    if (base < 0 || base == 1 || base > 36) return tpl_fail(r, "int: expected a base of 2 to 36, or 0");
    if (x.type == VALUE_STRING && text_to_int(x.s, base, &i, &large)) return tpl_int(i);
    if (!large && (!to_number(x, &d) || isnan(d))) return otherwise;
    if (!large && x.type == VALUE_STRING && isinf(d)) return otherwise;
    if (large || !(fabs(d) < 9.2e18)) return tpl_fail(r, "int: a number is 2^63 or larger");
    return tpl_int((int64_t)d);
}

static struct value fn_float(struct rendering *r, struct value x, struct args *a)
{
    struct value otherwise = tpl_arg(r, a, 0, "default", tpl_float(0));
    double d;
    if (x.type == VALUE_UNDEFINED) return tpl_fail(r, "float: the value is undefined");
    return to_number(x, &d) ? tpl_float(d) : otherwise;
}

static struct value fn_abs(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    if (!tpl_is_number(x)) return tpl_fail(r, "abs: expected a number, found a %s", tpl_type_name(x));
    if (x.type == VALUE_FLOAT) return tpl_float(fabs(x.d));
    return tpl_unary(r, tpl_number(x) < 0 ? OP_NEGATE : OP_PLUS, x);
}

/* round(i, -digits): to the nearest multiple of 10^digits, of two the even one. */
static struct value round_int(struct rendering *r, int64_t i, int64_t digits)
{
    if (digits >= 0) return tpl_int(i);
    if (digits < -18) return tpl_int(0);
    int64_t unit = 1;
    for (; digits < 0; digits++) unit *= 10;
    int64_t rest = i % unit, whole = i / unit;
    if (rest < 0) rest += unit, whole--;
    if (rest > unit / 2 || (rest == unit / 2 && whole % 2)) whole++;
    int64_t out;
    return __builtin_mul_overflow(whole, unit, &out) ? tpl_fail(r, "a number is 2^63 or larger")
                                                     : tpl_int(out);
}

/* The decimal that is nearest to the exact value of d, read back. */
static double round_double(double d, int64_t digits)
{
    char text[400];
    if (!isfinite(d) || digits > 320) return d;
    if (digits < -308) return copysign(0, d);
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)MIN(digits, 40), d);
        return digits > 40 ? d : strtod(text, NULL);
    }
    const double unit = pow(10, (double)-digits), rest = fmod(fabs(d), unit);
    double whole = fabs(d) - rest;
    if (rest > unit / 2 || (rest == unit / 2 && fmod(whole / unit, 2) == 1)) whole += unit;
    return copysign(whole, d);
}

/* method: common (as round() of Python: whole numbers stay whole numbers), ceil or floor (a float). */
static struct value fn_round(struct rendering *r, struct value x, struct args *a)
{
    const int64_t digits = tpl_arg_int(r, a, 0, "precision", 0);
    const struct text *method = tpl_arg_text(r, a, 1, "method");
    const struct value by = method ? (struct value){ VALUE_STRING, { .s = method } }
                                   : tpl_c_string(r, "common");
    const bool up = tpl_is_string(by, "ceil"), down = tpl_is_string(by, "floor");
    if (r->rc) return TPL_UNDEFINED;
    if (!tpl_is_number(x)) return tpl_fail(r, "round: expected a number, found a %s", tpl_type_name(x));
    if (!up && !down && !tpl_is_string(by, "common"))
        return tpl_fail(r, "round: expected the method common, ceil or floor");
    if (digits < -300 || digits > 300) return tpl_fail(r, "round: expected a precision of -300 to 300");
    if (!up && !down)
        return x.type == VALUE_FLOAT ? tpl_float(round_double(x.d, digits))
                                     : round_int(r, x.type == VALUE_BOOL ? x.b : x.i, digits);
    const double scale = pow(10, (double)digits), d = tpl_number(x) * scale;
    if (!isfinite(d)) return tpl_fail(r, "round: expected a finite number");
    return tpl_float(((up ? ceil(d) : floor(d)) + 0.0) / scale);
}

/* indent(width=4, first=false, blank=false): `first` also indents the first line, `blank` also empty lines.
 */
static struct value fn_indent(struct rendering *r, struct value x, struct args *a)
{
    if (x.type != VALUE_STRING) return tpl_fail(r, "indent: expected a string, found a %s", tpl_type_name(x));
    const struct text *s = x.s;
    struct value width = tpl_arg(r, a, 0, "width", tpl_int(4));
    const bool first = tpl_truth(r, tpl_arg(r, a, 1, "first", tpl_bool(false))),
               blank = tpl_truth(r, tpl_arg(r, a, 2, "blank", tpl_bool(false)));
    const struct text spaces = { .bytes = "                                                                ",
                                 .n = width.type == VALUE_INT ? (size_t)MIN(MAX(width.i, 0), 64) : 0 };
    const struct text *by = width.type == VALUE_STRING ? width.s : &spaces;
    const size_t from = r->out.len;
    if (first) tpl_emit_text(r, by);
    for (size_t at = 0, next; s && !r->rc; at = next) {
        const size_t to = tpl_line_end(s, at, &next);
        if (at && (blank || to > at)) tpl_emit_text(r, by);
        tpl_emit(r, s->bytes + at, s->marks ? s->marks + at : NULL, to - at);
        if (to == next) break;
        tpl_emit_c(r, "\n");
        if (next == s->n) { /* Jinja appends a line feed before it cuts into lines */
            if (blank) tpl_emit_text(r, by);
            break;
        }
    }
    return tpl_take(r, from);
}

/* The result, with `end`, has at most `length` characters and ends at a word unless killwords is true.
 * Text that is at most `leeway` characters too long is not cut. */
static struct value fn_truncate(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = x.type == VALUE_STRING ? x.s : NULL, dots = { .bytes = "...", .n = 3 };
    const int64_t length = tpl_arg_int(r, a, 0, "length", 255);
    const bool kill = tpl_truth(r, tpl_arg(r, a, 1, "killwords", tpl_bool(false)));
    const struct text *given = tpl_arg_text(r, a, 2, "end"), *end = given ? given : &dots;
    const int64_t leeway = tpl_arg_int(r, a, 3, "leeway", 5), tail = tpl_utf8_count(end);
    if (!s && !r->rc && tpl_length(r, x) >= 0 && tpl_length(r, x) <= length + leeway) return x;
    if (!s || length < tail || leeway < 0 || leeway > INT32_MAX || length > INT32_MAX)
        return tpl_fail(r, "truncate: expected a text, and a length of at least that of the end");
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
        at += tpl_next_char(s, at, &c);
        n += !inside && tpl_is_word_char(c);
        inside = tpl_is_word_char(c);
    }
    return tpl_int(n);
}

/* The values by position, or a dict of those by name. */
static struct value fn_format(struct rendering *r, struct value x, struct args *a)
{
    const struct text *s = tpl_text_of(r, x);
    struct value values = tpl_list(r, true), named = tpl_dict(r);
    for (size_t i = 0; i < a->n && !r->rc; i++, a->used++) {
        const struct argument *one = &a->items[i];
        if (one->name)
            tpl_dict_put(r, named.dict, (struct value){ VALUE_STRING, { .s = one->name } }, one->value);
        else
            tpl_list_add(r, values.list, one->value);
    }
    if (r->rc) return TPL_UNDEFINED;
    if (named.dict->n && values.list->n)
        return tpl_fail(r, "format: expected values by position or by name, found both");
    values.list->tuple = !named.dict->n;
    if (named.dict->n) tpl_list_add(r, values.list, named);
    return r->rc ? TPL_UNDEFINED : tpl_format(r, s, values.list);
}

static struct value fn_filesizeformat(struct rendering *r, struct value x, struct args *a)
{
    static const char UNITS[] = "kMGTPEZY";
    const bool binary = tpl_truth(r, tpl_arg(r, a, 0, "binary", tpl_bool(false)));
    const double base = binary ? 1024 : 1000;
    double d, unit = base;
    char text[400];
    if (!to_number(x, &d) || isnan(d)) return tpl_fail(r, "filesizeformat: expected a number");
    if (d == 1) return tpl_c_string(r, "1 Byte");
    if (d < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(d) + 0.0);
        return tpl_c_string(r, text);
    }
    size_t i = 0;
    for (unit *= base; i + 2 < sizeof UNITS && d >= unit; i++) unit *= base;
    snprintf(text, sizeof text, "%.1f %c%s", base * d / unit, binary && !i ? 'K' : UNITS[i],
             binary ? "iB" : "B");
    return tpl_c_string(r, text);
}

/* Percent-encodes UTF-8; "/" stays in a text, and a space is "+" in a query. */
static void emit_quoted(struct rendering *r, struct value v, bool query)
{
    static const char HEX[] = "0123456789ABCDEF";
    const struct text *s = tpl_text_of(r, v);
    for (size_t i = 0; s && i < s->n && !r->rc; i++) {
        const unsigned char c = (unsigned char)s->bytes[i];
        const char coded[3] = { '%', HEX[c >> 4], HEX[c & 15] };
        const char *marks = s->marks ? s->marks + i : NULL;
        const char three[3] = { marks ? *marks : 0, marks ? *marks : 0, marks ? *marks : 0 };
        const bool stays = (c | 32u) - (unsigned)'a' < 26u || c - (unsigned)'0' < 10u ||
                           (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (stays || (c == ' ' && query))
            tpl_emit(r, c == ' ' ? "+" : s->bytes + i, marks, 1);
        else
            tpl_emit(r, coded, three, 3);
    }
}

static struct value fn_urlencode(struct rendering *r, struct value x, struct args *a)
{
    const size_t from = r->out.len;
    if (x.type != VALUE_LIST && x.type != VALUE_DICT)
        emit_quoted(r, x, false);
    else {
        const struct list *l = tpl_iterate(r, x.type == VALUE_DICT ? tpl_dict_items(r, x, a) : x);
        for (size_t i = 0; l && i < l->n && !r->rc; i++) {
            const struct list *pair = tpl_iterate(r, l->items[i]);
            if (!r->rc && pair->n != 2) return tpl_fail(r, "urlencode: expected pairs");
            if (i) tpl_emit_c(r, "&");
            if (!r->rc) emit_quoted(r, pair->items[0], true);
            tpl_emit_c(r, "=");
            if (!r->rc) emit_quoted(r, pair->items[1], true);
        }
    }
    return tpl_take(r, from);
}

/* Filters that Jinja has and this interpreter does not: an error only where they run. */
#define UNSUPPORTED(name)                                                                                    \
    static struct value fn_##name(struct rendering *r, struct value x, struct args *a)                       \
    {                                                                                                        \
        (void)x;                                                                                             \
        a->used = a->n;                                                                                      \
        return tpl_fail(r, "the filter " #name " of Jinja is not supported");                                \
    }
UNSUPPORTED(pprint)
UNSUPPORTED(random)
UNSUPPORTED(striptags)
UNSUPPORTED(urlize)
UNSUPPORTED(wordwrap)
UNSUPPORTED(xmlattr)

static struct value fn_attr(struct rendering *r, struct value x, struct args *a)
{
    struct value name = tpl_arg_required(r, a, 0, "name");
    if (x.type == VALUE_UNDEFINED || x.type == VALUE_LOOP || (x.type == VALUE_DICT && x.dict->is_namespace))
        return tpl_lookup(r, x, name, true);
    const struct function *m = !r->rc && name.type == VALUE_STRING ? tpl_method(x, name.s) : NULL;
    return m ? tpl_lookup(r, x, name, true) : TPL_UNDEFINED; /* items are no attributes */
}

const struct function *tpl_filter(const struct text *name)
{
    static const struct function FILTERS[] = {
        { "default", fn_default },
        { "d", fn_default },
        { "length", fn_length },
        { "count", fn_length },
        { "string", fn_string },
        { "tojson", fn_tojson },
        { "safe", fn_safe },
        { "escape", fn_escape },
        { "e", fn_escape },
        { "forceescape", fn_escape },
        { "int", fn_int },
        { "float", fn_float },
        { "abs", fn_abs },
        { "round", fn_round },
        { "indent", fn_indent },
        { "truncate", fn_truncate },
        { "center", fn_center },
        { "wordcount", fn_wordcount },
        { "format", fn_format },
        { "attr", fn_attr },
        { "filesizeformat", fn_filesizeformat },
        { "urlencode", fn_urlencode },
        { "pprint", fn_pprint },
        { "random", fn_random },
        { "striptags", fn_striptags },
        { "urlize", fn_urlize },
        { "wordwrap", fn_wordwrap },
        { "xmlattr", fn_xmlattr },
        { NULL, NULL },
    };
    const struct function *f = tpl_function_in(FILTERS, name);
    if (!f) f = tpl_function_in(TPL_STRING_FILTERS, name);
    return f ? f : tpl_function_in(TPL_LIST_FILTERS, name);
}
