/* base/name_index.c - SipHash and a hash table of names (name_index.h).
 *
 * SipHash is by J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF" (2012). SipHash-1-3
 * (one round per 8 bytes, three at the end) is what Python and Rust use for their tables. */
#include "base/name_index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

void hash_key_make(struct hash_key *key)
{
    if (getrandom(key, sizeof(*key), GRND_NONBLOCK) == (ssize_t)sizeof(*key)) return;
    key->word[0] = (uint64_t)clock_ns();
    key->word[1] = (uint64_t)clock_unix_ms() ^ (uint64_t)(uintptr_t)key;
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

/* n <= 8 bytes as a little-endian number. */
static uint64_t word_read(const unsigned char *at, size_t n)
{
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++) word |= (uint64_t)at[i] << (8 * i);
    return word;
}

static void sip_mix(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

uint64_t hash_keyed(const struct hash_key *key, const void *data, size_t n)
{
    const unsigned char *at = data;
    /* the initial state of the paper: "somepseudorandomlygeneratedbytes" */
    uint64_t v[4] = { key->word[0] ^ 0x736f6d6570736575u, key->word[1] ^ 0x646f72616e646f6du,
                      key->word[0] ^ 0x6c7967656e657261u, key->word[1] ^ 0x7465646279746573u };
    const size_t whole = n / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) sip_mix(v, word_read(at + i, 8));
    sip_mix(v, (n - whole ? word_read(at + whole, n - whole) : 0) | (uint64_t)n << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The slot of the name, or the free slot where it belongs. *probes counts the slots looked at. */
static struct name_slot *slot_find(const struct name_index *x, const char *name, size_t len, int64_t *probes)
{
    for (size_t at = (size_t)hash_keyed(&x->key, name, len);; at++) {
        struct name_slot *s = &x->slots[at & (x->size - 1)];
        ++*probes;
        if (!s->name || (s->len == len && !memcmp(s->name, name, len))) return s;
    }
}

int64_t name_index_find(const struct name_index *x, const char *name, size_t len)
{
    int64_t probes = 0;
    if (!x->count) return -1;
    const struct name_slot *s = slot_find(x, name, len, &probes);
    return s->name ? s->value : -1;
}

/* Doubles the table. At most half of the slots are used. */
static bool index_grow(struct name_index *x)
{
    enum { FIRST = 64 };
    struct name_index more = *x;
    more.size = x->size ? 2 * x->size : FIRST;
    more.slots = calloc(more.size, sizeof(*more.slots));
    if (!more.slots) return false;
    if (!x->size) hash_key_make(&more.key);
    for (size_t i = 0; i < x->size; i++)
        if (x->slots[i].name)
            *slot_find(&more, x->slots[i].name, x->slots[i].len, &more.probes) = x->slots[i];
    free(x->slots);
    *x = more;
    return true;
}

enum name_added name_index_add(struct name_index *x, const char *name, size_t len, int64_t value)
{
    if (2 * (x->count + 1) > x->size && !index_grow(x)) return NAME_NO_MEMORY;
    struct name_slot *s = slot_find(x, name, len, &x->probes);
    if (s->name) return NAME_KNOWN;
    *s = (struct name_slot){ name, len, value };
    x->count++;
    return NAME_ADDED;
}

void name_index_free(struct name_index *x)
{
    free(x->slots);
    *x = (struct name_index){ 0 };
}
