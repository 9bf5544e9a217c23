/* telemetry/gpu/gpu.c - all GPUs of all vendors as one list of readings. */
#include "telemetry/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/gpu/gpu_library.h"
#include "telemetry/gpu/gpu_vendor.h"

/* OpenCL stays last: it lists only the devices that no other vendor's code has listed. */
const struct gpu_vendor *const GPU_VENDORS[GPU_VENDOR_COUNT] = { &GPU_VENDOR_NVML, &GPU_VENDOR_AMDGPU,
                                                                 &GPU_VENDOR_INTEL, &GPU_VENDOR_OPENCL };

const struct gpu_throttle GPU_THROTTLES[GPU_THROTTLE_COUNT] = {
    { .bit = GPU_THROTTLE_POWER_CAP,
      .name = "power_cap",
      .limits = true,
      .help = "power limit: the board's own, or a lower one that someone set" },
    { .bit = GPU_THROTTLE_THERMAL,
      .name = "thermal",
      .limits = true,
      .help = "temperature: the driver lowers the clocks" },
    { .bit = GPU_THROTTLE_HW_THERMAL,
      .name = "hw_thermal",
      .limits = true,
      .help = "temperature: the hardware at least halves the clocks" },
    { .bit = GPU_THROTTLE_HW_SLOWDOWN,
      .name = "hw_slowdown",
      .limits = true,
      .help = "the hardware lowers the clocks and gives no reason" },
    { .bit = GPU_THROTTLE_POWER_BRAKE,
      .name = "power_brake",
      .limits = true,
      .help = "the power supply or the server asserts the brake signal" },
    { .bit = GPU_THROTTLE_CURRENT,
      .name = "current",
      .limits = true,
      .help = "current limit of a voltage regulator" },
    { .bit = GPU_THROTTLE_RELIABILITY,
      .name = "reliability",
      .limits = true,
      .help = "voltage limit that protects the chip's lifetime" },
    { .bit = GPU_THROTTLE_CLOCK_SETTING, .name = "clock_setting", .help = "someone set the clocks" },
    { .bit = GPU_THROTTLE_SYNC_BOOST,
      .name = "sync_boost",
      .limits = true,
      .help = "another GPU of the same synchronized group limits this one" },
    { .bit = GPU_THROTTLE_IDLE, .name = "idle", .help = "the GPU has no work" },
    { .bit = GPU_THROTTLE_OTHER, .name = "other", .limits = true, .help = "a reason specific to the vendor" },
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

/* ---------------------------------------------------------------- what vendors' code calls */

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
    int at = r->process_count; /* insertion point: largest first, unknown sizes last */
    while (at > 0 && !(r->process[at - 1].mem_used_bytes >= mem_used_bytes) && !isnan(mem_used_bytes)) at--;
    if (at >= GPU_PROCESSES) return;
    if (r->process_count < GPU_PROCESSES) r->process_count++;
    memmove(&r->process[at + 1], &r->process[at], (size_t)(r->process_count - 1 - at) * sizeof r->process[0]);
    r->process[at] = (struct gpu_process){ pid, mem_used_bytes };
}

/* ---------------------------------------------------------------- all devices */

struct gpu_set {
    const char *root; /* borrowed */
    void *state[GPU_VENDOR_COUNT];
    bool open[GPU_VENDOR_COUNT];
    int first[GPU_VENDOR_COUNT]; /* index of the vendor's first device in the list */
    struct gpu_list list;
    struct gpu_reading reading[MACHINE_GPUS];
    int64_t throttle_ns; /* time of the last throttle reading; 0: none yet */
};

enum err_code gpu_set_open(struct gpu_set **out, const char *root, struct err *why)
{
    struct str reasons = { 0 }; /* why each vendor has no device here */
    struct gpu_set *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return err_set(why, ERR_NOMEM, "out of memory opening the GPUs");
    g->root = root;
    for (int i = 0; i < GPU_VENDOR_COUNT; i++) {
        struct err reason = { 0 };
        g->first[i] = g->list.count;
        g->open[i] = GPU_VENDORS[i]->open(&g->state[i], root, &g->list, &reason) == ERR_OK;
        if (g->open[i]) continue;
        g->list.count = g->first[i];
        str_printf(&reasons, "%s%s", reasons.len ? "; " : "", reason.message);
    }
    if (!g->list.count) {
        gpu_set_close(g);
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
    *out = g;
    return ERR_OK;
}

void gpu_set_close(struct gpu_set *g)
{
    for (int i = 0; i < GPU_VENDOR_COUNT; i++)
        if (g->open[i]) GPU_VENDORS[i]->close(g->state[i]);
    free(g);
}

int gpu_set_count(const struct gpu_set *g)
{
    return g->list.count;
}

/* Adds the time since the previous reading to the counters of the reasons that hold now. */
static void gpu_set_count_throttle_time(struct gpu_set *g, int64_t now_ns)
{
    const double passed_s = g->throttle_ns ? (double)(now_ns - g->throttle_ns) / 1e9 : 0;
    g->throttle_ns = now_ns;
    for (int i = 0; i < g->list.count; i++)
        for (int k = 0; k < GPU_THROTTLE_COUNT; k++)
            if (g->reading[i].throttle_known && g->reading[i].throttle_reasons & GPU_THROTTLES[k].bit)
                g->reading[i].throttle_seconds[k] += passed_s;
}

struct gpu_reading *gpu_set_sample(struct gpu_set *g, const struct gpu_due *due, int64_t now_ns)
{
    for (int i = 0; i < GPU_VENDOR_COUNT; i++)
        if (g->open[i] && GPU_VENDORS[i]->sample)
            GPU_VENDORS[i]->sample(g->state[i], g->root, due, now_ns, &g->reading[g->first[i]]);
    if (due->throttle) gpu_set_count_throttle_time(g, now_ns);
    return g->reading;
}

int gpu_identify(const char *root, struct gpu_identity gpu[MACHINE_GPUS])
{
    struct gpu_set *g;
    if (gpu_set_open(&g, root, NULL)) return 0;
    const int n = g->list.count;
    memcpy(gpu, g->list.gpu, (size_t)n * sizeof *gpu);
    gpu_set_close(g);
    return n;
}

/* ---------------------------------------------------------------- recording */

const char *gpu_library_name(int vendor)
{
    return GPU_VENDORS[vendor]->library ? GPU_VENDORS[vendor]->library->name : NULL;
}

json_t *gpu_library_answers(int vendor, bool masked)
{
    struct gpu_library *library;
    if (!GPU_VENDORS[vendor]->library || gpu_library_open(&library, GPU_VENDORS[vendor]->library, "", NULL))
        return NULL;
    json_t *answers = gpu_library_record(library, masked);
    gpu_library_close(library);
    return answers;
}
