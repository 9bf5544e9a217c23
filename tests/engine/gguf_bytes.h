/* tests/engine/gguf_bytes.h - GGUF files made by hand, so that a test can say anything a damaged file says.
 */
#ifndef QDYNO_TESTS_GGUF_BYTES_H
#define QDYNO_TESTS_GGUF_BYTES_H

#include <string.h>

#include "engine/gguf/gguf.h"

static inline void put_u32(struct str *s, uint32_t v)
{
    str_append_n(s, &v, sizeof v);
}

static inline void put_u64(struct str *s, uint64_t v)
{
    str_append_n(s, &v, sizeof v);
}

static inline void put_text(struct str *s, const char *text)
{
    put_u64(s, strlen(text));
    str_append(s, text);
}

static inline void put_head(struct str *s, uint32_t version, uint64_t tensors, uint64_t kvs)
{
    str_append(s, "GGUF");
    put_u32(s, version);
    put_u64(s, tensors);
    put_u64(s, kvs);
}

static inline void put_kv(struct str *s, const char *key, enum gguf_type type, const void *value, size_t n)
{
    put_text(s, key);
    put_u32(s, type);
    str_append_n(s, value, n);
}

static inline void put_tensor(struct str *s, const char *name, uint32_t dims, const uint64_t *shape,
                              uint32_t type, uint64_t offset)
{
    put_text(s, name);
    put_u32(s, dims);
    str_append_n(s, shape, dims * sizeof *shape);
    put_u32(s, type);
    put_u64(s, offset);
}

static inline void put_padding(struct str *s, size_t alignment)
{
    while (s->len % alignment) str_append_n(s, "", 1);
}

/* Touch everything a reader can reach: under a sanitizer this finds a pointer that leaves the file. */
static inline uint64_t gguf_walk(const struct gguf *g)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        for (size_t j = 0; j < kv->key.len; j++) sum += (unsigned char)kv->key.data[j];
        for (uint64_t j = 0; j < kv->count; j++) {
            struct gguf_string s = gguf_kv_string(kv, j);
            if (kv->element != GGUF_STRING) sum += gguf_kv_num(kv, j) > 0;
            if (s.len) sum += (unsigned char)s.data[0] + (unsigned char)s.data[s.len - 1];
        }
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        sum += t->data[0] + t->data[t->bytes - 1] + (gguf_tensor_find(g, t->name) == t);
    }
    return sum;
}

#endif
