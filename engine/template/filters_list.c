/* Filters of lists: selecting, mapping, sorting and aggregating. Source: jinja2/filters.py. Jinja returns
 * generators from some of them; here they are lists. */
#include <stdlib.h>
#include <string.h>

#include "engine/template/template_internal.h"

/* ---------------------------------------------------------------- attributes of items */

/* A default of None is none. */
static struct value replaced(struct value v, struct value otherwise)
{
    return v.type == VALUE_UNDEFINED && otherwise.type != VALUE_NONE ? otherwise : v;
}

/* Look up a path such as "a.b.0" in an item; `otherwise` stands for what is undefined on the way. It is the
 * value of the argument `attribute` of many filters. */
static struct value attribute_or(struct rendering *r, struct value item, struct value path,
                                 struct value otherwise)
{
    if (path.type == VALUE_INT) return replaced(tpl_lookup(r, item, path, false), otherwise);
    if (path.type != VALUE_STRING)
        return tpl_fail(r, "expected the name of an attribute, found a %s", tpl_type_name(path));
    const struct text *s = path.s;
    for (size_t at = 0; at <= s->n && !r->rc;) {
        const char *dot = memchr(s->bytes + at, '.', s->n - at);
        const size_t to = dot ? (size_t)(dot - s->bytes) : s->n;
        char digits[20];
        int64_t index;
        snprintf(digits, sizeof digits, "%.*s", (int)MIN(to - at, sizeof digits - 1), s->bytes + at);
        struct value key = digits[0] >= '0' && digits[0] <= '9' && str_to_i64(digits, &index)
                               ? tpl_int(index)
                               : tpl_part(r, s, at, to);
        /* look up an item of a dict, not one of its methods */
        item = replaced(tpl_lookup(r, item, key, false), otherwise);
        at = to + 1;
    }
    return item;
}

static struct value attribute_of(struct rendering *r, struct value item, struct value path)
{
    return attribute_or(r, item, path, TPL_NONE);
}

static struct value fn_first(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    if (x.type == VALUE_LIST && x.list->kind == LIST_GENERATOR)
        return x.list->taken < x.list->n ? x.list->items[x.list->taken++] : TPL_UNDEFINED;
    const struct list *l = tpl_iterate(r, x);
    return l && l->n ? l->items[0] : TPL_UNDEFINED;
}

static struct value fn_last(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    if (x.type == VALUE_LIST && x.list->kind == LIST_GENERATOR)
        return tpl_fail(
            r, "last: a generator, which map, select and their kin give, has no end: make a list of it");
    const struct list *l = tpl_iterate(r, x);
    return l && l->n ? l->items[l->n - 1] : TPL_UNDEFINED;
}

static struct value fn_list(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    const struct list *l = tpl_iterate(r, x);
    struct value out = tpl_list(r, false);
    for (size_t i = 0; l && i < l->n && !r->rc; i++) tpl_list_add(r, out.list, l->items[i]);
    return out;
}

static struct value fn_reverse(struct rendering *r, struct value x, struct args *a)
{
    const struct value bounds[3] = { TPL_NONE, TPL_NONE, tpl_int(-1) };
    (void)a;
    if (x.type == VALUE_STRING) return tpl_slice(r, x, bounds);
    const bool generator = x.type == VALUE_LIST && x.list->kind == LIST_GENERATOR;
    struct value l = fn_list(r, x, a), out = r->rc ? l : tpl_slice(r, l, bounds);
    if (!r->rc && !generator) out.list->kind = LIST_GENERATOR;
    return out;
}

static struct value fn_join(struct rendering *r, struct value x, struct args *a)
{
    const struct list *l = tpl_iterate(r, x);
    struct value with = tpl_arg(r, a, 0, "d", TPL_UNDEFINED),
                 attribute = tpl_arg(r, a, 1, "attribute", TPL_NONE);
    struct value texts = tpl_list(r, false);
    for (size_t i = 0; l && i < l->n && !r->rc; i++)
        tpl_list_add(r, texts.list,
                     attribute.type == VALUE_NONE ? l->items[i] : attribute_of(r, l->items[i], attribute));
    const size_t from = r->out.len;
    for (size_t i = 0; !r->rc && i < texts.list->n; i++) {
        if (i) tpl_emit_value(r, with);
        tpl_emit_value(r, texts.list->items[i]);
    }
    return tpl_take(r, from);
}

/* ---------------------------------------------------------------- map, select */

/* The arguments from number `from` on. They are passed to the filter or test that argument 0 (or 1) names. */
static struct args args_rest(struct args *a, size_t from)
{
    struct args rest = { .items = a->n ? a->items + MIN(from, a->n) : NULL, .n = a->n - MIN(from, a->n) };
    a->used = a->n;
    return rest;
}

static struct value apply_one(struct rendering *r, const struct function *f, struct value x, struct args *a)
{
    struct value v = f->call(r, x, a);
    if (!r->rc && a->used < a->n)
        tpl_fail(r, "'%s' was given %zu arguments, but takes %zu", f->name, a->n, a->used);
    return v;
}

/* Jinja looks at the arguments of map, select and their kin only if the input is true: none is an empty
 * list. */
static bool ends_early(struct rendering *r, struct value x, struct args *a)
{
    if (!tpl_truth(r, x)) a->used = a->n;
    return r->rc || !tpl_truth(r, x);
}

/* map(attribute=NAME), or map(FILTER, arguments). */
static struct value fn_map(struct rendering *r, struct value x, struct args *a)
{
    struct value out = tpl_generator(r), attribute = tpl_arg(r, a, 99, "attribute", TPL_UNDEFINED),
                 otherwise = tpl_arg(r, a, 99, "default", TPL_NONE);
    const bool by_name = attribute.type != VALUE_UNDEFINED;
    if (ends_early(r, x, a)) return out;
    const struct list *l = tpl_iterate(r, x);
    const struct text *name = by_name ? NULL : tpl_arg_text(r, a, 0, "filter");
    const struct function *filter = name ? tpl_filter(name) : NULL;
    if (!by_name && !filter && !r->rc)
        return tpl_fail(r, "map: expected attribute=NAME or the name of a filter, found '%.*s'",
                        name ? (int)MIN(name->n, 40) : 7, name ? name->bytes : "nothing");
    for (size_t i = 0; l && i < l->n && !r->rc; i++) {
        struct args rest = args_rest(a, 1);
        tpl_list_add(r, out.list,
                     by_name ? attribute_or(r, l->items[i], attribute, otherwise)
                             : apply_one(r, filter, l->items[i], &rest));
    }
    a->used = a->n;
    return out;
}

/* select, reject, selectattr, rejectattr: keep the items whose test, or truth without a test, equals
 * `keep`. */
static struct value list_choose(struct rendering *r, struct value x, struct args *a, bool by_attribute,
                                bool keep)
{
    struct value out = tpl_generator(r);
    if (ends_early(r, x, a)) return out;
    const struct list *l = tpl_iterate(r, x);
    struct value attribute = by_attribute ? tpl_arg_required(r, a, 0, "attribute") : TPL_NONE;
    const struct text *name = tpl_arg_text(r, a, by_attribute ? 1 : 0, "test");
    const struct function *test = name ? tpl_test(name) : NULL;
    if (name && !test && !r->rc)
        return tpl_fail(r, "'%.*s' is not a test", (int)MIN(name->n, 40), name->bytes);
    for (size_t i = 0; l && i < l->n && !r->rc; i++) {
        struct args rest = args_rest(a, by_attribute ? 2 : 1);
        struct value v = by_attribute ? attribute_of(r, l->items[i], attribute) : l->items[i];
        if (test && !r->rc) v = apply_one(r, test, v, &rest);
        if (!r->rc && tpl_truth(r, v) == keep) tpl_list_add(r, out.list, l->items[i]);
    }
    a->used = a->n;
    return out;
}

static struct value fn_select(struct rendering *r, struct value x, struct args *a)
{
    return list_choose(r, x, a, false, true);
}

static struct value fn_reject(struct rendering *r, struct value x, struct args *a)
{
    return list_choose(r, x, a, false, false);
}

static struct value fn_selectattr(struct rendering *r, struct value x, struct args *a)
{
    return list_choose(r, x, a, true, true);
}

static struct value fn_rejectattr(struct rendering *r, struct value x, struct args *a)
{
    return list_choose(r, x, a, true, false);
}

/* ---------------------------------------------------------------- order */

/* How items are compared: by an attribute, or by the item itself (NONE); strings in lower case unless case
 * counts. */
struct ordering {
    struct value attribute, otherwise; /* otherwise: none, or what stands for undefined attributes */
    bool case_counts, several;         /* several: "a,b" are two attributes */
};

static struct value ordering_key(struct rendering *r, struct value item, const struct ordering *o);

/* "a,b": a list of both. */
static struct value attributes_of(struct rendering *r, struct value item, const struct ordering *o)
{
    const struct text *s = o->attribute.type == VALUE_STRING ? o->attribute.s : NULL;
    if (!s || !o->several) return attribute_or(r, item, o->attribute, o->otherwise);
    struct value out = tpl_list(r, false);
    for (size_t at = 0; at <= s->n && !r->rc;) {
        const char *comma = memchr(s->bytes + at, ',', s->n - at);
        const size_t to = comma ? (size_t)(comma - s->bytes) : s->n;
        const struct ordering one = { .attribute = tpl_part(r, s, at, to),
                                      .otherwise = o->otherwise,
                                      .case_counts = o->case_counts };
        tpl_list_add(r, out.list, ordering_key(r, item, &one));
        at = to + 1;
    }
    return out;
}

static struct value ordering_key(struct rendering *r, struct value item, const struct ordering *o)
{
    struct value v = o->attribute.type == VALUE_NONE ? item : attributes_of(r, item, o);
    if (o->case_counts || v.type != VALUE_STRING || r->rc) return v;
    static const struct text LOWER = { .bytes = "lower", .n = 5 };
    return tpl_filter(&LOWER)->call(r, v, &(struct args){ 0 });
}

static struct list *ordering_keys(struct rendering *r, const struct list *l, const struct ordering *o)
{
    struct value keys = tpl_list(r, false);
    for (size_t i = 0; l && i < l->n && !r->rc; i++)
        tpl_list_add(r, keys.list, ordering_key(r, l->items[i], o));
    return r->rc ? NULL : keys.list;
}

/* Stable merge sort of indices. order[n]: result, indices of keys; scratch[n]. */
static void sort_indices(struct rendering *r, const struct list *keys, bool reverse, size_t *order,
                         size_t *scratch)
{
    const size_t n = keys->n;
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t width = 1; width < n && !r->rc; width *= 2) {
        for (size_t low = 0; low < n && !r->rc; low += 2 * width) {
            const size_t middle = MIN(low + width, n), high = MIN(low + 2 * width, n);
            size_t i = low, k = middle;
            for (size_t at = low; at < high && tpl_steps(r, 0); at++) {
                bool right = i == middle;
                if (!right && k < high) {
                    const int c = tpl_order(r, keys->items[order[i]], keys->items[order[k]]);
                    right = reverse ? c < 0 : c > 0;
                }
                scratch[at] = right ? order[k++] : order[i++];
            }
        }
        memcpy(order, scratch, n * sizeof *order);
    }
}

/* Keys are computed once per item, then indices are sorted. */
static struct value list_sorted(struct rendering *r, const struct list *l, const struct ordering *o,
                                bool reverse)
{
    const struct list *keys = l ? ordering_keys(r, l, o) : NULL;
    struct value out = tpl_list(r, false);
    size_t *order = keys ? tpl_alloc(r, (2 * l->n + 1) * sizeof *order) : NULL;
    if (!order) return TPL_UNDEFINED;
    sort_indices(r, keys, reverse, order, order + l->n);
    for (size_t i = 0; i < l->n && !r->rc; i++) tpl_list_add(r, out.list, l->items[order[i]]);
    return out;
}

static struct value fn_sort(struct rendering *r, struct value x, struct args *a)
{
    const bool reverse = tpl_truth(r, tpl_arg(r, a, 0, "reverse", tpl_bool(false)));
    struct ordering o = { .otherwise = TPL_NONE,
                          .case_counts = tpl_truth(r, tpl_arg(r, a, 1, "case_sensitive", tpl_bool(false))) };
    o.attribute = tpl_arg(r, a, 2, "attribute", TPL_NONE);
    o.several = true;
    return list_sorted(r, tpl_iterate(r, x), &o, reverse);
}

static struct value fn_dictsort(struct rendering *r, struct value x, struct args *a)
{
    struct ordering o = { .otherwise = TPL_NONE,
                          .case_counts = tpl_truth(r, tpl_arg(r, a, 0, "case_sensitive", tpl_bool(false))) };
    struct value by = tpl_arg(r, a, 1, "by", TPL_NONE),
                 reverse = tpl_arg(r, a, 2, "reverse", tpl_bool(false));
    o.attribute = tpl_int(tpl_is_string(by, "value"));
    struct value items = tpl_dict_items(r, x, a);
    return r->rc ? items : list_sorted(r, items.list, &o, tpl_truth(r, reverse));
}

static struct value list_extreme(struct rendering *r, struct value x, struct args *a, bool largest)
{
    struct ordering o = { .otherwise = TPL_NONE,
                          .case_counts = tpl_truth(r, tpl_arg(r, a, 0, "case_sensitive", tpl_bool(false))) };
    o.attribute = tpl_arg(r, a, 1, "attribute", TPL_NONE);
    const struct list *l = tpl_iterate(r, x), *keys = l ? ordering_keys(r, l, &o) : NULL;
    size_t best = 0;
    for (size_t i = 1; keys && i < keys->n && tpl_steps(r, 0); i++) {
        const int c = tpl_order(r, keys->items[i], keys->items[best]);
        if (largest ? c > 0 : c < 0) best = i;
    }
    return keys && keys->n ? l->items[best] : TPL_UNDEFINED;
}

static struct value fn_min(struct rendering *r, struct value x, struct args *a)
{
    return list_extreme(r, x, a, false);
}

static struct value fn_max(struct rendering *r, struct value x, struct args *a)
{
    return list_extreme(r, x, a, true);
}

static struct value fn_unique(struct rendering *r, struct value x, struct args *a)
{
    struct ordering o = { .otherwise = TPL_NONE,
                          .case_counts = tpl_truth(r, tpl_arg(r, a, 0, "case_sensitive", tpl_bool(false))) };
    o.attribute = tpl_arg(r, a, 1, "attribute", TPL_NONE);
    const struct list *l = tpl_iterate(r, x), *keys = l ? ordering_keys(r, l, &o) : NULL;
    struct value out = tpl_generator(r), seen = tpl_list(r, false);
    for (size_t i = 0; keys && i < keys->n && !r->rc; i++) {
        if (!tpl_is_hashable(keys->items[i]))
            tpl_fail(r, "unique: a %s cannot be compared", tpl_type_name(keys->items[i]));
        if (r->rc || tpl_contains(r, seen, keys->items[i]) || r->rc) continue;
        tpl_list_add(r, seen.list, keys->items[i]);
        tpl_list_add(r, out.list, l->items[i]);
    }
    return out;
}

/* ---------------------------------------------------------------- sums and groups */

static struct value fn_sum(struct rendering *r, struct value x, struct args *a)
{
    struct value attribute = tpl_arg(r, a, 0, "attribute", TPL_NONE),
                 sum = tpl_arg(r, a, 1, "start", tpl_int(0));
    const struct list *l = tpl_iterate(r, x);
    for (size_t i = 0; l && i < l->n && !r->rc; i++) {
        struct value v = attribute.type == VALUE_NONE ? l->items[i] : attribute_of(r, l->items[i], attribute);
        sum = tpl_binary(r, OP_ADD, sum, v);
    }
    return sum;
}

static struct value fn_batch(struct rendering *r, struct value x, struct args *a)
{
    const int64_t size = tpl_arg_int(r, a, 0, "linecount", 0);
    struct value fill = tpl_arg(r, a, 1, "fill_with", TPL_NONE), out = tpl_generator(r), row = TPL_NONE;
    const struct list *l = tpl_iterate(r, x);
    if (size < 1 || size > 100000) return tpl_fail(r, "batch: expected a size of 1 to 100000");
    for (size_t i = 0; l && i < l->n && !r->rc; i++) {
        if (i % (size_t)size == 0 && !tpl_list_add(r, out.list, row = tpl_list(r, false))) break;
        tpl_list_add(r, row.list, l->items[i]);
    }
    if (!r->rc && row.type == VALUE_LIST && fill.type != VALUE_NONE)
        while (row.list->n < (size_t)size && tpl_list_add(r, row.list, fill)) continue;
    return out;
}

/* The items in so many lists, which differ in length by one at most. */
static struct value fn_slice(struct rendering *r, struct value x, struct args *a)
{
    const int64_t slices = tpl_arg_int(r, a, 0, "slices", 0);
    struct value fill = tpl_arg(r, a, 1, "fill_with", TPL_NONE), out = tpl_generator(r);
    const struct list *l = tpl_iterate(r, x);
    if (slices < 1 || slices > 100000) return tpl_fail(r, "slice: expected 1 to 100000 slices");
    const size_t n = l ? l->n : 0, each = n / (size_t)slices, longer = n % (size_t)slices;
    for (size_t i = 0, at = 0; i < (size_t)slices && !r->rc; i++) {
        struct value row = tpl_list(r, false);
        for (const size_t to = at + each + (i < longer); at < to && !r->rc; at++)
            tpl_list_add(r, row.list, l->items[at]);
        if (fill.type != VALUE_NONE && i >= longer && !r->rc) tpl_list_add(r, row.list, fill);
        if (!r->rc) tpl_list_add(r, out.list, row);
    }
    return out;
}

static struct value fn_items(struct rendering *r, struct value x, struct args *a)
{
    struct value out = x.type == VALUE_UNDEFINED ? tpl_list(r, false) : tpl_dict_items(r, x, a);
    if (!r->rc) out.list->kind = LIST_GENERATOR;
    return out;
}

/* Returns [(grouper, items), ...], ordered by the attribute. */
static struct value fn_groupby(struct rendering *r, struct value x, struct args *a)
{
    struct ordering o = { .attribute = tpl_arg_required(r, a, 0, "attribute"),
                          .otherwise = tpl_arg(r, a, 1, "default", TPL_NONE) };
    o.case_counts = tpl_truth(r, tpl_arg(r, a, 2, "case_sensitive", tpl_bool(false)));
    struct value all = r->rc ? TPL_UNDEFINED : list_sorted(r, tpl_iterate(r, x), &o, false),
                 out = tpl_list(r, false);
    struct value last = TPL_UNDEFINED, group = TPL_UNDEFINED;
    for (size_t i = 0; !r->rc && i < all.list->n; i++) {
        struct value key = ordering_key(r, all.list->items[i], &o);
        if (!i || !tpl_equal(r, key, last)) {
            struct value pair = tpl_list(r, true);
            group = tpl_list(r, false);
            if (!r->rc) pair.list->kind = LIST_GROUP;
            if (r->rc ||
                !tpl_list_add(r, pair.list, attribute_or(r, all.list->items[i], o.attribute, o.otherwise)) ||
                !tpl_list_add(r, pair.list, group) || !tpl_list_add(r, out.list, pair))
                break;
        }
        last = key;
        if (!r->rc) tpl_list_add(r, group.list, all.list->items[i]);
    }
    return out;
}

const struct function TPL_LIST_FILTERS[] = {
    { "first", fn_first },
    { "last", fn_last },
    { "list", fn_list },
    { "reverse", fn_reverse },
    { "join", fn_join },
    { "map", fn_map },
    { "select", fn_select },
    { "reject", fn_reject },
    { "selectattr", fn_selectattr },
    { "rejectattr", fn_rejectattr },
    { "sort", fn_sort },
    { "dictsort", fn_dictsort },
    { "min", fn_min },
    { "max", fn_max },
    { "unique", fn_unique },
    { "sum", fn_sum },
    { "batch", fn_batch },
    { "slice", fn_slice },
    { "items", fn_items },
    { "groupby", fn_groupby },
    { NULL, NULL },
};
