/* base/hash.h - SHA-256 (with OpenSSL's libcrypto) for the identity of models, recipes and machines; a fast
 * hash for values that must only be distinguished within one process or database. */
#ifndef QDYNO_BASE_HASH_H
#define QDYNO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

enum { HASH_HEX = 65 }; /* 64 hex digits and the terminator */

/* Call before the first hash in a program whose threads may hash while it ends: OpenSSL would otherwise
 * release at exit what they use. */
void hash_outlive_exit(void);

void hash_bytes(const void *data, size_t n, char hex[HASH_HEX]);

/* SplitMix64 (Steele, Lea, Flood 2014): hash_mix is its finishing step, HASH_STEP the increment of its
 * counter. hash_mix(seed + n * HASH_STEP) is the n-th random number of a seed, and neighbouring inputs give
 * unrelated outputs. Plans, texts and synthetic weights are derived from these numbers, so they must never
 * change. */
static const uint64_t HASH_STEP = 0x9e3779b97f4a7c15u;
static inline uint64_t hash_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
/* The first number of SplitMix64 with seed x. */
static inline uint64_t hash_next(uint64_t x)
{
    return hash_mix(x + HASH_STEP);
}

/* The 64-bit FNV-1a hash. */
uint64_t hash_number(const void *data, size_t n);

/* SHA-256 of a mapped file. Pages of the mapping that were not in memory before are not kept there, and at
 * most a few MB are held at a time. ERR_IO, ERR_NOMEM; ERR_FORMAT: the file is shorter than its mapping. */
enum err_code hash_map(const struct file_map *map, char hex[HASH_HEX], struct err *why);
/* SHA-256 of a file. Errors: as hash_map, and ERR_FORMAT: not a regular file. */
enum err_code hash_file(const char *path, char hex[HASH_HEX], struct err *why);

#endif
