/* base/name_index.h - finds names that come from files, in constant time whatever the file contains.
 *
 * Whoever writes a file can choose names that all get the same value of a hash function without a key; each
 * search would then compare all of them. The hash here has a random key, which differs between tables. */
#ifndef QDYNO_BASE_NAME_INDEX_H
#define QDYNO_BASE_NAME_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash_key {
    uint64_t word[2];
};

/* A random key, from getrandom. Where the kernel has no random numbers yet, from the clock and an address. */
void hash_key_make(struct hash_key *key);
/* SipHash-1-3: 64 bits that cannot be predicted without the key. */
uint64_t hash_keyed(const struct hash_key *key, const void *data, size_t n);

struct name_slot {
    const char *name; /* borrowed; NULL: a free slot */
    size_t len;
    int64_t value;
};

/* From names to numbers. {0} is empty. Names are borrowed: they must outlive the index. */
struct name_index {
    struct hash_key key;
    struct name_slot *slots; /* [size] owned */
    size_t size, count;
    int64_t probes; /* slots that additions and rehashing have looked at */
};

/* The number of a name; -1: not in the index. */
int64_t name_index_find(const struct name_index *x, const char *name, size_t len);

enum name_added { NAME_ADDED, NAME_KNOWN, NAME_NO_MEMORY };
/* Adds a name with a number >= 0. NAME_KNOWN: it is there already, with the number that it keeps. */
enum name_added name_index_add(struct name_index *x, const char *name, size_t len, int64_t value);
void name_index_free(struct name_index *x);

#endif
