/* Cuts a template into tokens: text between the tags, and words, strings, numbers and operators inside them.
 *
 * White space follows transformers: the first line feed after a block or comment is dropped (trim_blocks),
 * blanks between the beginning of a line and a block or comment are dropped (lstrip_blocks), "-" at a tag
 * drops all white space on its side, "+" keeps it. */
#include <stdlib.h>
#include <string.h>

#include "engine/template/template_internal.h"

struct lexer {
    struct token_stream *s;
    const char *text; /* with \n at the ends of lines, without the last one */
    size_t n, at;
    int line;
    bool line_starts;   /* the last tag ended with a line feed, or there was none */
    struct str nesting; /* open brackets of the current tag */
};

static bool lexer_starts(const struct lexer *l, const char *word)
{
    const size_t n = strlen(word);
    return l->n - l->at >= n && !memcmp(l->text + l->at, word, n);
}

static bool lexer_add(struct lexer *l, enum token_type type, const char *text, size_t n)
{
    struct token_stream *s = l->s;
    if (s->n == s->cap) {
        const size_t cap = s->cap ? s->cap * 2 : 256;
        struct token *items = arena_alloc(s->memory, cap * sizeof *items);
        if (!items) {
            s->rc = err_set(s->why, ERR_NOMEM, "out of memory for a template");
            return false;
        }
        if (s->n) memcpy(items, s->items, s->n * sizeof *items);
        s->items = items;
        s->cap = cap;
    }
    s->items[s->n++] = (struct token){ .type = type, .line = l->line, .text = { .bytes = text, .n = n } };
    return true;
}

/* Move over n bytes and count lines. */
static void lexer_skip(struct lexer *l, size_t n)
{
    for (; n && l->at < l->n; n--) l->line += l->text[l->at++] == '\n';
}

static void lexer_skip_space(struct lexer *l)
{
    uint32_t c;
    for (size_t used; l->at < l->n; lexer_skip(l, used)) {
        used = str_utf8_next(l->text + l->at, l->n - l->at, &c);
        if (!tpl_is_space(c)) return;
    }
}

/* ---------------------------------------------------------------- text and the ends of tags */

static size_t trimmed_end(const char *text, size_t n)
{
    while (n) {
        size_t at = n - 1;
        uint32_t c;
        while (at && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
        str_utf8_next(text + at, n - at, &c);
        if (!tpl_is_space(c)) break;
        n = at;
    }
    return n;
}

/* Where the text before a tag ends. sign: what follows the tag's opening bracket. */
static size_t text_end(const struct lexer *l, const char *text, size_t n, char sign, bool is_print)
{
    if (sign == '-') return trimmed_end(text, n);
    if (sign == '+' || is_print) return n;
    const char *feed = n ? memrchr(text, '\n', n) : NULL;
    const size_t from = feed ? (size_t)(feed - text) + 1 : 0;
    if (!from && !l->line_starts) return n;
    return trimmed_end(text + from, n - from) ? n : from;
}

static bool lexer_text(struct lexer *l, const char *text, size_t n)
{
    return !n || lexer_add(l, TOKEN_TEXT, text, n);
}

/* Is here the end of a tag with this closing bracket, e.g. "-%}"? Then skip it and the white space it eats.
 */
static bool lexer_ends(struct lexer *l, const char *bracket, bool is_print)
{
    const char sign = l->at < l->n ? l->text[l->at] : '\0';
    const bool signed_end = sign == '-' || (sign == '+' && !is_print);
    const size_t at = l->at;
    l->at += signed_end;
    if (!lexer_starts(l, bracket)) {
        l->at = at;
        return false;
    }
    const size_t from = l->at;
    lexer_skip(l, strlen(bracket));
    if (signed_end && sign == '-')
        lexer_skip_space(l);
    else if (!signed_end && !is_print && l->at < l->n && l->text[l->at] == '\n')
        lexer_skip(l, 1);
    l->line_starts = l->at > from && l->text[l->at - 1] == '\n';
    return true;
}

static bool lexer_fail(struct lexer *l, int line, const char *expected)
{
    tpl_parse_fail(l->s, line, "expected %s, found the end of the template", expected);
    return false;
}

static bool lexer_comment(struct lexer *l)
{
    const int line = l->line;
    for (lexer_skip(l, 2); l->at < l->n; lexer_skip(l, 1))
        if (lexer_ends(l, "#}", false)) return true;
    return lexer_fail(l, line, "the end of the comment, #}");
}

/* ---------------------------------------------------------------- raw blocks */

/* Length of "{% word %}" at `at` up to, without, the closing bracket; 0: something else. */
static size_t raw_tag(const struct lexer *l, size_t at, const char *word)
{
    size_t i = at + 2, n = strlen(word);
    if (l->n - at < 4 || memcmp(l->text + at, "{%", 2)) return 0;
    i += l->text[i] == '-' || l->text[i] == '+';
    while (i < l->n && strchr(" \t\n\r\f\v", l->text[i]) && l->text[i]) i++;
    if (l->n - i < n || memcmp(l->text + i, word, n)) return 0;
    i += n;
    while (i < l->n && strchr(" \t\n\r\f\v", l->text[i]) && l->text[i]) i++;
    if (l->n - i >= 2 && !memcmp(l->text + i, "%}", 2)) return i - at;
    if (l->n - i >= 3 && (l->text[i] == '-' || l->text[i] == '+') && !memcmp(l->text + i + 1, "%}", 2))
        return i - at;
    return 0;
}

static bool lexer_raw(struct lexer *l, size_t tag)
{
    const int line = l->line;
    lexer_skip(l, tag);
    if (l->text[l->at] == '-') { /* a line feed after {% raw %} stays */
        lexer_skip(l, 3);
        lexer_skip_space(l);
    } else
        lexer_skip(l, l->text[l->at] == '+' ? 3 : 2);
    const char *text = l->text + l->at;
    l->line_starts = false;
    for (size_t n = 0; l->at + n < l->n; n++) {
        const size_t end = text[n] == '{' ? raw_tag(l, l->at + n, "endraw") : 0;
        if (!end) continue;
        if (!lexer_text(l, text, text_end(l, text, n, text[n + 2], false))) return false;
        lexer_skip(l, n + end);
        return lexer_ends(l, "%}", false);
    }
    return lexer_fail(l, line, "{% endraw %}");
}

/* ---------------------------------------------------------------- inside a tag */

static bool is_word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

/* One escape after its backslash; the bytes used, 0: the backslash stands for itself. */
static size_t escape_read(const char *p, size_t n, char out[4], size_t *len)
{
    static const char FROM[] = "nrtabfv\\'\"", TO[] = "\n\r\t\a\b\f\v\\'\"";
    const char *simple = n ? memchr(FROM, p[0], sizeof FROM - 1) : NULL;
    *len = 1;
    if (simple) {
        out[0] = TO[simple - FROM];
        return 1;
    }
    if (n && p[0] == '\n') {
        *len = 0;
        return 1;
    }
    const int base = n && (p[0] == 'x' || p[0] == 'u' || p[0] == 'U') ? 16 : 8;
    const size_t from = base == 16, most = !from ? 3 : p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : 8;
    uint32_t c = 0;
    size_t used = 0;
    while (used < most && from + used < n && digit_of(p[from + used]) < base)
        c = c * (uint32_t)base + (uint32_t)digit_of(p[from + used++]);
    if (!used || (from && used < most) || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *len = str_utf8_put(c, out);
    return from + used;
}

static bool lexer_string(struct lexer *l)
{
    const char quote = l->text[l->at];
    const size_t from = l->at + 1;
    const int line = l->line;
    size_t to = from, n = 0;
    while (to < l->n && l->text[to] != quote) to += l->text[to] == '\\' ? 2 : 1;
    if (to >= l->n) return lexer_fail(l, line, "the end of a string");
    char *text = arena_alloc(l->s->memory, to - from + 1);
    if (!text) {
        l->s->rc = err_set(l->s->why, ERR_NOMEM, "out of memory for a template");
        return false;
    }
    for (size_t i = from; i < to; i++) {
        size_t len, used = l->text[i] == '\\' ? escape_read(l->text + i + 1, to - i - 1, text + n, &len) : 0;
        if (!used) {
            text[n++] = l->text[i];
            continue;
        }
        n += len;
        i += used;
    }
    lexer_skip(l, to + 1 - l->at);
    return lexer_add(l, TOKEN_STRING, text, n);
}

/* "0x1f", "0o17", "0b11", with "_" between digits. Returns its length; 0: it is no such number. */
static size_t based_number(const char *p, size_t n, int64_t *out, bool *large)
{
    static const char KINDS[] = "xob";
    static const int BASES[] = { 16, 8, 2 };
    const char *kind = n > 2 && *p == '0' && p[1] ? strchr(KINDS, p[1] | 32) : NULL;
    if (!kind || !*kind) return 0;
    const int base = BASES[kind - KINDS];
    size_t at = 2;
    *out = 0;
    for (*large = false; at < n; at++) {
        const bool between = p[at] == '_' && at + 1 < n && digit_of(p[at + 1]) < base;
        if (between) continue;
        if (digit_of(p[at]) >= base) break;
        *large = *large || __builtin_mul_overflow(*out, (int64_t)base, out) ||
                 __builtin_add_overflow(*out, (int64_t)digit_of(p[at]), out);
    }
    return at > 2 ? at : 0;
}

static bool lexer_based_number(struct lexer *l, size_t used, int64_t value, bool large)
{
    if (large) {
        tpl_parse_fail(l->s, l->line, "'%.*s' is too large: expected a number below 2^63", (int)MIN(used, 60),
                       l->text + l->at);
        return false;
    }
    if (!lexer_add(l, TOKEN_INT, l->text + l->at, used)) return false;
    l->s->items[l->s->n - 1].i = value;
    lexer_skip(l, used);
    return true;
}

static bool lexer_number(struct lexer *l)
{
    char digits[64];
    size_t n = 0, at = l->at;
    bool real = false, large;
    int64_t value;
    const size_t based = based_number(l->text + at, l->n - at, &value, &large);
    if (based) return lexer_based_number(l, based, value, large);
    for (; at < l->n && n + 3 < sizeof digits; at++) {
        const char c = l->text[at], next = at + 1 < l->n ? l->text[at + 1] : '\0';
        const bool point = c == '.' && !real && next >= '0' && next <= '9';
        const bool exponent = (c == 'e' || c == 'E') &&
                              ((next >= '0' && next <= '9') || next == '-' || next == '+');
        if (c == '_') continue;
        if (!(c >= '0' && c <= '9') && !point && !exponent) break;
        real |= point || exponent;
        digits[n++] = c;
        if (exponent && (next == '-' || next == '+')) {
            digits[n++] = next;
            at++;
        }
    }
    digits[n] = '\0';
    if (!lexer_add(l, real ? TOKEN_FLOAT : TOKEN_INT, l->text + l->at, at - l->at)) return false;
    struct token *t = &l->s->items[l->s->n - 1];
    if (real ? !str_to_double(digits, &t->d) : !str_to_i64(digits, &t->i)) {
        tpl_parse_fail(l->s, l->line, "'%s' is too large: expected a number below 2^63", digits);
        return false;
    }
    lexer_skip(l, at - l->at);
    return true;
}

static bool lexer_operator(struct lexer *l)
{
    static const char *const TWO[] = { "//", "**", "==", "!=", "<=", ">=" };
    const char c = l->text[l->at];
    size_t n = strchr("+-*/%~[](){}|.,:=<>", c) && c ? 1 : 0;
    for (size_t i = 0; i < COUNT_OF(TWO); i++)
        if (lexer_starts(l, TWO[i])) n = 2;
    if (!n) {
        tpl_parse_fail(l->s, l->line, "expected an expression, found '%.*s'",
                       (int)MIN(l->n - l->at, (unsigned char)c >= 0x80 ? 4 : 1), l->text + l->at);
        return false;
    }
    if (strchr("[({", c)) str_append_n(&l->nesting, &c, 1);
    if (strchr("])}", c) && l->nesting.len) {
        const char open = l->nesting.data[--l->nesting.len];
        if ((open == '(' ? ')' : open == '[' ? ']' : '}') != c) {
            tpl_parse_fail(l->s, l->line, "expected the bracket that closes '%c', found '%c'", open, c);
            return false;
        }
    }
    if (!lexer_add(l, TOKEN_OPERATOR, l->text + l->at, n)) return false;
    lexer_skip(l, n);
    return true;
}

static bool lexer_tag(struct lexer *l, bool is_print)
{
    const char *bracket = is_print ? "}}" : "%}";
    const int line = l->line;
    if (!lexer_add(l, is_print ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN, l->text + l->at, 2)) return false;
    lexer_skip(l, 2);
    if (l->at < l->n && (l->text[l->at] == '-' || l->text[l->at] == '+')) lexer_skip(l, 1);
    l->nesting.len = 0;
    while (l->at < l->n) {
        const char c = l->text[l->at];
        const int at_line = l->line;
        const size_t from = l->at;
        if (!l->nesting.len && lexer_ends(l, bracket, is_print)) {
            if (!lexer_add(l, is_print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, l->text + from, 2)) return false;
            l->s->items[l->s->n - 1].line = at_line;
            return true;
        }
        bool ok = true;
        if (strchr(" \t\n\r\f\v", c) && c)
            lexer_skip(l, 1);
        else if (c == '"' || c == '\'')
            ok = lexer_string(l);
        else if (c >= '0' && c <= '9')
            ok = lexer_number(l);
        else if (is_word_byte(c)) {
            size_t n = 0;
            while (l->at + n < l->n && is_word_byte(l->text[l->at + n])) n++;
            ok = lexer_add(l, TOKEN_WORD, l->text + l->at, n);
            lexer_skip(l, n);
        } else
            ok = lexer_operator(l);
        if (!ok) return false;
    }
    return lexer_fail(l, line, is_print ? "the end of {{, }}" : "the end of {%, %}");
}

/* ---------------------------------------------------------------- the whole template */

/* \r\n and \r become \n; the last line feed is dropped. */
static char *normal_lines(struct arena *memory, const char *text, size_t n, size_t *out_n)
{
    char *out = arena_alloc(memory, n + 1);
    size_t len = 0;
    for (size_t i = 0; out && i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        out[len++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (out && len && out[len - 1] == '\n') len--;
    *out_n = len;
    return out;
}

static bool lexer_run(struct lexer *l)
{
    while (l->at < l->n) {
        const char *text = l->text + l->at;
        size_t n = 0, left = l->n - l->at;
        while (n < left) { /* to the next tag */
            const char *p = memchr(text + n, '{', left - n);
            n = p ? (size_t)(p - text) : left;
            if (n == left || (left - n > 1 && strchr("{%#", text[n + 1]) && text[n + 1])) break;
            n++;
        }
        const char kind = n < left ? text[n + 1] : '\0', sign = left - n > 2 ? text[n + 2] : '\0';
        const size_t end = n < left ? text_end(l, text, n, sign, kind == '{') : n;
        if (!lexer_text(l, text, end)) return false;
        lexer_skip(l, n);
        if (!kind) return true;
        const size_t raw = kind == '%' ? raw_tag(l, l->at, "raw") : 0;
        const bool ok = kind == '#' ? lexer_comment(l) : raw ? lexer_raw(l, raw) : lexer_tag(l, kind == '{');
        if (!ok) return false;
        if (kind == '{' && l->at && l->text[l->at - 1] != '\n') l->line_starts = false;
    }
    return true;
}

bool tpl_lex(struct token_stream *s, const char *text, size_t n)
{
    struct lexer l = { .s = s, .line = 1, .line_starts = true };
    l.text = normal_lines(s->memory, text, n, &l.n);
    if (!l.text) {
        s->rc = err_set(s->why, ERR_NOMEM, "out of memory for a template of %zu bytes", n);
        return false;
    }
    const bool ok = lexer_run(&l) && lexer_add(&l, TOKEN_END_OF_FILE, "", 0);
    const bool failed = l.nesting.failed;
    str_free(&l.nesting);
    if (ok && failed) s->rc = err_set(s->why, ERR_NOMEM, "out of memory for a template of %zu bytes", n);
    return ok && !failed;
}
