/* advisor/memory_watch.c - see memory_watch.h. */
#include "advisor/memory_watch.h"

#include <math.h>
#include <string.h>

#include "advisor/cost.h"

enum err_code memory_watch_open(struct memory_watch *w, const struct config *c, const struct machine *machine,
                                const struct machine_ceilings *ceilings, struct err *why)
{
    const int threads = cost_threads(c, machine);
    const bool all = threads == ceilings->threads_all;
    const double usual = (double)ceilings->kernels.pace[all];
    uint32_t isa;
    *w = (struct memory_watch){ .usual_s = 1 / usual };
    /* between one thread and all, or with other kernels, nobody knows what is usual */
    if (!(all || threads == 1) || !(usual > 0) || isa_usable(&isa, NULL) || isa != isa_detect())
        return ERR_OK;
    return memory_pace_open(&w->pace, isa, threads, why);
}

void memory_watch_close(struct memory_watch *w)
{
    memory_pace_close(w->pace);
    w->pace = NULL;
}

void memory_watch_restart(struct memory_watch *w)
{
    w->looks = 0;
}

void memory_watch_look(struct memory_watch *w)
{
    enum { TIMES = 4 };
    for (int i = 0; w->pace && i < TIMES; i++)
        w->read_s[w->looks++ % MEMORY_WATCH_MOST] = memory_pace_read_s(w->pace);
}

double memory_watch_ratio(const struct memory_watch *w)
{
    double read_s[MEMORY_WATCH_MOST];
    memcpy(read_s, w->read_s, sizeof read_s);
    return w->usual_s / memory_pace_usual_s(read_s, MIN(w->looks, MEMORY_WATCH_MOST));
}
