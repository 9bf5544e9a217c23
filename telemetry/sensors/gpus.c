/* telemetry/sensors/gpus.c - the source that fills METRIC_GPU_*: one number for all GPUs, or for the one GPU
 * that was selected by its PCI address. The readings of each device come from telemetry/gpu. */
#include "telemetry/sensors/source.h"

#include <math.h>
#include <strings.h>

#include "telemetry/gpu/gpu.h"
#include "telemetry/metrics/metrics.h"

static enum err_code gpus_open(void **state, const struct sensors *s, struct err *why)
{
    struct gpu_set *set;
    const enum err_code rc = gpu_set_open(&set, s->root, why);
    *state = set;
    return rc;
}

/* Combines one device's value with those of the devices before it: memory and power add up, of all other
 * metrics the highest value counts. */
static void gpus_merge(double *row, enum metric_id id, double value)
{
    const bool adds = id == METRIC_GPU_MEM_USED || id == METRIC_GPU_MEM_TOTAL || id == METRIC_GPU_POWER;
    if (isnan(value)) return;
    if (isnan(row[id]))
        row[id] = value;
    else
        row[id] = adds ? row[id] + value : MAX(row[id], value);
}

/* 1 while a reason other than idleness or set clocks holds the clocks down, else 0; NAN: unknown. */
static double gpus_throttled(const struct gpu_reading *r)
{
    bool limited = false;
    for (int i = 0; i < GPU_THROTTLE_COUNT; i++)
        limited |= GPU_THROTTLES[i].limits && r->throttle_reasons & GPU_THROTTLES[i].bit;
    return r->throttle_known ? limited : NAN;
}

static void gpus_sample(void *state, struct sensors *s, double *row)
{
    const struct gpu_due due = {
        .busy = s->due[METRIC_GPU_BUSY],
        .memory = s->due[METRIC_GPU_MEM_USED] || s->due[METRIC_GPU_MEM_TOTAL],
        .clock = s->due[METRIC_GPU_CLOCK],
        .throttle = s->due[METRIC_GPU_THROTTLE],
        .power = s->due[METRIC_GPU_POWER],
        .slow = s->due[METRIC_GPU_TEMPERATURE],
    };
    s->gpu = gpu_set_sample(state, &due, s->now_ns);
    s->gpus = gpu_set_count(state);
    for (int i = 0; i < s->gpus; i++) {
        const struct gpu_reading *r = &s->gpu[i];
        if (s->one_gpu && (!*r->bus || strcasecmp(r->bus, s->selected_gpu))) continue;
        const struct {
            enum metric_id id;
            double value;
        } VALUES[] = {
            { METRIC_GPU_BUSY, r->busy_ratio },
            { METRIC_GPU_MEM_USED, r->mem_used_bytes },
            { METRIC_GPU_MEM_TOTAL, r->mem_total_bytes },
            { METRIC_GPU_POWER, r->power_watts },
            { METRIC_GPU_TEMPERATURE, r->temperature_celsius },
            { METRIC_GPU_CLOCK, r->core_hertz },
            { METRIC_GPU_THROTTLE, gpus_throttled(r) },
        };
        for (size_t k = 0; k < COUNT_OF(VALUES); k++)
            if (s->due[VALUES[k].id]) gpus_merge(row, VALUES[k].id, VALUES[k].value);
    }
}

static void gpus_close(void *state)
{
    gpu_set_close(state);
}

const struct source SOURCE_GPU = {
    .name = "gpu", .open = gpus_open, .sample = gpus_sample, .close = gpus_close
};
