/* Values of a rendering: creating, comparing and printing them with the rules of Python, which Jinja inherits
 * (str, repr, ==, <). Source of the expected output: Jinja 3.1.6 under CPython 3 (tests/data/chat-golden).
 *
 * All values live in the arena of the rendering, whose size is limited. Nothing is freed before the rendering
 * ends, so values may share bytes and items without counting references. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/template_internal.h"

const struct value TPL_UNDEFINED = { .type = VALUE_UNDEFINED }, TPL_NONE = { .type = VALUE_NONE };

/* ---------------------------------------------------------------- limits and errors */

/* Only the first error of a rendering is kept; later ones are consequences of it. */
struct value tpl_fail(struct rendering *r, const char *format, ...)
{
    char text[400];
    va_list args;
    if (r->rc) return TPL_UNDEFINED;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->rc = err_set(r->why, ERR_FORMAT, "%s, line %d: %s", r->t->name, r->line, text);
    return TPL_UNDEFINED;
}

/* Work is counted in steps of about one node or 64 bytes, so that a hostile template ends after bounded
 * time. */
bool tpl_steps(struct rendering *r, size_t n)
{
    if (r->rc) return false;
    r->steps += (int64_t)MIN(n, (size_t)TEMPLATE_STEPS_MOST) + 1;
    if (r->steps <= TEMPLATE_STEPS_MOST) return true;
    tpl_fail(r, "stopped after %d steps: expected a template that ends sooner", TEMPLATE_STEPS_MOST);
    return false;
}

/* Nested calls are limited, so that a recursive macro cannot overflow the C stack. */
bool tpl_deeper(struct rendering *r)
{
    if (r->rc) return false;
    if (++r->depth <= TEMPLATE_CALLS_MOST) return true;
    tpl_fail(r, "calls are nested deeper than %d", TEMPLATE_CALLS_MOST);
    return false;
}

void *tpl_alloc(struct rendering *r, size_t n)
{
    if (r->rc) return NULL;
    if (r->memory.used + n > TEMPLATE_MEMORY_MOST) {
        tpl_fail(r, "uses more than %d MiB of memory", TEMPLATE_MEMORY_MOST >> 20);
        return NULL;
    }
    void *p = arena_alloc(&r->memory, n);
    if (!p) r->rc = err_set(r->why, ERR_NOMEM, "out of memory for the template");
    return p;
}

/* ---------------------------------------------------------------- creating values */

struct value tpl_bool(bool b)
{
    return (struct value){ VALUE_BOOL, { .b = b } };
}

struct value tpl_int(int64_t i)
{
    return (struct value){ VALUE_INT, { .i = i } };
}

struct value tpl_float(double d)
{
    return (struct value){ VALUE_FLOAT, { .d = d } };
}

static struct value string_new(struct rendering *r, const char *bytes, const char *marks, size_t n)
{
    struct text *s = tpl_alloc(r, sizeof *s);
    if (!s) return TPL_UNDEFINED;
    *s = (struct text){ .bytes = bytes, .marks = marks, .n = n };
    return (struct value){ VALUE_STRING, { .s = s } };
}

struct value tpl_string(struct rendering *r, const char *bytes, const char *marks, size_t n)
{
    const bool marked = marks && n && memchr(marks, 1, n);
    if (!tpl_steps(r, n / 64)) return TPL_UNDEFINED;
    char *copy = tpl_alloc(r, (marked ? 2 * n : n) + 1);
    if (!copy) return TPL_UNDEFINED;
    if (n) memcpy(copy, bytes, n);
    if (marked) memcpy(copy + n, marks, n);
    return string_new(r, copy, marked ? copy + n : NULL, n);
}

struct value tpl_c_string(struct rendering *r, const char *text)
{
    return tpl_string(r, text, NULL, strlen(text));
}

/* The new string shares the bytes of s, so slicing costs no copy. */
struct value tpl_part(struct rendering *r, const struct text *s, size_t from, size_t to)
{
    if (to < from) to = from;
    return string_new(r, s->bytes + from, s->marks ? s->marks + from : NULL, to - from);
}

struct value tpl_list(struct rendering *r, bool tuple)
{
    struct list *l = tpl_alloc(r, sizeof *l);
    if (!l) return TPL_UNDEFINED;
    l->tuple = tuple;
    return (struct value){ VALUE_LIST, { .list = l } };
}

/* Make room for one more item of `size` bytes. The capacity doubles; the old array stays in the arena. */
static bool items_reserve(struct rendering *r, void **items, size_t n, size_t *cap, size_t size)
{
    if (r->rc) return false;
    if (n < *cap) return true;
    const size_t more = *cap ? *cap * 2 : 4;
    void *p = tpl_alloc(r, more * size);
    if (!p) return false;
    if (n) memcpy(p, *items, n * size);
    *items = p;
    *cap = more;
    return true;
}

bool tpl_list_add(struct rendering *r, struct list *l, struct value v)
{
    if (!tpl_steps(r, 0) || !items_reserve(r, (void **)&l->items, l->n, &l->cap, sizeof *l->items))
        return false;
    l->items[l->n++] = v;
    return true;
}

struct value tpl_generator(struct rendering *r)
{
    struct value v = tpl_list(r, false);
    if (v.type == VALUE_LIST) v.list->kind = LIST_GENERATOR;
    return v;
}

bool tpl_is_list(struct value v)
{
    return v.type == VALUE_LIST && (v.list->kind == LIST_PLAIN || v.list->kind == LIST_GROUP);
}

bool tpl_is_hashable(struct value v)
{
    return v.type == VALUE_LIST
               ? v.list->tuple || v.list->kind == LIST_GENERATOR || v.list->kind == LIST_RANGE
               : v.type != VALUE_DICT || v.dict->is_namespace;
}

struct value tpl_dict(struct rendering *r)
{
    struct dict *d = tpl_alloc(r, sizeof *d);
    return d ? (struct value){ VALUE_DICT, { .dict = d } } : TPL_UNDEFINED;
}

static bool texts_equal(const struct text *a, const struct text *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->bytes, b->bytes, a->n));
}

/* Dicts are arrays in insertion order, as Python prints them. Chat messages have a few keys, so a linear
 * search is fast enough; its steps are counted. */
struct value *tpl_dict_find(struct rendering *r, const struct dict *d, struct value key)
{
    if (!tpl_steps(r, d->n / 8)) return NULL;
    for (size_t i = 0; i < d->n; i++) {
        const struct value *k = &d->entries[i].key;
        if (k->type == VALUE_STRING && key.type == VALUE_STRING ? texts_equal(k->s, key.s)
                                                                : tpl_equal(r, *k, key))
            return &d->entries[i].value;
    }
    return NULL;
}

bool tpl_dict_put(struct rendering *r, struct dict *d, struct value key, struct value v)
{
    if (!tpl_is_hashable(key) || key.type == VALUE_UNDEFINED)
        tpl_fail(r, "a %s cannot be a key", tpl_type_name(key));
    struct value *old = tpl_dict_find(r, d, key);
    if (old) {
        *old = v;
        return !r->rc;
    }
    if (!items_reserve(r, (void **)&d->entries, d->n, &d->cap, sizeof *d->entries)) return false;
    d->entries[d->n++] = (struct entry){ key, v };
    return true;
}

static struct value value_from_json(struct rendering *r, const json_t *j, bool mark, int depth);

static struct value marked_string(struct rendering *r, const char *bytes, size_t n, bool mark)
{
    char *marks = mark ? tpl_alloc(r, n + 1) : NULL;
    if (marks) memset(marks, 1, n);
    return tpl_string(r, bytes, marks, n);
}

static struct value object_from_json(struct rendering *r, const json_t *j, bool mark, int depth)
{
    struct value v = tpl_dict(r);
    for (void *at = json_object_iter((json_t *)(uintptr_t)j); at && !r->rc;
         at = json_object_iter_next((json_t *)(uintptr_t)j, at)) {
        const char *name = json_object_iter_key(at);
        struct value key = marked_string(r, name, json_object_iter_key_len(at), mark);
        struct value member = value_from_json(r, json_object_iter_value(at), mark, depth + 1);
        if (!r->rc) tpl_dict_put(r, v.dict, key, member);
    }
    return v;
}

static struct value value_from_json(struct rendering *r, const json_t *j, bool mark, int depth)
{
    if (depth > TEMPLATE_DEPTH_MOST)
        return tpl_fail(r, "the input is nested deeper than %d", TEMPLATE_DEPTH_MOST);
    switch (json_typeof(j)) {
    case JSON_OBJECT: return object_from_json(r, j, mark, depth);
    case JSON_ARRAY: {
        struct value v = tpl_list(r, false);
        for (size_t i = 0; i < json_array_size(j) && !r->rc; i++)
            tpl_list_add(r, v.list, value_from_json(r, json_array_get(j, i), mark, depth + 1));
        return v;
    }
    case JSON_STRING:
        if (json_big_integer(j)) {
            const char *digits = json_big_integer(j);
            struct value big = marked_string(r, digits, strlen(digits), mark);
            big.type = r->rc ? VALUE_UNDEFINED : VALUE_BIG;
            return big;
        }
        return marked_string(r, json_string_value(j), json_string_length(j), mark);
    case JSON_INTEGER: return tpl_int(json_integer_value(j));
    case JSON_REAL: return tpl_float(json_real_value(j));
    case JSON_TRUE:
    case JSON_FALSE: return tpl_bool(json_is_true(j));
    default: return TPL_NONE;
    }
}

struct value tpl_from_json(struct rendering *r, const json_t *j, bool mark)
{
    return value_from_json(r, j, mark, 0);
}

/* ---------------------------------------------------------------- output */

/* `marks` is NULL for text of the template; then zeros are appended, so that marks stay as long as the
 * text. */
void tpl_emit(struct rendering *r, const char *bytes, const char *marks, size_t n)
{
    static const char NONE[256] = { 0 };
    if (!n || !tpl_steps(r, n / 64)) return;
    if (r->out.len + n > TEMPLATE_OUTPUT_MOST) {
        tpl_fail(r, "writes more than %d MiB", TEMPLATE_OUTPUT_MOST >> 20);
        return;
    }
    str_append_n(&r->out, bytes, n);
    if (marks)
        str_append_n(&r->marks, marks, n);
    else
        for (size_t left = n; left; left -= MIN(left, sizeof NONE))
            str_append_n(&r->marks, NONE, MIN(left, sizeof NONE));
    if (r->out.failed || r->marks.failed)
        r->rc = err_set(r->why, ERR_NOMEM, "out of memory for the template");
}

void tpl_emit_text(struct rendering *r, const struct text *s)
{
    tpl_emit(r, s->bytes, s->marks, s->n);
}

void tpl_emit_c(struct rendering *r, const char *text)
{
    tpl_emit(r, text, NULL, strlen(text));
}

/* Removes the output from `from` on and returns it as a string with its marks. */
struct value tpl_take(struct rendering *r, size_t from)
{
    struct value v = tpl_string(r, str_text(&r->out) + from, str_text(&r->marks) + from, r->out.len - from);
    r->out.len = r->marks.len = from;
    return v;
}

static void emit_float(struct rendering *r, double d)
{
    char text[TPL_FLOAT_ROOM];
    tpl_emit(r, text, NULL, tpl_float_repr(d, text));
}

/* Python's repr of a string: single quotes, unless it contains single quotes and no double ones. */
static void emit_string_repr(struct rendering *r, const struct text *s)
{
    const bool single = s->n && memchr(s->bytes, '\'', s->n), both = single && memchr(s->bytes, '"', s->n);
    const char quote = single && !both ? '"' : '\'';
    tpl_emit(r, &quote, NULL, 1);
    for (size_t i = 0, used; i < s->n && !r->rc; i += used) {
        const char c = s->bytes[i], *marks = s->marks ? s->marks + i : NULL;
        char escape[12];
        uint32_t u;
        used = tpl_next_char(s, i, &u);
        if (c == quote || c == '\\')
            tpl_emit(r, "\\", marks, 1), tpl_emit(r, &c, marks, 1);
        else if (c == '\n' || c == '\r' || c == '\t')
            tpl_emit_c(r, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (u != 0xfffd && !tpl_is_printable(u)) {
            snprintf(escape, sizeof escape, u < 0x100 ? "\\x%02x" : u < 0x10000 ? "\\u%04x" : "\\U%08x", u);
            tpl_emit_c(r, escape);
        } else
            tpl_emit(r, s->bytes + i, marks, used);
    }
    tpl_emit(r, &quote, NULL, 1);
}

static void emit_repr(struct rendering *r, struct value v, int depth);

static void emit_list(struct rendering *r, const struct list *l, int depth)
{
    static const char *const VIEWS[] = { [LIST_KEYS] = "dict_keys(",
                                         [LIST_VALUES] = "dict_values(",
                                         [LIST_ITEMS] = "dict_items(",
                                         [LIST_GROUP] = "" };
    const bool view = l->kind == LIST_KEYS || l->kind == LIST_VALUES || l->kind == LIST_ITEMS;
    if (l->kind == LIST_GENERATOR || l->kind == LIST_RANGE) {
        tpl_fail(r, "a %s is not supported as text: make a list of it",
                 l->kind == LIST_RANGE ? "range" : "generator, which map, select and their kin give,");
        return;
    }
    if (view) tpl_emit_c(r, VIEWS[l->kind]);
    tpl_emit_c(r, l->tuple ? "(" : "[");
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        if (i) tpl_emit_c(r, ", ");
        emit_repr(r, l->items[i], depth + 1);
    }
    tpl_emit_c(r, l->tuple ? (l->n == 1 ? ",)" : ")") : "]");
    if (view) tpl_emit_c(r, ")");
}

static void emit_dict(struct rendering *r, const struct dict *d, int depth)
{
    if (d->is_namespace) tpl_fail(r, "a namespace cannot be printed");
    tpl_emit_c(r, "{");
    for (size_t i = 0; i < d->n && !r->rc; i++) {
        if (i) tpl_emit_c(r, ", ");
        emit_repr(r, d->entries[i].key, depth + 1);
        tpl_emit_c(r, ": ");
        emit_repr(r, d->entries[i].value, depth + 1);
    }
    tpl_emit_c(r, "}");
}

static void emit_repr(struct rendering *r, struct value v, int depth)
{
    char text[40];
    if (depth > TEMPLATE_DEPTH_MOST) {
        tpl_fail(r, "a value is nested deeper than %d", TEMPLATE_DEPTH_MOST);
        return;
    }
    switch (v.type) {
    case VALUE_UNDEFINED: tpl_emit_c(r, depth ? "Undefined" : ""); break;
    case VALUE_NONE:
        r->none_printed |= !depth;
        tpl_emit_c(r, "None");
        break;
    case VALUE_BOOL: tpl_emit_c(r, v.b ? "True" : "False"); break;
    case VALUE_INT:
        snprintf(text, sizeof text, "%" PRId64, v.i);
        tpl_emit_c(r, text);
        break;
    case VALUE_FLOAT: emit_float(r, v.d); break;
    case VALUE_BIG: tpl_emit_text(r, v.s); break;
    case VALUE_STRING: emit_string_repr(r, v.s); break;
    case VALUE_LIST: emit_list(r, v.list, depth); break;
    case VALUE_DICT: emit_dict(r, v.dict, depth); break;
    default: tpl_fail(r, "a %s cannot be printed", tpl_type_name(v));
    }
}

void tpl_emit_repr(struct rendering *r, struct value v)
{
    emit_repr(r, v, 0);
}

void tpl_emit_value(struct rendering *r, struct value v)
{
    if (v.type == VALUE_STRING)
        tpl_emit_text(r, v.s);
    else
        emit_repr(r, v, 0);
}

/* ---------------------------------------------------------------- truth and order */

const char *tpl_type_name(struct value v)
{
    static const char *const NAMES[] = { "undefined value", "none",     "boolean", "number", "number",
                                         "number",          "string",   "list",    "dict",   "loop",
                                         "macro",           "function", "method" };
    return NAMES[v.type];
}

/* Python's truth: zero and empty values are false. */
bool tpl_truth(struct rendering *r, struct value v)
{
    (void)r;
    switch (v.type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return v.b;
    case VALUE_INT: return v.i != 0;
    case VALUE_FLOAT: return v.d != 0;
    case VALUE_BIG: return true;
    case VALUE_STRING: return v.s->n > 0;
    case VALUE_LIST: return v.list->kind == LIST_GENERATOR || v.list->n > 0;
    case VALUE_DICT: return v.dict->is_namespace || v.dict->n > 0;
    default: return true;
    }
}

bool tpl_is_number(struct value v)
{
    return v.type == VALUE_INT || v.type == VALUE_FLOAT || v.type == VALUE_BOOL;
}

double tpl_number(struct value v)
{
    return v.type == VALUE_FLOAT ? v.d : v.type == VALUE_BOOL ? v.b : (double)v.i;
}

bool tpl_is_string(struct value v, const char *text)
{
    return v.type == VALUE_STRING && v.s->n == strlen(text) && !memcmp(v.s->bytes, text, v.s->n);
}

static int numbers_order(struct value a, struct value b)
{
    if (a.type != VALUE_FLOAT && b.type != VALUE_FLOAT) {
        const int64_t x = a.type == VALUE_BOOL ? a.b : a.i, y = b.type == VALUE_BOOL ? b.b : b.i;
        return (x > y) - (x < y);
    }
    const double x = tpl_number(a), y = tpl_number(b);
    return (x > y) - (x < y);
}

static int texts_order(const struct text *a, const struct text *b)
{
    const size_t n = MIN(a->n, b->n);
    const int order = n ? memcmp(a->bytes, b->bytes, n) : 0;
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static bool value_equal(struct rendering *r, struct value a, struct value b, int depth);

/* Order does not matter. A namespace equals only itself. */
static bool dicts_equal(struct rendering *r, const struct dict *a, const struct dict *b, int depth)
{
    if (a == b) return true;
    bool same = a->n == b->n && !a->is_namespace && !b->is_namespace;
    for (size_t i = 0; i < a->n && same && !r->rc; i++) {
        const struct value *other = tpl_dict_find(r, b, a->entries[i].key);
        same = other && value_equal(r, a->entries[i].value, *other, depth + 1);
    }
    return same;
}

/* Booleans and numbers are compared by value; values of other different types are never equal. Depth is
 * limited, because a template can nest values. */
static bool value_equal(struct rendering *r, struct value a, struct value b, int depth)
{
    if (depth > TEMPLATE_DEPTH_MOST) {
        tpl_fail(r, "a value is nested deeper than %d", TEMPLATE_DEPTH_MOST);
        return false;
    }
    if (!tpl_steps(r, 0)) return false;
    if (tpl_is_number(a) && tpl_is_number(b))
        return !numbers_order(a, b) && !isnan(tpl_number(a)) && !isnan(tpl_number(b));
    if (a.type != b.type) return false;
    bool same = true;
    switch (a.type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return true;
    case VALUE_BIG:
    case VALUE_STRING: return tpl_steps(r, a.s->n / 64) && texts_equal(a.s, b.s);
    case VALUE_LIST:
        if (a.list == b.list || a.list->kind == LIST_GENERATOR || b.list->kind == LIST_GENERATOR)
            return a.list == b.list;
        same = a.list->n == b.list->n && a.list->tuple == b.list->tuple &&
               (a.list->kind == b.list->kind || (tpl_is_list(a) && tpl_is_list(b)));
        for (size_t i = 0; i < a.list->n && same && !r->rc; i++)
            same = value_equal(r, a.list->items[i], b.list->items[i], depth + 1);
        return same;
    case VALUE_DICT: return dicts_equal(r, a.dict, b.dict, depth);
    default: return a.dict == b.dict; /* loops, macros and functions are equal if they are the same object */
    }
}

bool tpl_equal(struct rendering *r, struct value a, struct value b)
{
    return value_equal(r, a, b, 0);
}

/* Lists compare by their first different item. Other mixtures of types have no order, as in Python 3. */
static int value_order(struct rendering *r, struct value a, struct value b, int depth)
{
    if (tpl_is_number(a) && tpl_is_number(b)) return numbers_order(a, b);
    if (a.type == VALUE_STRING && b.type == VALUE_STRING) return texts_order(a.s, b.s);
    if (tpl_is_list(a) && tpl_is_list(b) && a.list->tuple == b.list->tuple && depth < TEMPLATE_DEPTH_MOST) {
        const size_t n = MIN(a.list->n, b.list->n);
        for (size_t i = 0; i < n && tpl_steps(r, 0); i++)
            if (!tpl_equal(r, a.list->items[i], b.list->items[i]))
                return value_order(r, a.list->items[i], b.list->items[i], depth + 1);
        return (a.list->n > b.list->n) - (a.list->n < b.list->n);
    }
    if (a.type == VALUE_LIST && b.type == VALUE_LIST && a.list->kind == b.list->kind &&
        a.list->tuple == b.list->tuple)
        tpl_fail(r, "the order of two views of dicts is not supported");
    tpl_fail(r, "cannot order a %s and a %s", tpl_type_name(a), tpl_type_name(b));
    return 0;
}

int tpl_order(struct rendering *r, struct value a, struct value b)
{
    return value_order(r, a, b, 0);
}
