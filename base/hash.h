/* base/hash.h - SHA-256 (OpenSSL's libcrypto underneath): the identity of models, recipes and machines; and a
 * number for what only has to be told apart within one process or database. */
#ifndef QDYNO_BASE_HASH_H
#define QDYNO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { HASH_HEX = 65 }; /* 64 hex digits and the terminator */

void hash_bytes(const void *data, size_t n, char hex[HASH_HEX]);

/* FNV-1a: equal bytes, equal numbers. */
uint64_t hash_number(const void *data, size_t n);

/* The whole file. Errors: ERR_IO. */
enum err_code hash_file(const char *path, char hex[HASH_HEX], struct err *why);

#endif
