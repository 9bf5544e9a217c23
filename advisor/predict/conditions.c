/* advisor/predict/conditions.c - see predict.h. */
#include "advisor/predict/predict.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err_code conditions_watch_open(struct conditions_watch *w, int threads,
                                    const struct machine_ceilings *ceilings, struct err *why)
{
    const struct kernel_times *k = &ceilings->kernels;
    const bool all = threads == ceilings->threads_all;
    uint32_t isa;
    *w = (struct conditions_watch){ .threads = threads,
                                    .read_then_s = 1 / (double)k->memory_speed[all],
                                    .compute_then_s = 1 / (double)k->compute_speed[all] };
    /* between one thread and all, or with other kernels, nobody knows what is usual */
    if (!(all || threads == 1) || !(k->memory_speed[all] > 0) || isa_usable(&isa, NULL) ||
        isa != isa_detect())
        return ERR_OK;
    const struct backend_options o = { .threads = threads, .isa = isa, .precision = PRECISION_AUTO };
    enum err_code rc = backend_open(&w->backend, "cpu", &o, why);
    if (!rc) rc = backend_reserve(w->backend, &(struct backend_work){ .rows = 1, .cols = PACE_COLS }, why);
    return rc ? rc : pace_open(&w->pace, w->backend, why);
}

void conditions_watch_close(struct conditions_watch *w)
{
    pace_close(w->pace);
    backend_close(w->backend);
    *w = (struct conditions_watch){ 0 };
}

void conditions_watch_restart(struct conditions_watch *w)
{
    w->looks = 0;
}

/* Where a process's first thread ran last: field 39 of its stat. -1 unknown. */
static int processor_of(int pid)
{
    enum { BEHIND_NAME = 37 };
    char path[64], *text = NULL;
    int cpu = -1;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (pid <= 0 || file_read(&text, NULL, path, 4096, NULL)) return -1;
    const char *at = strrchr(text, ')'); /* a name may hold anything */
    for (int i = 0; at && i < BEHIND_NAME; i++) at = strchr(at + 1, ' ');
    if (at && sscanf(at, "%d", &cpu) != 1) cpu = -1;
    free(text);
    return cpu;
}

static void look(struct conditions_watch *w)
{
    enum { TIMES = 6 };
    pace_read_s(w->pace); /* threads, caches and the clock wake up: the first is a tenth slower */
    for (int i = 0; i < TIMES; i++) {
        const int at = w->looks++ % CONDITIONS_LOOKS;
        w->read_now_s[at] = pace_read_s(w->pace);
        w->compute_now_s[at] = pace_compute_s(w->pace, w->backend);
    }
}

void conditions_watch_look(struct conditions_watch *w, int pid)
{
    cpu_set_t before, there;
    if (!w->pace) return;
    const int cpu = w->threads == 1 ? processor_of(pid) : -1;
    const bool known = cpu >= 0 && cpu < CPU_SETSIZE && !sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&there);
    if (known) CPU_SET(cpu, &there);
    const bool moved = known && !sched_setaffinity(0, sizeof there, &there);
    look(w);
    if (!moved) return;
    cpu_set_t others = before; /* staying there, we would make the process wake up on another one */
    CPU_CLR(cpu, &others);
    sched_setaffinity(0, sizeof others, &others);
    sched_setaffinity(0, sizeof before, &before);
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
                                ratio_of(w->compute_then_s, w->compute_now_s, w->looks) };
}
