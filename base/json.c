#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

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
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, at);
    parsing = NULL;
    for (struct dead *next, *dead = p->dead; dead; dead = next) {
        next = dead->next;
        free(dead);
    }
    return *out ? ERR_OK : ERR_FORMAT;
}

static enum err_code parse_document(json_t **out, const char *text, size_t n, int64_t line, size_t flags,
                                    struct err *why)
{
    struct parse p = { 0 };
    json_error_t at;
    const enum err_code rc = parse(&p, out, text, n, flags, &at);
    free(p.blocks);
    if (rc == ERR_NOMEM) return err_set(why, ERR_NOMEM, "out of memory for JSON of %zu bytes", n);
    return rc ? err_set(why, rc, "bad JSON at line %" PRId64 " column %d: %s", line + at.line - 1, at.column,
                        at.text)
              : ERR_OK;
}

enum err_code json_parse(json_t **out, const char *text, size_t n, struct err *why)
{
    return parse_document(out, text, n, 1, 0, why);
}

enum err_code json_parse_line(json_t **out, const char *text, size_t n, int64_t line, struct err *why)
{
    return parse_document(out, text, n, line, 0, why);
}

enum err_code json_parse_reals(json_t **out, const char *text, size_t n, struct err *why)
{
    return parse_document(out, text, n, 1, JSON_DECODE_INT_AS_REAL, why);
}

char *json_line(const json_t *value)
{
    char *text = memory_is_short() ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!memory_is_short()) return text;
    free(text); /* jansson may leave out what it had no memory for */
    return NULL;
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
