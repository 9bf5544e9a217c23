/* What the parsers of statements and expressions share: the next token, errors that name the line, the limit
 * on depth, new nodes. */
#include <stdarg.h>
#include <string.h>

#include "engine/template/template_internal.h"

const struct token *tpl_peek(const struct token_stream *s)
{
    return &s->items[s->at];
}

const struct token *tpl_next(struct token_stream *s)
{
    const struct token *t = &s->items[s->at];
    if (t->type != TOKEN_END_OF_FILE) s->at++;
    return t;
}

bool tpl_text_is(const struct text *t, const char *word)
{
    return t->n == strlen(word) && !memcmp(t->bytes, word, t->n);
}

bool tpl_is(const struct token_stream *s, enum token_type type, const char *text)
{
    const struct token *t = tpl_peek(s);
    return t->type == type && (!text || tpl_text_is(&t->text, text));
}

bool tpl_accept(struct token_stream *s, enum token_type type, const char *text)
{
    if (s->rc || !tpl_is(s, type, text)) return false;
    tpl_next(s);
    return true;
}

bool tpl_expect(struct token_stream *s, enum token_type type, const char *text, const char *expected)
{
    if (tpl_accept(s, type, text)) return true;
    tpl_parse_error(s, expected);
    return false;
}

void *tpl_parse_fail(struct token_stream *s, int line, const char *format, ...)
{
    char text[400];
    va_list args;
    if (s->rc) return NULL;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    s->rc = err_set(s->why, ERR_FORMAT, "%s, line %d: %s", s->name, line, text);
    return NULL;
}

void *tpl_parse_error(struct token_stream *s, const char *expected)
{
    const struct token *t = tpl_peek(s);
    switch (t->type) {
    case TOKEN_END_OF_FILE:
        return tpl_parse_fail(s, t->line, "expected %s, found the end of the template", expected);
    case TOKEN_TEXT: return tpl_parse_fail(s, t->line, "expected %s, found text", expected);
    case TOKEN_STRING:
        return tpl_parse_fail(s, t->line, "expected %s, found the string '%.*s'", expected,
                              (int)MIN(t->text.n, 40), t->text.bytes);
    default:
        return tpl_parse_fail(s, t->line, "expected %s, found '%.*s'", expected, (int)MIN(t->text.n, 40),
                              t->text.bytes);
    }
}

bool tpl_parse_deeper(struct token_stream *s)
{
    if (s->rc) return false;
    if (++s->depth <= TEMPLATE_DEPTH_MOST) return true;
    tpl_parse_fail(s, tpl_peek(s)->line, "nested deeper than %d levels", TEMPLATE_DEPTH_MOST);
    return false;
}

struct node *tpl_node(struct token_stream *s, enum node_kind kind)
{
    struct node *n = s->rc ? NULL : arena_alloc(s->memory, sizeof *n);
    if (!n) {
        if (!s->rc) s->rc = err_set(s->why, ERR_NOMEM, "out of memory for a template");
        return NULL;
    }
    n->kind = kind;
    n->line = tpl_peek(s)->line;
    return n;
}
