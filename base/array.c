/* base/array.c - see array.h. */
#include "base/array.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool array_room(void *items, int *room, int64_t need, size_t size)
{
    enum { FIRST = 16 };
    if (need <= *room) return true;
    if (need > INT_MAX) return false;
    const int64_t twice = *room ? 2 * (int64_t)*room : FIRST, most = twice < INT_MAX ? twice : INT_MAX,
                  wanted = most > need ? most : need;
    void *old, *grown;
    memcpy(&old, items, sizeof old); /* a pointer to elements of any type */
    grown = reallocarray(old, (size_t)wanted, size);
    if (!grown) return false;
    memcpy(items, &grown, sizeof grown);
    *room = (int)wanted;
    return true;
}
