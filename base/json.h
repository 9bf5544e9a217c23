/* base/json.h - jansson with our rules: unknown is null, getters say what is wrong, one line on the wire.
 *
 * json_t is jansson's own type (reference-counted: json_decref). Getters return borrowed values. */
#ifndef QDYNO_BASE_JSON_H
#define QDYNO_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Parse a whole document; trailing text is an error. *out owned. ERR_FORMAT names line and column. */
enum err_code json_parse(json_t **out, const char *text, size_t n, struct err *why);

/* One line, keys in insertion order, no newline. free() it. NULL only when out of memory. */
char *json_line(const json_t *value);

/* Number or null: NaN and infinities become null. */
json_t *json_num(double v);
void json_put_num(json_t *object, const char *key, double v);
void json_put_int(json_t *object, const char *key, int64_t v);
void json_put_str(json_t *object, const char *key,
                  const char *v); /* NULL becomes null; bad UTF-8 is replaced */
void json_put_bool(json_t *object, const char *key, bool v);
void json_put(json_t *object, const char *key, json_t *v); /* takes the reference */

/* Absent, null or of another type gives `otherwise`. */
double json_get_num(const json_t *object, const char *key, double otherwise);
int64_t json_get_int(const json_t *object, const char *key, int64_t otherwise);
const char *json_get_str(const json_t *object, const char *key, const char *otherwise);
bool json_get_bool(const json_t *object, const char *key, bool otherwise);

#endif
