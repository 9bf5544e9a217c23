/* engine/import/config_keys.h - which keys of config.json mean something here, what an absent one means, and
 * which values of the others are harmless. */
#ifndef QDYNO_ENGINE_IMPORT_CONFIG_KEYS_H
#define QDYNO_ENGINE_IMPORT_CONFIG_KEYS_H

#include "engine/import/checkpoint.h"

/* Give every absent key that changes arithmetic the value that the family's class in transformers gives it.
 * c->family is known. ERR_FORMAT: such a key is null, and null has no meaning for it; ERR_NOMEM. */
enum err_code config_fill(struct checkpoint *c, struct err *why);

/* Is the key read by a function here, or is this value of it harmless in this family? */
bool config_key_is_known(const struct checkpoint *c, const char *name, const json_t *value);

#endif
