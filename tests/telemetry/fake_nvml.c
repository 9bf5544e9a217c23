/* tests/telemetry/fake_nvml.c - a library with NVML's interface and cards that exist nowhere.
 *
 * QDYNO_FAKE_NVML: "broken" (nvmlInit fails), "empty" (no device), "partial" (the first card knows only its
 * memory, the old way), "denied" (no permission for processes and errors), "throttled", "lost" (the second
 * card falls off the bus after the first look at it), "mig" (the first card is cut into three, numbers 0, 2
 * and 5), "crowd" (more processes than anybody asks for), "many" (eight cards); anything else: two healthy
 * cards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS,
    UNINITIALIZED = 1,
    INVALID = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    MOST = 8
};

static int started, looks;
static char cards[MOST];

static int mode_is(const char *name)
{
    const char *mode = getenv("QDYNO_FAKE_NVML");
    return mode && !strcmp(mode, name);
}

static unsigned count(void)
{
    return mode_is("empty") ? 0 : mode_is("many") ? MOST : 2;
}

/* The card's number, or -1: no such card, or one that was asked before nvmlInit. */
static int card(const void *device)
{
    for (int i = 0; started && i < MOST; i++)
        if (device == &cards[i]) return i;
    return -1;
}

static int healthy(const void *device)
{
    if (card(device) < 0) return INVALID;
    return mode_is("lost") && card(device) == 1 && looks > 1 ? GPU_IS_LOST : SUCCESS;
}

static int lacks(const void *device)
{
    if (healthy(device)) return healthy(device);
    return mode_is("partial") && card(device) == 0 ? NOT_SUPPORTED : SUCCESS;
}

/* Most functions return one number of a card, or "not supported". */
#define NUMBER(name, type, value)                                                                            \
    int name(void *device, type *out);                                                                       \
    int name(void *device, type *out)                                                                        \
    {                                                                                                        \
        if (lacks(device)) return lacks(device);                                                             \
        *out = (type)(value);                                                                                \
        return SUCCESS;                                                                                      \
    }
NUMBER(nvmlDeviceGetPowerUsage, unsigned, card(device) ? 100500 : 200000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 400000)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long,
       5000000000ull + 1500ull * (unsigned)card(device))
NUMBER(nvmlDeviceGetFanSpeed, unsigned, 30 + card(device))
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 4)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long,
       mode_is("throttled") && card(device) ? 0x20 | 0x4 : 0x1) /* idle holds nothing back */

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    if (mode_is("broken")) return DRIVER_NOT_LOADED;
    started++;
    looks = 0;
    return SUCCESS;
}

int nvmlShutdown(void);
int nvmlShutdown(void)
{
    if (!started) abort(); /* a shutdown too many is a bug of the caller */
    started--;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = count();
    return started ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    if (i >= count()) return INVALID;
    *device = &cards[i];
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *buf, unsigned size);
int nvmlSystemGetDriverVersion(char *buf, unsigned size)
{
    snprintf(buf, size, "550.00.01");
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *buf, unsigned size);
int nvmlDeviceGetName(void *device, char *buf, unsigned size)
{
    if (healthy(device)) return healthy(device);
    snprintf(buf, size, "Imaginary GPU %d", card(device));
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *buf, unsigned size);
int nvmlDeviceGetUUID(void *device, char *buf, unsigned size)
{
    if (lacks(device)) return lacks(device);
    snprintf(buf, size, "GPU-0a1b2c3d-0000-0000-0000-00000000000%d", card(device));
    return SUCCESS;
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char id[32];
};
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *out);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *out)
{
    if (lacks(device)) return lacks(device);
    memset(out, 0, sizeof *out);
    out->domain = 0;
    out->bus = 0x3b + (unsigned)card(device);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    if (lacks(device)) return lacks(device);
    *major = 9;
    *minor = card(device);
    return SUCCESS;
}

/* The old way counts what the driver keeps as used. */
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
    if (healthy(device)) return healthy(device);
    memory[0] = 1000000000ull * (unsigned)(card(device) + 1); /* total, free, used */
    memory[2] = 250000000ull;
    memory[1] = memory[0] - memory[2];
    return SUCCESS;
}

struct memory2 {
    unsigned version;
    unsigned long long total, reserved, left, used;
};
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory2 *m);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory2 *m)
{
    if (lacks(device)) return lacks(device);
    if (m->version != (sizeof *m | 2 << 24)) return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    m->total = 1000000000ull * (unsigned)(card(device) + 1);
    m->reserved = 50000000ull;
    m->left = m->total - 250000000ull;
    m->used = 200000000ull;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned busy[2]);
int nvmlDeviceGetUtilizationRates(void *device, unsigned busy[2])
{
    if (card(device) == 1) looks++;
    if (lacks(device)) return lacks(device);
    if (mode_is("mig") && card(device) == 0) return NOT_SUPPORTED; /* as the driver does */
    busy[0] = card(device) ? 40 : 85;
    busy[1] = 33;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    if (lacks(device) || sensor != 0) return lacks(device) ? lacks(device) : NOT_SUPPORTED;
    *celsius = card(device) ? 71 : 65;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    if (lacks(device)) return lacks(device);
    *mhz = type == 1   ? (card(device) ? 1410 : 1980)
           : type == 2 ? 2619
                       : 7; /* 1: multiprocessors, 2: memory */
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *mhz)
{
    if (lacks(device)) return lacks(device);
    *mhz = type == 1 ? 1980 : 7;
    return SUCCESS;
}

/* The first card counts its traffic, see the fields below; the second only measures it. */
int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *kb_s);
int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *kb_s)
{
    if (lacks(device)) return lacks(device);
    *kb_s = counter ? 3000 : 2000; /* 0: sent, 1: received */
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *n);
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *n)
{
    if (lacks(device)) return lacks(device);
    if (mode_is("denied")) return NO_PERMISSION;
    *n = counter ? 99 : type ? 1 : 12; /* 0: corrected, 1: not; counter 0: since the driver was loaded */
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later)
{
    if (lacks(device)) return lacks(device);
    if (card(device)) return NOT_SUPPORTED;
    *now = *later = (unsigned)mode_is("mig");
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned i, void **part);
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned i, void **part)
{
    if (lacks(device)) return lacks(device);
    if (i > 6) return INVALID;
    if (!mode_is("mig") || card(device) || (i != 0 && i != 2 && i != 5)) return 6; /* NVML_ERROR_NOT_FOUND */
    *part = &cards[0];
    return SUCCESS;
}

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, code;
    union {
        unsigned ui;
        unsigned long long ull;
    } value;
};
int nvmlDeviceGetFieldValues(void *device, int n, struct field *f);
int nvmlDeviceGetFieldValues(void *device, int n, struct field *f)
{
    static unsigned long long sent;
    if (lacks(device)) return lacks(device);
    for (int i = 0; i < n; i++) {
        f[i].type = 1;
        f[i].code = SUCCESS;
        switch (f[i].id) {
        case 82: f[i].value.ui = 80; break;
        case 186: f[i].value.ui = 210000; break;
        case 197:
        case 198:
            f[i].type = 3;
            f[i].code = card(device) ? NOT_SUPPORTED : SUCCESS;
            f[i].value.ull = sent += 1000;
            break;
        default: f[i].code = NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
static int processes(void *device, unsigned *n, struct process *out, const struct process *all, unsigned have)
{
    if (lacks(device)) return lacks(device);
    if (mode_is("denied")) return NO_PERMISSION;
    if (card(device)) have = 0;
    const int fits = *n >= have && !mode_is("crowd");
    *n = have;
    if (!fits) return INSUFFICIENT_SIZE;
    if (have) memcpy(out, all, have * sizeof *out);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *out);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *out)
{
    static const struct process ALL[] = { { 4001, 100, 0, 0 }, { 4002, 300, 0, 0 }, { 4003, -1ull, 0, 0 } };
    return processes(device, n, out, ALL, 3);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *n, struct process *out);
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *n, struct process *out)
{
    static const struct process ALL[] = { { 4001, 100, 0, 0 }, { 4004, 200, 0, 0 } }; /* 4001 does both */
    return processes(device, n, out, ALL, 2);
}
