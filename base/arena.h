/* base/arena.h - memory that is given back all at once. Not thread-safe. */
#ifndef QDYNO_BASE_ARENA_H
#define QDYNO_BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t used;                /* bytes handed out, padding included */
};

/* {0} is an empty arena. Zeroed memory aligned to 64 bytes; NULL when out of memory. */
void *arena_alloc(struct arena *a, size_t bytes);
char *arena_strdup(struct arena *a, const char *text);
char *arena_strndup(struct arena *a, const char *text, size_t n);
void arena_free(struct arena *a); /* everything; the arena is empty and usable again */

#endif
