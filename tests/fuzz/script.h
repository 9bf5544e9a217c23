/* tests/fuzz/script.h - reads a fuzzer's bytes as decisions. Where they end, every decision is 0. */
#ifndef QDYNO_TESTS_FUZZ_SCRIPT_H
#define QDYNO_TESTS_FUZZ_SCRIPT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct script {
    const uint8_t *at;
    size_t left;
};

/* The next n <= 8 bytes as a little-endian number. */
static inline uint64_t script_number(struct script *s, size_t n)
{
    uint64_t number = 0;
    const size_t have = n < s->left ? n : s->left;
    memcpy(&number, s->at, have);
    s->at += have;
    s->left -= have;
    return number;
}

/* From 0 to n - 1, for n from 1 to 2^16. */
static inline size_t script_below(struct script *s, size_t n)
{
    return (size_t)script_number(s, n > 256 ? 2 : 1) % n;
}

#endif
