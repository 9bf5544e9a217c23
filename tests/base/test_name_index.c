/* Proves: the keyed hash is SipHash-1-3; names are found, repeated names are noticed; names that all have the
 * same FNV-1a hash, which a file's author can choose, cost no more comparisons than others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/check.h"

static void the_hash_is_siphash_1_3(void **state)
{
    (void)state;
    /* of the bytes 0, 1, 2 ... with the key 0, from Python: PYTHONHASHSEED=0, hash(bytes(range(n))) */
    static const struct {
        size_t n;
        uint64_t hash;
    } known[] = { { 1, 0x68a914128e01e473 },  { 7, 0x2f098ab0c751325a },  { 8, 0xead411e67ebe2eea },
                  { 15, 0xf30eb725bb91c9ea }, { 16, 0x8972188433a5c5b7 }, { 33, 0x7fb71d24dfa4c9f6 } };
    const struct hash_key zero = { { 0 } };
    unsigned char bytes[33];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    for (size_t i = 0; i < COUNT_OF(known); i++)
        CHECK_EQ(hash_keyed(&zero, bytes, known[i].n), known[i].hash);
    struct hash_key a, b;
    hash_key_make(&a);
    hash_key_make(&b);
    CHECK_NE(hash_keyed(&a, bytes, 8), hash_keyed(&b, bytes, 8));
}

static void names_are_found(void **state)
{
    (void)state;
    struct name_index x = { 0 };
    CHECK_EQ(name_index_find(&x, "a", 1), -1);
    CHECK_EQ(name_index_add(&x, "a", 1, 7), NAME_ADDED);
    CHECK_EQ(name_index_add(&x, "ab", 2, 8), NAME_ADDED);
    CHECK_EQ(name_index_add(&x, "", 0, 9), NAME_ADDED);
    CHECK_EQ(name_index_add(&x, "ab", 2, 1), NAME_KNOWN);
    CHECK_EQ(name_index_find(&x, "a", 1), 7);
    CHECK_EQ(name_index_find(&x, "ab", 2), 8);
    CHECK_EQ(name_index_find(&x, "", 0), 9);
    CHECK_EQ(name_index_find(&x, "b", 1), -1);
    name_index_free(&x);
}

static uint64_t fnv1a(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h ^ h >> 32;
}

static void chosen_names_cost_no_more(void **state)
{
    (void)state;
    enum { NAMES = 4000, SLOTS_OF_OTHERS = 8192, SIZE = 16, PROBES_EACH = 10 };
    char(*name)[SIZE] = calloc(NAMES, SIZE);
    struct name_index x = { 0 };
    assert_non_null(name);
    for (int i = 0, n = 0; n < NAMES; i++) {
        snprintf(name[n], SIZE, "k%d", i);
        n += fnv1a(name[n]) % SLOTS_OF_OTHERS == 1;
    }
    for (int i = 0; i < NAMES; i++) CHECK_EQ(name_index_add(&x, name[i], strlen(name[i]), i), NAME_ADDED);
    CHECK_LE(x.probes, NAMES * PROBES_EACH); /* linear probing with FNV-1a: 8 million */
    CHECK_EQ(name_index_find(&x, name[NAMES - 1], strlen(name[NAMES - 1])), NAMES - 1);
    name_index_free(&x);
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_siphash_1_3),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(chosen_names_cost_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
