/* base/json.h - helpers for the JSON library jansson: unknown values are null, documents are single lines.
 *
 * json_t is jansson's type (reference-counted: json_decref). Getters return borrowed values. */
#ifndef QDYNO_BASE_JSON_H
#define QDYNO_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Call once, before all else: from then on a document that cannot be built completely leaves its thread short
 * of memory (memory.h). */
void json_init(void);

/* Parses a whole document. *out: json_decref. ERR_FORMAT (also for trailing text and for a key that an object
 * has twice) names line and column; ERR_NOMEM. */
enum err_code json_parse(json_t **out, const char *text, size_t n, struct err *why);
/* The same for a document that begins in this line of a file, from 1. */
enum err_code json_parse_line(json_t **out, const char *text, size_t n, int64_t line, struct err *why);

/* The same for documents of others with whole numbers of any size: all numbers become reals. */
enum err_code json_parse_reals(json_t **out, const char *text, size_t n, struct err *why);

/* The document as one line, keys in insertion order, no newline. The caller frees it. NULL: out of memory,
 * also if it ran out while the document was built (memory.h). */
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
