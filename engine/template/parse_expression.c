/* Recursive descent parser of expressions, with Jinja's precedence, from the weakest: if-else, or, and, not,
 * comparisons, + -, ~, * / // %, **, signs, calls and attributes, filters and tests. Source:
 * jinja2/parser.py.
 *
 * Depth and the lengths of chains are limited, because the tree is evaluated recursively. */
#include <string.h>

#include "engine/template/template_internal.h"

/* ---------------------------------------------------------------- lists of expressions */

static struct node *node_literal(struct token_stream *s, struct value v)
{
    struct node *n = tpl_node(s, NODE_LITERAL);
    if (n) n->value = v;
    return n;
}

/* Arguments up to the closing bracket, which is consumed. */
static struct node *parse_arguments(struct token_stream *s)
{
    struct node *first = NULL, **end = &first;
    while (!s->rc && !tpl_is(s, TOKEN_OPERATOR, ")")) {
        const struct token *after = &s->items[MIN(s->at + 1, s->n - 1)];
        struct node *n;
        const bool list = tpl_is(s, TOKEN_OPERATOR, "*"), dict = tpl_is(s, TOKEN_OPERATOR, "**");
        if (list || dict) { /* *list, **dict */
            if (!(n = tpl_node(s, NODE_KEYWORD))) return NULL;
            tpl_next(s);
            n->op = list ? OP_MUL : OP_POW;
            n->x = tpl_parse_expression(s);
        } else if (tpl_is(s, TOKEN_WORD, NULL) && after->type == TOKEN_OPERATOR &&
                   tpl_text_is(&after->text, "=")) {
            n = tpl_node(s, NODE_KEYWORD);
            if (!n) return NULL;
            n->name = &tpl_next(s)->text;
            tpl_next(s);
            n->x = tpl_parse_expression(s);
        } else
            n = tpl_parse_expression(s);
        if (!n) return NULL;
        *end = n;
        end = &n->next;
        if (!tpl_accept(s, TOKEN_OPERATOR, ",")) break;
    }
    return tpl_expect(s, TOKEN_OPERATOR, ")", "',' or ')'") ? first : NULL;
}

static struct node *parse_brackets(struct token_stream *s)
{
    struct node *list = tpl_node(s, NODE_LIST), **end = list ? &list->items : NULL;
    while (!s->rc && !tpl_is(s, TOKEN_OPERATOR, "]")) {
        if (!(*end = tpl_parse_expression(s))) return NULL;
        end = &(*end)->next;
        if (!tpl_accept(s, TOKEN_OPERATOR, ",")) break;
    }
    return tpl_expect(s, TOKEN_OPERATOR, "]", "',' or ']'") ? list : NULL;
}

static struct node *parse_braces(struct token_stream *s)
{
    struct node *dict = tpl_node(s, NODE_DICT), **end = dict ? &dict->items : NULL;
    while (!s->rc && !tpl_is(s, TOKEN_OPERATOR, "}")) {
        if (!(*end = tpl_parse_expression(s))) return NULL;
        end = &(*end)->next;
        if (!tpl_expect(s, TOKEN_OPERATOR, ":", "':' and the value of a key")) return NULL;
        if (!(*end = tpl_parse_expression(s))) return NULL;
        end = &(*end)->next;
        if (!tpl_accept(s, TOKEN_OPERATOR, ",")) break;
    }
    return tpl_expect(s, TOKEN_OPERATOR, "}", "',' or '}'") ? dict : NULL;
}

static struct node *parse_unary(struct token_stream *s, bool with_filter);

static bool tuple_ends(const struct token_stream *s)
{
    const enum token_type type = tpl_peek(s)->type;
    return type == TOKEN_PRINT_END || type == TOKEN_BLOCK_END || tpl_is(s, TOKEN_OPERATOR, ")") ||
           tpl_is(s, TOKEN_OPERATOR, "=");
}

static struct node *parse_or(struct token_stream *s);

/* One expression, or several with commas between them: a tuple. */
struct node *tpl_parse_tuple(struct token_stream *s, bool condition)
{
    struct node *first = condition ? tpl_parse_expression(s) : parse_or(s);
    if (!first || !tpl_is(s, TOKEN_OPERATOR, ",")) return first;
    struct node *tuple = tpl_node(s, NODE_TUPLE), **end = &first->next;
    if (!tuple) return NULL;
    tuple->items = first;
    while (tpl_accept(s, TOKEN_OPERATOR, ",")) {
        if (tuple_ends(s)) break;
        if (!(*end = condition ? tpl_parse_expression(s) : parse_or(s))) return NULL;
        end = &(*end)->next;
    }
    return s->rc ? NULL : tuple;
}

/* ---------------------------------------------------------------- primary expressions */

static struct node *parse_word(struct token_stream *s)
{
    static const struct {
        const char *word;
        struct value value;
    } WORDS[] = { { "true", { VALUE_BOOL, { .b = true } } },   { "True", { VALUE_BOOL, { .b = true } } },
                  { "false", { VALUE_BOOL, { .b = false } } }, { "False", { VALUE_BOOL, { .b = false } } },
                  { "none", { VALUE_NONE, { .i = 0 } } },      { "None", { VALUE_NONE, { .i = 0 } } } };
    for (size_t i = 0; i < COUNT_OF(WORDS); i++)
        if (tpl_accept(s, TOKEN_WORD, WORDS[i].word)) return node_literal(s, WORDS[i].value);
    struct node *n = tpl_node(s, NODE_NAME);
    if (!n) return NULL;
    n->name = &tpl_next(s)->text;
    s->reads_varargs = s->reads_varargs || tpl_text_is(n->name, "varargs");
    s->reads_kwargs = s->reads_kwargs || tpl_text_is(n->name, "kwargs");
    return n;
}

/* Neighbouring strings are one. */
static struct node *parse_strings(struct token_stream *s)
{
    struct node *n = node_literal(s, (struct value){ VALUE_STRING, { .s = &tpl_next(s)->text } });
    while (n && tpl_is(s, TOKEN_STRING, NULL)) {
        const struct text *a = n->value.s, *b = &tpl_next(s)->text;
        struct text *joined = arena_alloc(s->memory, sizeof *joined);
        char *bytes = arena_alloc(s->memory, a->n + b->n + 1);
        if (!joined || !bytes) {
            s->rc = err_set(s->why, ERR_NOMEM, "out of memory for a template");
            return NULL;
        }
        if (a->n) memcpy(bytes, a->bytes, a->n);
        if (b->n) memcpy(bytes + a->n, b->bytes, b->n);
        *joined = (struct text){ .bytes = bytes, .n = a->n + b->n };
        n->value.s = joined;
    }
    return n;
}

static struct node *parse_primary(struct token_stream *s)
{
    const struct token *t = tpl_peek(s);
    switch (t->type) {
    case TOKEN_WORD: return parse_word(s);
    case TOKEN_STRING: return parse_strings(s);
    case TOKEN_INT: return tpl_next(s), node_literal(s, (struct value){ VALUE_INT, { .i = t->i } });
    case TOKEN_FLOAT: return tpl_next(s), node_literal(s, (struct value){ VALUE_FLOAT, { .d = t->d } });
    default: break;
    }
    if (tpl_accept(s, TOKEN_OPERATOR, "[")) return parse_brackets(s);
    if (tpl_accept(s, TOKEN_OPERATOR, "{")) return parse_braces(s);
    if (!tpl_accept(s, TOKEN_OPERATOR, "(")) return tpl_parse_error(s, "an expression");
    if (tpl_accept(s, TOKEN_OPERATOR, ")")) return tpl_node(s, NODE_TUPLE);
    struct node *n = tpl_parse_tuple(s, true);
    return tpl_expect(s, TOKEN_OPERATOR, ")", "',' or ')'") ? n : NULL;
}

/* "[1]", "[1:2]", "[::-1]"; the opening bracket is consumed. */
static struct node *parse_subscript(struct token_stream *s, struct node *x)
{
    struct node *n = tpl_node(s, NODE_INDEX), *parts[3] = { NULL };
    int part = 0;
    bool slice = false;
    if (!n) return NULL;
    for (; !tpl_is(s, TOKEN_OPERATOR, "]") && part < 3; part++) {
        if (!tpl_is(s, TOKEN_OPERATOR, ":") && !(parts[part] = tpl_parse_expression(s))) return NULL;
        if (!tpl_accept(s, TOKEN_OPERATOR, ":")) break;
        slice = true;
    }
    if (!slice && !parts[0]) return tpl_parse_error(s, "an index");
    if (!tpl_expect(s, TOKEN_OPERATOR, "]", "']'")) return NULL;
    n->kind = slice ? NODE_SLICE : NODE_INDEX;
    n->x = x;
    n->y = parts[0];
    n->z = parts[1];
    n->other = parts[2];
    return n;
}

static struct node *parse_call(struct token_stream *s, struct node *x)
{
    struct node *n = tpl_node(s, NODE_CALL);
    if (!n) return NULL;
    n->x = x;
    n->items = parse_arguments(s);
    return s->rc ? NULL : n;
}

static struct node *parse_attribute(struct token_stream *s, struct node *x)
{
    const struct token *t = tpl_peek(s);
    struct node *n = tpl_node(s, t->type == TOKEN_INT ? NODE_INDEX : NODE_ATTRIBUTE);
    if (t->type != TOKEN_INT && t->type != TOKEN_WORD) return tpl_parse_error(s, "a name after '.'");
    tpl_next(s);
    if (!n) return NULL;
    n->x = x;
    n->name = &t->text;
    if (t->type == TOKEN_INT) n->y = node_literal(s, (struct value){ VALUE_INT, { .i = t->i } });
    return s->rc ? NULL : n;
}

/* Chains are loops here, but every link is a level when they are evaluated, so they count as depth. */
static struct node *parse_postfix(struct token_stream *s, struct node *x)
{
    int links = 0;
    while (x && !s->rc) {
        if (tpl_accept(s, TOKEN_OPERATOR, "."))
            x = parse_attribute(s, x);
        else if (tpl_accept(s, TOKEN_OPERATOR, "["))
            x = parse_subscript(s, x);
        else if (tpl_accept(s, TOKEN_OPERATOR, "("))
            x = parse_call(s, x);
        else
            break;
        if (++links > TEMPLATE_DEPTH_MOST) return tpl_parse_error(s, "a shorter chain of calls");
    }
    return s->rc ? NULL : x;
}

struct node *tpl_parse_postfix(struct token_stream *s)
{
    return parse_postfix(s, parse_primary(s));
}

/* ---------------------------------------------------------------- filters and tests */

/* Jinja refuses a template with an unknown filter or test when it reads it, except in `if` statements and
 * conditional expressions: there it is an error only when it runs. */
static void note_unknown(struct token_stream *s, const struct node *n)
{
    if (!n->function && !s->in_condition && !s->unknown) s->unknown = n;
}

static struct node *parse_filter(struct token_stream *s, struct node *x)
{
    struct node *n = tpl_node(s, NODE_FILTER);
    if (!tpl_is(s, TOKEN_WORD, NULL)) return tpl_parse_error(s, "the name of a filter");
    if (!n) return NULL;
    n->name = &tpl_next(s)->text;
    n->x = x;
    n->function = tpl_filter(n->name);
    note_unknown(s, n);
    if (tpl_accept(s, TOKEN_OPERATOR, "(")) n->items = parse_arguments(s);
    return s->rc ? NULL : n;
}

/* Does an argument without brackets follow, as in "is divisibleby 3"? */
static bool argument_follows(const struct token_stream *s)
{
    static const char *const OTHERS[] = { "else", "or", "and", "is", "if", "in", "not", "recursive" };
    const struct token *t = tpl_peek(s);
    for (size_t i = 0; t->type == TOKEN_WORD && i < COUNT_OF(OTHERS); i++)
        if (tpl_text_is(&t->text, OTHERS[i])) return false;
    return t->type == TOKEN_WORD || t->type == TOKEN_STRING || t->type == TOKEN_INT ||
           t->type == TOKEN_FLOAT || tpl_is(s, TOKEN_OPERATOR, "[") || tpl_is(s, TOKEN_OPERATOR, "{");
}

static struct node *parse_test(struct token_stream *s, struct node *x)
{
    struct node *n = tpl_node(s, NODE_TEST);
    if (!n) return NULL;
    n->op = tpl_accept(s, TOKEN_WORD, "not");
    if (!tpl_is(s, TOKEN_WORD, NULL)) return tpl_parse_error(s, "the name of a test");
    n->name = &tpl_next(s)->text;
    n->x = x;
    n->function = tpl_test(n->name);
    note_unknown(s, n);
    if (tpl_accept(s, TOKEN_OPERATOR, "("))
        n->items = parse_arguments(s);
    else if (argument_follows(s))
        n->items = tpl_parse_postfix(s);
    return s->rc ? NULL : n;
}

static struct node *parse_filters_and_tests(struct token_stream *s, struct node *x)
{
    int links = 0;
    while (x && !s->rc) {
        if (tpl_accept(s, TOKEN_OPERATOR, "|"))
            x = parse_filter(s, x);
        else if (tpl_accept(s, TOKEN_WORD, "is"))
            x = parse_test(s, x);
        else if (tpl_accept(s, TOKEN_OPERATOR, "("))
            x = parse_call(s, x);
        else
            break;
        if (++links > TEMPLATE_DEPTH_MOST) return tpl_parse_error(s, "a shorter chain of filters");
    }
    return s->rc ? NULL : x;
}

struct node *tpl_parse_filters(struct token_stream *s, struct node *x)
{
    const bool in_condition = s->in_condition;
    s->in_condition = false; /* these filters belong to a block of their own */
    x = parse_filter(s, x);
    while (x && tpl_accept(s, TOKEN_OPERATOR, "|")) x = parse_filter(s, x);
    s->in_condition = in_condition;
    return s->rc ? NULL : x;
}

/* ---------------------------------------------------------------- operators */

static struct node *node_binary(struct token_stream *s, enum node_kind kind, enum op op, struct node *x,
                                struct node *y)
{
    struct node *n = tpl_node(s, kind);
    if (!n || !x || !y) return NULL;
    n->op = (int)op;
    n->x = x;
    n->y = y;
    n->line = x->line;
    return n;
}

static struct node *parse_unary(struct token_stream *s, bool with_filter)
{
    if (!tpl_parse_deeper(s)) return NULL;
    const bool minus = tpl_accept(s, TOKEN_OPERATOR, "-"),
               plus = !minus && tpl_accept(s, TOKEN_OPERATOR, "+");
    struct node *x;
    if (minus || plus) {
        struct node *n = tpl_node(s, NODE_UNARY);
        x = parse_unary(s, false);
        if (!n || !x) return NULL;
        n->op = minus ? OP_NEGATE : OP_PLUS;
        n->x = x;
        x = n;
    } else
        x = tpl_parse_postfix(s);
    if (with_filter) x = parse_filters_and_tests(s, x);
    s->depth--;
    return s->rc ? NULL : x;
}

/* Binary operators by precedence, from the strongest. Operators of one level associate to the left. */
enum { LEVEL_POW, LEVEL_PRODUCT, LEVEL_CONCAT, LEVEL_SUM };
static const struct {
    const char *text;
    enum op op;
    int level;
} OPERATORS[] = { { .text = "**", .op = OP_POW, .level = LEVEL_POW },
                  { .text = "*", .op = OP_MUL, .level = LEVEL_PRODUCT },
                  { .text = "/", .op = OP_DIV, .level = LEVEL_PRODUCT },
                  { .text = "//", .op = OP_FLOOR_DIV, .level = LEVEL_PRODUCT },
                  { .text = "%", .op = OP_MOD, .level = LEVEL_PRODUCT },
                  { .text = "~", .op = OP_CONCAT, .level = LEVEL_CONCAT },
                  { .text = "+", .op = OP_ADD, .level = LEVEL_SUM },
                  { .text = "-", .op = OP_SUB, .level = LEVEL_SUM } };

static enum op accept_operator(struct token_stream *s, int level)
{
    for (size_t i = 0; i < COUNT_OF(OPERATORS); i++)
        if (OPERATORS[i].level == level && tpl_accept(s, TOKEN_OPERATOR, OPERATORS[i].text))
            return OPERATORS[i].op;
    return OP_NONE;
}

/* A chain such as a ~ b ~ c becomes a tree that is as deep as the chain is long, so its length is limited. */
static struct node *parse_level(struct token_stream *s, int level)
{
    struct node *x = level == LEVEL_POW ? parse_unary(s, true) : parse_level(s, level - 1);
    int links = 0;
    for (enum op op; x && (op = accept_operator(s, level));) {
        struct node *y = level == LEVEL_POW ? parse_unary(s, true) : parse_level(s, level - 1);
        if (++links > TEMPLATE_DEPTH_MOST) return tpl_parse_error(s, "a shorter chain of operators");
        x = node_binary(s, NODE_BINARY, op, x, y);
    }
    return s->rc ? NULL : x;
}

static enum op accept_comparison(struct token_stream *s)
{
    static const struct {
        const char *text;
        enum op op;
    } SIGNS[] = { { "==", OP_EQ }, { "!=", OP_NE }, { "<=", OP_LE },
                  { ">=", OP_GE }, { "<", OP_LT },  { ">", OP_GT } };
    for (size_t i = 0; i < COUNT_OF(SIGNS); i++)
        if (tpl_accept(s, TOKEN_OPERATOR, SIGNS[i].text)) return SIGNS[i].op;
    if (tpl_accept(s, TOKEN_WORD, "in")) return OP_IN;
    const struct token *after = &s->items[MIN(s->at + 1, s->n - 1)];
    if (!tpl_is(s, TOKEN_WORD, "not") || after->type != TOKEN_WORD || !tpl_text_is(&after->text, "in"))
        return OP_NONE;
    tpl_next(s);
    tpl_next(s);
    return OP_NOT_IN;
}

static struct node *parse_compare(struct token_stream *s)
{
    struct node *x = parse_level(s, LEVEL_SUM), *n = NULL, **end = NULL;
    for (enum op op; x && (op = accept_comparison(s));) {
        struct node *part = tpl_node(s, NODE_UNARY), *y = parse_level(s, LEVEL_SUM);
        if (!n) {
            n = tpl_node(s, NODE_COMPARE);
            end = n ? &n->items : NULL;
        }
        if (!n || !part || !y) return NULL;
        n->x = x;
        part->op = (int)op;
        part->x = y;
        *end = part;
        end = &part->next;
    }
    return s->rc ? NULL : n ? n : x;
}

static struct node *parse_not(struct token_stream *s)
{
    if (!tpl_is(s, TOKEN_WORD, "not")) return parse_compare(s);
    struct node *n = tpl_node(s, NODE_UNARY);
    tpl_next(s);
    if (!n || !tpl_parse_deeper(s)) return NULL;
    n->op = OP_NOT;
    n->x = parse_not(s);
    s->depth--;
    return s->rc ? NULL : n;
}

/* Jinja drops the right side where the left one is a constant that decides, unknown filters included. */
static struct node *node_logic(struct token_stream *s, enum node_kind kind, struct node *x,
                               struct node *(*right)(struct token_stream *s))
{
    const struct node *unknown = s->unknown;
    const bool decides = x->kind == NODE_LITERAL && tpl_truth(NULL, x->value) == (kind == NODE_OR);
    struct node *y = right(s);
    if (decides) s->unknown = unknown;
    return decides && y ? x : node_binary(s, kind, OP_NONE, x, y);
}

static struct node *parse_and(struct token_stream *s)
{
    struct node *x = parse_not(s);
    for (int links = 0; x && tpl_accept(s, TOKEN_WORD, "and");) {
        if (++links > TEMPLATE_DEPTH_MOST) return tpl_parse_error(s, "a shorter chain of 'and'");
        x = node_logic(s, NODE_AND, x, parse_not);
    }
    return s->rc ? NULL : x;
}

static struct node *parse_or(struct token_stream *s)
{
    struct node *x = parse_and(s);
    for (int links = 0; x && tpl_accept(s, TOKEN_WORD, "or");) {
        if (++links > TEMPLATE_DEPTH_MOST) return tpl_parse_error(s, "a shorter chain of 'or'");
        x = node_logic(s, NODE_OR, x, parse_and);
    }
    return s->rc ? NULL : x;
}

struct node *tpl_parse_expression(struct token_stream *s)
{
    if (!tpl_parse_deeper(s)) return NULL;
    const struct node *unknown = s->unknown;
    struct node *x = parse_or(s);
    for (int links = 0; x && tpl_accept(s, TOKEN_WORD, "if");) {
        if (++links > TEMPLATE_DEPTH_MOST) return tpl_parse_error(s, "a shorter chain of 'if'");
        struct node *n = tpl_node(s, NODE_IF_ELSE), *condition = parse_or(s), *otherwise = NULL;
        if (tpl_accept(s, TOKEN_WORD, "else") && !(otherwise = tpl_parse_expression(s))) return NULL;
        if (!n || !condition) return NULL;
        n->x = condition;
        n->y = x;
        n->z = otherwise;
        x = n;
        s->unknown = unknown;
    }
    s->depth--;
    return s->rc ? NULL : x;
}

/* ---------------------------------------------------------------- targets and parameters */

static struct node *parse_target_part(struct token_stream *s)
{
    if (tpl_accept(s, TOKEN_OPERATOR, "(")) {
        struct node *n = tpl_parse_deeper(s) ? tpl_parse_target(s) : NULL;
        s->depth--;
        return tpl_expect(s, TOKEN_OPERATOR, ")", "')'") ? n : NULL;
    }
    struct node *n = tpl_node(s, NODE_NAME);
    if (!tpl_is(s, TOKEN_WORD, NULL)) return tpl_parse_error(s, "the name of a variable");
    if (!n) return NULL;
    n->name = &tpl_next(s)->text;
    if (!tpl_accept(s, TOKEN_OPERATOR, ".")) return n;
    return parse_attribute(s, n);
}

struct node *tpl_parse_target(struct token_stream *s)
{
    struct node *first = parse_target_part(s), **end = first ? &first->next : NULL;
    if (!first || !tpl_is(s, TOKEN_OPERATOR, ",")) return first;
    struct node *tuple = tpl_node(s, NODE_TUPLE);
    if (!tuple) return NULL;
    tuple->items = first;
    while (tpl_accept(s, TOKEN_OPERATOR, ",")) {
        if (tuple_ends(s) || tpl_is(s, TOKEN_WORD, "in")) break;
        if (!(*end = parse_target_part(s))) return NULL;
        end = &(*end)->next;
    }
    return s->rc ? NULL : tuple;
}

struct node *tpl_parse_parameters(struct token_stream *s)
{
    struct node *first = NULL, **end = &first;
    if (!tpl_expect(s, TOKEN_OPERATOR, "(", "'(' and parameters")) return NULL;
    while (!s->rc && !tpl_is(s, TOKEN_OPERATOR, ")")) {
        struct node *n = tpl_node(s, NODE_KEYWORD);
        if (!tpl_is(s, TOKEN_WORD, NULL)) return tpl_parse_error(s, "the name of a parameter");
        if (!n) return NULL;
        n->name = &tpl_next(s)->text;
        if (tpl_accept(s, TOKEN_OPERATOR, "=") && !(n->x = tpl_parse_expression(s))) return NULL;
        *end = n;
        end = &n->next;
        if (!tpl_accept(s, TOKEN_OPERATOR, ",")) break;
    }
    return tpl_expect(s, TOKEN_OPERATOR, ")", "',' or ')'") ? first : NULL;
}
