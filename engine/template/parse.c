/* Recursive descent parser of statements: tokens of lex.c to a tree of nodes. parse_<word> parses one
 * statement whose first word was consumed. Source: jinja2/parser.py. A function that fails stores the error
 * in the token stream and returns NULL. */
#include <string.h>

#include "engine/template/template_internal.h"

/* Parse statements up to a tag that begins with one of the words in `ends` (for example "else endif"; NULL:
 * up to the end of the template). The word is not consumed. */
static struct node *parse_items(struct token_stream *s, const char *ends);

static bool at_word_of(const struct token_stream *s, const char *list)
{
    const struct token *t = tpl_peek(s);
    char word[32];
    if (!list || t->type != TOKEN_WORD || t->text.n >= sizeof word) return false;
    memcpy(word, t->text.bytes, t->text.n);
    word[t->text.n] = '\0';
    return str_has_word(list, word);
}

static bool end_of_tag(struct token_stream *s)
{
    return tpl_expect(s, TOKEN_BLOCK_END, NULL, "the end of the tag, %}");
}

/* Statements that are compiled on their own, though a condition is around them: there Jinja refuses unknown
 * filters when it reads the template. */
static struct node *parse_inner(struct token_stream *s, const char *ends)
{
    const bool in_condition = s->in_condition;
    s->in_condition = false;
    struct node *items = parse_items(s, ends);
    s->in_condition = in_condition;
    return items;
}

/* "%} statements {% END %}" */
static struct node *parse_body(struct token_stream *s, const char *end)
{
    if (!end_of_tag(s)) return NULL;
    struct node *items = parse_inner(s, end);
    if (!tpl_expect(s, TOKEN_WORD, end, end)) return NULL;
    return end_of_tag(s) ? items : NULL;
}

/* ---------------------------------------------------------------- statements; the first word is consumed */

/* A chain of elif is as deep as it is long. */
static struct node *parse_if_parts(struct token_stream *s, struct node *n)
{
    if (!tpl_parse_deeper(s)) return NULL;
    n->x = tpl_parse_tuple(s, false);
    if (!end_of_tag(s)) return NULL;
    n->items = parse_items(s, "elif else endif");
    if (s->rc) return NULL;
    if (tpl_accept(s, TOKEN_WORD, "elif")) {
        n->y = tpl_node(s, NODE_IF);
        if (!n->y || !parse_if_parts(s, n->y)) return NULL;
    } else {
        if (tpl_accept(s, TOKEN_WORD, "else")) {
            if (!end_of_tag(s)) return NULL;
            n->y = tpl_node(s, NODE_BLOCK);
            if (n->y) n->y->items = parse_items(s, "endif");
        }
        if (!tpl_expect(s, TOKEN_WORD, "endif", "{% endif %}") || !end_of_tag(s)) return NULL;
    }
    s->depth--;
    return s->rc ? NULL : n;
}

static struct node *parse_if(struct token_stream *s, struct node *n)
{
    const bool in_condition = s->in_condition;
    s->in_condition = true;
    n = parse_if_parts(s, n);
    s->in_condition = in_condition;
    return n;
}

static struct node *parse_for(struct token_stream *s, struct node *n)
{
    n->x = tpl_parse_target(s);
    if (!tpl_expect(s, TOKEN_WORD, "in", "'in'")) return NULL;
    n->y = tpl_parse_tuple(s, false);
    const bool in_condition = s->in_condition;
    s->in_condition = false; /* the condition of a loop is a function of its own */
    if (tpl_accept(s, TOKEN_WORD, "if")) n->z = tpl_parse_expression(s);
    s->in_condition = in_condition;
    n->op = tpl_accept(s, TOKEN_WORD, "recursive");
    if (!end_of_tag(s)) return NULL;
    s->loops++;
    n->items = parse_inner(s, "else endfor");
    s->loops--;
    if (tpl_accept(s, TOKEN_WORD, "else")) {
        if (!end_of_tag(s)) return NULL;
        n->other = tpl_node(s, NODE_BLOCK);
        if (n->other) n->other->items = parse_inner(s, "endfor");
    }
    if (!tpl_expect(s, TOKEN_WORD, "endfor", "{% endfor %}")) return NULL;
    return end_of_tag(s) ? n : NULL;
}

static struct node *parse_set(struct token_stream *s, struct node *n)
{
    n->x = tpl_parse_target(s);
    if (tpl_accept(s, TOKEN_OPERATOR, "=")) {
        n->y = tpl_parse_tuple(s, true);
        return end_of_tag(s) ? n : NULL;
    }
    n->kind = NODE_SET_BLOCK;
    if (tpl_accept(s, TOKEN_OPERATOR, "|")) n->y = tpl_parse_filters(s, tpl_node(s, NODE_LITERAL));
    if (!tpl_is(s, TOKEN_BLOCK_END, NULL)) return tpl_parse_error(s, "'=' or the end of the tag, %}");
    n->items = parse_body(s, "endset");
    return s->rc ? NULL : n;
}

static struct node *parse_macro(struct token_stream *s, struct node *n)
{
    if (!tpl_is(s, TOKEN_WORD, NULL)) return tpl_parse_error(s, "the name of the macro");
    n->name = &tpl_next(s)->text;
    n->y = tpl_parse_parameters(s);
    if (s->rc) return NULL;
    const int loops = s->loops;
    const bool varargs = s->reads_varargs, kwargs = s->reads_kwargs;
    s->loops = 0; /* a macro cannot leave the loop around it */
    s->reads_varargs = s->reads_kwargs = false;
    n->items = parse_body(s, "endmacro");
    n->op = (s->reads_varargs ? MACRO_VARARGS : 0) | (s->reads_kwargs ? MACRO_KWARGS : 0);
    s->loops = loops;
    s->reads_varargs = varargs;
    s->reads_kwargs = kwargs;
    return s->rc ? NULL : n;
}

static struct node *parse_call_block(struct token_stream *s, struct node *n)
{
    n->kind = NODE_CALL_BLOCK;
    if (tpl_is(s, TOKEN_OPERATOR, "(")) n->y = tpl_parse_parameters(s);
    n->x = tpl_parse_postfix(s);
    if (s->rc) return NULL;
    if (n->x->kind != NODE_CALL) return tpl_parse_error(s, "a call of a macro");
    const int loops = s->loops;
    s->loops = 0;
    n->items = parse_body(s, "endcall");
    s->loops = loops;
    return s->rc ? NULL : n;
}

static struct node *parse_filter_block(struct token_stream *s, struct node *n)
{
    n->y = tpl_parse_filters(s, tpl_node(s, NODE_LITERAL));
    if (s->rc) return NULL;
    n->items = parse_body(s, "endfilter");
    return s->rc ? NULL : n;
}

static struct node *parse_with(struct token_stream *s, struct node *n)
{
    struct node **end = &n->y;
    while (!s->rc && !tpl_is(s, TOKEN_BLOCK_END, NULL)) {
        struct node *set = tpl_node(s, NODE_SET);
        if (!set) return NULL;
        set->x = tpl_parse_target(s);
        if (!tpl_expect(s, TOKEN_OPERATOR, "=", "'='")) return NULL;
        set->y = tpl_parse_expression(s);
        *end = set;
        end = &set->next;
        if (!tpl_accept(s, TOKEN_OPERATOR, ",")) break;
    }
    if (s->rc) return NULL;
    n->items = parse_body(s, "endwith");
    return s->rc ? NULL : n;
}

static struct node *parse_generation(struct token_stream *s, struct node *n)
{
    n->items = parse_body(s, "endgeneration");
    return s->rc ? NULL : n;
}

/* break, continue */
static struct node *parse_jump(struct token_stream *s, struct node *n)
{
    if (!s->loops) return tpl_parse_fail(s, n->line, "expected break and continue inside a loop only");
    return end_of_tag(s) ? n : NULL;
}

static const struct {
    const char *word;
    enum node_kind kind;
    struct node *(*parse)(struct token_stream *s, struct node *n);
} STATEMENTS[] = {
    { .word = "if", .kind = NODE_IF, .parse = parse_if },
    { .word = "for", .kind = NODE_FOR, .parse = parse_for },
    { .word = "set", .kind = NODE_SET, .parse = parse_set },
    { .word = "macro", .kind = NODE_MACRO, .parse = parse_macro },
    { .word = "call", .kind = NODE_CALL_BLOCK, .parse = parse_call_block },
    { .word = "filter", .kind = NODE_FILTER_BLOCK, .parse = parse_filter_block },
    { .word = "with", .kind = NODE_WITH, .parse = parse_with },
    { .word = "generation", .kind = NODE_BLOCK, .parse = parse_generation },
    { .word = "break", .kind = NODE_BREAK, .parse = parse_jump },
    { .word = "continue", .kind = NODE_CONTINUE, .parse = parse_jump },
};

static struct node *parse_statement(struct token_stream *s)
{
    for (size_t i = 0; i < COUNT_OF(STATEMENTS); i++) {
        if (!tpl_is(s, TOKEN_WORD, STATEMENTS[i].word)) continue;
        struct node *n = tpl_node(s, STATEMENTS[i].kind);
        if (!n || !tpl_parse_deeper(s)) return NULL;
        tpl_next(s);
        n = STATEMENTS[i].parse(s, n);
        s->depth--;
        return n;
    }
    return tpl_parse_error(s, "a statement such as if, for or set");
}

static struct node *parse_print(struct token_stream *s)
{
    struct node *n = tpl_node(s, NODE_PRINT);
    if (!n) return NULL;
    n->x = tpl_parse_tuple(s, true);
    return tpl_expect(s, TOKEN_PRINT_END, NULL, "an operator or the end of the tag, }}") ? n : NULL;
}

static struct node *parse_item(struct token_stream *s)
{
    if (tpl_accept(s, TOKEN_PRINT_BEGIN, NULL)) return parse_print(s);
    if (tpl_accept(s, TOKEN_BLOCK_BEGIN, NULL)) return parse_statement(s);
    struct node *n = tpl_node(s, NODE_TEXT);
    if (n) n->name = &tpl_next(s)->text;
    return n;
}

static struct node *parse_items(struct token_stream *s, const char *ends)
{
    struct node *first = NULL, **end = &first;
    while (!s->rc) {
        if (tpl_is(s, TOKEN_END_OF_FILE, NULL)) {
            if (!ends) return first;
            const char *last = strrchr(ends, ' ');
            char expected[48];
            snprintf(expected, sizeof expected, "{%% %s %%}", last ? last + 1 : ends);
            return tpl_parse_error(s, expected);
        }
        if (tpl_is(s, TOKEN_BLOCK_BEGIN, NULL)) {
            s->at++;
            if (at_word_of(s, ends)) return first;
            s->at--;
        }
        if (!(*end = parse_item(s))) return NULL;
        end = &(*end)->next;
    }
    return NULL;
}

struct node *tpl_parse(struct token_stream *s)
{
    struct node *root = parse_items(s, NULL);
    const struct node *n = s->unknown;
    if (n && !s->rc)
        return tpl_parse_fail(s, n->line, "expected a %s of Jinja, found '%.*s', which does not exist here",
                              n->kind == NODE_TEST ? "test" : "filter", (int)MIN(n->name->n, 40),
                              n->name->bytes);
    return root;
}
