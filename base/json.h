/* base/json.h - helpers for the JSON library jansson: unknown values are null, documents are single lines.
 *
 * json_t is jansson's type (reference-counted: json_decref). Getters return borrowed values. */
#ifndef QDYNO_BASE_JSON_H
#define QDYNO_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Call once, before all else: from then on a document that cannot be built completely leaves its thread short
 * of memory (memory.h). */
void json_init(void);

/* ---------------------------------------------------------------- texts to values
 *
 * JSON as RFC 8259 has it. A byte order mark at the start is skipped. What cannot be held is refused by its
 * name, with line and column, not as bad JSON: a key that an object has twice; more than JSON_DEPTH_MOST
 * levels; numbers beyond the range of a double; half of a surrogate pair; U+0000 in a key. */
enum { JSON_DEPTH_MOST = 1000 };

/* Parses a whole document. *out: json_decref. U+0000 in texts is refused, because most of the program's texts
 * end at it; integers of more than 64 bits become reals. ERR_FORMAT, also for text behind it; ERR_NOMEM. */
enum err_code json_parse(json_t **out, const char *text, size_t n, struct err *why);
/* The same for a document that begins in this line of a file, from 1. */
enum err_code json_parse_line(json_t **out, const char *text, size_t n, int64_t line, struct err *why);

/* The same for documents of others with whole numbers of any size: all numbers become reals. */
enum err_code json_parse_reals(json_t **out, const char *text, size_t n, struct err *why);

/* The same for texts that are passed on to models and clients: nothing is lost. Texts may have U+0000, so
 * they are read with json_string_length or json_text. Integers of more than 64 bits keep their digits, see
 * json_big_integer. */
enum err_code json_parse_exact(json_t **out, const char *text, size_t n, int64_t line, struct err *why);

/* The digits (with "-") of an integer of more than 64 bits; NULL: the value is none. For jansson it is a
 * string that no text of JSON can be. Copies of it stay one. */
const char *json_big_integer(const json_t *value);
bool json_is_text(const json_t *value); /* a string of JSON */
/* NULL: no text, or one with U+0000. */
const char *json_text(const json_t *value);

/* Whether a text begins with a JSON value, after white space. */
enum json_end {
    JSON_COMPLETE,
    JSON_UNFINISHED, /* so far, and the text ends in it */
    JSON_WRONG
};
/* *used: JSON_COMPLETE: bytes of the value and of the white space before it; else where it was noticed.
 * ERR_NOMEM is JSON_WRONG. */
enum json_end json_value_end(const char *text, size_t n, size_t *used);

/* ---------------------------------------------------------------- values to texts */

enum json_layout { JSON_TIGHT, JSON_SPACED, JSON_INDENTED };
/* Keys in insertion order, no newline at the end. Reals are written with so many significant digits; 0: the
 * fewest that read back as the same number. The caller frees it. NULL: out of memory, also if it ran out
 * while the document was built (memory.h). */
char *json_write(const json_t *value, enum json_layout layout, int digits);
/* json_write, tight and exact: one line. */
char *json_line(const json_t *value);

/* NaN and infinities become null. */
json_t *json_num(double v);
void json_put_num(json_t *object, const char *key, double v);
void json_put_int(json_t *object, const char *key, int64_t v);
void json_put_str(json_t *object, const char *key,
                  const char *v); /* NULL becomes null; bad UTF-8 is replaced */
void json_put_bool(json_t *object, const char *key, bool v);
void json_put(json_t *object, const char *key, json_t *v); /* takes the reference */

/* The value; `otherwise` when it is absent, null or of another type. */
double json_get_num(const json_t *object, const char *key, double otherwise);
int64_t json_get_int(const json_t *object, const char *key, int64_t otherwise);
const char *json_get_str(const json_t *object, const char *key, const char *otherwise);
bool json_get_bool(const json_t *object, const char *key, bool otherwise);

#endif
