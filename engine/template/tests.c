/* The tests of expressions: "x is defined", "n is divisibleby 3". Source: jinja2/tests.py. Each function is
 * one test with the signature of filters: x is the value before "is", `a` has the arguments, and the result
 * is a boolean. */
#include <string.h>

#include "engine/template/template_internal.h"

static struct value is_defined(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type != VALUE_UNDEFINED);
}

static struct value is_undefined(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_UNDEFINED);
}

static struct value is_none(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_NONE);
}

static struct value is_boolean(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_BOOL);
}

static struct value is_true(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_BOOL && x.b);
}

static struct value is_false(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_BOOL && !x.b);
}

static struct value is_string(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_STRING);
}

static struct value is_number(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(tpl_is_number(x) || x.type == VALUE_BIG); /* true and false are numbers, as in Python */
}

static struct value is_integer(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_INT || x.type == VALUE_BIG);
}

static struct value is_float(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_FLOAT);
}

static struct value is_mapping(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_DICT && !x.dict->is_namespace);
}

static struct value is_iterable(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(tpl_is_iterable(x) && !(x.type == VALUE_DICT && x.dict->is_namespace));
}

static struct value is_sequence(struct rendering *r, struct value x, struct args *a)
{
    const bool list = x.type != VALUE_LIST || tpl_is_list(x) || x.list->kind == LIST_RANGE;
    return list ? is_iterable(r, x, a) : tpl_bool(false);
}

/* Automatic escaping is off, so no text is marked as escaped. */
static struct value is_escaped(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a, (void)x;
    return tpl_bool(false);
}

static struct value is_callable(struct rendering *r, struct value x, struct args *a)
{
    (void)r, (void)a;
    return tpl_bool(x.type == VALUE_UNDEFINED || x.type == VALUE_LOOP || x.type == VALUE_MACRO ||
                    x.type == VALUE_FUNCTION || x.type == VALUE_METHOD);
}

/* x % by == rest, with Python's rules for any two values. */
static struct value test_rest(struct rendering *r, struct value x, struct value by, int64_t rest)
{
    struct value found = tpl_binary(r, OP_MOD, x, by);
    return r->rc ? TPL_UNDEFINED : tpl_bool(tpl_equal(r, found, tpl_int(rest)));
}

static struct value is_odd(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return test_rest(r, x, tpl_int(2), 1);
}

static struct value is_even(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    return test_rest(r, x, tpl_int(2), 0);
}

static struct value is_divisible(struct rendering *r, struct value x, struct args *a)
{
    return test_rest(r, x, tpl_arg_required(r, a, 0, "num"), 0);
}

static struct value test_compare(struct rendering *r, struct value x, struct args *a, enum op op)
{
    return tpl_compare(r, op, x, tpl_arg_required(r, a, 0, "other"));
}

static struct value is_equal(struct rendering *r, struct value x, struct args *a)
{
    return test_compare(r, x, a, OP_EQ);
}

static struct value is_not_equal(struct rendering *r, struct value x, struct args *a)
{
    return test_compare(r, x, a, OP_NE);
}

static struct value is_less(struct rendering *r, struct value x, struct args *a)
{
    return test_compare(r, x, a, OP_LT);
}

static struct value is_at_most(struct rendering *r, struct value x, struct args *a)
{
    return test_compare(r, x, a, OP_LE);
}

static struct value is_greater(struct rendering *r, struct value x, struct args *a)
{
    return test_compare(r, x, a, OP_GT);
}

static struct value is_at_least(struct rendering *r, struct value x, struct args *a)
{
    return test_compare(r, x, a, OP_GE);
}

static struct value is_in(struct rendering *r, struct value x, struct args *a)
{
    return test_compare(r, x, a, OP_IN);
}

/* Python compares identities; here values are the same if type and value are equal. */
static struct value is_same(struct rendering *r, struct value x, struct args *a)
{
    struct value y = tpl_arg_required(r, a, 0, "other");
    return tpl_bool(x.type == y.type && tpl_equal(r, x, y));
}

static struct value is_upper(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    const struct text *s = tpl_text_of(r, x);
    return tpl_bool(s && tpl_has_case(s, true));
}

static struct value is_lower(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    const struct text *s = tpl_text_of(r, x);
    return tpl_bool(s && tpl_has_case(s, false));
}

static struct value is_filter(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    if (!tpl_is_hashable(x))
        return tpl_fail(r, "expected the name of a filter, found a %s", tpl_type_name(x));
    return tpl_bool(x.type == VALUE_STRING && tpl_filter(x.s));
}

static struct value is_test(struct rendering *r, struct value x, struct args *a)
{
    (void)a;
    if (!tpl_is_hashable(x)) return tpl_fail(r, "expected the name of a test, found a %s", tpl_type_name(x));
    return tpl_bool(x.type == VALUE_STRING && tpl_test(x.s));
}

const struct function *tpl_test(const struct text *name)
{
    static const struct function TESTS[] = {
        { "defined", is_defined },   { "undefined", is_undefined },
        { "none", is_none },         { "boolean", is_boolean },
        { "true", is_true },         { "false", is_false },
        { "string", is_string },     { "number", is_number },
        { "integer", is_integer },   { "float", is_float },
        { "mapping", is_mapping },   { "iterable", is_iterable },
        { "sequence", is_sequence }, { "escaped", is_escaped },
        { "callable", is_callable }, { "odd", is_odd },
        { "even", is_even },         { "divisibleby", is_divisible },
        { "eq", is_equal },          { "equalto", is_equal },
        { "==", is_equal },          { "ne", is_not_equal },
        { "!=", is_not_equal },      { "lt", is_less },
        { "lessthan", is_less },     { "<", is_less },
        { "le", is_at_most },        { "<=", is_at_most },
        { "gt", is_greater },        { "greaterthan", is_greater },
        { ">", is_greater },         { "ge", is_at_least },
        { ">=", is_at_least },       { "in", is_in },
        { "sameas", is_same },       { "upper", is_upper },
        { "lower", is_lower },       { "filter", is_filter },
        { "test", is_test },         { NULL, NULL },
    };
    return tpl_function_in(TESTS, name);
}
