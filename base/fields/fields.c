/* base/fields/fields.c - see fields.h. */
#include "base/fields/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *field_to_json(const struct json_field *f, const void *member)
{
    switch (f->kind) {
    case JSON_FIELD_NUM: return json_num(*(const double *)member);
    case JSON_FIELD_INT: return json_integer(*(const int *)member);
    case JSON_FIELD_COUNT: {
        const int64_t n = *(const int64_t *)member;
        return n < 0 ? json_null() : json_integer(n);
    }
    case JSON_FIELD_INT_OR_NULL: {
        const int n = *(const int *)member;
        return n < 0 ? json_null() : json_integer(n);
    }
    case JSON_FIELD_ID:
    case JSON_FIELD_BYTES: {
        const int64_t id = *(const int64_t *)member;
        return id > 0 ? json_integer(id) : json_null();
    }
    case JSON_FIELD_LOG_RATIO: return json_num(exp(*(const double *)member));
    case JSON_FIELD_BOOL: return json_boolean(*(const bool *)member);
    case JSON_FIELD_TEXT:
    case JSON_FIELD_STRING:
    case JSON_FIELD_WORDS: break;
    }
    return NULL; /* text: json_put_str repairs what is not UTF-8 */
}

/* The member may be declared char * or const char *. */
static const char *words_at(const void *member)
{
    const char *words;
    memcpy(&words, member, sizeof words);
    return words;
}

void json_put_fields(json_t *object, const struct json_field *fields, size_t n, const void *from)
{
    for (size_t i = 0; i < n; i++) {
        const char *member = (const char *)from + fields[i].offset;
        if (fields[i].kind == JSON_FIELD_TEXT)
            json_put_str(object, fields[i].name, *member ? member : NULL);
        else if (fields[i].kind == JSON_FIELD_STRING)
            json_put_str(object, fields[i].name, member);
        else if (fields[i].kind == JSON_FIELD_WORDS)
            json_put_str(object, fields[i].name, words_at(member));
        else
            json_put(object, fields[i].name, field_to_json(&fields[i], member));
    }
}

void json_clear_fields(const struct json_field *fields, size_t n, void *to)
{
    for (size_t i = 0; i < n; i++) {
        void *member = (char *)to + fields[i].offset;
        switch (fields[i].kind) {
        case JSON_FIELD_NUM:
        case JSON_FIELD_LOG_RATIO: *(double *)member = NAN; break;
        case JSON_FIELD_INT:
        case JSON_FIELD_INT_OR_NULL: *(int *)member = -1; break;
        case JSON_FIELD_COUNT: *(int64_t *)member = -1; break;
        case JSON_FIELD_ID:
        case JSON_FIELD_BYTES: *(int64_t *)member = 0; break;
        case JSON_FIELD_BOOL: *(bool *)member = false; break;
        case JSON_FIELD_TEXT:
        case JSON_FIELD_STRING: *(char *)member = '\0'; break;
        case JSON_FIELD_WORDS: *(const char **)member = NULL; break;
        }
    }
}

void json_get_fields(const json_t *object, const struct json_field *fields, size_t n, void *to)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(object, fields[i].name);
        void *member = (char *)to + fields[i].offset;
        switch (fields[i].kind) {
        case JSON_FIELD_NUM:
            if (json_is_number(v)) *(double *)member = json_number_value(v);
            break;
        case JSON_FIELD_INT:
        case JSON_FIELD_INT_OR_NULL:
            if (json_is_integer(v)) *(int *)member = (int)json_integer_value(v);
            break;
        case JSON_FIELD_COUNT:
        case JSON_FIELD_ID:
        case JSON_FIELD_BYTES:
            if (json_is_integer(v)) *(int64_t *)member = json_integer_value(v);
            break;
        case JSON_FIELD_BOOL:
            if (json_is_boolean(v)) *(bool *)member = json_boolean_value(v);
            break;
        case JSON_FIELD_TEXT:
        case JSON_FIELD_STRING:
            if (json_is_string(v)) snprintf(member, fields[i].size, "%s", json_string_value(v));
            break;
        case JSON_FIELD_WORDS:
        case JSON_FIELD_LOG_RATIO: break; /* written only */
        }
    }
}
