/* advisor/watch/sense.c - what the sensors say, as signals: shares where a machine gives amounts, the
 * tightest of several limits, each GPU by itself. */
#include "advisor/watch/parts.h"

#include <math.h>
#include <stdio.h>

static double share(double part, double whole)
{
    return part >= 0 && whole > 0 ? part / whole : NAN;
}

/* Of two limits the one that is nearer; fmax ignores what is unknown. */
static double memory_share(const double *row)
{
    const double used = row[METRIC_MEM_USED], machine = share(used, used + row[METRIC_MEM_AVAILABLE]),
                 group = share(row[METRIC_CGROUP_MEM_USED], row[METRIC_CGROUP_MEM_LIMIT]);
    return fmax(machine, group);
}

static double busy_share(const double *row)
{
    return fmax(row[METRIC_CPU_BUSY], share(row[METRIC_CGROUP_CPU], row[METRIC_CGROUP_CPU_LIMIT]));
}

static double yes(bool known, bool holds)
{
    return known ? holds : NAN;
}

static void put(struct sense *out, int *n, enum signal_id signal, const char *subject, double value)
{
    out[*n] = (struct sense){ .signal = signal, .value = value };
    snprintf(out[*n].subject, sizeof out[*n].subject, "%s", subject);
    ++*n;
}

static uint64_t reasons_that_hold(void)
{
    uint64_t mask = 0;
    for (int i = 0; i < GPU_THROTTLE_COUNT; i++)
        if (GPU_THROTTLES[i].limits) mask |= GPU_THROTTLES[i].bit;
    return mask;
}

static void put_gpu(struct sense *out, int *n, const struct gpu_reading *g, bool measuring)
{
    char name[24];
    const uint64_t held = g->throttle_reasons & reasons_that_hold();
    snprintf(name, sizeof name, "gpu%d", g->index);
    put(out, n, SIGNAL_GPU_BUSY, name, measuring ? NAN : g->busy_ratio);
    put(out, n, SIGNAL_GPU_MEMORY, name, share(g->mem_used_bytes, g->mem_total_bytes));
    put(out, n, SIGNAL_GPU_THROTTLE, name, yes(g->throttle_known, held & ~(uint64_t)GPU_THROTTLE_POWER_CAP));
    put(out, n, SIGNAL_GPU_POWER_CAP, name, yes(g->throttle_known, held & GPU_THROTTLE_POWER_CAP));
    put(out, n, SIGNAL_GPU_TEMPERATURE, name, g->temperature_celsius);
    put(out, n, SIGNAL_GPU_ECC, name, g->ecc_uncorrected);
    put(out, n, SIGNAL_GPU_LOST, name, g->lost);
}

int senses_read(const struct senses *s, struct sense out[SENSES_MAX])
{
    int n = 0;
    static const struct {
        enum signal_id signal;
        enum metric_id metric;
    } PLAIN[] = {
        { SIGNAL_SWAP_USED, METRIC_SWAP_USED },       { SIGNAL_SWAP_IN, METRIC_SWAP_IN },
        { SIGNAL_PSI_MEMORY, METRIC_PSI_MEMORY },     { SIGNAL_STEAL, METRIC_CPU_STEAL },
        { SIGNAL_CPU_THROTTLE, METRIC_CPU_THROTTLE }, { SIGNAL_CPU_TEMPERATURE, METRIC_CPU_TEMPERATURE },
        { SIGNAL_BATTERY, METRIC_ON_BATTERY },
    };
    for (size_t i = 0; i < COUNT_OF(PLAIN); i++) put(out, &n, PLAIN[i].signal, "", s->row[PLAIN[i].metric]);
    /* while we measure the processors are busy by our own doing */
    put(out, &n, SIGNAL_BUSY, "", s->measuring ? NAN : busy_share(s->row));
    put(out, &n, SIGNAL_MEMORY, "", memory_share(s->row));
    put(out, &n, SIGNAL_DISK, "", s->disk_free_bytes);
    put(out, &n, SIGNAL_STALE, "", s->stale_s);
    for (int i = 0; i < s->gpus && i < MACHINE_GPUS; i++) put_gpu(out, &n, &s->gpu[i], s->measuring);
    return n;
}

const char *scale_suggestion(double busy, double waiting, char *buf, size_t size)
{
    const double target = 0.65, load = busy * (1 + (waiting > 0 ? waiting : 0));
    snprintf(buf, size, "%.3g %% busy%s: about %.1f times this machine would bring it to %.0f %%", 100 * busy,
             waiting > 0.01 ? " and programs waiting" : "", load / target, 100 * target);
    return buf;
}
