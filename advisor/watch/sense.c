/* advisor/watch/sense.c - converts sensor readings to signals: amounts to shares, several limits to the
 * tightest one, and one signal per GPU. */
#include "advisor/watch/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double ratio_or_nan(double part, double whole)
{
    return part >= 0 && whole > 0 ? part / whole : NAN;
}

/* The larger share of the two limits; fmax ignores NAN. */
static double memory_share(const double *row)
{
    const double used = row[METRIC_MEM_USED], machine = ratio_or_nan(used, used + row[METRIC_MEM_AVAILABLE]),
                 group = ratio_or_nan(row[METRIC_CGROUP_MEM_USED], row[METRIC_CGROUP_MEM_LIMIT]);
    return fmax(machine, group);
}

static double busy_share(const double *row)
{
    return fmax(row[METRIC_CPU_BUSY], ratio_or_nan(row[METRIC_CGROUP_CPU], row[METRIC_CGROUP_CPU_LIMIT]));
}

static double bool_or_nan(bool known, bool holds)
{
    return known ? holds : NAN;
}

static void signal_put(struct signal_value *out, int *n, enum signal_id signal, const char *subject,
                       double value)
{
    out[*n] = (struct signal_value){ .signal = signal, .value = value };
    snprintf(out[*n].subject, sizeof out[*n].subject, "%s", subject);
    ++*n;
}

static uint64_t throttle_reason_mask(void)
{
    uint64_t mask = 0;
    for (int i = 0; i < GPU_THROTTLE_COUNT; i++)
        if (GPU_THROTTLES[i].limits) mask |= GPU_THROTTLES[i].bit;
    return mask;
}

static void gpu_signals_put(struct signal_value *out, int *n, const struct gpu_reading *g, bool measuring)
{
    char name[24];
    const uint64_t held = g->throttle_reasons & throttle_reason_mask();
    snprintf(name, sizeof name, "gpu%d", g->index);
    signal_put(out, n, SIGNAL_GPU_BUSY, name, measuring ? NAN : g->busy_ratio);
    signal_put(out, n, SIGNAL_GPU_MEMORY, name, ratio_or_nan(g->mem_used_bytes, g->mem_total_bytes));
    signal_put(out, n, SIGNAL_GPU_THROTTLE, name,
               bool_or_nan(g->throttle_known, held & ~(uint64_t)GPU_THROTTLE_POWER_CAP));
    signal_put(out, n, SIGNAL_GPU_POWER_CAP, name,
               bool_or_nan(g->throttle_known, held & GPU_THROTTLE_POWER_CAP));
    signal_put(out, n, SIGNAL_GPU_TEMPERATURE, name, g->temperature_celsius);
    signal_put(out, n, SIGNAL_GPU_ECC, name, g->ecc_uncorrected);
    signal_put(out, n, SIGNAL_GPU_LOST, name, g->lost);
}

int signals_from_sensors(const struct sensor_state *s, struct signal_value out[SIGNAL_VALUES_MAX])
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
    for (size_t i = 0; i < COUNT_OF(PLAIN); i++)
        signal_put(out, &n, PLAIN[i].signal, "", s->row[PLAIN[i].metric]);
    /* during a measurement the CPUs are busy with our own work */
    signal_put(out, &n, SIGNAL_BUSY, "", s->measuring ? NAN : busy_share(s->row));
    signal_put(out, &n, SIGNAL_MEMORY, "", memory_share(s->row));
    signal_put(out, &n, SIGNAL_DISK, "", s->disk_free_bytes);
    signal_put(out, &n, SIGNAL_STALE, "", s->stale_s);
    for (int i = 0; i < s->gpus && i < MACHINE_GPUS; i++) gpu_signals_put(out, &n, &s->gpu[i], s->measuring);
    return n;
}

const char *scale_suggestion(double busy, double waiting, char *buf, size_t size)
{
    const double target = 0.65; /* leaves room for bursts: queues grow steeply above it */
    const bool waits = waiting > 0.01;
    const double demand = busy * (1 + (waits ? waiting : 0));
    struct str s = { 0 };
    /* Programs that waited would have used the CPU: their share counts as demand, and is shown. */
    str_printf(&s, "%.3g %% busy", 100 * busy);
    if (waits) str_printf(&s, ", and programs waited for a CPU %.3g %% of the time", 100 * waiting);
    str_printf(&s, ": about %.1f times the capacity of this machine would reduce it to %.0f %%",
               demand / target, 100 * target);
    if (waits)
        str_printf(&s, " (%.3g %% x %.3g, for those that waited, divided by %.0f %%)", 100 * busy,
                   1 + waiting, 100 * target);
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}
