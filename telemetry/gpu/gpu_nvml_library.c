/* telemetry/gpu/gpu_nvml_library.c - calls the functions of NVIDIA's library NVML.
 *
 * libnvidia-ml.so.1 comes with the driver and has a stable binary interface. So this file declares what it
 * uses (names, numbers and structures as in NVIDIA's NVML API reference) and links nothing. QDYNO_NVML names
 * another library file. */
#include "telemetry/gpu/gpu_nvml.h"

#include <stdlib.h>

typedef int nvml_return; /* 0: NVML_SUCCESS */
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_PCIE_TX = 0, NVML_PCIE_RX = 1 };
enum { NVML_UNSIGNED_INT = 1 }; /* nvmlValueType_t */
enum { NVML_FI_MEMORY_TEMP = 82, NVML_FI_POWER_INSTANT = 186, NVML_FI_PCIE_TX = 197, NVML_FI_PCIE_RX = 198 };
enum { NVML_ECC_CORRECTED = 0, NVML_ECC_UNCORRECTED = 1, NVML_ECC_VOLATILE = 0 };

struct nvml_memory2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
enum { NVML_MEMORY2_VERSION = sizeof(struct nvml_memory2) | 2 << 24 };
struct nvml_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
struct nvml_field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type; /* of value: double, unsigned, unsigned long, unsigned long long, long long, int, unsigned short
               */
    nvml_return code;
    union {
        double d;
        int si;
        unsigned ui;
        unsigned long ul;
        unsigned long long ull;
        long long sll;
        unsigned short us;
    } value;
};
_Static_assert(sizeof(struct nvml_memory2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_v2_t");
_Static_assert(sizeof(struct nvml_field) == 40, "nvmlFieldValue_t");
struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char id[32];
};

/* The signatures of the library's functions. */
enum shape {
    SYSTEM_TEXT, /* (char *, unsigned size) */
    TEXT,        /* (device, char *, unsigned size) */
    NUMBER,      /* (device, unsigned *) */
    LONG,        /* (device, unsigned long long *) */
    OF_KIND,     /* (device, kind, unsigned *) */
    TWO,         /* (device, unsigned *, unsigned *) */
    TWO_STRUCT,  /* (device, struct of two unsigned *) */
    ECC,         /* (device, error type, counter type, unsigned long long *) */
    MEMORY,
    MEMORY2,
    PCI,
    PROCESSES,
    FIELD,
    PARTITIONS,
};

static const struct gpu_query NVML_QUERIES[QUERIES] = {
    [NAME] = { .key = "nvmlDeviceGetName", .shape = TEXT },
    [UUID] = { .key = "nvmlDeviceGetUUID", .shape = TEXT, .secret = true },
    [DRIVER] = { .key = "nvmlSystemGetDriverVersion", .shape = SYSTEM_TEXT },
    [BUS] = { .key = "nvmlDeviceGetPciInfo_v3", .shape = PCI, .part = { "domain", "bus", "device" } },
    [CAPABILITY] = { .key = "nvmlDeviceGetCudaComputeCapability",
                     .shape = TWO,
                     .part = { "major", "minor" } },
    [MEMORY_2] = { .key = "nvmlDeviceGetMemoryInfo_v2",
                   .shape = MEMORY2,
                   .part = { "total", "reserved", "free", "used" } },
    [MEMORY_1] = { .key = "nvmlDeviceGetMemoryInfo", .shape = MEMORY, .part = { "total", "free", "used" } },
    [BUSY] = { .key = "nvmlDeviceGetUtilizationRates", .shape = TWO_STRUCT, .part = { "gpu", "memory" } },
    [POWER] = { .key = "nvmlDeviceGetPowerUsage", .shape = NUMBER, .part = { "mW" } },
    [POWER_LIMIT] = { .key = "nvmlDeviceGetEnforcedPowerLimit", .shape = NUMBER, .part = { "mW" } },
    [POWER_INSTANT] = { .key = "nvmlDeviceGetFieldValues(186)",
                        .shape = FIELD,
                        .argument = NVML_FI_POWER_INSTANT,
                        .part = { "mW" } },
    [ENERGY] = { .key = "nvmlDeviceGetTotalEnergyConsumption", .shape = LONG, .part = { "mJ" } },
    [TEMPERATURE] = { .key = "nvmlDeviceGetTemperature(0)",
                      .shape = OF_KIND,
                      .argument = 0,
                      .part = { "C" } },
    [MEMORY_TEMPERATURE] = { .key = "nvmlDeviceGetFieldValues(82)",
                             .shape = FIELD,
                             .argument = NVML_FI_MEMORY_TEMP,
                             .part = { "C" } },
    [FAN] = { .key = "nvmlDeviceGetFanSpeed", .shape = NUMBER, .part = { "%" } },
    [CLOCK_CORE] = { .key = "nvmlDeviceGetClockInfo(1)",
                     .shape = OF_KIND,
                     .argument = NVML_CLOCK_SM,
                     .part = { "MHz" } },
    [CLOCK_CORE_MAX] = { .key = "nvmlDeviceGetMaxClockInfo(1)",
                         .shape = OF_KIND,
                         .argument = NVML_CLOCK_SM,
                         .part = { "MHz" } },
    [CLOCK_MEMORY] = { .key = "nvmlDeviceGetClockInfo(2)",
                       .shape = OF_KIND,
                       .argument = NVML_CLOCK_MEM,
                       .part = { "MHz" } },
    [REASONS] = { .key = "nvmlDeviceGetCurrentClocksEventReasons", .shape = LONG, .part = { "bits" } },
    [REASONS_OLD] = { .key = "nvmlDeviceGetCurrentClocksThrottleReasons", .shape = LONG, .part = { "bits" } },
    [LINK_GENERATION] = { .key = "nvmlDeviceGetCurrPcieLinkGeneration",
                          .shape = NUMBER,
                          .part = { "generation" } },
    [LINK_WIDTH] = { .key = "nvmlDeviceGetCurrPcieLinkWidth", .shape = NUMBER, .part = { "lanes" } },
    [PCIE_COUNT_TX] = { .key = "nvmlDeviceGetFieldValues(197)",
                        .shape = FIELD,
                        .argument = NVML_FI_PCIE_TX,
                        .part = { "bytes" } },
    [PCIE_COUNT_RX] = { .key = "nvmlDeviceGetFieldValues(198)",
                        .shape = FIELD,
                        .argument = NVML_FI_PCIE_RX,
                        .part = { "bytes" } },
    [PCIE_TX] = { .key = "nvmlDeviceGetPcieThroughput(0)",
                  .shape = OF_KIND,
                  .argument = NVML_PCIE_TX,
                  .part = { "KB/s" } },
    [PCIE_RX] = { .key = "nvmlDeviceGetPcieThroughput(1)",
                  .shape = OF_KIND,
                  .argument = NVML_PCIE_RX,
                  .part = { "KB/s" } },
    [ECC_CORRECTED] = { .key = "nvmlDeviceGetTotalEccErrors(0,0)",
                        .shape = ECC,
                        .argument = NVML_ECC_CORRECTED,
                        .argument2 = NVML_ECC_VOLATILE,
                        .part = { "errors" } },
    [ECC_UNCORRECTED] = { .key = "nvmlDeviceGetTotalEccErrors(1,0)",
                          .shape = ECC,
                          .argument = NVML_ECC_UNCORRECTED,
                          .argument2 = NVML_ECC_VOLATILE,
                          .part = { "errors" } },
    [MIG_MODE] = { .key = "nvmlDeviceGetMigMode", .shape = TWO, .part = { "current", "pending" } },
    [MIG_DEVICES] = { .key = "nvmlDeviceGetMigDeviceHandleByIndex",
                      .shape = PARTITIONS,
                      .part = { "devices" } },
    [COMPUTE] = { .key = "nvmlDeviceGetComputeRunningProcesses_v3",
                  .shape = PROCESSES,
                  .secret = true,
                  .part = { "[]" } },
    [GRAPHICS] = { .key = "nvmlDeviceGetGraphicsRunningProcesses_v3",
                   .shape = PROCESSES,
                   .secret = true,
                   .part = { "[]" } },
};
_Static_assert((int)QUERIES <= (int)LIBRARY_QUERIES, "struct gpu_library has room for each query");

/* ---------------------------------------------------------------- calling the library */

static int nvml_start(struct gpu_library *l)
{
    nvml_return (*init)(void) = gpu_library_symbol(l, "nvmlInit_v2");
    nvml_return (*count)(unsigned *) = gpu_library_symbol(l, "nvmlDeviceGetCount_v2");
    nvml_return (*handle)(unsigned, void **) = gpu_library_symbol(l, "nvmlDeviceGetHandleByIndex_v2");
    const nvml_return bad = init && count && handle ? init() : LIBRARY_NO_ANSWER;
    if (bad) return bad;
    unsigned n = 0;
    if (count(&n)) n = 0;
    for (unsigned i = 0; i < n && l->devices < MACHINE_GPUS;
         i++) /* skip a device that this user may not access */
        if (!handle(i, &l->device[l->devices])) l->devices++;
    return 0;
}

static void nvml_stop(struct gpu_library *l)
{
    nvml_return (*shutdown)(void) = gpu_library_symbol(l, "nvmlShutdown");
    if (shutdown) shutdown();
}

static uint64_t nvml_field_value(const struct nvml_field *f)
{
    switch (f->type) {
    case 0: return f->value.d >= 0 ? (uint64_t)f->value.d : UINT64_MAX;
    case NVML_UNSIGNED_INT: return f->value.ui;
    case 2: return f->value.ul;
    case 3: return f->value.ull;
    case 4: return f->value.sll >= 0 ? (uint64_t)f->value.sll : UINT64_MAX;
    case 5: return f->value.si >= 0 ? (uint64_t)f->value.si : UINT64_MAX;
    case 6: return f->value.us;
    default: return UINT64_MAX; /* a type that is newer than this program */
    }
}

static nvml_return call_field(void *fn, void *d, const struct gpu_query *q, struct gpu_answer *out)
{
    struct nvml_field f = { .id = (unsigned)q->argument };
    nvml_return code = ((nvml_return(*)(void *, int, struct nvml_field *))fn)(d, 1, &f);
    if (!code) code = f.code;
    out->value[0] = nvml_field_value(&f);
    /* a 32-bit byte counter wraps within a second, so its rate would be ambiguous */
    const bool counts = q->argument == NVML_FI_PCIE_TX || q->argument == NVML_FI_PCIE_RX;
    return !code && counts && f.type == NVML_UNSIGNED_INT ? NVML_ERROR_NOT_SUPPORTED : code;
}

static nvml_return call_processes(void *fn, void *d, struct gpu_answer *out)
{
    struct nvml_process list[ANSWER_VALUES / 2];
    unsigned n = COUNT_OF(list);
    const nvml_return code = ((nvml_return(*)(void *, unsigned *, struct nvml_process *))fn)(d, &n, list);
    /* with more processes than fit, the code is NVML_ERROR_INSUFFICIENT_SIZE and the list is unknown */
    for (unsigned i = 0; !code && i < n && i < COUNT_OF(list); i++) {
        out->value[out->count++] = list[i].pid;
        out->value[out->count++] = list[i].bytes;
    }
    return code;
}

static nvml_return call_memory(void *fn, void *d, const struct gpu_query *q, struct gpu_answer *out)
{
    if (q->shape == MEMORY2) {
        struct nvml_memory2 m = { .version = NVML_MEMORY2_VERSION };
        const nvml_return code = ((nvml_return(*)(void *, struct nvml_memory2 *))fn)(d, &m);
        out->value[0] = m.total, out->value[1] = m.reserved, out->value[2] = m.free, out->value[3] = m.used;
        return code;
    }
    unsigned long long m[3] = { 0 };
    const nvml_return code = ((nvml_return(*)(void *, unsigned long long *))fn)(d, m);
    for (int i = 0; i < 3; i++) out->value[i] = m[i];
    return code;
}

/* Counts the MIG partitions of a card. Their numbers have gaps where a partition was removed. */
static nvml_return call_partitions(void *fn, void *d, struct gpu_answer *out)
{
    enum { MOST = 16 };
    void *part;
    for (unsigned i = 0; i < MOST; i++) {
        const nvml_return code = ((nvml_return(*)(void *, unsigned, void **))fn)(d, i, &part);
        if (code && code != NVML_ERROR_NOT_FOUND) return i && code == NVML_ERROR_INVALID_ARGUMENT ? 0 : code;
        out->value[0] += !code;
    }
    return 0;
}

static int nvml_call(struct gpu_library *l, int device, const struct gpu_query *q, void *fn,
                     struct gpu_answer *out)
{
    void *const d = l->device[device];
    unsigned u[2] = { 0 };
    unsigned long long ull = 0;
    struct nvml_pci pci = { 0 };
    nvml_return code = LIBRARY_NO_ANSWER;
    switch ((enum shape)q->shape) {
    case SYSTEM_TEXT: return ((nvml_return(*)(char *, unsigned))fn)(out->text, sizeof out->text);
    case TEXT: return ((nvml_return(*)(void *, char *, unsigned))fn)(d, out->text, sizeof out->text);
    case FIELD: return call_field(fn, d, q, out);
    case PROCESSES: return call_processes(fn, d, out);
    case PARTITIONS: return call_partitions(fn, d, out);
    case MEMORY:
    case MEMORY2: return call_memory(fn, d, q, out);
    case PCI:
        code = ((nvml_return(*)(void *, struct nvml_pci *))fn)(d, &pci);
        out->value[0] = pci.domain, out->value[1] = pci.bus, out->value[2] = pci.device;
        return code;
    case LONG:
        code = ((nvml_return(*)(void *, unsigned long long *))fn)(d, &ull);
        out->value[0] = ull;
        return code;
    case ECC:
        code = ((nvml_return(*)(void *, int, int, unsigned long long *))fn)(d, q->argument, q->argument2,
                                                                            &ull);
        out->value[0] = ull;
        return code;
    case NUMBER: code = ((nvml_return(*)(void *, unsigned *))fn)(d, u); break;
    case TWO_STRUCT: code = ((nvml_return(*)(void *, unsigned *))fn)(d, u); break;
    case OF_KIND: code = ((nvml_return(*)(void *, int, unsigned *))fn)(d, q->argument, u); break;
    case TWO: code = ((nvml_return(*)(void *, unsigned *, unsigned *))fn)(d, &u[0], &u[1]); break;
    }
    out->value[0] = u[0], out->value[1] = u[1];
    return code;
}

static const char *nvml_explain(int code)
{
    static const struct {
        int code;
        const char *text;
    } CODES[] = {
        { LIBRARY_NO_ANSWER, "it is not an NVIDIA library" },
        { 4, "this user may not use /dev/nvidia*: see its permissions, or the container's list of devices" },
        { 9, "NVIDIA's kernel module is not loaded: modprobe nvidia" },
        { 15, "a GPU has fallen off the bus: see the kernel's log, then reset it or reboot" },
        { 17, "the system or the container denies access to the device files" },
        { 18, "library and kernel module are of different versions, as after an update: reboot" },
    };
    for (size_t i = 0; i < COUNT_OF(CODES); i++)
        if (CODES[i].code == code) return CODES[i].text;
    return NULL;
}

const struct gpu_library_kind NVML = {
    .name = "nvml",
    .file = "libnvidia-ml.so.1",
    .variable = "QDYNO_NVML",
    .queries = NVML_QUERIES,
    .n_queries = QUERIES,
    .start = nvml_start,
    .stop = nvml_stop,
    .call = nvml_call,
    .explain = nvml_explain,
};
