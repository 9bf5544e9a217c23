/* base/array.h - arrays that grow. */
#ifndef QDYNO_BASE_ARRAY_H
#define QDYNO_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes room for `need` elements of `size` bytes in the array at *items, of which *room fit now: `items` is
 * the address of a pointer to elements, NULL at first. The room at least doubles. False: no memory, and the
 * array is as before. */
bool array_room(void *items, int *room, int64_t need, size_t size);

#endif
