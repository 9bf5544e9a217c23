/* tests/telemetry/fake_nvml.c - a library with NVML's interface and two cards that exist nowhere.
 *
 * QDYNO_FAKE_NVML: "broken" (nvmlInit fails), "empty" (no device), "partial" (the first card knows only its
 * memory), "throttled"; anything else: two healthy cards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
int nvmlSystemGetDriverVersion(char *buf, unsigned size);
int nvmlDeviceGetName(void *device, char *buf, unsigned size);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]);
int nvmlDeviceGetUtilizationRates(void *device, unsigned busy[2]);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);

enum { SUCCESS, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9 };

static int started;
static char cards[2];

static int mode_is(const char *name)
{
    const char *mode = getenv("QDYNO_FAKE_NVML");
    return mode && !strcmp(mode, name);
}

/* 0 or 1, or -1: no such card, or one that was asked before nvmlInit. */
static int card(void *device)
{
    return started && device == &cards[0] ? 0 : started && device == &cards[1] ? 1 : -1;
}

static int lacks(void *device)
{
    return card(device) < 0 ? INVALID : mode_is("partial") && card(device) == 0 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlInit_v2(void)
{
    if (mode_is("broken")) return DRIVER_NOT_LOADED;
    started++;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    if (!started) abort(); /* a shutdown too many is a bug of the caller */
    started--;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = mode_is("empty") ? 0 : 2;
    return started ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    if (i > 1) return INVALID;
    *device = &cards[i];
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *buf, unsigned size)
{
    snprintf(buf, size, "550.00.01");
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *buf, unsigned size)
{
    if (card(device) < 0) return INVALID;
    snprintf(buf, size, "Imaginary GPU %d", card(device));
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    if (lacks(device)) return lacks(device);
    *major = 9;
    *minor = card(device);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
    if (card(device) < 0) return INVALID;
    memory[0] = 1000000000ull * (unsigned)(card(device) + 1); /* total, free, used */
    memory[2] = 250000000ull;
    memory[1] = memory[0] - memory[2];
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned busy[2])
{
    if (lacks(device)) return lacks(device);
    busy[0] = card(device) ? 40 : 85;
    busy[1] = 99;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    if (lacks(device)) return lacks(device);
    *milliwatts = card(device) ? 100500 : 200000;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    if (lacks(device) || sensor != 0) return NOT_SUPPORTED;
    *celsius = card(device) ? 71 : 65;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    if (lacks(device)) return lacks(device);
    *mhz = type == 1 ? (card(device) ? 1410 : 1980) : 7; /* 1: streaming multiprocessors */
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    if (lacks(device)) return lacks(device);
    *reasons = mode_is("throttled") && card(device) ? 0x20 : 0x1; /* idle holds nothing back */
    return SUCCESS;
}
