/* Values to texts (json.h). jansson writes 0.1 as 0.10000000000000001, and nothing that is not UTF-8. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct writing {
    struct str out;
    enum json_layout layout;
    int digits;
};

static void write_string(struct str *out, const char *text, size_t n)
{
    static const char ESCAPED[] = "\"\\\b\f\n\r\t", LETTER[] = "\"\\bfnrt";
    str_append(out, "\"");
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const char *at = c ? strchr(ESCAPED, c) : NULL;
        if (c >= 0x20 && !at) continue;
        str_append_n(out, text + from, i - from);
        if (at)
            str_printf(out, "\\%c", LETTER[at - ESCAPED]);
        else
            str_printf(out, "\\u%04X", (unsigned)c);
        from = i + 1;
    }
    str_append_n(out, text + from, n - from);
    str_append(out, "\"");
}

/* "1e+07" and "3" of printf become "1e7" and "3.0". */
static void write_real(struct writing *w, double v)
{
    char text[40];
    if (w->digits) {
        snprintf(text, sizeof text, "%.*g", w->digits, v);
        char *comma = strchr(text, ','); /* of the locale */
        if (comma) *comma = '.';
    } else {
        str_from_double(v, text, sizeof text);
    }
    const char *e = strchr(text, 'e');
    if (!e) {
        str_append(&w->out, text);
        if (!strchr(text, '.')) str_append(&w->out, ".0");
        return;
    }
    str_append_n(&w->out, text, (size_t)(e - text) + 1);
    e++;
    if (*e == '-') str_append(&w->out, "-");
    e += *e == '-' || *e == '+';
    while (*e == '0' && e[1]) e++;
    str_append(&w->out, e);
}

static void write_break(struct writing *w, int level)
{
    if (w->layout != JSON_INDENTED) return;
    str_append(&w->out, "\n");
    for (int i = 0; i < level; i++) str_append(&w->out, "  ");
}

/* Before the item `i` of a list or object at this level. */
static void write_gap(struct writing *w, size_t i, int level)
{
    if (i) str_append(&w->out, w->layout == JSON_SPACED ? ", " : ",");
    write_break(w, level);
}

static void write_value(struct writing *w, const json_t *v, int level);

static void write_list(struct writing *w, const json_t *v, int level)
{
    const size_t n = json_array_size(v);
    str_append(&w->out, "[");
    for (size_t i = 0; i < n; i++) {
        write_gap(w, i, level + 1);
        write_value(w, json_array_get(v, i), level + 1);
    }
    if (n) write_break(w, level);
    str_append(&w->out, "]");
}

static void write_object(struct writing *w, const json_t *v, int level)
{
    size_t i = 0;
    json_t *o = (json_t *)(uintptr_t)v;
    str_append(&w->out, "{");
    for (void *at = json_object_iter(o); at; at = json_object_iter_next(o, at)) {
        write_gap(w, i++, level + 1);
        write_string(&w->out, json_object_iter_key(at), json_object_iter_key_len(at));
        str_append(&w->out, w->layout == JSON_TIGHT ? ":" : ": ");
        write_value(w, json_object_iter_value(at), level + 1);
    }
    if (i) write_break(w, level);
    str_append(&w->out, "}");
}

static void write_value(struct writing *w, const json_t *v, int level)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: write_object(w, v, level); break;
    case JSON_ARRAY: write_list(w, v, level); break;
    case JSON_STRING:
        if (json_big_integer(v))
            str_append(&w->out, json_big_integer(v));
        else
            write_string(&w->out, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER: str_printf(&w->out, "%" JSON_INTEGER_FORMAT, json_integer_value(v)); break;
    case JSON_REAL: write_real(w, json_real_value(v)); break;
    case JSON_TRUE: str_append(&w->out, "true"); break;
    case JSON_FALSE: str_append(&w->out, "false"); break;
    case JSON_NULL: str_append(&w->out, "null"); break;
    }
}

char *json_write(const json_t *value, enum json_layout layout, int digits)
{
    struct writing w = { .layout = layout, .digits = digits };
    if (!value || memory_is_short()) return NULL;
    write_value(&w, value, 0);
    if (!memory_is_short()) return str_take(&w.out);
    str_free(&w.out);
    return NULL;
}

char *json_line(const json_t *value)
{
    return json_write(value, JSON_TIGHT, 0);
}
