/* The grammar of RFC 8259, without recursion (json_scan.h). */
#include "base/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static int next(const struct json_scan *s)
{
    return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}

static void skip_blank(struct json_scan *s)
{
    for (int c = next(s); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = next(s)) s->at++;
}

/* U+0000 is allowed in some places, so another limit is the one to name. */
static void limit_note(struct json_scan *s, enum json_limit limit, size_t at, size_t n)
{
    if (s->limit != LIMIT_NONE && s->limit != LIMIT_ZERO) return;
    if (limit == LIMIT_ZERO && s->limit == LIMIT_ZERO) return;
    s->limit = limit;
    s->limit_at = at;
    s->limit_n = n;
}

/* What the text does not have: it has ended, or has something else. */
static enum json_end lacking(const struct json_scan *s)
{
    return s->at < s->n ? JSON_WRONG : JSON_UNFINISHED;
}

/* ---------------------------------------------------------------- strings */

static int hex_value(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Behind "\u". */
static enum json_end scan_hex(struct json_scan *s, unsigned *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        const int digit = hex_value(next(s));
        if (digit < 0) return lacking(s);
        *unit = *unit << 4 | (unsigned)digit;
    }
    return JSON_COMPLETE;
}

/* At the backslash. */
static enum json_end scan_escape(struct json_scan *s, bool key)
{
    const size_t from = s->at++;
    unsigned first, second = 0;
    if (next(s) < 0) return JSON_UNFINISHED;
    const bool unicode = next(s) == 'u';
    if (!next(s) || !strchr("\"\\/bfnrtu", next(s))) return JSON_WRONG;
    s->at++;
    if (!unicode) return JSON_COMPLETE;
    enum json_end end = scan_hex(s, &first);
    if (end) return end;
    if (!first) limit_note(s, key ? LIMIT_KEY_ZERO : LIMIT_ZERO, from, s->at - from);
    if (first < 0xd800 || first > 0xdfff) return JSON_COMPLETE;
    const size_t behind = s->at;
    if (first < 0xdc00 && s->n - s->at >= 2 && !memcmp(s->text + s->at, "\\u", 2)) {
        s->at += 2;
        end = scan_hex(s, &second);
        if (end) return end;
        if (second >= 0xdc00 && second <= 0xdfff) return JSON_COMPLETE;
    }
    s->at = behind;
    limit_note(s, LIMIT_SURROGATE, from, behind - from);
    return JSON_COMPLETE;
}

/* At the quote. */
static enum json_end scan_string(struct json_scan *s, bool key)
{
    s->at++;
    for (int c = next(s); c >= 0; c = next(s)) {
        if (c < 0x20) return JSON_WRONG;
        if (c == '\\') {
            const enum json_end end = scan_escape(s, key);
            if (end) return end;
            continue;
        }
        s->at++;
        if (c == '"') return JSON_COMPLETE;
    }
    return JSON_UNFINISHED;
}

/* ---------------------------------------------------------------- numbers */

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_digits(struct json_scan *s)
{
    const size_t from = s->at;
    while (is_digit(next(s))) s->at++;
    return s->at - from;
}

static bool big_add(struct json_scan *s, size_t from)
{
    if (s->big_count == s->big_room) {
        const size_t room = s->big_room ? 2 * s->big_room : 8;
        struct big_integer *big = reallocarray(s->big, room, sizeof *big);
        if (!big) return false;
        s->big = big;
        s->big_room = room;
    }
    s->big[s->big_count++] = (struct big_integer){ .at = from, .n = s->at - from, .reals = s->reals };
    return true;
}

/* The number text[from..at) has valid syntax. */
static bool number_note(struct json_scan *s, size_t from, bool real)
{
    enum { DIGITS_OF_I64 = 18, LARGEST = 300 };
    const size_t n = s->at - from;
    char small[32];
    int64_t whole;
    if (!real && n <= DIGITS_OF_I64) return true;
    if (!real && n < sizeof small) {
        memcpy(small, s->text + from, n);
        small[n] = '\0';
        if (str_to_i64(small, &whole)) return true;
    }
    if (!real && !big_add(s, from)) return false;
    s->reals++;
    if (n < LARGEST && !memchr(s->text + from, 'e', n) && !memchr(s->text + from, 'E', n)) return true;
    char *copy = strndup(s->text + from, n);
    double v = 0;
    if (!copy) return false;
    if (!str_to_double(copy, &v) || !isfinite(v)) limit_note(s, real ? LIMIT_REAL : LIMIT_INTEGER, from, n);
    free(copy);
    return true;
}

static enum json_end scan_number(struct json_scan *s, bool *ok)
{
    const size_t from = s->at;
    bool real = false;
    if (next(s) == '-') s->at++;
    if (!is_digit(next(s))) return lacking(s);
    if (next(s) == '0')
        s->at++;
    else
        skip_digits(s);
    if (next(s) == '.') {
        s->at++;
        real = true;
        if (!skip_digits(s)) return lacking(s);
    }
    if (next(s) == 'e' || next(s) == 'E') {
        s->at++;
        real = true;
        if (next(s) == '+' || next(s) == '-') s->at++;
        if (!skip_digits(s)) return lacking(s);
    }
    *ok = number_note(s, from, real);
    return *ok ? JSON_COMPLETE : JSON_WRONG;
}

/* ---------------------------------------------------------------- values */

static enum json_end scan_word(struct json_scan *s, const char *word)
{
    for (; *word; word++, s->at++)
        if (next(s) != *word) return lacking(s);
    return JSON_COMPLETE;
}

/* A text, number or word. */
static enum json_end scan_simple(struct json_scan *s, bool *ok)
{
    switch (next(s)) {
    case '"': return scan_string(s, false);
    case 't': return scan_word(s, "true");
    case 'f': return scan_word(s, "false");
    case 'n': return scan_word(s, "null");
    default: return scan_number(s, ok);
    }
}

/* "key" and the colon. */
static enum json_end scan_key(struct json_scan *s)
{
    if (next(s) != '"') return lacking(s);
    const enum json_end end = scan_string(s, true);
    if (end) return end;
    skip_blank(s);
    if (next(s) != ':') return lacking(s);
    s->at++;
    return JSON_COMPLETE;
}

/* Behind a value: the closing brackets, or the comma and what stands before the next value. *more: there is
 * one. */
static enum json_end scan_behind(struct json_scan *s, bool *more)
{
    *more = false;
    while (s->depth) {
        skip_blank(s);
        const bool object = s->object[s->depth];
        if (next(s) == (object ? '}' : ']')) {
            s->at++;
            s->depth--;
            continue;
        }
        if (next(s) != ',') return lacking(s);
        s->at++;
        skip_blank(s);
        *more = true;
        return object ? scan_key(s) : JSON_COMPLETE;
    }
    return JSON_COMPLETE;
}

/* At { or [. *empty: it is closed at once. */
static enum json_end scan_open(struct json_scan *s, bool *empty)
{
    const bool object = next(s) == '{';
    if (s->depth == JSON_DEPTH_MOST) {
        s->limit = LIMIT_DEPTH;
        s->limit_at = s->at;
        return JSON_WRONG;
    }
    s->at++;
    s->object[++s->depth] = object;
    skip_blank(s);
    *empty = next(s) == (object ? '}' : ']');
    return object && !*empty ? scan_key(s) : JSON_COMPLETE;
}

enum json_end json_scan_value(struct json_scan *s, bool *ok)
{
    enum json_end end = JSON_COMPLETE;
    *ok = true;
    for (bool more = true; more && !end;) {
        bool empty = false;
        skip_blank(s);
        const int c = next(s);
        if (c < 0) return JSON_UNFINISHED;
        if (c == '{' || c == '[') {
            end = scan_open(s, &empty);
            if (end || !empty) continue;
        } else {
            end = scan_simple(s, ok);
        }
        if (!end) end = scan_behind(s, &more);
    }
    return end;
}

void json_scan_free(struct json_scan *s)
{
    free(s->big);
    s->big = NULL;
}
