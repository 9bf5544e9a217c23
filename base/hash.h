/* base/hash.h - SHA-256 (OpenSSL's libcrypto underneath): the identity of models, recipes and machines; and a
 * number for what only has to be told apart within one process or database. */
#ifndef QDYNO_BASE_HASH_H
#define QDYNO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

enum { HASH_HEX = 65 }; /* 64 hex digits and the terminator */

void hash_bytes(const void *data, size_t n, char hex[HASH_HEX]);

/* FNV-1a: equal bytes, equal numbers. */
uint64_t hash_number(const void *data, size_t n);

/* The bytes of a mapped file. The map's own pages are left alone: those that nobody had touched are not held
 * afterwards, and at no time more than a few MB. ERR_NOMEM. */
enum err_code hash_map(const struct file_map *map, char hex[HASH_HEX], struct err *why);
/* The whole file. Errors: ERR_IO, ERR_NOMEM. */
enum err_code hash_file(const char *path, char hex[HASH_HEX], struct err *why);

#endif
