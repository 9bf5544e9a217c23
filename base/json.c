#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json_scan.h"

/* jansson ignores that the buffer of the token it reads could not grow, and then reads and writes beyond the
 * end. So it never sees that memory ran out while it parses: json_malloc leaves the parser by longjmp, and
 * what the parser had allocated is freed from a list. */
struct parse {
    jmp_buf out;
    void **blocks; /* all that were allocated since the parser started, also those it gave back */
    size_t count, room;
    struct dead {
        struct dead *next;
    } * dead; /* those it gave back: they stay allocated, and in the list, until it ends */
};

static _Thread_local struct parse *parsing; /* NULL: this thread is not in the parser */

/* Returns a new block of n bytes after it was listed. NULL: out of memory. */
static void *parse_malloc(struct parse *p, size_t n)
{
    if (p->count == p->room) {
        const size_t room = p->room ? 2 * p->room : 64;
        void **blocks = reallocarray(p->blocks, room, sizeof *blocks);
        if (!blocks) return NULL;
        p->blocks = blocks;
        p->room = room;
    }
    void *block = malloc(MAX(n, sizeof(struct dead)));
    if (block) p->blocks[p->count++] = block;
    return block;
}

static void *json_malloc(size_t n)
{
    void *block = parsing ? parse_malloc(parsing, n) : malloc(n);
    if (block) return block;
    memory_short_set();
    if (parsing) longjmp(parsing->out, 1);
    return NULL;
}

static void json_free(void *block)
{
    if (!parsing || !block) {
        free(block);
        return;
    }
    struct dead *dead = block;
    dead->next = parsing->dead;
    parsing->dead = dead;
}

void json_init(void)
{
    json_set_alloc_funcs(json_malloc, json_free);
}

/* ERR_FORMAT: a syntax error (*at). */
static enum err_code parse(struct parse *p, json_t **out, const char *text, size_t n, size_t flags,
                           json_error_t *at)
{
    if (setjmp(p->out)) {
        parsing = NULL;
        for (size_t i = 0; i < p->count; i++) free(p->blocks[i]);
        *out = NULL;
        return ERR_NOMEM;
    }
    parsing = p;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL | flags, at);
    parsing = NULL;
    for (struct dead *next, *dead = p->dead; dead; dead = next) {
        next = dead->next;
        free(dead);
    }
    return *out ? ERR_OK : ERR_FORMAT;
}

/* ---------------------------------------------------------------- what jansson cannot hold */

/* A document on its way to values. */
struct document {
    const char *text;
    size_t n;
    int64_t line; /* where it begins in its file */
    size_t flags; /* of jansson */
    bool exact;
};

static enum err_code no_memory(const struct document *d, struct err *why)
{
    return err_set(why, ERR_NOMEM, "out of memory for JSON of %zu bytes", d->n);
}

/* Line and column of a place in the text. */
static void place_find(const struct document *d, size_t at, int64_t *line, int64_t *column)
{
    *line = d->line;
    *column = 1;
    for (size_t i = 0; i < at; i++) {
        if (d->text[i] == '\n') {
            ++*line;
            *column = 0;
        }
        *column += ((unsigned char)d->text[i] & 0xc0) != 0x80;
    }
}

static enum err_code limit_error(const struct document *d, const struct json_scan *s, struct err *why)
{
    enum { SHOWN = 40 };
    int64_t line, column;
    const int n = (int)MIN(s->limit_n, SHOWN);
    const char *at = d->text + s->limit_at, *more = s->limit_n > SHOWN ? "..." : "";
    place_find(d, s->limit_at, &line, &column);
    switch (s->limit) {
    case LIMIT_DEPTH:
        return err_set(why, ERR_FORMAT,
                       "line %" PRId64 " column %" PRId64
                       ": lists and objects are nested deeper than %d levels",
                       line, column, JSON_DEPTH_MOST);
    case LIMIT_SURROGATE:
        return err_set(why, ERR_FORMAT,
                       "line %" PRId64 " column %" PRId64
                       ": %.*s is half of a surrogate pair, which is no character: expected both halves",
                       line, column, n, at);
    case LIMIT_REAL:
    case LIMIT_INTEGER:
        return err_set(why, ERR_FORMAT,
                       "line %" PRId64 " column %" PRId64
                       ": the number %.*s%s is beyond the range of double precision (1.8e308)",
                       line, column, n, at, more);
    default:
        return err_set(why, ERR_FORMAT, "line %" PRId64 " column %" PRId64 ": \\u0000 is not supported %s",
                       line, column, s->limit == LIMIT_KEY_ZERO ? "in a key" : "in a text here");
    }
}

static bool is_refused(const struct document *d, const struct json_scan *s)
{
    return s->limit != LIMIT_NONE && !(d->exact && (s->limit == LIMIT_ZERO || s->limit == LIMIT_INTEGER));
}

/* Big integers as reals, which jansson reads; those that will be replaced may be any real. */
static bool reals_write(struct str *out, const struct document *d, const struct json_scan *s)
{
    size_t from = 0;
    for (size_t i = 0; i < s->big_count; i++) {
        const struct big_integer *b = &s->big[i];
        str_append_n(out, d->text + from, b->at - from);
        if (!d->exact) str_append_n(out, d->text + b->at, b->n);
        str_append(out, d->exact ? "0.0" : ".0");
        from = b->at + b->n;
    }
    str_append_n(out, d->text + from, d->n - from);
    return !out->failed;
}

/* ---------------------------------------------------------------- big integers */

static const char BIG_MARK[] = "\xff"; /* no byte of UTF-8 */

const char *json_big_integer(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && text[0] == BIG_MARK[0] ? text + 1 : NULL;
}

struct restoring {
    const struct document *d;
    const struct json_scan *s;
    size_t reals, done;
};

/* The big integer that stands for this real; NULL: none does. New reference. *ok false: no memory. */
static json_t *big_integer_of(struct restoring *r, const json_t *value, bool *ok)
{
    if (!json_is_real(value)) return NULL;
    const struct big_integer *b = r->done < r->s->big_count ? &r->s->big[r->done] : NULL;
    if (!b || b->reals != r->reals++) return NULL;
    r->done++;
    struct str text = { 0 };
    str_append(&text, BIG_MARK);
    str_append_n(&text, r->d->text + b->at, b->n);
    json_t *big = text.failed ? NULL : json_stringn_nocheck(str_text(&text), text.len);
    str_free(&text);
    *ok = big != NULL;
    return big;
}

/* Puts big integers in the place of their reals; jansson keeps the order of the text. */
static bool big_integers_restore(struct restoring *r, json_t *value)
{
    bool ok = true;
    json_t *big;
    for (size_t i = 0; ok && json_is_array(value) && i < json_array_size(value); i++) {
        json_t *item = json_array_get(value, i);
        big = big_integer_of(r, item, &ok);
        if (big)
            ok = !json_array_set_new(value, i, big);
        else if (ok)
            ok = big_integers_restore(r, item);
    }
    for (void *at = json_object_iter(value); ok && at; at = json_object_iter_next(value, at)) {
        big = big_integer_of(r, json_object_iter_value(at), &ok);
        if (big)
            ok = !json_object_iter_set_new(value, at, big);
        else if (ok)
            ok = big_integers_restore(r, json_object_iter_value(at));
    }
    return ok;
}

static bool document_restore(const struct document *d, const struct json_scan *s, json_t **value)
{
    struct restoring r = { .d = d, .s = s };
    bool ok = true;
    if (!d->exact || !s->big_count) return true;
    json_t *big = big_integer_of(&r, *value, &ok);
    if (!big) return ok && big_integers_restore(&r, *value);
    json_decref(*value);
    *value = big;
    return true;
}

/* ---------------------------------------------------------------- documents */

static enum err_code syntax_error(const struct document *d, const json_error_t *at, struct err *why)
{
    const bool twice = json_error_code(at) == json_error_duplicate_key;
    return err_set(why, ERR_FORMAT, "%sline %" PRId64 " column %d: %s", twice ? "" : "bad JSON at ",
                   d->line + at->line - 1, at->column, at->text);
}

static enum err_code document_build(json_t **out, const struct document *d, const struct json_scan *s,
                                    struct err *why)
{
    struct parse p = { 0 };
    struct str rewritten = { 0 };
    json_error_t at = { 0 };
    const bool rewrite = s->big_count && !(d->flags & JSON_DECODE_INT_AS_REAL);
    if (rewrite && !reals_write(&rewritten, d, s)) {
        str_free(&rewritten);
        return no_memory(d, why);
    }
    enum err_code rc = parse(&p, out, rewrite ? str_text(&rewritten) : d->text,
                             rewrite ? rewritten.len : d->n, d->flags, &at);
    free(p.blocks);
    str_free(&rewritten);
    if (rc == ERR_NOMEM) return no_memory(d, why);
    if (rc) return syntax_error(d, &at, why);
    if (document_restore(d, s, out)) return ERR_OK;
    json_decref(*out);
    *out = NULL;
    return no_memory(d, why);
}

static enum err_code document_parse(json_t **out, struct document d, struct err *why)
{
    static const char BOM[] = "\xef\xbb\xbf";
    const size_t bom = sizeof BOM - 1;
    *out = NULL;
    if (d.n >= bom && !memcmp(d.text, BOM, bom)) {
        d.text += bom;
        d.n -= bom;
    }
    struct json_scan s = { .text = d.text, .n = d.n };
    bool ok;
    const enum json_end end = json_scan_value(&s, &ok);
    enum err_code rc = ERR_OK;
    if (!ok)
        rc = no_memory(&d, why);
    else if ((end == JSON_COMPLETE || s.limit == LIMIT_DEPTH) && is_refused(&d, &s))
        rc = limit_error(&d, &s, why);
    else
        rc = document_build(out, &d, &s, why);
    json_scan_free(&s);
    return rc;
}

enum err_code json_parse(json_t **out, const char *text, size_t n, struct err *why)
{
    return json_parse_line(out, text, n, 1, why);
}

enum err_code json_parse_line(json_t **out, const char *text, size_t n, int64_t line, struct err *why)
{
    return document_parse(out, (struct document){ .text = text, .n = n, .line = line }, why);
}

enum err_code json_parse_reals(json_t **out, const char *text, size_t n, struct err *why)
{
    return document_parse(
        out, (struct document){ .text = text, .n = n, .line = 1, .flags = JSON_DECODE_INT_AS_REAL }, why);
}

enum err_code json_parse_exact(json_t **out, const char *text, size_t n, int64_t line, struct err *why)
{
    return document_parse(out, (struct document){ .text = text, .n = n, .line = line, .exact = true }, why);
}

enum json_end json_value_end(const char *text, size_t n, size_t *used)
{
    struct json_scan s = { .text = text, .n = n };
    bool ok;
    const enum json_end end = json_scan_value(&s, &ok);
    *used = s.at;
    json_scan_free(&s);
    return ok ? end : JSON_WRONG;
}

bool json_is_text(const json_t *value)
{
    return json_is_string(value) && !json_big_integer(value);
}

const char *json_text(const json_t *value)
{
    const char *text = json_is_text(value) ? json_string_value(value) : NULL;
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

json_t *json_num(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

void json_put_num(json_t *object, const char *key, double v)
{
    json_object_set_new(object, key, json_num(v));
}

void json_put_int(json_t *object, const char *key, int64_t v)
{
    json_object_set_new(object, key, json_integer(v));
}

void json_put_str(json_t *object, const char *key, const char *v)
{
    json_t *s = v ? json_string(v) : json_null();
    if (!s) { /* invalid UTF-8, which may come from a model file, is replaced */
        struct str clean = { 0 };
        size_t n = strlen(v);
        while (n) {
            uint32_t c;
            char put[4];
            size_t used = str_utf8_next(v, n, &c);
            str_append_n(&clean, put, str_utf8_put(c, put));
            v += used;
            n -= used;
        }
        s = json_string(str_text(&clean));
        str_free(&clean);
    }
    json_object_set_new(object, key, s);
}

void json_put_bool(json_t *object, const char *key, bool v)
{
    json_object_set_new(object, key, json_boolean(v));
}

void json_put(json_t *object, const char *key, json_t *v)
{
    json_object_set_new(object, key, v);
}

double json_get_num(const json_t *object, const char *key, double otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

int64_t json_get_int(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

const char *json_get_str(const json_t *object, const char *key, const char *otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_string(v) ? json_string_value(v) : otherwise;
}

bool json_get_bool(const json_t *object, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_boolean(v) ? json_boolean_value(v) : otherwise;
}
