#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, CHUNK = 64 << 10 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size; /* bytes after the header */
};

static size_t round_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static unsigned char *chunk_data(struct arena_chunk *c)
{
    return (unsigned char *)c + round_up(sizeof *c);
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t want = round_up(bytes ? bytes : 1);
    struct arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < want) {
        size_t size = want > CHUNK ? want : CHUNK;
        c = aligned_alloc(ALIGN, round_up(sizeof *c) + size);
        if (!c) return NULL;
        *c = (struct arena_chunk){ .next = a->chunks, .size = size };
        a->chunks = c;
    }
    void *p = chunk_data(c) + c->used;
    c->used += want;
    a->used += want;
    return memset(p, 0, want);
}

char *arena_strndup(struct arena *a, const char *text, size_t n)
{
    char *copy = arena_alloc(a, n + 1); /* zeroed, so it is terminated */
    if (copy) memcpy(copy, text, n);
    return copy;
}

char *arena_strdup(struct arena *a, const char *text)
{
    return arena_strndup(a, text, strlen(text));
}

void arena_free(struct arena *a)
{
    for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){ 0 };
}
