/* telemetry/gpu_nvml.c - NVIDIA GPUs through the driver's own library, loaded only when it is there.
 *
 * libnvidia-ml.so.1 comes with the driver and keeps its functions' binary interface, so we declare what we
 * use (names, numbers and structures as in NVIDIA's NVML API reference) and link nothing. QDYNO_NVML names
 * another library file. Each function and each value is optional: what one card or driver lacks reads NAN.
 * A recorded machine must not be mixed with this one: with a root only the recorded names are told. */
#include "telemetry/sensors.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int nvml_return; /* 0: NVML_SUCCESS */
typedef void *nvml_device;
struct nvml_utilization {
    unsigned gpu, memory; /* per cent */
};
struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};
enum { NVML_CLOCK_SM = 1, NVML_TEMPERATURE_GPU = 0 };
/* nvmlClocksThrottleReason*: SwPowerCap, HwSlowdown, SwThermalSlowdown, HwThermalSlowdown, HwPowerBrake.
 * Not idle, applications' clocks, sync boost or display: those hold nothing back that we asked for. */
static const unsigned long long NVML_THROTTLED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

struct nvml {
    void *library;
    nvml_return (*init)(void);
    nvml_return (*shutdown)(void);
    nvml_return (*count)(unsigned *);
    nvml_return (*handle)(unsigned, nvml_device *);
    nvml_return (*driver)(char *, unsigned);
    nvml_return (*name)(nvml_device, char *, unsigned);
    nvml_return (*capability)(nvml_device, int *, int *);
    nvml_return (*memory)(nvml_device, struct nvml_memory *);
    nvml_return (*utilization)(nvml_device, struct nvml_utilization *);
    nvml_return (*power)(nvml_device, unsigned *); /* milliwatts */
    nvml_return (*temperature)(nvml_device, int, unsigned *);
    nvml_return (*clock)(nvml_device, int, unsigned *); /* MHz */
    nvml_return (*throttle)(nvml_device, unsigned long long *);
    unsigned devices;
    nvml_device device[MACHINE_GPUS];
};

static void nvml_close(void *state)
{
    struct nvml *n = state;
    if (!n) return;
    if (n->library) {
        if (n->shutdown) n->shutdown();
        dlclose(n->library);
    }
    free(n);
}

static void nvml_bind(struct nvml *n)
{
    const struct {
        void *slot;
        const char *symbol;
    } SYMBOLS[] = {
        { &n->init, "nvmlInit_v2" },
        { &n->shutdown, "nvmlShutdown" },
        { &n->count, "nvmlDeviceGetCount_v2" },
        { &n->handle, "nvmlDeviceGetHandleByIndex_v2" },
        { &n->driver, "nvmlSystemGetDriverVersion" },
        { &n->name, "nvmlDeviceGetName" },
        { &n->capability, "nvmlDeviceGetCudaComputeCapability" },
        { &n->memory, "nvmlDeviceGetMemoryInfo" },
        { &n->utilization, "nvmlDeviceGetUtilizationRates" },
        { &n->power, "nvmlDeviceGetPowerUsage" },
        { &n->temperature, "nvmlDeviceGetTemperature" },
        { &n->clock, "nvmlDeviceGetClockInfo" },
        { &n->throttle, "nvmlDeviceGetCurrentClocksThrottleReasons" },
    };
    for (size_t i = 0; i < COUNT_OF(SYMBOLS); i++) {
        void *address = dlsym(n->library, SYMBOLS[i].symbol);
        memcpy(SYMBOLS[i].slot, &address, sizeof address); /* POSIX: a function pointer fits */
    }
}

static enum err_code nvml_start(struct nvml **out, const char *root, struct err *why)
{
    *out = NULL;
    if (*root)
        return err_set(why, ERR_ABSENT, "'%s' is a recorded machine: its NVIDIA driver is not here", root);
    const char *given = getenv("QDYNO_NVML"), *path = given && *given ? given : "libnvidia-ml.so.1";
    struct nvml *n = calloc(1, sizeof *n);
    if (!n) return err_set(why, ERR_NOMEM, "out of memory opening the NVIDIA sensors");
    n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        const char *cause = dlerror();
        err_set(why, ERR_ABSENT, "no NVIDIA driver library: %s", cause ? cause : path);
        nvml_close(n);
        return ERR_ABSENT;
    }
    nvml_bind(n);
    nvml_return bad = n->init && n->count && n->handle ? n->init() : -1;
    if (bad) {
        n->shutdown = NULL; /* nothing to shut down */
        nvml_close(n);
        return err_set(why, ERR_ABSENT, "'%s' cannot be used (NVML error %d): is the driver loaded?", path,
                       bad);
    }
    unsigned count = 0;
    if (n->count(&count)) count = 0;
    for (unsigned i = 0; i < count && n->devices < MACHINE_GPUS; i++)
        if (!n->handle(i, &n->device[n->devices])) n->devices++;
    if (!n->devices) {
        nvml_close(n);
        return err_set(why, ERR_ABSENT, "the NVIDIA driver shows no device");
    }
    *out = n;
    return ERR_OK;
}

static enum err_code nvml_open(void **state, const struct sensors *s, struct err *why)
{
    struct nvml *n;
    enum err_code rc = nvml_start(&n, s->root, why);
    *state = n;
    return rc;
}

static void nvml_sample_device(struct nvml *n, nvml_device d, struct sensors *s, double *row)
{
    struct nvml_utilization busy;
    struct nvml_memory memory;
    unsigned v;
    unsigned long long reasons;
    if (s->due[METRIC_GPU_BUSY] && n->utilization && !n->utilization(d, &busy) && busy.gpu <= 100)
        gpu_merge(row, METRIC_GPU_BUSY, busy.gpu / 100.0);
    if ((s->due[METRIC_GPU_MEM_USED] || s->due[METRIC_GPU_MEM_TOTAL]) && n->memory &&
        !n->memory(d, &memory)) {
        if (s->due[METRIC_GPU_MEM_USED]) gpu_merge(row, METRIC_GPU_MEM_USED, (double)memory.used);
        if (s->due[METRIC_GPU_MEM_TOTAL]) gpu_merge(row, METRIC_GPU_MEM_TOTAL, (double)memory.total);
    }
    if (s->due[METRIC_GPU_POWER] && n->power && !n->power(d, &v)) gpu_merge(row, METRIC_GPU_POWER, v / 1e3);
    if (s->due[METRIC_GPU_TEMPERATURE] && n->temperature && !n->temperature(d, NVML_TEMPERATURE_GPU, &v))
        gpu_merge(row, METRIC_GPU_TEMPERATURE, v);
    if (s->due[METRIC_GPU_CLOCK] && n->clock && !n->clock(d, NVML_CLOCK_SM, &v))
        gpu_merge(row, METRIC_GPU_CLOCK, v * 1e6);
    if (s->due[METRIC_GPU_THROTTLE] && n->throttle && !n->throttle(d, &reasons))
        gpu_merge(row, METRIC_GPU_THROTTLE, (reasons & NVML_THROTTLED) != 0);
}

static void nvml_sample(void *state, struct sensors *s, double *row)
{
    struct nvml *n = state;
    for (unsigned i = 0; i < n->devices; i++) nvml_sample_device(n, n->device[i], s, row);
}

/* Without the library (or recorded) the kernel module still names its cards. */
static int proc_identify(const char *root, struct gpu_identity *gpu, int count, int max)
{
    struct sys_list list;
    char text[2048], version[512];
    sys_list(&list, root, "", "/proc/driver/nvidia/gpus");
    for (int i = 0; i < list.count && count < max; i++) {
        struct gpu_identity *g = &gpu[count];
        *g = (struct gpu_identity){
            .vendor = "nvidia", .memory_bytes = -1, .compute_major = -1, .compute_minor = -1
        };
        sys_read(root, text, sizeof text, "/proc/driver/nvidia/gpus/%s/information", list.name[i]);
        if (!sys_text_field(text, "Model", g->name, sizeof g->name)) continue;
        sys_read(root, version, sizeof version, "/sys/module/nvidia/version");
        snprintf(g->driver, sizeof g->driver, "%.47s", version);
        count++;
    }
    return count;
}

static int drm_identify(const char *root, struct gpu_identity *gpu, int count, int max)
{
    struct drm_cards cards;
    drm_cards_find(&cards, root, "0x10de");
    for (int i = 0; i < cards.count && count < max; i++)
        drm_card_identify(&gpu[count++], root, cards.card[i], "nvidia");
    return count;
}

static int nvml_identify(const char *root, struct gpu_identity *gpu, int count, int max)
{
    struct nvml *n;
    if (nvml_start(&n, root, NULL)) {
        int found = proc_identify(root, gpu, count, max);
        return found > count ? found : drm_identify(root, gpu, count, max);
    }
    for (unsigned i = 0; i < n->devices && count < max; i++) {
        struct gpu_identity *g = &gpu[count++];
        struct nvml_memory memory;
        *g = (struct gpu_identity){
            .vendor = "nvidia", .memory_bytes = -1, .compute_major = -1, .compute_minor = -1
        };
        if (!n->name || n->name(n->device[i], g->name, sizeof g->name))
            snprintf(g->name, sizeof g->name, "NVIDIA GPU %u", i);
        if (!n->driver || n->driver(g->driver, sizeof g->driver)) g->driver[0] = '\0';
        if (n->memory && !n->memory(n->device[i], &memory)) g->memory_bytes = (int64_t)memory.total;
        if (n->capability && n->capability(n->device[i], &g->compute_major, &g->compute_minor))
            g->compute_major = g->compute_minor = -1;
    }
    nvml_close(n);
    return count;
}

const struct source SOURCE_GPU_NVML = { "gpu_nvml", nvml_open, nvml_sample, nvml_close, nvml_identify };
