/* advisor/predict/conditions.c - measures memory and core speed between the cells of a run (predict.h). */
#include "advisor/predict/predict.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err_code conditions_probe_open(struct conditions_probe *w, int threads,
                                    const struct machine_ceilings *ceilings, struct err *why)
{
    const struct kernel_times *k = &ceilings->kernels;
    const bool all = threads == ceilings->threads_all;
    uint32_t isa;
    *w = (struct conditions_probe){ .threads = threads,
                                    .read_reference_s = 1 / (double)k->memory_speed[all],
                                    .compute_reference_s = 1 / (double)k->compute_speed[all] };
    /* The reference was recorded for one thread and for all, with every instruction set enabled. Other
     * settings have no reference, so the probe stays closed. */
    if (!(all || threads == 1) || !(k->memory_speed[all] > 0) || isa_usable(&isa, NULL) ||
        isa != isa_detect())
        return ERR_OK;
    const struct backend_options o = { .threads = threads, .isa = isa, .precision = PRECISION_AUTO };
    enum err_code rc = backend_open(&w->backend, "cpu", &o, why);
    if (!rc)
        rc = backend_reserve(w->backend, &(struct backend_work){ .rows = 1, .cols = SPEED_PROBE_COLS }, why);
    return rc ? rc : speed_probe_open(&w->pace, w->backend, why);
}

void conditions_probe_close(struct conditions_probe *w)
{
    speed_probe_close(w->pace);
    backend_close(w->backend);
    *w = (struct conditions_probe){ 0 };
}

void conditions_probe_restart(struct conditions_probe *w)
{
    w->readings = 0;
}

/* CPU that the main thread of process `pid` ran on last: field 39 of /proc/PID/stat. -1: unknown. */
static int process_cpu(int pid)
{
    enum { FIELDS_AFTER_NAME = 37 };
    char path[64], *text = NULL;
    int cpu = -1;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (pid <= 0 || file_read(&text, NULL, path, 4096, NULL)) return -1;
    /* the command name in field 2 may contain spaces and parentheses */
    const char *at = strrchr(text, ')');
    for (int i = 0; at && i < FIELDS_AFTER_NAME; i++) at = strchr(at + 1, ' ');
    if (at && sscanf(at, "%d", &cpu) != 1) cpu = -1;
    free(text);
    return cpu;
}

static void readings_record(struct conditions_probe *w)
{
    enum { READINGS = 6 };
    /* Discard the first reading: threads, caches and the clock wake up during it, and it takes about 10 %
     * longer. */
    speed_probe_read_s(w->pace);
    for (int i = 0; i < READINGS; i++) {
        const int at = w->readings++ % CONDITIONS_READINGS;
        w->read_s[at] = speed_probe_read_s(w->pace);
        w->compute_s[at] = speed_probe_compute_s(w->pace, w->backend);
    }
}

void conditions_probe_run(struct conditions_probe *w, int pid)
{
    cpu_set_t allowed, only;
    if (!w->pace) return;
    const int cpu = w->threads == 1 ? process_cpu(pid) : -1;
    const bool known = cpu >= 0 && cpu < CPU_SETSIZE && !sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&only);
    if (known) CPU_SET(cpu, &only);
    const bool moved = known && !sched_setaffinity(0, sizeof only, &only);
    readings_record(w);
    if (!moved) return;
    /* Leave the CPU that was measured. If this thread stayed there, the scheduler would wake the process on
     * another CPU. */
    cpu_set_t others = allowed;
    CPU_CLR(cpu, &others);
    sched_setaffinity(0, sizeof others, &others);
    sched_setaffinity(0, sizeof allowed, &allowed);
}

/* reference time / typical time of the readings; 0 when either is missing */
static double speed_ratio(double reference_s, const double *readings_s, int readings)
{
    double copy[CONDITIONS_READINGS];
    memcpy(copy, readings_s, sizeof copy);
    const double ratio = reference_s / speed_probe_typical_s(copy, MIN(readings, (int)CONDITIONS_READINGS));
    return isfinite(ratio) ? ratio : 0;
}

struct conditions conditions_probe_result(const struct conditions_probe *w)
{
    return (struct conditions){ speed_ratio(w->read_reference_s, w->read_s, w->readings),
                                speed_ratio(w->compute_reference_s, w->compute_s, w->readings) };
}
