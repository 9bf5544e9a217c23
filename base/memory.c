#include "base/memory.h"

#include <stdatomic.h>

/* As errno: state of the thread, not of the program. */
static _Thread_local bool is_short;
static atomic_int times;

void memory_short_set(void)
{
    atomic_fetch_add(&times, 1);
    is_short = true;
}

void memory_short_clear(void)
{
    is_short = false;
}

bool memory_is_short(void)
{
    return is_short;
}

enum err_code memory_check(const char *doing, struct err *why)
{
    return is_short ? err_set(why, ERR_NOMEM, "out of memory: cannot %s", doing) : ERR_OK;
}

int memory_short_times(void)
{
    return atomic_load(&times);
}
