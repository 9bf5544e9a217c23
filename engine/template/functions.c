/* Arguments of functions, the global functions of templates, and the methods of lists and dicts. Source:
 * Jinja's global functions (range, dict, namespace), the two that transformers adds (raise_exception,
 * strftime_now), and Python's methods. Methods that change their object (append, update) do not exist, as in
 * transformers' sandbox.
 *
 * An argument is found by position or by name. `args.used` counts what was found, so that the caller can
 * report arguments that the function does not have. */
#include <string.h>

#include "engine/template/template_internal.h"

/* ---------------------------------------------------------------- arguments */

static bool has_name(const struct text *t, const char *name)
{
    return t && t->n == strlen(name) && !memcmp(t->bytes, name, t->n);
}

static const struct value *find_argument(struct args *a, size_t at, const char *name)
{
    if (at < a->n && !a->items[at].name) return a->used++, &a->items[at].value;
    for (size_t i = 0; i < a->n; i++)
        if (has_name(a->items[i].name, name)) return a->used++, &a->items[i].value;
    return NULL;
}

struct value tpl_arg(struct rendering *r, struct args *a, size_t at, const char *name, struct value otherwise)
{
    (void)r;
    const struct value *v = find_argument(a, at, name);
    return v ? *v : otherwise;
}

struct value tpl_arg_required(struct rendering *r, struct args *a, size_t at, const char *name)
{
    const struct value *v = find_argument(a, at, name);
    return v ? *v : tpl_fail(r, "expected an argument '%s' (number %zu)", name, at + 1);
}

const struct text *tpl_arg_text(struct rendering *r, struct args *a, size_t at, const char *name)
{
    const struct value *v = find_argument(a, at, name);
    if (!v || v->type == VALUE_NONE || v->type == VALUE_UNDEFINED) return NULL;
    if (v->type == VALUE_STRING) return v->s;
    tpl_fail(r, "argument '%s': expected a string, found a %s", name, tpl_type_name(*v));
    return NULL;
}

int64_t tpl_arg_int(struct rendering *r, struct args *a, size_t at, const char *name, int64_t otherwise)
{
    const struct value *v = find_argument(a, at, name);
    if (!v || v->type == VALUE_NONE) return otherwise;
    if (v->type == VALUE_INT || v->type == VALUE_BOOL) return v->type == VALUE_BOOL ? v->b : v->i;
    tpl_fail(r, "argument '%s': expected a whole number, found a %s", name, tpl_type_name(*v));
    return otherwise;
}

const struct function *tpl_function_in(const struct function *table, const struct text *name)
{
    for (; table->name; table++)
        if (has_name(name, table->name)) return table;
    return NULL;
}

/* ---------------------------------------------------------------- functions */

/* raise_exception: the template refuses the conversation, for example because roles do not alternate. */
static struct value fn_raise(struct rendering *r, struct value x, struct args *a)
{
    (void)x;
    const struct text *text = tpl_text_of(r, tpl_arg_required(r, a, 0, "message"));
    if (!r->rc)
        r->rc = err_set(r->why, ERR_USAGE, "%s, line %d, refuses this conversation: %.*s", r->t->name,
                        r->line, (int)MIN(text->n, 300), text->bytes);
    return TPL_UNDEFINED;
}

static struct value fn_strftime_now(struct rendering *r, struct value x, struct args *a)
{
    (void)x;
    const struct text *format = tpl_arg_text(r, a, 0, "format");
    char spec[256], text[1024];
    struct tm local;
    if (!format || format->n >= sizeof spec || !localtime_r(&r->in->now, &local))
        return tpl_fail(r, "strftime_now: expected a format of less than %zu bytes", sizeof spec);
    memcpy(spec, format->bytes, format->n);
    spec[format->n] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored                                                                               \
    "-Wformat-nonliteral" /* the format comes from the template, but strftime reads no further arguments */
    const size_t n = strftime(text, sizeof text, spec, &local);
#pragma GCC diagnostic pop
    return tpl_string(r, text, NULL, n);
}

static struct value fn_range(struct rendering *r, struct value x, struct args *a)
{
    enum { ITEMS_MOST = 100000 }; /* as in Jinja's sandbox */
    (void)x;
    int64_t first = tpl_arg_int(r, a, 0, "start", 0), from = 0, to = first;
    if (a->n > 1) {
        from = first;
        to = tpl_arg_int(r, a, 1, "stop", 0);
    }
    const int64_t step = tpl_arg_int(r, a, 2, "step", 1);
    if (!a->n || !step) return tpl_fail(r, "range: expected an end, and a step other than 0");
    const __int128 count = step > 0 ? ((__int128)to - from + step - 1) / step
                                    : ((__int128)from - to - step - 1) / -step;
    if (count > ITEMS_MOST) return tpl_fail(r, "range: expected at most %d numbers", ITEMS_MOST);
    struct value out = tpl_list(r, false);
    if (!r->rc) out.list->kind = LIST_RANGE;
    for (int64_t i = 0; i < (int64_t)count && !r->rc; i++)
        tpl_list_add(r, out.list, tpl_int(from + i * step));
    return out;
}

static void dict_add_pairs(struct rendering *r, struct dict *d, struct value pairs)
{
    const struct list *all = tpl_iterate(r, pairs);
    for (size_t i = 0; all && i < all->n && !r->rc; i++) {
        const struct list *pair = tpl_iterate(r, all->items[i]);
        if (pair && pair->n != 2)
            tpl_fail(r, "dict: expected pairs, found %zu values", pair->n);
        else if (pair)
            tpl_dict_put(r, d, pair->items[0], pair->items[1]);
    }
}

/* dict(...) and namespace(...): a copy of a dict, then members by name. */
static struct value new_dict(struct rendering *r, struct args *a, bool is_namespace)
{
    struct value out = tpl_dict(r);
    for (size_t i = 0; i < a->n && !r->rc; i++, a->used++) {
        const struct argument *from = &a->items[i];
        if (from->name)
            tpl_dict_put(r, out.dict, (struct value){ VALUE_STRING, { .s = from->name } }, from->value);
        else if (from->value.type != VALUE_DICT)
            dict_add_pairs(r, out.dict, from->value);
        else
            for (size_t k = 0; k < from->value.dict->n && !r->rc; k++)
                tpl_dict_put(r, out.dict, from->value.dict->entries[k].key,
                             from->value.dict->entries[k].value);
    }
    if (!r->rc) out.dict->is_namespace = is_namespace;
    return out;
}

static struct value fn_namespace(struct rendering *r, struct value x, struct args *a)
{
    (void)x;
    return new_dict(r, a, true);
}

static struct value fn_dict(struct rendering *r, struct value x, struct args *a)
{
    (void)x;
    return new_dict(r, a, false);
}

const struct function *tpl_function(const struct text *name)
{
    static const struct function FUNCTIONS[] = { { "raise_exception", fn_raise },
                                                 { "strftime_now", fn_strftime_now },
                                                 { "range", fn_range },
                                                 { "namespace", fn_namespace },
                                                 { "dict", fn_dict },
                                                 { NULL, NULL } };
    return tpl_function_in(FUNCTIONS, name);
}

/* ---------------------------------------------------------------- methods of dicts and lists */

static struct value fn_get(struct rendering *r, struct value x, struct args *a)
{
    struct value key = tpl_arg_required(r, a, 0, "key"), otherwise = tpl_arg(r, a, 1, "default", TPL_NONE);
    const struct value *v = r->rc ? NULL : tpl_dict_find(r, x.dict, key);
    return v ? *v : otherwise;
}

enum part { KEYS, VALUES, ITEMS };

static struct value dict_parts(struct rendering *r, const struct dict *d, enum part which)
{
    struct value out = tpl_list(r, false);
    for (size_t i = 0; i < d->n && !r->rc; i++) {
        const struct entry *e = &d->entries[i];
        struct value v = which == KEYS ? e->key : which == VALUES ? e->value : tpl_list(r, true);
        if (which == ITEMS && !r->rc && tpl_list_add(r, v.list, e->key)) tpl_list_add(r, v.list, e->value);
        if (!r->rc) tpl_list_add(r, out.list, v);
    }
    if (!r->rc) out.list->kind = which == KEYS ? LIST_KEYS : which == VALUES ? LIST_VALUES : LIST_ITEMS;
    return out;
}

static struct value fn_keys(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return dict_parts(r, x.dict, KEYS);
}

static struct value fn_values(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return dict_parts(r, x.dict, VALUES);
}

struct value tpl_dict_items(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    if (x.type != VALUE_DICT || x.dict->is_namespace)
        return tpl_fail(r, "items: expected a dict, found a %s", tpl_type_name(x));
    return dict_parts(r, x.dict, ITEMS);
}

static struct value fn_copy(struct rendering *r, struct value x, struct args *a)
{
    struct argument all = { NULL, x };
    (void)a;
    return new_dict(r, &(struct args){ .items = &all, .n = 1 }, false);
}

static struct value fn_list_index(struct rendering *r, struct value x, struct args *a)
{
    struct value v = tpl_arg_required(r, a, 0, "value");
    for (size_t i = 0; i < x.list->n && !r->rc; i++)
        if (tpl_equal(r, x.list->items[i], v)) return tpl_int((int64_t)i);
    return tpl_fail(r, "index: the list does not contain the value");
}

static struct value fn_list_count(struct rendering *r, struct value x, struct args *a)
{
    struct value v = tpl_arg_required(r, a, 0, "value");
    int64_t n = 0;
    for (size_t i = 0; i < x.list->n && !r->rc; i++) n += tpl_equal(r, x.list->items[i], v);
    return tpl_int(n);
}

static struct value fn_list_copy(struct rendering *r, struct value x, struct args *a)
{
    struct value out = tpl_list(r, x.list->tuple);
    (void)a;
    for (size_t i = 0; i < x.list->n && !r->rc; i++) tpl_list_add(r, out.list, x.list->items[i]);
    return out;
}

const struct function *tpl_method(struct value of, const struct text *name)
{
    static const struct function OF_DICT[] = { { "get", fn_get },       { "keys", fn_keys },
                                               { "values", fn_values }, { "items", tpl_dict_items },
                                               { "copy", fn_copy },     { NULL, NULL } };
    static const struct function OF_TUPLE[] = { { "index", fn_list_index },
                                                { "count", fn_list_count },
                                                { NULL, NULL } };
    static const struct function OF_LIST[] = {
        { "index", fn_list_index }, { "count", fn_list_count }, { "copy", fn_list_copy }, { NULL, NULL }
    };
    switch (of.type) {
    case VALUE_STRING: {
        const struct function *f = tpl_function_in(TPL_STRING_METHODS, name);
        return f ? f : tpl_function_in(TPL_STRING_METHODS_MORE, name);
    }
    case VALUE_LIST:
        return tpl_is_list(of) || of.list->kind == LIST_RANGE
                   ? tpl_function_in(of.list->tuple || of.list->kind == LIST_RANGE ? OF_TUPLE : OF_LIST, name)
                   : NULL;
    case VALUE_DICT: return of.dict->is_namespace ? NULL : tpl_function_in(OF_DICT, name);
    default: return NULL;
    }
}
