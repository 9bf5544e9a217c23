/* The filter tojson: writes values as Python's json.dumps does, because models were trained on prompts with
 * its spacing. Text that came from messages keeps its marks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/template_internal.h"

static void emit_escape(struct rendering *r, uint32_t c, const char *marks)
{
    char text[16], all[16];
    const int n = c > 0xffff ? snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                                        0xdc00 + ((c - 0x10000) & 0x3ff))
                             : snprintf(text, sizeof text, "\\u%04x", c);
    memset(all, marks ? *marks : 0, sizeof all);
    tpl_emit(r, text, all, (size_t)n);
}

static void emit_string(struct rendering *r, const struct text *s, bool ascii)
{
    static const char FROM[] = "\"\\\n\r\t\b\f", TO[] = "\"\\nrtbf";
    tpl_emit_c(r, "\"");
    for (size_t at = 0, used; at < s->n && !r->rc; at += used) {
        const char *marks = s->marks ? s->marks + at : NULL;
        uint32_t c;
        used = str_utf8_next(s->bytes + at, s->n - at, &c);
        const char *simple = s->bytes[at] ? strchr(FROM, s->bytes[at]) : NULL;
        if (simple) {
            const char escape[2] = { '\\', TO[simple - FROM] },
                       both[2] = { marks ? *marks : 0, marks ? *marks : 0 };
            tpl_emit(r, escape, both, 2);
        } else if (c < 0x20 || (ascii && c > 0x7e))
            emit_escape(r, c, marks);
        else
            tpl_emit(r, s->bytes + at, marks, used);
    }
    tpl_emit_c(r, "\"");
}

static void emit_break(struct rendering *r, const struct json_style *style, int level)
{
    if (style->indent < 0) return;
    tpl_emit_c(r, "\n");
    for (int i = 0; style->indent_by && i < level && !r->rc; i++) tpl_emit_text(r, style->indent_by);
    if (style->indent_by) return;
    for (int64_t i = 0; i < (int64_t)level * style->indent && !r->rc; i++) tpl_emit_c(r, " ");
}

static void emit_comma(struct rendering *r, const struct json_style *style, int level)
{
    if (style->item)
        tpl_emit_text(r, style->item);
    else
        tpl_emit_c(r, style->indent < 0 ? ", " : ",");
    emit_break(r, style, level);
}

static void emit_key(struct rendering *r, struct value key, const struct json_style *style)
{
    if (key.type == VALUE_LIST) tpl_fail(r, "tojson: a tuple cannot be a key");
    if (key.type == VALUE_STRING)
        emit_string(r, key.s, style->ascii);
    else {
        tpl_emit_c(r, "\"");
        tpl_emit_json(r, key, style, 0);
        tpl_emit_c(r, "\"");
    }
    if (style->colon)
        tpl_emit_text(r, style->colon);
    else
        tpl_emit_c(r, ": ");
}

static int by_key(const void *a, const void *b)
{
    const struct text *x = (*(struct entry *const *)a)->key.s, *y = (*(struct entry *const *)b)->key.s;
    const size_t n = MIN(x->n, y->n);
    const int order = n ? memcmp(x->bytes, y->bytes, n) : 0;
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static void emit_object(struct rendering *r, const struct dict *d, const struct json_style *style, int level)
{
    struct entry **order = tpl_alloc(r, (d->n + 1) * sizeof *order);
    bool texts = true;
    for (size_t i = 0; i < d->n && order; i++) {
        order[i] = &d->entries[i];
        texts &= d->entries[i].key.type == VALUE_STRING;
    }
    if (order && style->sort && texts) qsort(order, d->n, sizeof *order, by_key);
    tpl_emit_c(r, "{");
    if (d->n) emit_break(r, style, level + 1);
    for (size_t i = 0; i < d->n && !r->rc; i++) {
        if (i) emit_comma(r, style, level + 1);
        emit_key(r, order[i]->key, style);
        tpl_emit_json(r, order[i]->value, style, level + 1);
    }
    if (d->n) emit_break(r, style, level);
    tpl_emit_c(r, "}");
}

static void emit_array(struct rendering *r, const struct list *l, const struct json_style *style, int level)
{
    tpl_emit_c(r, "[");
    if (l->n) emit_break(r, style, level + 1);
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        if (i) emit_comma(r, style, level + 1);
        tpl_emit_json(r, l->items[i], style, level + 1);
    }
    if (l->n) emit_break(r, style, level);
    tpl_emit_c(r, "]");
}

void tpl_emit_json(struct rendering *r, struct value v, const struct json_style *style, int level)
{
    if (level > TEMPLATE_DEPTH_MOST) {
        tpl_fail(r, "a value is nested deeper than %d", TEMPLATE_DEPTH_MOST);
        return;
    }
    switch (v.type) {
    case VALUE_NONE: tpl_emit_c(r, "null"); break;
    case VALUE_BOOL: tpl_emit_c(r, v.b ? "true" : "false"); break;
    case VALUE_BIG: tpl_emit_text(r, v.s); break;
    case VALUE_INT:
    case VALUE_FLOAT:
        if (v.type == VALUE_FLOAT && !isfinite(v.d))
            tpl_emit_c(r, isnan(v.d) ? "NaN" : v.d < 0 ? "-Infinity" : "Infinity");
        else
            tpl_emit_repr(r, v);
        break;
    case VALUE_STRING: emit_string(r, v.s, style->ascii); break;
    case VALUE_LIST:
        if (tpl_is_list(v))
            emit_array(r, v.list, style, level);
        else
            tpl_fail(r,
                     "tojson: a generator, a range or a view of a dict cannot be written: make a list of it");
        break;
    case VALUE_DICT:
        if (v.dict->is_namespace)
            tpl_fail(r, "tojson: a namespace cannot be written as JSON");
        else
            emit_object(r, v.dict, style, level);
        break;
    default: tpl_fail(r, "tojson: a %s cannot be written as JSON", tpl_type_name(v));
    }
}
