/* telemetry/gpu.c - all GPUs of all vendors as one source: a list of readings, and one number of each kind
 * for those who ask how "the GPUs" are doing. */
#include "telemetry/gpu_vendor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "telemetry/sensors.h"

/* OpenCL stays last: it lists only devices that no row before it has. */
const struct gpu_vendor *const GPU_VENDORS[] = { &GPU_VENDOR_NVML, &GPU_VENDOR_AMDGPU, &GPU_VENDOR_INTEL,
                                                 &GPU_VENDOR_OPENCL };
const size_t GPU_VENDOR_COUNT = COUNT_OF(GPU_VENDORS);

const struct gpu_throttle GPU_THROTTLES[GPU_THROTTLE_COUNT] = {
    { GPU_THROTTLE_POWER_CAP, "power_cap", true, "the power limit, set by somebody or the board's own" },
    { GPU_THROTTLE_THERMAL, "thermal", true, "too hot: the driver lowers the clocks" },
    { GPU_THROTTLE_HW_THERMAL, "hw_thermal", true, "too hot: the hardware halves the clocks or worse" },
    { GPU_THROTTLE_HW_SLOWDOWN, "hw_slowdown", true, "the hardware's brake, reason not told" },
    { GPU_THROTTLE_POWER_BRAKE, "power_brake", true, "the power supply or the server asked for it" },
    { GPU_THROTTLE_CURRENT, "current", true, "electric current of a voltage regulator" },
    { GPU_THROTTLE_RELIABILITY, "reliability", true, "voltage limits that protect the chip's life" },
    { GPU_THROTTLE_CLOCK_SETTING, "clock_setting", false, "somebody set the clocks" },
    { GPU_THROTTLE_SYNC_BOOST, "sync_boost", true, "another GPU of its group holds it back" },
    { GPU_THROTTLE_IDLE, "idle", false, "nothing to do" },
    { GPU_THROTTLE_OTHER, "other", true, "a reason without a name here" },
};

const char *gpu_throttle_names(uint64_t reasons, char *buf, size_t size)
{
    struct str out = { 0 };
    for (int i = 0; i < GPU_THROTTLE_COUNT; i++)
        if (reasons & GPU_THROTTLES[i].bit)
            str_printf(&out, "%s%s", out.len ? " " : "", GPU_THROTTLES[i].name);
    snprintf(buf, size, "%s", out.len ? str_text(&out) : "none");
    str_free(&out);
    return buf;
}

/* ---------------------------------------------------------------- the list */

struct gpus {
    void *state[COUNT_OF(GPU_VENDORS)];
    bool open[COUNT_OF(GPU_VENDORS)];
    int first[COUNT_OF(GPU_VENDORS)]; /* of its devices in the list */
    struct gpu_list list;
    struct gpu_reading reading[MACHINE_GPUS];
    int64_t throttle_ns; /* when reasons were read last; 0 never */
};

struct gpu_identity *gpu_list_add(struct gpu_list *list, const char *vendor, const char *source)
{
    if (list->count >= MACHINE_GPUS) return NULL;
    struct gpu_identity *g = &list->gpu[list->count++];
    *g = (struct gpu_identity){ .memory_bytes = -1, .compute_major = -1, .compute_minor = -1 };
    snprintf(g->vendor, sizeof g->vendor, "%s", vendor);
    snprintf(g->source, sizeof g->source, "%s", source);
    return g;
}

void gpu_reading_forget(struct gpu_reading *r)
{
    for (int i = 0; i < GPU_FIELD_COUNT; i++) *(double *)((char *)r + GPU_FIELDS[i].offset) = NAN;
    r->partitions = r->processes = r->pcie_generation = r->pcie_width = -1;
    r->process_count = 0;
    r->throttle_known = false;
    r->throttle_reasons = 0;
}

void gpu_process_add(struct gpu_reading *r, int pid, double mem_used_bytes)
{
    r->processes++;
    int at = r->process_count; /* where it belongs: the largest first, unknown ones last */
    while (at > 0 && !(r->process[at - 1].mem_used_bytes >= mem_used_bytes) && !isnan(mem_used_bytes)) at--;
    if (at >= GPU_PROCESSES) return;
    if (r->process_count < GPU_PROCESSES) r->process_count++;
    memmove(&r->process[at + 1], &r->process[at], (size_t)(r->process_count - 1 - at) * sizeof r->process[0]);
    r->process[at] = (struct gpu_process){ pid, mem_used_bytes };
}

/* reasons may be NULL: why which vendor has nothing here. */
static void vendors_open(struct gpus *g, const char *root, struct str *reasons)
{
    for (size_t i = 0; i < GPU_VENDOR_COUNT; i++) {
        struct err why = { 0 };
        g->first[i] = g->list.count;
        g->open[i] = GPU_VENDORS[i]->open(&g->state[i], root, &g->list, &why) == ERR_OK;
        if (g->open[i]) continue;
        g->list.count = g->first[i];
        if (reasons) str_printf(reasons, "%s%s", reasons->len ? "; " : "", why.message);
    }
}

static void vendors_close(struct gpus *g)
{
    for (size_t i = 0; i < GPU_VENDOR_COUNT; i++)
        if (g->open[i]) GPU_VENDORS[i]->close(g->state[i]);
    free(g);
}

int gpu_identify(const char *root, struct gpu_identity gpu[MACHINE_GPUS])
{
    struct gpus *g = calloc(1, sizeof *g);
    if (!g) return 0;
    vendors_open(g, root, NULL);
    const int n = g->list.count;
    memcpy(gpu, g->list.gpu, (size_t)n * sizeof *gpu);
    vendors_close(g);
    return n;
}

/* ---------------------------------------------------------------- the source */

static enum err_code gpus_open(void **state, const struct sensors *s, struct err *why)
{
    struct gpus *g = calloc(1, sizeof *g);
    if (!g) return err_set(why, ERR_NOMEM, "out of memory opening the GPUs");
    struct str reasons = { 0 };
    vendors_open(g, s->root, &reasons);
    if (!g->list.count) {
        vendors_close(g);
        err_set(why, ERR_ABSENT, "%s", str_text(&reasons));
        str_free(&reasons);
        return ERR_ABSENT;
    }
    str_free(&reasons);
    for (int i = 0; i < g->list.count; i++) {
        struct gpu_reading *r = &g->reading[i];
        gpu_reading_forget(r);
        r->index = i;
        memcpy(r->vendor, g->list.gpu[i].vendor, sizeof r->vendor);
        memcpy(r->name, g->list.gpu[i].name, sizeof r->name);
        memcpy(r->bus, g->list.gpu[i].bus, sizeof r->bus);
    }
    *state = g;
    return ERR_OK;
}

static void merge(double *row, enum metric_id id, double value)
{
    const bool adds = id == METRIC_GPU_MEM_USED || id == METRIC_GPU_MEM_TOTAL || id == METRIC_GPU_POWER;
    if (isnan(value)) return;
    if (isnan(row[id]))
        row[id] = value;
    else
        row[id] = adds ? row[id] + value : MAX(row[id], value);
}

static uint64_t holding(uint64_t reasons)
{
    uint64_t held = 0;
    for (int i = 0; i < GPU_THROTTLE_COUNT; i++)
        if (GPU_THROTTLES[i].holds) held |= GPU_THROTTLES[i].bit;
    return reasons & held;
}

static void count_throttle_time(struct gpus *g, int64_t now_ns)
{
    const double passed_s = g->throttle_ns ? (double)(now_ns - g->throttle_ns) / 1e9 : 0;
    g->throttle_ns = now_ns;
    for (int i = 0; i < g->list.count; i++)
        for (int k = 0; k < GPU_THROTTLE_COUNT; k++)
            if (g->reading[i].throttle_known && g->reading[i].throttle_reasons & GPU_THROTTLES[k].bit)
                g->reading[i].throttle_seconds[k] += passed_s;
}

static void gpus_sample(void *state, struct sensors *s, double *row)
{
    struct gpus *g = state;
    const struct gpu_due due = {
        .busy = s->due[METRIC_GPU_BUSY],
        .memory = s->due[METRIC_GPU_MEM_USED] || s->due[METRIC_GPU_MEM_TOTAL],
        .clock = s->due[METRIC_GPU_CLOCK],
        .throttle = s->due[METRIC_GPU_THROTTLE],
        .power = s->due[METRIC_GPU_POWER],
        .slow = s->due[METRIC_GPU_TEMPERATURE],
    };
    for (size_t i = 0; i < GPU_VENDOR_COUNT; i++)
        if (g->open[i] && GPU_VENDORS[i]->sample)
            GPU_VENDORS[i]->sample(g->state[i], s->root, &due, s->now_ns, &g->reading[g->first[i]]);
    if (due.throttle) count_throttle_time(g, s->now_ns);
    s->gpu = g->reading;
    s->gpus = g->list.count;
    for (int i = 0; i < g->list.count; i++) {
        const struct gpu_reading *r = &g->reading[i];
        if (s->one_gpu && (!*r->bus || strcasecmp(r->bus, s->watched_gpu))) continue;
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
            { METRIC_GPU_THROTTLE, r->throttle_known ? holding(r->throttle_reasons) != 0 : NAN },
        };
        for (size_t k = 0; k < COUNT_OF(VALUES); k++)
            if (s->due[VALUES[k].id]) merge(row, VALUES[k].id, VALUES[k].value);
    }
}

static void gpus_close(void *state)
{
    vendors_close(state);
}

const struct source SOURCE_GPU = { "gpu", gpus_open, gpus_sample, gpus_close };
