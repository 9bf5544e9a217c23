/* advisor/conditions.c - see conditions.h. */
#include "advisor/conditions.h"

#include <math.h>
#include <string.h>

#include "advisor/cost.h"

enum err_code conditions_watch_open(struct conditions_watch *w, const struct config *c,
                                    const struct machine *machine, const struct machine_ceilings *ceilings,
                                    struct err *why)
{
    const struct kernel_times *k = &ceilings->kernels;
    const int threads = cost_threads(c, machine);
    const bool all = threads == ceilings->threads_all;
    uint32_t isa;
    *w = (struct conditions_watch){ .read_then_s = 1 / (double)k->pace[all],
                                    .multiply_then_s = 1 / (double)k->multiply[all] };
    /* between one thread and all, or with other kernels, nobody knows what is usual */
    if (!(all || threads == 1) || !(k->pace[all] > 0) || isa_usable(&isa, NULL) || isa != isa_detect())
        return ERR_OK;
    return pace_open(&w->pace, isa, threads, why);
}

void conditions_watch_close(struct conditions_watch *w)
{
    pace_close(w->pace);
    w->pace = NULL;
}

void conditions_watch_restart(struct conditions_watch *w)
{
    w->looks = 0;
}

void conditions_watch_look(struct conditions_watch *w)
{
    enum { TIMES = 4 };
    for (int i = 0; w->pace && i < TIMES; i++) {
        const int at = w->looks++ % CONDITIONS_LOOKS;
        w->read_now_s[at] = pace_read_s(w->pace);
        w->multiply_now_s[at] = pace_multiply_s(w->pace);
    }
}

/* Of what was, by as many looks: 0 where nobody looked, then or now. */
static double ratio_of(double then_s, const double *now_s, int looks)
{
    double copy[CONDITIONS_LOOKS];
    memcpy(copy, now_s, sizeof copy);
    const double ratio = then_s / pace_usual_s(copy, MIN(looks, (int)CONDITIONS_LOOKS));
    return isfinite(ratio) ? ratio : 0;
}

struct conditions conditions_of(const struct conditions_watch *w)
{
    return (struct conditions){ ratio_of(w->read_then_s, w->read_now_s, w->looks),
                                ratio_of(w->multiply_then_s, w->multiply_now_s, w->looks) };
}
