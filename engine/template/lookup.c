/* Attributes, items and slices of values, and the items that a loop visits. Source: Jinja's getattr and
 * getitem, and Python's slices. Strings are indexed by characters (code points), not bytes. */
#include <string.h>

#include "engine/template/template_internal.h"

bool tpl_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

static size_t utf8_length(const struct text *s, size_t at)
{
    uint32_t c;
    return str_utf8_next(s->bytes + at, s->n - at, &c);
}

int64_t tpl_utf8_count(const struct text *s)
{
    int64_t n = 0;
    for (size_t at = 0; at < s->n; at += utf8_length(s, at)) n++;
    return n;
}

size_t tpl_utf8_start(const struct text *s, int64_t index)
{
    size_t at = 0;
    for (; index > 0 && at < s->n; index--) at += utf8_length(s, at);
    return at;
}

int64_t tpl_length(struct rendering *r, struct value v)
{
    switch (v.type) {
    case VALUE_UNDEFINED: return 0;
    case VALUE_STRING: return tpl_steps(r, v.s->n / 16) ? tpl_utf8_count(v.s) : -1;
    case VALUE_LIST:
        if (v.list->kind != LIST_GENERATOR) return (int64_t)v.list->n;
        tpl_fail(r, "a generator, which map, select and their kin give, has no length: make a list of it");
        return -1;
    case VALUE_DICT: return (int64_t)v.dict->n;
    default: tpl_fail(r, "a %s has no length", tpl_type_name(v)); return -1;
    }
}

bool tpl_is_iterable(struct value v)
{
    return v.type == VALUE_STRING || v.type == VALUE_LIST || v.type == VALUE_DICT ||
           v.type == VALUE_UNDEFINED;
}

struct list *tpl_iterate(struct rendering *r, struct value v)
{
    if (!tpl_is_iterable(v)) {
        tpl_fail(r, "expected a list, a dict or a string to iterate over, found a %s", tpl_type_name(v));
        return NULL;
    }
    if (v.type == VALUE_LIST && v.list->kind == LIST_GENERATOR) {
        struct value rest = tpl_list(r, false);
        if (r->rc) return NULL;
        rest.list->items = v.list->items + v.list->taken; /* never added to: cap stays 0 */
        rest.list->n = v.list->n - v.list->taken;
        v.list->taken = v.list->n;
        return rest.list;
    }
    if (v.type == VALUE_LIST) return v.list;
    struct value out = tpl_list(r, false);
    if (v.type == VALUE_STRING)
        for (size_t at = 0, to; at < v.s->n && !r->rc; at = to) {
            to = at + utf8_length(v.s, at);
            tpl_list_add(r, out.list, tpl_part(r, v.s, at, to));
        }
    if (v.type == VALUE_DICT)
        for (size_t i = 0; i < v.dict->n && !r->rc; i++) tpl_list_add(r, out.list, v.dict->entries[i].key);
    return r->rc ? NULL : out.list;
}

bool tpl_contains(struct rendering *r, struct value in, struct value x)
{
    if (in.type == VALUE_UNDEFINED) return false;
    if (in.type == VALUE_STRING && x.type == VALUE_STRING)
        return tpl_steps(r, in.s->n / 16) && (!x.s->n || memmem(in.s->bytes, in.s->n, x.s->bytes, x.s->n));
    if (in.type == VALUE_DICT && !tpl_is_hashable(x)) {
        tpl_fail(r, "'in': a %s cannot be a key", tpl_type_name(x));
        return false;
    }
    if (in.type == VALUE_DICT) return tpl_dict_find(r, in.dict, x) != NULL;
    if (in.type != VALUE_LIST) {
        tpl_fail(r, "'in': cannot look for a %s in a %s", tpl_type_name(x), tpl_type_name(in));
        return false;
    }
    for (size_t i = in.list->taken; i < in.list->n && !r->rc; i++) {
        if (in.list->kind == LIST_GENERATOR) in.list->taken = i + 1;
        if (tpl_equal(r, in.list->items[i], x)) return !r->rc;
    }
    return false;
}

/* ---------------------------------------------------------------- attributes and items */

static struct value undefined_of(const struct value *key)
{
    return (struct value){ VALUE_UNDEFINED, { .name = key->type == VALUE_STRING ? key->s : NULL } };
}

static struct value fail_undefined(struct rendering *r, struct value of, struct value key)
{
    const struct text *name = of.name, *part = key.type == VALUE_STRING ? key.s : NULL;
    return tpl_fail(r, "'%.*s' is undefined, so it has no '%.*s'", name ? (int)MIN(name->n, 60) : 5,
                    name ? name->bytes : "value", part ? (int)MIN(part->n, 60) : 4,
                    part ? part->bytes : "item");
}

/* Lists that x[i] reads; generators and the views of dicts are none. */
static bool has_items(struct value v)
{
    return tpl_is_list(v) || (v.type == VALUE_LIST && v.list->kind == LIST_RANGE);
}

static struct value item_of(struct rendering *r, struct value of, struct value key, bool *found)
{
    *found = true;
    if (of.type == VALUE_DICT) {
        const struct value *v = tpl_dict_find(r, of.dict, key);
        if (v) return *v;
    }
    const bool number = key.type == VALUE_INT || key.type == VALUE_BOOL,
               group = of.type == VALUE_LIST && of.list->kind == LIST_GROUP;
    if (group && tpl_is_string(key, "grouper")) return of.list->items[0];
    if (group && tpl_is_string(key, "list")) return of.list->items[1];
    if (number && (has_items(of) || of.type == VALUE_STRING)) {
        int64_t n = tpl_length(r, of), i = key.type == VALUE_BOOL ? key.b : key.i;
        if (i < 0) i += n;
        if (i >= 0 && i < n && of.type == VALUE_LIST) return of.list->items[i];
        if (i >= 0 && i < n && tpl_steps(r, of.s->n / 16)) {
            const size_t at = tpl_utf8_start(of.s, i);
            return tpl_part(r, of.s, at, at + utf8_length(of.s, at));
        }
    }
    *found = false;
    return undefined_of(&key);
}

static struct value method_of(struct rendering *r, struct value of, struct value key, bool *found)
{
    const struct function *m = key.type == VALUE_STRING ? tpl_method(of, key.s) : NULL;
    struct bound *b = m ? tpl_alloc(r, sizeof *b) : NULL;
    *found = b != NULL;
    if (!b) return undefined_of(&key);
    *b = (struct bound){ m, of };
    return (struct value){ VALUE_METHOD, { .bound = b } };
}

struct value tpl_lookup(struct rendering *r, struct value of, struct value key, bool attribute)
{
    bool found = false;
    if (r->rc) return TPL_UNDEFINED;
    if (of.type == VALUE_UNDEFINED) return fail_undefined(r, of, key);
    if (of.type == VALUE_LOOP && key.type == VALUE_STRING) return tpl_loop_attribute(r, of.loop, key.s);
    /* x.name prefers methods to items, x['name'] the other way around */
    struct value v = attribute ? method_of(r, of, key, &found) : item_of(r, of, key, &found);
    if (!found && !r->rc) v = attribute ? item_of(r, of, key, &found) : method_of(r, of, key, &found);
    return v;
}

/* ---------------------------------------------------------------- slices */

static bool slice_bound(struct rendering *r, struct value v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (v.type == VALUE_UNDEFINED || v.type == VALUE_NONE) return true;
    if (v.type != VALUE_INT) {
        tpl_fail(r, "expected a whole number in a slice, found a %s", tpl_type_name(v));
        return false;
    }
    *out = v.i;
    return true;
}

/* A bound of Python's: from the end when negative, and within low..high. */
static int64_t clamp_bound(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0) i = i < -n ? -1 : i + n;
    return i < low ? low : i > high ? high : i;
}

struct value tpl_slice(struct rendering *r, struct value of, const struct value bounds[3])
{
    if (of.type == VALUE_UNDEFINED) return fail_undefined(r, of, TPL_UNDEFINED);
    if (!has_items(of) && of.type != VALUE_STRING)
        return tpl_fail(r, "a %s cannot be sliced", tpl_type_name(of));
    int64_t from, to, step;
    struct list *items = tpl_iterate(r, of);
    if (!items || !slice_bound(r, bounds[2], 1, &step)) return TPL_UNDEFINED;
    if (!step || step < -INT32_MAX || step > INT32_MAX)
        return tpl_fail(r, "a slice needs a step other than 0");
    const int64_t n = (int64_t)items->n;
    if (!slice_bound(r, bounds[0], step > 0 ? 0 : INT64_MAX, &from) ||
        !slice_bound(r, bounds[1], step > 0 ? INT64_MAX : INT64_MIN, &to))
        return TPL_UNDEFINED;
    const bool to_start = step < 0 && to == INT64_MIN;
    from = clamp_bound(from, n, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
    to = to_start ? -1 : clamp_bound(to, n, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
    struct value out = tpl_list(r, of.type == VALUE_LIST && of.list->tuple);
    const size_t mark = r->out.len;
    if (!r->rc && of.type == VALUE_LIST && of.list->kind == LIST_RANGE) out.list->kind = LIST_RANGE;
    for (int64_t i = from; (step > 0 ? i < to : i > to) && !r->rc; i += step) {
        if (of.type == VALUE_LIST)
            tpl_list_add(r, out.list, items->items[i]);
        else
            tpl_emit_text(r, items->items[i].s);
    }
    return of.type == VALUE_LIST ? out : tpl_take(r, mark);
}
