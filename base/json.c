#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"

static void *json_malloc(size_t n)
{
    void *p = malloc(n);
    if (!p) memory_short_set();
    return p;
}

void json_init(void)
{
    json_set_alloc_funcs(json_malloc, free);
}

enum err_code json_parse(json_t **out, const char *text, size_t n, struct err *why)
{
    json_error_t at;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    if (*out) return ERR_OK;
    if (json_error_code(&at) == json_error_out_of_memory)
        return err_set(why, ERR_NOMEM, "out of memory for JSON of %zu bytes", n);
    return err_set(why, ERR_FORMAT, "bad JSON at line %d column %d: %s", at.line, at.column, at.text);
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
