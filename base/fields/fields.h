/* base/fields/fields.h - tables that say which members of a struct travel as JSON, used in both directions.
 */
#ifndef QDYNO_BASE_FIELDS_H
#define QDYNO_BASE_FIELDS_H

#include <stddef.h>

#include "base/json.h"

/* A member of a struct that travels as JSON. A table of these writes and reads the struct, so that the two
 * directions cannot drift apart. */
enum json_field_kind {
    JSON_FIELD_NUM,         /* double; NAN is null */
    JSON_FIELD_INT,         /* int */
    JSON_FIELD_COUNT,       /* int64_t; a negative value is null: unknown */
    JSON_FIELD_INT_OR_NULL, /* int; a negative value is null: unknown */
    JSON_FIELD_BOOL,        /* bool */
    JSON_FIELD_TEXT,        /* char[size]; "" is null */
    JSON_FIELD_STRING,      /* char[size]; "" stays a text */
    JSON_FIELD_ID,          /* int64_t; 0 or less is null: none */
    JSON_FIELD_BYTES,       /* the same, of bytes: unknown */
    /* Written only, because what they stand for is held elsewhere or was rounded: */
    JSON_FIELD_WORDS,     /* const char *; NULL is null */
    JSON_FIELD_LOG_RATIO, /* double, the logarithm of the ratio that is written; NAN is null */
};
struct json_field {
    const char *name; /* key in the document */
    enum json_field_kind kind;
    size_t offset, size; /* of the member, in bytes */
};
/* A row for `member` of `type` under the key `name`; KIND without its prefix: NUM, INT, COUNT ... */
#define JSON_FIELD(type, member, name, KIND)                                                                 \
    {                                                                                                        \
        name, JSON_FIELD_##KIND, offsetof(type, member), sizeof(((type *)0)->member)                         \
    }
/* The usual kind of a member, by its type. */
#define JSON_FIELD_KIND(type, member)                                                                        \
    _Generic(((type *)0)->member,                                                                            \
        double: JSON_FIELD_NUM,                                                                              \
        int: JSON_FIELD_INT,                                                                                 \
        int64_t: JSON_FIELD_COUNT,                                                                           \
        bool: JSON_FIELD_BOOL,                                                                               \
        const char *: JSON_FIELD_WORDS,                                                                      \
        char *: _Generic(&((type *)0)->member, char **: JSON_FIELD_WORDS, default: JSON_FIELD_TEXT))
/* Adds the members of the struct at `from` to `object`, in the order of the table. */
void json_put_fields(json_t *object, const struct json_field *fields, size_t n, const void *from);
/* Sets the members to unknown: NAN, -1, false, "". For json_get_fields where an absent key means unknown. */
void json_clear_fields(const struct json_field *fields, size_t n, void *to);
/* Sets the members of the struct at `to`. A member whose key is absent, null or of another type keeps its
 * value; text that is too long is cut. */
void json_get_fields(const json_t *object, const struct json_field *fields, size_t n, void *to);

#endif
