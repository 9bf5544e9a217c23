/* telemetry/gpu/gpu_nvml.c - NVIDIA GPUs through the driver's own library, loaded only when it is there.
 *
 * libnvidia-ml.so.1 comes with the driver and keeps its functions' binary interface, so we declare what we
 * use (names, numbers and structures as in NVIDIA's NVML API reference) and link nothing. QDYNO_NVML names
 * another library file. Each function and each value is optional: what one card, driver or permission does
 * not give is unknown, for that card. A card that fell off the bus is unknown from then on.
 *
 * Without the library (or in a recording without its answers) the kernel's files still name the cards. */
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

/* How a function is called. */
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

enum nvml_question {
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
    [UUID] = { "nvmlDeviceGetUUID", TEXT, .secret = true },
    [DRIVER] = { .key = "nvmlSystemGetDriverVersion", .shape = SYSTEM_TEXT },
    [BUS] = { "nvmlDeviceGetPciInfo_v3", PCI, .part = { "domain", "bus", "device" } },
    [CAPABILITY] = { "nvmlDeviceGetCudaComputeCapability", TWO, .part = { "major", "minor" } },
    [MEMORY_2] = { "nvmlDeviceGetMemoryInfo_v2", MEMORY2, .part = { "total", "reserved", "free", "used" } },
    [MEMORY_1] = { "nvmlDeviceGetMemoryInfo", MEMORY, .part = { "total", "free", "used" } },
    [BUSY] = { "nvmlDeviceGetUtilizationRates", TWO_STRUCT, .part = { "gpu", "memory" } },
    [POWER] = { "nvmlDeviceGetPowerUsage", NUMBER, .part = { "mW" } },
    [POWER_LIMIT] = { "nvmlDeviceGetEnforcedPowerLimit", NUMBER, .part = { "mW" } },
    [POWER_INSTANT] = { "nvmlDeviceGetFieldValues(186)", FIELD, NVML_FI_POWER_INSTANT, .part = { "mW" } },
    [ENERGY] = { "nvmlDeviceGetTotalEnergyConsumption", LONG, .part = { "mJ" } },
    [TEMPERATURE] = { "nvmlDeviceGetTemperature(0)", OF_KIND, 0, .part = { "C" } },
    [MEMORY_TEMPERATURE] = { "nvmlDeviceGetFieldValues(82)", FIELD, NVML_FI_MEMORY_TEMP, .part = { "C" } },
    [FAN] = { "nvmlDeviceGetFanSpeed", NUMBER, .part = { "%" } },
    [CLOCK_CORE] = { "nvmlDeviceGetClockInfo(1)", OF_KIND, NVML_CLOCK_SM, .part = { "MHz" } },
    [CLOCK_CORE_MAX] = { "nvmlDeviceGetMaxClockInfo(1)", OF_KIND, NVML_CLOCK_SM, .part = { "MHz" } },
    [CLOCK_MEMORY] = { "nvmlDeviceGetClockInfo(2)", OF_KIND, NVML_CLOCK_MEM, .part = { "MHz" } },
    [REASONS] = { "nvmlDeviceGetCurrentClocksEventReasons", LONG, .part = { "bits" } },
    [REASONS_OLD] = { "nvmlDeviceGetCurrentClocksThrottleReasons", LONG, .part = { "bits" } },
    [LINK_GENERATION] = { "nvmlDeviceGetCurrPcieLinkGeneration", NUMBER, .part = { "generation" } },
    [LINK_WIDTH] = { "nvmlDeviceGetCurrPcieLinkWidth", NUMBER, .part = { "lanes" } },
    [PCIE_COUNT_TX] = { "nvmlDeviceGetFieldValues(197)", FIELD, NVML_FI_PCIE_TX, .part = { "bytes" } },
    [PCIE_COUNT_RX] = { "nvmlDeviceGetFieldValues(198)", FIELD, NVML_FI_PCIE_RX, .part = { "bytes" } },
    [PCIE_TX] = { "nvmlDeviceGetPcieThroughput(0)", OF_KIND, NVML_PCIE_TX, .part = { "KB/s" } },
    [PCIE_RX] = { "nvmlDeviceGetPcieThroughput(1)", OF_KIND, NVML_PCIE_RX, .part = { "KB/s" } },
    [ECC_CORRECTED] = { "nvmlDeviceGetTotalEccErrors(0,0)", ECC, NVML_ECC_CORRECTED, NVML_ECC_VOLATILE,
                        .part = { "errors" } },
    [ECC_UNCORRECTED] = { "nvmlDeviceGetTotalEccErrors(1,0)", ECC, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE,
                          .part = { "errors" } },
    [MIG_MODE] = { "nvmlDeviceGetMigMode", TWO, .part = { "current", "pending" } },
    [MIG_DEVICES] = { "nvmlDeviceGetMigDeviceHandleByIndex", PARTITIONS, .part = { "devices" } },
    [COMPUTE] = { "nvmlDeviceGetComputeRunningProcesses_v3", PROCESSES, .secret = true, .part = { "[]" } },
    [GRAPHICS] = { "nvmlDeviceGetGraphicsRunningProcesses_v3", PROCESSES, .secret = true, .part = { "[]" } },
};
_Static_assert((int)QUERIES <= (int)LIBRARY_QUERIES, "a slot for each query");

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
    for (unsigned i = 0; i < n && l->devices < MACHINE_GPUS; i++) /* one that may not be seen is left out */
        if (!handle(i, &l->device[l->devices])) l->devices++;
    return 0;
}

static void nvml_stop(struct gpu_library *l)
{
    nvml_return (*shutdown)(void) = gpu_library_symbol(l, "nvmlShutdown");
    if (shutdown) shutdown();
}

static uint64_t field_value(const struct nvml_field *f)
{
    switch (f->type) {
    case 0: return f->value.d >= 0 ? (uint64_t)f->value.d : UINT64_MAX;
    case NVML_UNSIGNED_INT: return f->value.ui;
    case 2: return f->value.ul;
    case 3: return f->value.ull;
    case 4: return f->value.sll >= 0 ? (uint64_t)f->value.sll : UINT64_MAX;
    case 5: return f->value.si >= 0 ? (uint64_t)f->value.si : UINT64_MAX;
    case 6: return f->value.us;
    default: return UINT64_MAX; /* a type newer than this program */
    }
}

static nvml_return call_field(void *fn, void *d, const struct gpu_query *q, struct gpu_answer *out)
{
    struct nvml_field f = { .id = (unsigned)q->argument };
    nvml_return code = ((nvml_return(*)(void *, int, struct nvml_field *))fn)(d, 1, &f);
    if (!code) code = f.code;
    out->value[0] = field_value(&f);
    /* 32 bits of bytes wrap within a second, and nobody could tell how often */
    const bool counts = q->argument == NVML_FI_PCIE_TX || q->argument == NVML_FI_PCIE_RX;
    return !code && counts && f.type == NVML_UNSIGNED_INT ? NVML_ERROR_NOT_SUPPORTED : code;
}

static nvml_return call_processes(void *fn, void *d, struct gpu_answer *out)
{
    struct nvml_process list[ANSWER_VALUES / 2];
    unsigned n = COUNT_OF(list);
    const nvml_return code = ((nvml_return(*)(void *, unsigned *, struct nvml_process *))fn)(d, &n, list);
    /* more than fit: NVML_ERROR_INSUFFICIENT_SIZE, unknown */
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

/* The parts of a card in MIG mode have numbers of their own, with gaps where one was taken away. */
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
        { LIBRARY_NO_ANSWER, "it is no library of NVIDIA's" },
        { 4, "this user may not use /dev/nvidia*: see its permissions, or the container's list of devices" },
        { 9, "NVIDIA's kernel module is not loaded: modprobe nvidia" },
        { 15, "a GPU has fallen off the bus: see the kernel's log, then reset it or reboot" },
        { 17, "the system or the container keeps it from the device files" },
        { 18, "library and kernel module are of different versions, as after an update: reboot" },
    };
    for (size_t i = 0; i < COUNT_OF(CODES); i++)
        if (CODES[i].code == code) return CODES[i].text;
    return NULL;
}

static const struct gpu_library_kind NVML = {
    "nvml",     "libnvidia-ml.so.1", "QDYNO_NVML", NVML_QUERIES, QUERIES,
    nvml_start, nvml_stop,           nvml_call,    nvml_explain,
};

/* ---------------------------------------------------------------- what the answers mean */

struct nvml {
    struct gpu_library *library; /* NULL: only named */
    struct {
        bool lost, counts_pcie;
        struct rate rx, tx;
    } card[MACHINE_GPUS];
    int next_throughput; /* the card whose PCIe traffic is measured next: see traffic */
};

static bool ask(struct nvml *n, int card, enum nvml_question q, struct gpu_answer *a)
{
    if (n->card[card].lost) return false;
    const int code = gpu_library_query(n->library, card, q, a);
    n->card[card].lost |= code == NVML_ERROR_GPU_IS_LOST;
    return !code;
}

/* A number, scaled; NAN when it is not told. */
static double number(struct nvml *n, int card, enum nvml_question q, double scale)
{
    struct gpu_answer a;
    return ask(n, card, q, &a) && a.value[0] != UINT64_MAX ? (double)a.value[0] * scale : NAN;
}

static int whole(struct nvml *n, int card, enum nvml_question q, int most)
{
    const double v = number(n, card, q, 1);
    return v >= 0 && v <= most ? (int)v : -1;
}

/* What is taken from programs: the part the driver keeps for itself is neither theirs nor free. The older
 * call counts it as used. */
static void memory(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer a;
    r->mem_used_bytes = r->mem_total_bytes = NAN;
    if (ask(n, card, MEMORY_2, &a)) {
        const uint64_t total = a.value[0], reserved = a.value[1], left = a.value[2];
        r->mem_total_bytes = (double)total;
        if (reserved + left <= total) r->mem_used_bytes = (double)(total - reserved - left);
    } else if (ask(n, card, MEMORY_1, &a)) {
        r->mem_total_bytes = (double)a.value[0];
        r->mem_used_bytes = (double)a.value[2];
    }
}

static void throttle(struct nvml *n, int card, struct gpu_reading *r)
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
    r->throttle_known = ask(n, card, REASONS, &a) || ask(n, card, REASONS_OLD, &a);
    if (!r->throttle_known) return;
    uint64_t rest = a.value[0];
    for (size_t i = 0; i < COUNT_OF(BITS); i++) {
        if (rest & BITS[i].theirs) r->throttle_reasons |= BITS[i].ours;
        rest &= ~BITS[i].theirs;
    }
    if (rest) r->throttle_reasons |= GPU_THROTTLE_OTHER;
}

static bool list_has(const struct gpu_answer *list, uint64_t pid)
{
    for (int i = 0; i + 1 < list->count; i += 2)
        if (list->value[i] == pid) return true;
    return false;
}

/* A process that both computes and draws is in both lists. */
static void processes(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer lists[2];
    r->processes = -1;
    r->process_count = 0;
    for (int k = 0; k < 2; k++) {
        if (!ask(n, card, k ? GRAPHICS : COMPUTE, &lists[k])) {
            lists[k].count = 0;
            continue;
        }
        r->processes = MAX(r->processes, 0);
        for (int i = 0; i + 1 < lists[k].count; i += 2) {
            const uint64_t bytes = lists[k].value[i + 1];
            if (k && list_has(&lists[0], lists[k].value[i])) continue;
            gpu_process_add(r, (int)lists[k].value[i], bytes == UINT64_MAX ? NAN : (double)bytes);
        }
    }
}

/* Newer cards count the bytes. Others only offer to watch their link for 20 ms, which keeps the caller
 * waiting: one card at a time then, at the slowest period. */
static void traffic(struct nvml *n, int card, const struct gpu_due *due, int64_t now_ns,
                    struct gpu_reading *r)
{
    if (due->clock) {
        const double tx = number(n, card, PCIE_COUNT_TX, 1), rx = number(n, card, PCIE_COUNT_RX, 1);
        n->card[card].counts_pcie |= !isnan(tx) && !isnan(rx);
        if (n->card[card].counts_pcie) {
            r->pcie_tx_bytes_s = rate_next(&n->card[card].tx, tx, 0, now_ns);
            r->pcie_rx_bytes_s = rate_next(&n->card[card].rx, rx, 0, now_ns);
        }
    }
    if (due->slow && card == n->next_throughput && !n->card[card].counts_pcie) {
        r->pcie_tx_bytes_s = number(n, card, PCIE_TX, 1e3);
        r->pcie_rx_bytes_s = number(n, card, PCIE_RX, 1e3);
    }
}

static void slow(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer a;
    if (!*r->uuid && ask(n, card, UUID, &a)) snprintf(r->uuid, sizeof r->uuid, "%.47s", a.text);
    r->temperature_celsius = number(n, card, TEMPERATURE, 1);
    r->memory_temperature_celsius = number(n, card, MEMORY_TEMPERATURE, 1);
    r->fan_ratio = number(n, card, FAN, 1e-2);
    r->core_max_hertz = number(n, card, CLOCK_CORE_MAX, 1e6);
    r->pcie_generation = whole(n, card, LINK_GENERATION, 16);
    r->pcie_width = whole(n, card, LINK_WIDTH, 64);
    r->ecc_corrected = number(n, card, ECC_CORRECTED, 1);
    r->ecc_uncorrected = number(n, card, ECC_UNCORRECTED, 1);
    r->partitions = -1;
    if (ask(n, card, MIG_MODE, &a)) {
        const double parts = a.value[0] ? number(n, card, MIG_DEVICES, 1) : 0;
        r->partitions = isnan(parts) ? 0 : (int)parts;
    }
    processes(n, card, r);
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
            const bool known = ask(n, i, BUSY, &a);
            r->busy_ratio = known && a.value[0] <= 100 ? (double)a.value[0] / 100 : NAN;
            r->memory_busy_ratio = known && a.value[1] <= 100 ? (double)a.value[1] / 100 : NAN;
        }
        if (due->memory) memory(n, i, r);
        if (due->clock) {
            r->core_hertz = number(n, i, CLOCK_CORE, 1e6);
            r->memory_hertz = number(n, i, CLOCK_MEMORY, 1e6);
        }
        if (due->throttle) throttle(n, i, r);
        if (due->power) {
            r->power_watts = number(n, i, POWER, 1e-3);
            r->power_instant_watts = number(n, i, POWER_INSTANT, 1e-3);
            r->power_limit_watts = number(n, i, POWER_LIMIT, 1e-3);
            r->energy_joules = number(n, i, ENERGY, 1e-3);
        }
        if (due->slow) slow(n, i, r);
        traffic(n, i, due, now_ns, r);
        if (n->card[i].lost) {
            gpu_reading_forget(r);
            r->lost = true;
        }
    }
    if (due->slow && n->library) n->next_throughput = (n->next_throughput + 1) % n->library->devices;
}

/* ---------------------------------------------------------------- who is there */

/* Without the library (or recorded without it) the kernel module still names its cards. */
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
            n->library->devices = i; /* as many as the list has room for */
            return;
        }
        if (ask(n, i, NAME, &a))
            snprintf(g->name, sizeof g->name, "%s", a.text);
        else
            snprintf(g->name, sizeof g->name, "NVIDIA GPU %d", i);
        if (ask(n, i, DRIVER, &a)) snprintf(g->driver, sizeof g->driver, "%.47s", a.text);
        if (ask(n, i, BUS, &a))
            snprintf(g->bus, sizeof g->bus, "%04x:%02x:%02x.0", (unsigned)a.value[0] & 0xffffff,
                     (unsigned)a.value[1] & 0xff, (unsigned)a.value[2] & 0xff);
        if (ask(n, i, MEMORY_2, &a) || ask(n, i, MEMORY_1, &a))
            g->memory_bytes = a.value[0] <= INT64_MAX ? (int64_t)a.value[0] : -1;
        if (ask(n, i, CAPABILITY, &a) && a.value[0] < 1000 && a.value[1] < 1000) {
            g->compute_major = (int)a.value[0];
            g->compute_minor = (int)a.value[1];
        }
    }
}

/* A card that only the kernel names. */
static void tell_trouble(struct gpu_identity *g, const struct err *missing)
{
    if (!strcmp(g->driver, "nouveau"))
        snprintf(g->trouble, sizeof g->trouble,
                 "driven by nouveau, which has no sensors: install NVIDIA's driver");
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
        for (int i = before; i < list->count; i++) tell_trouble(&list->gpu[i], &missing);
    }
    if (list->count == before) {
        nvml_close(n);
        return rc ? rc : ERR_ABSENT;
    }
    *state = n;
    return ERR_OK;
}

const struct gpu_vendor GPU_VENDOR_NVML = { "nvml", nvml_open, nvml_sample, nvml_close, &NVML };
