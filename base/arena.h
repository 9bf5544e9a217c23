/* base/arena.h - allocates memory that is freed all at once. Not thread-safe. */
#ifndef QDYNO_BASE_ARENA_H
#define QDYNO_BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t used;                /* allocated bytes, with padding */
};

/* Returns zeroed memory aligned to 64 bytes; NULL: out of memory. {0} is an empty arena. */
void *arena_alloc(struct arena *a, size_t bytes);
char *arena_strdup(struct arena *a, const char *text);
char *arena_strndup(struct arena *a, const char *text, size_t n);
void arena_free(struct arena *a); /* frees all; the arena is then empty and usable */

#endif
