/* telemetry/gpu/gpu_nvml.c - NVIDIA GPUs, through the driver's library NVML if it is installed.
 *
 * libnvidia-ml.so.1 comes with the driver and has a stable binary interface. So this file declares what it
 * uses (names, numbers and structures as in NVIDIA's NVML API reference) and links nothing. QDYNO_NVML names
 * another library file. Every function and value is optional: what a card, a driver or missing permissions do
 * not provide is unknown for that card. A card that no longer answers on the bus is unknown from then on.
 *
 * Without the library, or in a recording without its answers, the kernel's files still name the cards. */
#include "telemetry/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/gpu/gpu_library.h"
#include "telemetry/gpu/gpu_vendor.h"
#include "telemetry/sysfs/sysfs.h"

typedef int nvml_return; /* 0: NVML_SUCCESS */
enum {
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_GPU_IS_LOST = 15
};
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

enum nvml_query {
    NAME,
    UUID,
    DRIVER,
    BUS,
    CAPABILITY,
    MEMORY_2,
    MEMORY_1,
    BUSY,
    POWER,
    POWER_LIMIT,
    POWER_INSTANT,
    ENERGY,
    TEMPERATURE,
    MEMORY_TEMPERATURE,
    FAN,
    CLOCK_CORE,
    CLOCK_CORE_MAX,
    CLOCK_MEMORY,
    REASONS,
    REASONS_OLD, /* the name before driver 535 */
    LINK_GENERATION,
    LINK_WIDTH,
    PCIE_COUNT_TX,
    PCIE_COUNT_RX,
    PCIE_TX,
    PCIE_RX,
    ECC_CORRECTED,
    ECC_UNCORRECTED,
    MIG_MODE,
    MIG_DEVICES,
    COMPUTE,
    GRAPHICS,
    QUERIES,
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

static const struct gpu_library_kind NVML = {
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

/* ---------------------------------------------------------------- readings */

struct nvml {
    struct gpu_library *library; /* NULL: devices have a name but no readings */
    struct {
        bool lost, counts_pcie;
        struct rate rx, tx;
    } card[MACHINE_GPUS];
    int next_throughput; /* the card whose PCIe traffic is measured next: see nvml_traffic */
};

/* Makes one query; false when the value is unknown. Notes when the card was lost. */
static bool nvml_ask(struct nvml *n, int card, enum nvml_query q, struct gpu_answer *a)
{
    if (n->card[card].lost) return false;
    const int code = gpu_library_query(n->library, card, q, a);
    n->card[card].lost |= code == NVML_ERROR_GPU_IS_LOST;
    return !code;
}

/* A number times `scale`; NAN: unknown. */
static double nvml_number(struct nvml *n, int card, enum nvml_query q, double scale)
{
    struct gpu_answer a;
    return nvml_ask(n, card, q, &a) && a.value[0] != UINT64_MAX ? (double)a.value[0] * scale : NAN;
}

/* A whole number from 0 to `most`; -1: unknown. */
static int nvml_integer(struct nvml *n, int card, enum nvml_query q, int most)
{
    const double v = nvml_number(n, card, q, 1);
    return v >= 0 && v <= most ? (int)v : -1;
}

/* Memory used by programs. The newer call reports the driver's own part separately, and it counts as neither
 * used nor free; the older call includes it in what is used. */
static void nvml_memory(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer a;
    r->mem_used_bytes = r->mem_total_bytes = NAN;
    if (nvml_ask(n, card, MEMORY_2, &a)) {
        const uint64_t total = a.value[0], reserved = a.value[1], left = a.value[2];
        r->mem_total_bytes = (double)total;
        if (reserved + left <= total) r->mem_used_bytes = (double)(total - reserved - left);
    } else if (nvml_ask(n, card, MEMORY_1, &a)) {
        r->mem_total_bytes = (double)a.value[0];
        r->mem_used_bytes = (double)a.value[2];
    }
}

static void nvml_throttle(struct nvml *n, int card, struct gpu_reading *r)
{
    static const struct {
        uint64_t theirs, ours;
    } BITS[] = {
        { 0x1, GPU_THROTTLE_IDLE },           { 0x2, GPU_THROTTLE_CLOCK_SETTING },
        { 0x4, GPU_THROTTLE_POWER_CAP },      { 0x8, GPU_THROTTLE_HW_SLOWDOWN },
        { 0x10, GPU_THROTTLE_SYNC_BOOST },    { 0x20, GPU_THROTTLE_THERMAL },
        { 0x40, GPU_THROTTLE_HW_THERMAL },    { 0x80, GPU_THROTTLE_POWER_BRAKE },
        { 0x100, GPU_THROTTLE_CLOCK_SETTING } /* display clocks */
    };
    struct gpu_answer a;
    r->throttle_reasons = 0;
    r->throttle_known = nvml_ask(n, card, REASONS, &a) || nvml_ask(n, card, REASONS_OLD, &a);
    if (!r->throttle_known) return;
    uint64_t rest = a.value[0];
    for (size_t i = 0; i < COUNT_OF(BITS); i++) {
        if (rest & BITS[i].theirs) r->throttle_reasons |= BITS[i].ours;
        rest &= ~BITS[i].theirs;
    }
    if (rest) r->throttle_reasons |= GPU_THROTTLE_OTHER;
}

static bool processes_have(const struct gpu_answer *list, uint64_t pid)
{
    for (int i = 0; i + 1 < list->count; i += 2)
        if (list->value[i] == pid) return true;
    return false;
}

/* A process that both computes and draws is in both lists, and is counted once. */
static void nvml_processes(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer lists[2];
    r->processes = -1;
    r->process_count = 0;
    for (int k = 0; k < 2; k++) {
        if (!nvml_ask(n, card, k ? GRAPHICS : COMPUTE, &lists[k])) {
            lists[k].count = 0;
            continue;
        }
        r->processes = MAX(r->processes, 0);
        for (int i = 0; i + 1 < lists[k].count; i += 2) {
            const uint64_t bytes = lists[k].value[i + 1];
            if (k && processes_have(&lists[0], lists[k].value[i])) continue;
            gpu_process_add(r, (int)lists[k].value[i], bytes == UINT64_MAX ? NAN : (double)bytes);
        }
    }
}

/* PCI Express traffic. Newer cards count bytes. For others the library measures the link for 20 ms, during
 * which the caller waits; so it is called for one card at a time, at the slowest period. */
static void nvml_traffic(struct nvml *n, int card, const struct gpu_due *due, int64_t now_ns,
                         struct gpu_reading *r)
{
    if (due->clock) {
        const double tx = nvml_number(n, card, PCIE_COUNT_TX, 1), rx = nvml_number(n, card, PCIE_COUNT_RX, 1);
        n->card[card].counts_pcie |= !isnan(tx) && !isnan(rx);
        if (n->card[card].counts_pcie) {
            r->pcie_tx_bytes_s = rate_next(&n->card[card].tx, tx, 0, now_ns);
            r->pcie_rx_bytes_s = rate_next(&n->card[card].rx, rx, 0, now_ns);
        }
    }
    if (due->slow && card == n->next_throughput && !n->card[card].counts_pcie) {
        r->pcie_tx_bytes_s = nvml_number(n, card, PCIE_TX, 1e3);
        r->pcie_rx_bytes_s = nvml_number(n, card, PCIE_RX, 1e3);
    }
}

static void nvml_slow(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer a;
    if (!*r->uuid && nvml_ask(n, card, UUID, &a)) snprintf(r->uuid, sizeof r->uuid, "%.47s", a.text);
    r->temperature_celsius = nvml_number(n, card, TEMPERATURE, 1);
    r->memory_temperature_celsius = nvml_number(n, card, MEMORY_TEMPERATURE, 1);
    r->fan_ratio = nvml_number(n, card, FAN, 1e-2);
    r->core_max_hertz = nvml_number(n, card, CLOCK_CORE_MAX, 1e6);
    r->pcie_generation = nvml_integer(n, card, LINK_GENERATION, 16);
    r->pcie_width = nvml_integer(n, card, LINK_WIDTH, 64);
    r->ecc_corrected = nvml_number(n, card, ECC_CORRECTED, 1);
    r->ecc_uncorrected = nvml_number(n, card, ECC_UNCORRECTED, 1);
    r->partitions = -1;
    if (nvml_ask(n, card, MIG_MODE, &a)) {
        const double parts = a.value[0] ? nvml_number(n, card, MIG_DEVICES, 1) : 0;
        r->partitions = isnan(parts) ? 0 : (int)parts;
    }
    nvml_processes(n, card, r);
}

static void nvml_sample(void *state, const char *root, const struct gpu_due *due, int64_t now_ns,
                        struct gpu_reading *reading)
{
    struct nvml *n = state;
    struct gpu_answer a;
    (void)root;
    for (int i = 0; n->library && i < n->library->devices; i++) {
        struct gpu_reading *r = &reading[i];
        if (due->busy) {
            const bool known = nvml_ask(n, i, BUSY, &a);
            r->busy_ratio = known && a.value[0] <= 100 ? (double)a.value[0] / 100 : NAN;
            r->memory_busy_ratio = known && a.value[1] <= 100 ? (double)a.value[1] / 100 : NAN;
        }
        if (due->memory) nvml_memory(n, i, r);
        if (due->clock) {
            r->core_hertz = nvml_number(n, i, CLOCK_CORE, 1e6);
            r->memory_hertz = nvml_number(n, i, CLOCK_MEMORY, 1e6);
        }
        if (due->throttle) nvml_throttle(n, i, r);
        if (due->power) {
            r->power_watts = nvml_number(n, i, POWER, 1e-3);
            r->power_instant_watts = nvml_number(n, i, POWER_INSTANT, 1e-3);
            r->power_limit_watts = nvml_number(n, i, POWER_LIMIT, 1e-3);
            r->energy_joules = nvml_number(n, i, ENERGY, 1e-3);
        }
        if (due->slow) nvml_slow(n, i, r);
        nvml_traffic(n, i, due, now_ns, r);
        if (n->card[i].lost) {
            gpu_reading_forget(r);
            r->lost = true;
        }
    }
    if (due->slow && n->library) n->next_throughput = (n->next_throughput + 1) % n->library->devices;
}

/* ---------------------------------------------------------------- identification */

/* Lists the cards that the kernel module names. */
static void proc_identify(const char *root, struct gpu_list *list)
{
    struct sys_list cards;
    char text[2048], name[96], version[512];
    sys_list(&cards, root, "", "/proc/driver/nvidia/gpus");
    for (int i = 0; i < cards.count; i++) {
        sys_read(root, text, sizeof text, "/proc/driver/nvidia/gpus/%s/information", cards.name[i]);
        if (!sys_text_field(text, "Model", name, sizeof name)) continue;
        struct gpu_identity *g = gpu_list_add(list, "nvidia", "kernel");
        if (!g) return;
        memcpy(g->name, name, sizeof g->name);
        snprintf(g->bus, sizeof g->bus, "%.23s", cards.name[i]);
        sys_read(root, version, sizeof version, "/sys/module/nvidia/version");
        snprintf(g->driver, sizeof g->driver, "%.47s", version);
    }
}

static void library_identify(struct nvml *n, struct gpu_list *list)
{
    for (int i = 0; i < n->library->devices; i++) {
        struct gpu_identity *g = gpu_list_add(list, "nvidia", "nvml");
        struct gpu_answer a;
        if (!g) {
            n->library->devices = i; /* the list is full */
            return;
        }
        if (nvml_ask(n, i, NAME, &a))
            snprintf(g->name, sizeof g->name, "%s", a.text);
        else
            snprintf(g->name, sizeof g->name, "NVIDIA GPU %d", i);
        if (nvml_ask(n, i, DRIVER, &a)) snprintf(g->driver, sizeof g->driver, "%.47s", a.text);
        if (nvml_ask(n, i, BUS, &a))
            snprintf(g->bus, sizeof g->bus, "%04x:%02x:%02x.0", (unsigned)a.value[0] & 0xffffff,
                     (unsigned)a.value[1] & 0xff, (unsigned)a.value[2] & 0xff);
        if (nvml_ask(n, i, MEMORY_2, &a) || nvml_ask(n, i, MEMORY_1, &a))
            g->memory_bytes = a.value[0] <= INT64_MAX ? (int64_t)a.value[0] : -1;
        if (nvml_ask(n, i, CAPABILITY, &a) && a.value[0] < 1000 && a.value[1] < 1000) {
            g->compute_major = (int)a.value[0];
            g->compute_minor = (int)a.value[1];
        }
    }
}

/* Explains why a card that only the kernel names has no readings. */
static void explain_trouble(struct gpu_identity *g, const struct err *missing)
{
    if (!strcmp(g->driver, "nouveau"))
        snprintf(g->trouble, sizeof g->trouble,
                 "its driver nouveau provides no sensors: install NVIDIA's driver");
    else if (strstr(missing->message, "cannot be used"))
        snprintf(g->trouble, sizeof g->trouble, "%.159s", missing->message);
    else
        snprintf(g->trouble, sizeof g->trouble,
                 "its sensors need %s, which comes with NVIDIA's driver (Debian: libnvidia-ml1)", NVML.file);
}

static void nvml_close(void *state)
{
    struct nvml *n = state;
    if (n) gpu_library_close(n->library);
    free(n);
}

static enum err_code nvml_open(void **state, const char *root, struct gpu_list *list, struct err *why)
{
    const int before = list->count;
    struct nvml *n = calloc(1, sizeof *n);
    if (!n) return err_set(why, ERR_NOMEM, "out of memory opening the NVIDIA sensors");
    struct err missing = { 0 };
    const enum err_code rc = gpu_library_open(&n->library, &NVML, root, &missing);
    if (rc) err_set(why, rc, "%s", missing.message);
    if (!rc) {
        library_identify(n, list);
    } else {
        proc_identify(root, list);
        if (list->count == before) {
            struct drm_cards cards;
            drm_cards_find(&cards, root, "0x10de");
            drm_cards_identify(list, root, &cards, "nvidia", "kernel");
        }
        for (int i = before; i < list->count; i++) explain_trouble(&list->gpu[i], &missing);
    }
    if (list->count == before) {
        nvml_close(n);
        return rc ? rc : ERR_ABSENT;
    }
    *state = n;
    return ERR_OK;
}

const struct gpu_vendor GPU_VENDOR_NVML = {
    .name = "nvml", .open = nvml_open, .sample = nvml_sample, .close = nvml_close, .library = &NVML
};
