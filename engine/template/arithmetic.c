/* Binary, unary and comparison operators with the rules of Python. Division and modulo
 * round down, not to zero; a boolean counts as 0 or 1; integers have 64 bits, and a result outside their
 * range is an error because Python's integers have no limit. Strings and lists can be added and multiplied.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/template/template_internal.h"

static const char *const SIGNS[] = { "",   "+", "-",  "*", "/",  "//", "%",      "**",  "~", "==",
                                     "!=", "<", "<=", ">", ">=", "in", "not in", "not", "-", "+" };

/* An undefined operand is named in the message, because a misspelled variable is the usual cause. */
static struct value operands_fail(struct rendering *r, enum op op, struct value a, struct value b)
{
    const struct value *u = a.type == VALUE_UNDEFINED ? &a : b.type == VALUE_UNDEFINED ? &b : NULL;
    if (u && u->name)
        return tpl_fail(r, "'%.*s' is undefined, so '%s' cannot use it", (int)MIN(u->name->n, 60),
                        u->name->bytes, SIGNS[op]);
    return tpl_fail(r, "'%s' cannot combine a %s and a %s", SIGNS[op], tpl_type_name(a), tpl_type_name(b));
}

static int64_t int_of(struct value v)
{
    return v.type == VALUE_BOOL ? v.b : v.i;
}

/* A negative exponent yields a float, as in Python. */
static struct value ints_power(struct rendering *r, int64_t x, int64_t n)
{
    int64_t out = 1;
    if (n < 0) return x ? tpl_float(pow((double)x, (double)n)) : tpl_fail(r, "0 to a negative power");
    for (; n && tpl_steps(r, 0); n--)
        if (__builtin_mul_overflow(out, x, &out)) return tpl_fail(r, "a number is 2^63 or larger");
    return tpl_int(out);
}

/* INT64_MIN / -1 overflows in C, so y = -1 is a case of its own. */
static struct value ints_combine(struct rendering *r, enum op op, int64_t x, int64_t y)
{
    int64_t out = 0;
    bool over = false;
    if ((op == OP_FLOOR_DIV || op == OP_MOD) && !y) return tpl_fail(r, "division by zero");
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(x, y, &out); break;
    case OP_SUB: over = __builtin_sub_overflow(x, y, &out); break;
    case OP_MUL: over = __builtin_mul_overflow(x, y, &out); break;
    case OP_POW: return ints_power(r, x, y);
    case OP_FLOOR_DIV:
    case OP_MOD:
        if (y == -1) {
            over = op == OP_FLOOR_DIV && __builtin_sub_overflow((int64_t)0, x, &out);
            break;
        }
        out = op == OP_MOD ? x % y : x / y;
        if (x % y && (x < 0) != (y < 0))
            out += op == OP_MOD ? y : -1; /* C rounds to zero, Python rounds down */
        break;
    default: return tpl_fail(r, "'%s' cannot be applied to numbers", SIGNS[op]);
    }
    return over ? tpl_fail(r, "a number is 2^63 or larger") : tpl_int(out);
}

/* Python's results where C's pow has an infinity or no number. */
static struct value reals_power(struct rendering *r, double x, double y)
{
    const double out = pow(x, y);
    if (isfinite(x) && isfinite(y) && !isfinite(out))
        return tpl_fail(r, "%g ** %g is not supported: no double can hold it", x, y);
    return tpl_float(out);
}

/* The remainder has the sign of y; the quotient fits it. */
static struct value reals_divide(enum op op, double x, double y)
{
    double rest = fmod(x, y), quotient = (x - rest) / y;
    if (rest != 0 && (y < 0) != (rest < 0)) {
        rest += y;
        quotient -= 1;
    }
    if (rest == 0) rest = copysign(0, y);
    if (op == OP_MOD) return tpl_float(rest);
    if (quotient == 0) return tpl_float(copysign(0, x / y));
    const double whole = floor(quotient);
    return tpl_float(quotient - whole > 0.5 ? whole + 1 : whole);
}

/* Two integers stay integers except for "/". Otherwise both are computed as doubles. */
static struct value numbers_combine(struct rendering *r, enum op op, struct value a, struct value b)
{
    const double x = tpl_number(a), y = tpl_number(b);
    if (op == OP_DIV) return y == 0 ? tpl_fail(r, "division by zero") : tpl_float(x / y);
    if (a.type != VALUE_FLOAT && b.type != VALUE_FLOAT) return ints_combine(r, op, int_of(a), int_of(b));
    switch (op) {
    case OP_ADD: return tpl_float(x + y);
    case OP_SUB: return tpl_float(x - y);
    case OP_MUL: return tpl_float(x * y);
    case OP_POW: return reals_power(r, x, y);
    default: break;
    }
    return y == 0 ? tpl_fail(r, "division by zero") : reals_divide(op, x, y);
}

/* "ab" * 3, [1] * 3. A negative count yields an empty value. */
static struct value sequence_repeat(struct rendering *r, struct value v, int64_t times)
{
    if (v.type == VALUE_STRING) {
        const size_t from = r->out.len;
        for (; times > 0 && v.s->n && !r->rc; times--) tpl_emit_text(r, v.s);
        return tpl_take(r, from);
    }
    struct value out = tpl_list(r, v.list->tuple);
    for (; times > 0 && v.list->n && !r->rc; times--)
        for (size_t i = 0; i < v.list->n && !r->rc; i++) tpl_list_add(r, out.list, v.list->items[i]);
    return out;
}

static struct value lists_concat(struct rendering *r, const struct list *a, const struct list *b)
{
    struct value out = tpl_list(r, a->tuple);
    for (size_t i = 0; i < a->n && !r->rc; i++) tpl_list_add(r, out.list, a->items[i]);
    for (size_t i = 0; i < b->n && !r->rc; i++) tpl_list_add(r, out.list, b->items[i]);
    return out;
}

static struct value texts_concat(struct rendering *r, struct value a, struct value b)
{
    const size_t from = r->out.len;
    tpl_emit_value(r, a);
    tpl_emit_value(r, b);
    return tpl_take(r, from);
}

struct value tpl_binary(struct rendering *r, enum op op, struct value a, struct value b)
{
    if (r->rc || !tpl_steps(r, 0)) return TPL_UNDEFINED;
    if (op == OP_CONCAT) return texts_concat(r, a, b);
    if (tpl_is_number(a) && tpl_is_number(b)) return numbers_combine(r, op, a, b);
    if (op == OP_ADD && a.type == VALUE_STRING && b.type == VALUE_STRING) return texts_concat(r, a, b);
    if (op == OP_ADD && tpl_is_list(a) && tpl_is_list(b) && a.list->tuple == b.list->tuple)
        return lists_concat(r, a.list, b.list);
    const bool a_many = a.type == VALUE_STRING || tpl_is_list(a),
               b_many = b.type == VALUE_STRING || tpl_is_list(b);
    if (op == OP_MUL && a_many && (b.type == VALUE_INT || b.type == VALUE_BOOL))
        return sequence_repeat(r, a, int_of(b));
    if (op == OP_MUL && b_many && (a.type == VALUE_INT || a.type == VALUE_BOOL))
        return sequence_repeat(r, b, int_of(a));
    if (op == OP_MOD && a.type == VALUE_STRING) {
        struct list one = { .items = &b, .n = 1 };
        return tpl_format(r, a.s, b.type == VALUE_LIST && b.list->tuple ? b.list : &one);
    }
    const bool view = a.type == VALUE_LIST && (a.list->kind == LIST_KEYS || a.list->kind == LIST_ITEMS),
               other = b.type == VALUE_LIST && (b.list->kind == LIST_KEYS || b.list->kind == LIST_ITEMS);
    if (op == OP_SUB && (view || other))
        return tpl_fail(r, "sets, which '-' makes of the keys and items of a dict, are not supported");
    return operands_fail(r, op, a, b);
}

/* A comparison with NaN is false, as in IEEE 754. Undefined values have no order. */
struct value tpl_compare(struct rendering *r, enum op op, struct value a, struct value b)
{
    if (r->rc || !tpl_steps(r, 0)) return TPL_UNDEFINED;
    if (op == OP_EQ || op == OP_NE) return tpl_bool(tpl_equal(r, a, b) == (op == OP_EQ));
    if (op == OP_IN || op == OP_NOT_IN) return tpl_bool(tpl_contains(r, b, a) == (op == OP_IN));
    if (a.type == VALUE_UNDEFINED || b.type == VALUE_UNDEFINED) return operands_fail(r, op, a, b);
    if (tpl_is_number(a) && tpl_is_number(b) && (isnan(tpl_number(a)) || isnan(tpl_number(b))))
        return tpl_bool(false);
    const int order = tpl_order(r, a, b);
    return tpl_bool(op == OP_LT   ? order < 0
                    : op == OP_LE ? order <= 0
                    : op == OP_GT ? order > 0
                                  : order >= 0);
}

struct value tpl_unary(struct rendering *r, enum op op, struct value a)
{
    if (r->rc) return TPL_UNDEFINED;
    if (op == OP_NOT) return tpl_bool(!tpl_truth(r, a));
    if (!tpl_is_number(a)) return tpl_fail(r, "'%s' needs a number, found a %s", SIGNS[op], tpl_type_name(a));
    if (op == OP_PLUS) return a.type == VALUE_BOOL ? tpl_int(a.b) : a;
    return a.type == VALUE_FLOAT ? tpl_float(-a.d) : ints_combine(r, OP_SUB, 0, int_of(a));
}
