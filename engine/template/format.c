/* Numbers as Python prints them, and the two ways of Python to fill in texts: "%s and %d" % (a, b), and
 * "{} and {:>8.2f}".format(a, b) with its format specifications. What they do not express here is an error
 * that names the conversion. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/template_internal.h"

enum { WIDTH_MOST = 10000, PRECISION_MOST = 100 };

/* ---------------------------------------------------------------- repr of a double */

/* Python writes exponents from 1e16 up and below 1e-4, C's %g elsewhere. */
size_t tpl_float_repr(double d, char out[TPL_FLOAT_ROOM])
{
    char text[40], digits[24];
    int count = 0, exponent = 0;
    if (isnan(d) || isinf(d)) return (size_t)sprintf(out, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
    /* The fewest digits that read back as the same double. A decimal number of up to 15 digits keeps them, so
     * trying begins there: zeros at the end go below. Only numbers near 0 have fewer significant bits. */
    for (int n = fabs(d) < DBL_MIN ? 0 : 14; n < 17; n++) {
        snprintf(text, sizeof text, "%.*e", n, d);
        if (strtod(text, NULL) == d) break;
    }
    const char *p = text + (*text == '-');
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[count++] = *p;
    if (*p) exponent = atoi(p + 1);
    while (count > 1 && digits[count - 1] == '0') count--;
    digits[count] = '\0';
    char *to = out;
    if (*text == '-') *to++ = '-';
    if (exponent < -4 || exponent >= 16)
        return (size_t)(to - out) + (size_t)sprintf(to, "%c%s%se%c%02d", digits[0], count > 1 ? "." : "",
                                                    digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    if (exponent < 0) {
        to += sprintf(to, "0.%.*s%s", -exponent - 1, "0000", digits);
        return (size_t)(to - out);
    }
    for (int i = 0; i <= exponent; i++) *to++ = i < count ? digits[i] : '0';
    to += sprintf(to, ".%s", exponent + 1 < count ? digits + exponent + 1 : "0");
    return (size_t)(to - out);
}

/* ---------------------------------------------------------------- format specifications */

/* [[fill]align][sign][#][0][width][, or _][.precision][type] */
struct spec {
    const char *fill;
    size_t fill_n;
    char align, sign, group, type;
    bool alternate, zero;
    int64_t width, precision; /* precision -1: not given */
};

static const char *read_number(const char *p, const char *end, int64_t *out)
{
    for (*out = 0; p < end && *p >= '0' && *p <= '9'; p++) *out = MIN(*out * 10 + (*p - '0'), 1000000);
    return p;
}

static bool is_one_of(const char *p, const char *end, const char *set)
{
    return p < end && *p && strchr(set, *p);
}

static bool spec_parse(struct spec *s, const char *p, const char *end)
{
    uint32_t c;
    *s = (struct spec){ .fill = " ", .fill_n = 1, .precision = -1 };
    const size_t first = p < end ? str_utf8_next(p, (size_t)(end - p), &c) : 0;
    if (first && is_one_of(p + first, end, "<>=^")) {
        s->fill = p;
        s->fill_n = first;
        s->align = p[first];
        p += first + 1;
    } else if (is_one_of(p, end, "<>=^"))
        s->align = *p++;
    if (is_one_of(p, end, "+- ")) s->sign = *p++;
    if (is_one_of(p, end, "#")) s->alternate = *p++;
    if (is_one_of(p, end, "0")) {
        s->zero = true;
        if (!s->align) {
            s->fill = "0";
            s->align = '=';
        }
        p++;
    }
    p = read_number(p, end, &s->width);
    if (is_one_of(p, end, ",_")) s->group = *p++;
    if (is_one_of(p, end, ".")) {
        const char *from = ++p;
        p = read_number(p, end, &s->precision);
        if (p == from) return false;
    }
    if (p < end) s->type = *p++;
    return p == end && s->width <= WIDTH_MOST && s->precision <= PRECISION_MOST;
}

static void emit_fill(struct rendering *r, const struct spec *s, int64_t n)
{
    for (; n > 0 && !r->rc; n--) tpl_emit(r, s->fill, NULL, s->fill_n);
}

static void emit_padded(struct rendering *r, const struct spec *s, const struct text *text, char align)
{
    const int64_t space = MAX(s->width - tpl_utf8_count(text), 0), left = align == '>'   ? space
                                                                          : align == '^' ? space / 2
                                                                                         : 0;
    emit_fill(r, s, left);
    tpl_emit_text(r, text);
    emit_fill(r, s, space - left);
}

/* Put separators between the digits before the point: every 3, or 4 of bits. */
static size_t group_digits(const char *digits, size_t n, const struct spec *s, char *out)
{
    const size_t every = s->type && strchr("xXob", s->type) ? 4 : 3;
    size_t whole = 0, to = 0;
    while (whole < n && ((digits[whole] >= '0' && digits[whole] <= '9') ||
                         (every == 4 && ((digits[whole] | 32) >= 'a' && (digits[whole] | 32) <= 'f'))))
        whole++;
    for (size_t i = 0; i < n; i++) {
        if (s->group && i && i < whole && (whole - i) % every == 0) out[to++] = s->group;
        out[to++] = digits[i];
    }
    return to;
}

/* digits: without a sign. */
static struct value emit_number(struct rendering *r, const struct spec *s, bool negative, const char *prefix,
                                const char *digits)
{
    char grouped[1024], head[8];
    const size_t n = group_digits(digits, strlen(digits), s, grouped);
    snprintf(head, sizeof head, "%s%s",
             negative         ? "-"
             : s->sign == '+' ? "+"
             : s->sign == ' ' ? " "
                              : "",
             prefix);
    const int64_t space = MAX(s->width - (int64_t)(strlen(head) + n), 0);
    if (s->align == '=' && s->group && s->zero && space)
        return tpl_fail(r, "format: zeros in front of grouped digits are not supported");
    const char align = s->align ? s->align : '>';
    const int64_t left = align == '>' ? space : align == '^' ? space / 2 : 0;
    emit_fill(r, s, left);
    tpl_emit_c(r, head);
    if (align == '=') emit_fill(r, s, space);
    tpl_emit(r, grouped, NULL, n);
    if (align != '=') emit_fill(r, s, space - left);
    return TPL_UNDEFINED;
}

static struct value spec_fail(struct rendering *r, struct value v, const char *spec, size_t n)
{
    return tpl_fail(r, "format: '%.*s' is not supported for a %s", (int)MIN(n, 40), spec, tpl_type_name(v));
}

static bool format_integer(struct rendering *r, const struct spec *s, int64_t i)
{
    char digits[72];
    const bool negative = i < 0;
    uint64_t u = negative ? 0 - (uint64_t)i : (uint64_t)i;
    const char *prefix = "";
    switch (s->type) {
    case 0:
    case 'd':
    case 'n': snprintf(digits, sizeof digits, "%" PRIu64, u); break;
    case 'x': snprintf(digits, sizeof digits, "%" PRIx64, u), prefix = "0x"; break;
    case 'X': snprintf(digits, sizeof digits, "%" PRIX64, u), prefix = "0X"; break;
    case 'o': snprintf(digits, sizeof digits, "%" PRIo64, u), prefix = "0o"; break;
    case 'b': {
        int n = 1;
        while (n < 64 && u >> n) n++;
        for (int k = 0; k < n; k++) digits[k] = (char)('0' + (u >> (n - 1 - k) & 1));
        digits[n] = '\0';
        prefix = "0b";
        break;
    }
    default: return false;
    }
    if (s->precision >= 0) return false;
    emit_number(r, s, negative, s->alternate ? prefix : "", digits);
    return true;
}

/* The exponent of Python's %g has two digits at least, as C's has. */
static bool format_real(struct rendering *r, const struct spec *s, double d)
{
    char format[16], digits[512];
    const double a = fabs(d);
    const char type = s->type;
    if (type && !strchr("eEfFgGn%", type)) return false;
    if (s->alternate) return false;
    if (!isfinite(d))
        snprintf(digits, sizeof digits, "%s%s", isnan(d) ? "nan" : "inf", type == '%' ? "%" : "");
    else if (!type && s->precision < 0) {
        char repr[TPL_FLOAT_ROOM];
        repr[tpl_float_repr(a, repr)] = '\0';
        snprintf(digits, sizeof digits, "%s", repr);
    } else {
        const int precision = s->precision < 0 ? 6 : (int)s->precision;
        snprintf(format, sizeof format, "%%.%d%c", precision,
                 type == '%'            ? 'f'
                 : !type || type == 'n' ? 'g'
                                        : type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* made above */
        if (snprintf(digits, sizeof digits, format, type == '%' ? a * 100 : a) >= (int)sizeof digits - 4)
            return false;
#pragma GCC diagnostic pop
        if (type == '%') strcat(digits, "%");
        if (!type && !strpbrk(digits, ".e")) {
            /* without a type, a number that %g would print as a whole one keeps ".0", or has an exponent
             * where its digits take all of the precision */
            if ((int)strlen(digits) >= precision) return false;
            strcat(digits, ".0");
        }
    }
    emit_number(r, s, signbit(d) && !isnan(d), "", digits);
    return true;
}

/* format(v, spec) */
static void emit_formatted(struct rendering *r, struct value v, const char *spec, size_t n)
{
    struct spec s;
    if (!n) {
        tpl_emit_value(r, v);
        return;
    }
    bool done = spec_parse(&s, spec, spec + n);
    if (done && v.type == VALUE_STRING) {
        done = (!s.type || s.type == 's') && !s.sign && !s.group && !s.alternate &&
               (s.align != '=' || s.zero);
        struct text part = *v.s;
        if (s.precision >= 0) part.n = tpl_utf8_start(v.s, s.precision);
        if (done) emit_padded(r, &s, &part, s.align && s.align != '=' ? s.align : '<');
    } else if (done && v.type == VALUE_FLOAT)
        done = format_real(r, &s, v.d);
    else if (done && tpl_is_number(v)) {
        const int64_t i = v.type == VALUE_BOOL ? v.b : v.i;
        done = s.type && strchr("eEfFgG%", s.type) ? format_real(r, &s, (double)i) : format_integer(r, &s, i);
    } else
        done = false;
    if (!done) spec_fail(r, v, spec, n);
}

/* ---------------------------------------------------------------- "{}".format() */

struct fields {
    struct args *args;
    struct value map; /* of format_map; undefined: none */
    size_t next;      /* of fields without a number */
};

/* The value that a field such as "0.name[key]" names. */
static struct value field_value(struct rendering *r, struct fields *f, const char *field, size_t n)
{
    char name[64];
    int64_t at;
    size_t to = 0;
    while (to < n && field[to] != '.' && field[to] != '[') to++;
    if (to >= sizeof name) return tpl_fail(r, "format: expected a name of less than %zu bytes", sizeof name);
    memcpy(name, field, to);
    name[to] = '\0';
    struct value v;
    if (f->map.type == VALUE_DICT) {
        const struct value *found = tpl_dict_find(r, f->map.dict, tpl_string(r, field, NULL, to));
        v = found ? *found : tpl_fail(r, "format_map: the dict has no '%s'", name);
    } else if (!to)
        v = tpl_arg_required(r, f->args, f->next++, "");
    else if (str_to_i64(name, &at) && at >= 0 && at < 1000)
        v = tpl_arg_required(r, f->args, (size_t)at, "");
    else
        v = tpl_arg_required(r, f->args, 1000, name);
    while (to < n && !r->rc) {
        const bool item = field[to++] == '[';
        const size_t from = to;
        while (to < n && (item ? field[to] != ']' : field[to] != '.' && field[to] != '[')) to++;
        snprintf(name, sizeof name, "%.*s", (int)MIN(to - from, sizeof name - 1), field + from);
        v = tpl_lookup(r, v,
                       item && str_to_i64(name, &at) && at >= 0
                           ? tpl_int(at)
                           : tpl_string(r, field + from, NULL, to - from),
                       !item);
        if (item && to++ >= n) return tpl_fail(r, "format: expected ']' in a field");
    }
    return v;
}

static void format_text(struct rendering *r, const struct text *s, struct fields *f, int depth);

/* "name!r:spec" without its braces. */
static void format_field(struct rendering *r, const struct text *s, size_t from, size_t to, struct fields *f,
                         int depth)
{
    size_t end = from, spec;
    for (int brackets = 0; end < to; end++) {
        brackets += (s->bytes[end] == '[') - (s->bytes[end] == ']');
        if (!brackets && (s->bytes[end] == '!' || s->bytes[end] == ':')) break;
    }
    struct value v = field_value(r, f, s->bytes + from, end - from);
    if (end < to && s->bytes[end] == '!') {
        const char kind = end + 1 < to ? s->bytes[end + 1] : '\0';
        if ((kind != 's' && kind != 'r') || (end + 2 < to && s->bytes[end + 2] != ':')) {
            tpl_fail(r, "format: expected the conversion !s or !r");
            return;
        }
        const size_t mark = r->out.len;
        if (kind == 'r')
            tpl_emit_repr(r, v);
        else
            tpl_emit_value(r, v);
        v = tpl_take(r, mark);
        end += 2;
    }
    spec = MIN(end + 1, to);
    struct text given = { .bytes = s->bytes + spec, .n = to - spec };
    if (given.n && memchr(given.bytes, '{', given.n)) {
        const size_t mark = r->out.len;
        format_text(r, &given, f, depth + 1);
        struct value made = tpl_take(r, mark);
        if (!r->rc) given = *made.s;
    }
    if (!r->rc) emit_formatted(r, v, given.bytes, given.n);
}

static void format_text(struct rendering *r, const struct text *s, struct fields *f, int depth)
{
    if (depth > 1) tpl_fail(r, "format: fields are nested deeper than 2");
    for (size_t i = 0; i < s->n && !r->rc; i++) {
        const char c = s->bytes[i];
        const bool twice = i + 1 < s->n && s->bytes[i + 1] == c;
        if (c == '{' && !twice) {
            size_t to = i + 1;
            for (int level = 1; to < s->n; to++) {
                level += (s->bytes[to] == '{') - (s->bytes[to] == '}');
                if (!level) break;
            }
            if (to == s->n) {
                tpl_fail(r, "format: a single '{' in the text");
                return;
            }
            format_field(r, s, i + 1, to, f, depth);
            i = to;
            continue;
        }
        if (c == '}' && !twice) tpl_fail(r, "format: a single '}' in the text");
        tpl_emit(r, s->bytes + i, s->marks ? s->marks + i : NULL, 1);
        i += c == '{' || c == '}';
    }
}

struct value tpl_format_method(struct rendering *r, struct value x, struct args *a)
{
    struct fields f = { .args = a };
    const size_t from = r->out.len;
    format_text(r, x.s, &f, 0);
    a->used = a->n;
    return tpl_take(r, from);
}

struct value tpl_format_map_method(struct rendering *r, struct value x, struct args *a)
{
    struct fields f = { .args = a, .map = tpl_arg_required(r, a, 0, "mapping") };
    const size_t from = r->out.len;
    if (!r->rc && f.map.type != VALUE_DICT) return tpl_fail(r, "format_map: expected a dict");
    if (!r->rc) format_text(r, x.s, &f, 0);
    return tpl_take(r, from);
}

/* ---------------------------------------------------------------- "%s and %d" % (a, b) */

/* Flags, width and precision of a %-conversion as a specification. */
static bool percent_spec(struct spec *s, const char *p, const char *end)
{
    bool left = false;
    *s = (struct spec){ .fill = " ", .fill_n = 1, .precision = -1, .align = '>' };
    for (; is_one_of(p, end, "+-0 #"); p++) {
        left = left || *p == '-';
        s->zero = s->zero || *p == '0';
        s->alternate = s->alternate || *p == '#';
        if (*p == '+' || (*p == ' ' && !s->sign)) s->sign = *p;
    }
    p = read_number(p, end, &s->width);
    if (is_one_of(p, end, ".")) p = read_number(p + 1, end, &s->precision);
    if (left) s->align = '<', s->zero = false;
    return p == end && s->width <= WIDTH_MOST && s->precision <= PRECISION_MOST;
}

/* Print v by one %-conversion. False: the conversion does not fit the value. "%d" of a float truncates it, as
 * in Python. */
static bool emit_conversion(struct rendering *r, const char *flags, size_t n, char kind, struct value v)
{
    struct spec s;
    if (!percent_spec(&s, flags, flags + n)) return false;
    if (kind == 's' || kind == 'r') {
        const size_t from = r->out.len;
        if (kind == 'r')
            tpl_emit_repr(r, v);
        else
            tpl_emit_value(r, v);
        struct value text = tpl_take(r, from);
        if (r->rc) return true;
        struct text part = *text.s;
        if (s.precision >= 0) part.n = tpl_utf8_start(text.s, s.precision);
        emit_padded(r, &s, &part, s.align);
        return true;
    }
    if (!tpl_is_number(v)) return false;
    if (s.zero) s.fill = "0", s.align = '=';
    s.type = kind;
    if (strchr("eEfFgG", kind)) return format_real(r, &s, tpl_number(v));
    if (v.type == VALUE_FLOAT && (kind != 'd' || !(fabs(v.d) < 9e18))) return false;
    return format_integer(r, &s, v.type == VALUE_FLOAT ? (int64_t)v.d : v.type == VALUE_BOOL ? v.b : v.i);
}

/* "%(name)s": the value; *at moves behind the bracket. */
static struct value named_value(struct rendering *r, const struct text *f, size_t *at, struct value map)
{
    const char *from = f->bytes + *at, *end = memchr(from, ')', f->n - *at);
    if (map.type != VALUE_DICT || !end)
        return tpl_fail(r, "a format with %%(name) needs a dict, found a %s", tpl_type_name(map));
    *at += (size_t)(end - from) + 1;
    const struct value *v = tpl_dict_find(r, map.dict, tpl_string(r, from, NULL, (size_t)(end - from)));
    return v ? *v
             : tpl_fail(r, "a format names '%.*s', which the dict does not have", (int)MIN(end - from, 40),
                        from);
}

struct value tpl_format(struct rendering *r, const struct text *f, const struct list *values)
{
    const size_t from = r->out.len;
    const struct value map = values->tuple ? TPL_NONE
                                           : values->items[0]; /* a value without a tuple around it */
    size_t next = 0;
    bool named = false;
    for (size_t i = 0; i < f->n && !r->rc; i++) {
        if (f->bytes[i] != '%') {
            tpl_emit(r, f->bytes + i, f->marks ? f->marks + i : NULL, 1);
            continue;
        }
        size_t at = i + 1, n = 0;
        struct value v = TPL_UNDEFINED;
        const bool by_name = at < f->n && f->bytes[at] == '(';
        if (by_name) {
            at++;
            v = named_value(r, f, &at, map);
            named = true;
        }
        while (at + n < f->n && f->bytes[at + n] && strchr("+-0 #.123456789", f->bytes[at + n])) n++;
        const char kind = at + n < f->n ? f->bytes[at + n] : '\0';
        i = at + n;
        if (kind == '%') {
            tpl_emit_c(r, "%");
            continue;
        }
        if (!by_name && next >= values->n)
            tpl_fail(r, "a format has more %%-conversions than the %zu values that it was given", values->n);
        if (r->rc) break;
        if (!by_name) v = values->items[next++];
        if (!kind || !strchr("sdiurfeEgGxXo", kind) ||
            !emit_conversion(r, f->bytes + at, n, kind == 'i' || kind == 'u' ? 'd' : kind, v))
            tpl_fail(r, "'%%%.*s' is not supported for a %s", (int)MIN(n + 1, 20), f->bytes + at,
                     tpl_type_name(v));
    }
    /* Python takes every value with items for a dict, whose members need not be used */
    const bool has_items = map.type == VALUE_DICT || map.type == VALUE_UNDEFINED || tpl_is_list(map) ||
                           (map.type == VALUE_LIST && map.list->kind == LIST_RANGE);
    if (!named && next < values->n && !has_items)
        return tpl_fail(r, "a format was given %zu values, but has %zu conversions", values->n, next);
    return tpl_take(r, from);
}
