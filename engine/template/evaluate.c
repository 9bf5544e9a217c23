/* Computes expressions by walking their tree: evaluate_<kind> computes one kind of node. On failure the error
 * is stored in the rendering and the value is undefined. As in Jinja, reading an undefined variable is no
 * error, and it prints as nothing; using it as an operand or calling it is an error. */
#include <string.h>

#include "engine/template/template_internal.h"

/* ---------------------------------------------------------------- variables */

/* The innermost scope wins; global functions can be hidden by variables. */
static struct value name_value(struct rendering *r, const struct scope *s, const struct text *name)
{
    const struct value key = { VALUE_STRING, { .s = name } };
    for (; s && !r->rc; s = s->parent) {
        const struct value *v = tpl_dict_find(r, &s->vars, key);
        if (v) return *v;
    }
    const struct function *f = tpl_function(name);
    if (f) return (struct value){ VALUE_FUNCTION, { .function = f } };
    return (struct value){ VALUE_UNDEFINED, { .name = name } };
}

struct scope *tpl_scope(struct rendering *r, struct scope *parent)
{
    struct scope *s = tpl_alloc(r, sizeof *s);
    if (s) s->parent = parent;
    return s;
}

/* Only namespaces can be changed, so that a template cannot change the messages. */
static bool assign_attribute(struct rendering *r, struct scope *s, const struct node *target, struct value v)
{
    struct value of = tpl_evaluate(r, s, target->x);
    if (r->rc) return false;
    if (of.type != VALUE_DICT || !of.dict->is_namespace) {
        tpl_fail(r, "only members of a namespace can be set, '%.*s' is not one",
                 (int)MIN(target->x->name->n, 60), target->x->name->bytes);
        return false;
    }
    return tpl_dict_put(r, of.dict, (struct value){ VALUE_STRING, { .s = target->name } }, v);
}

/* A tuple as target unpacks the value; the numbers must agree. */
bool tpl_assign(struct rendering *r, struct scope *s, const struct node *target, struct value v)
{
    if (r->rc) return false;
    if (target->kind == NODE_NAME)
        return tpl_dict_put(r, &s->vars, (struct value){ VALUE_STRING, { .s = target->name } }, v);
    if (target->kind == NODE_ATTRIBUTE) return assign_attribute(r, s, target, v);
    if (target->kind != NODE_TUPLE || !tpl_deeper(r)) {
        tpl_fail(r, "expected a variable to set");
        return false;
    }
    size_t count = 0;
    for (const struct node *part = target->items; part; part = part->next) count++;
    const struct list *items = tpl_iterate(r, v);
    if (items && items->n != count) tpl_fail(r, "expected %zu values to unpack, found %zu", count, items->n);
    size_t i = 0;
    for (const struct node *part = target->items; part && !r->rc; part = part->next)
        tpl_assign(r, s, part, items->items[i++]);
    r->depth--;
    return !r->rc;
}

/* ---------------------------------------------------------------- parts of expressions */

static struct value evaluate_list(struct rendering *r, struct scope *s, const struct node *n)
{
    struct value out = tpl_list(r, n->kind == NODE_TUPLE);
    for (const struct node *item = n->items; item && !r->rc; item = item->next)
        tpl_list_add(r, out.list, tpl_evaluate(r, s, item));
    return out;
}

static struct value evaluate_dict(struct rendering *r, struct scope *s, const struct node *n)
{
    struct value out = tpl_dict(r);
    for (const struct node *key = n->items; key && !r->rc; key = key->next->next) {
        struct value k = tpl_evaluate(r, s, key), v = tpl_evaluate(r, s, key->next);
        if (!r->rc) tpl_dict_put(r, out.dict, k, v);
    }
    return out;
}

static struct value evaluate_slice(struct rendering *r, struct scope *s, const struct node *n)
{
    const struct node *parts[3] = { n->y, n->z, n->other };
    struct value bounds[3], of = tpl_evaluate(r, s, n->x);
    for (int i = 0; i < 3; i++) bounds[i] = parts[i] ? tpl_evaluate(r, s, parts[i]) : TPL_NONE;
    return r->rc ? TPL_UNDEFINED : tpl_slice(r, of, bounds);
}

/* A chain such as a < b < c evaluates b once and stops at the first false comparison. */
static struct value evaluate_compare(struct rendering *r, struct scope *s, const struct node *n)
{
    struct value left = tpl_evaluate(r, s, n->x), result = tpl_bool(true);
    for (const struct node *part = n->items; part && !r->rc; part = part->next) {
        struct value right = tpl_evaluate(r, s, part->x);
        result = tpl_compare(r, (enum op)part->op, left, right);
        if (!tpl_truth(r, result)) break;
        left = right;
    }
    return result;
}

/* Append the items of *list or **dict; room for `more` arguments stays behind them. */
static void args_unpack(struct rendering *r, struct value v, bool by_name, size_t more, struct args *a)
{
    if (r->rc) return;
    if (by_name && v.type != VALUE_DICT) {
        tpl_fail(r, "'**' needs a dict, found a %s", tpl_type_name(v));
        return;
    }
    const struct list *l = by_name ? NULL : tpl_iterate(r, v);
    const size_t n = r->rc ? 0 : by_name ? v.dict->n : l->n;
    struct argument *items = tpl_alloc(r, (a->n + n + more) * sizeof *items);
    if (!items) return;
    if (a->n) memcpy(items, a->items, a->n * sizeof *items);
    a->items = items;
    for (size_t i = 0; i < n; i++) {
        const struct entry *e = by_name ? &v.dict->entries[i] : NULL;
        if (e && e->key.type != VALUE_STRING) tpl_fail(r, "'**' needs a dict with texts as keys");
        if (r->rc) return;
        items[a->n++] = (struct argument){ e ? e->key.s : NULL, e ? e->value : l->items[i] };
    }
}

bool tpl_args(struct rendering *r, struct scope *s, const struct node *items, struct args *out)
{
    size_t n = 0;
    for (const struct node *item = items; item; item = item->next) n++;
    *out = (struct args){ .items = n ? tpl_alloc(r, n * sizeof *out->items) : NULL };
    for (const struct node *item = items; item && !r->rc; item = item->next) {
        const bool named = item->kind == NODE_KEYWORD;
        if (named && item->op) {
            args_unpack(r, tpl_evaluate(r, s, item->x), item->op == OP_POW, n, out);
            continue;
        }
        out->items[out->n++] = (struct argument){ named ? item->name : NULL,
                                                  tpl_evaluate(r, s, named ? item->x : item) };
    }
    return !r->rc;
}

/* Call the filter or test of node n. An argument that the function did not read is an error. */
static struct value apply_with(struct rendering *r, const struct node *n, struct value x, struct args *a)
{
    r->line = n->line;
    if (!n->function)
        return tpl_fail(r, "expected a %s of Jinja, found '%.*s', which does not exist here",
                        n->kind == NODE_TEST ? "test" : "filter", (int)MIN(n->name->n, 40), n->name->bytes);
    const struct value v = n->function->call(r, x, a);
    if (!r->rc && a->used < a->n)
        tpl_fail(r, "'%.*s' was given %zu arguments, but takes %zu", (int)n->name->n, n->name->bytes, a->n,
                 a->used);
    if (n->kind != NODE_TEST || r->rc) return v;
    return tpl_bool(tpl_truth(r, v) != (n->op != 0));
}

static struct value apply_function(struct rendering *r, struct scope *s, const struct node *n, struct value x)
{
    struct args a;
    return r->rc || !tpl_args(r, s, n->items, &a) ? TPL_UNDEFINED : apply_with(r, n, x, &a);
}

struct value tpl_apply_filters(struct rendering *r, struct scope *s, const struct node *n, struct value x)
{
    if (n->kind != NODE_FILTER) return x;
    return apply_function(r, s, n, tpl_apply_filters(r, s, n->x, x));
}

struct value tpl_call(struct rendering *r, struct value f, struct args *a)
{
    if (r->rc) return TPL_UNDEFINED;
    if (f.type == VALUE_MACRO) return tpl_call_macro(r, f.macro, a, NULL);
    if (f.type == VALUE_LOOP) return tpl_call_loop(r, f.loop, a);
    const struct function *function = f.type == VALUE_METHOD     ? f.bound->method
                                      : f.type == VALUE_FUNCTION ? f.function
                                                                 : NULL;
    if (!function) {
        const struct text *name = f.type == VALUE_UNDEFINED ? f.name : NULL;
        if (name)
            return tpl_fail(r, "'%.*s' is undefined, so it cannot be called", (int)MIN(name->n, 60),
                            name->bytes);
        return tpl_fail(r, "a %s cannot be called", tpl_type_name(f));
    }
    struct value v = function->call(r, f.type == VALUE_METHOD ? f.bound->self : TPL_NONE, a);
    if (!r->rc && a->used < a->n)
        tpl_fail(r, "'%s' was given %zu arguments, but takes %zu", function->name, a->n, a->used);
    return v;
}

static struct value evaluate_call(struct rendering *r, struct scope *s, const struct node *n)
{
    struct args a;
    struct value f = tpl_evaluate(r, s, n->x);
    if (r->rc || !tpl_args(r, s, n->items, &a)) return TPL_UNDEFINED;
    r->line = n->line;
    return tpl_call(r, f, &a);
}

static struct value evaluate_operator(struct rendering *r, struct scope *s, const struct node *n)
{
    struct value a = tpl_evaluate(r, s, n->x), b = n->y ? tpl_evaluate(r, s, n->y) : TPL_UNDEFINED;
    r->line = n->line;
    return n->kind == NODE_UNARY ? tpl_unary(r, (enum op)n->op, a) : tpl_binary(r, (enum op)n->op, a, b);
}

/* `and` and `or` return one of their operands, as in Python, not a boolean. */
static struct value evaluate_short_circuit(struct rendering *r, struct scope *s, const struct node *n)
{
    struct value a = tpl_evaluate(r, s, n->x);
    if (r->rc) return a;
    return tpl_truth(r, a) == (n->kind == NODE_AND) ? tpl_evaluate(r, s, n->y) : a;
}

static struct value evaluate_index(struct rendering *r, struct scope *s, const struct node *n)
{
    const bool attribute = n->kind == NODE_ATTRIBUTE;
    struct value of = tpl_evaluate(r, s, n->x), key = attribute
                                                          ? (struct value){ VALUE_STRING, { .s = n->name } }
                                                          : tpl_evaluate(r, s, n->y);
    r->line = n->line;
    return tpl_lookup(r, of, key, attribute);
}

/* Tests and filters receive undefined values, too, because "is defined" and "default" need them. */
static struct value evaluate_kind(struct rendering *r, struct scope *s, const struct node *n)
{
    switch (n->kind) {
    case NODE_LITERAL: return n->value;
    case NODE_NAME: return name_value(r, s, n->name);
    case NODE_ATTRIBUTE:
    case NODE_INDEX: return evaluate_index(r, s, n);
    case NODE_SLICE: return evaluate_slice(r, s, n);
    case NODE_LIST:
    case NODE_TUPLE: return evaluate_list(r, s, n);
    case NODE_DICT: return evaluate_dict(r, s, n);
    case NODE_UNARY:
    case NODE_BINARY: return evaluate_operator(r, s, n);
    case NODE_AND:
    case NODE_OR: return evaluate_short_circuit(r, s, n);
    case NODE_COMPARE: return evaluate_compare(r, s, n);
    case NODE_FILTER:
    case NODE_TEST: return apply_function(r, s, n, tpl_evaluate(r, s, n->x));
    case NODE_CALL: return evaluate_call(r, s, n);
    case NODE_IF_ELSE:
        if (tpl_truth(r, tpl_evaluate(r, s, n->x))) return tpl_evaluate(r, s, n->y);
        return n->z && !r->rc ? tpl_evaluate(r, s, n->z) : TPL_UNDEFINED;
    default: return tpl_fail(r, "a statement where an expression was expected");
    }
}

struct value tpl_evaluate(struct rendering *r, struct scope *s, const struct node *n)
{
    if (!tpl_deeper(r)) return TPL_UNDEFINED;
    struct value v = tpl_steps(r, 0) ? evaluate_kind(r, s, n) : TPL_UNDEFINED;
    r->depth--;
    return r->rc ? TPL_UNDEFINED : v;
}
