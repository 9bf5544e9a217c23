/* engine/config/config_internal.h - what the two halves of the config language share; no outsider includes
 * it. */
#ifndef QDYNO_ENGINE_CONFIG_INTERNAL_H
#define QDYNO_ENGINE_CONFIG_INTERNAL_H

#include "engine/config/config.h"

enum { CHOICES_MAX = 96 };

/* Check `value` for a knob and write its one spelling ("Q8_0" -> "q8_0", "08" -> "8") to out[CONFIG_VALUE].
 */
enum err_code knob_check(enum knob_id id, const char *value, char *out, struct err *why);

/* Put name=value into the sorted list "name=value;name=value" of CONFIG_VALUE bytes, in the place of the pair
 * of that name. ERR_USAGE: no room. */
enum err_code params_merge(char *list, const char *name, const char *value, struct err *why);

/* A format a recipe may ask for. Errors name it, and say when it is known but cannot be made yet. */
enum err_code recipe_format_check(const char *name, const struct format **out, struct err *why);

/* "a, b, c (did you mean b?)" after a wrong word, for messages. Returns buf. */
const char *choices_text(const char *word, const char *const *names, size_t count, char *buf, size_t size);

#endif
