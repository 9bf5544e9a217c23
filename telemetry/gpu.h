/* telemetry/gpu.h - the GPUs of this machine one by one: what each is and what it is doing (part of the door
 * telemetry.h).
 *
 * METRIC_GPU_* are one number for all of them (sums of memory and power, the highest otherwise), made from
 * these readings. What a device, a driver or a permission does not tell is NAN or -1, for that field alone.
 */
#ifndef QDYNO_TELEMETRY_GPU_H
#define QDYNO_TELEMETRY_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum { MACHINE_GPUS = 16 }; /* as many as any one server holds; the rest is left out */

/* Why a GPU's clocks are lower than they could be. Vendors' own bits are mapped onto these. */
enum gpu_throttle_bit {
    GPU_THROTTLE_POWER_CAP = 1 << 0,     /* the power limit that somebody set, or the board's */
    GPU_THROTTLE_THERMAL = 1 << 1,       /* too hot: the driver lowers the clocks */
    GPU_THROTTLE_HW_THERMAL = 1 << 2,    /* too hot: the hardware halves the clocks or worse */
    GPU_THROTTLE_HW_SLOWDOWN = 1 << 3,   /* the hardware's brake, reason not told */
    GPU_THROTTLE_POWER_BRAKE = 1 << 4,   /* the power supply or the server asked for it */
    GPU_THROTTLE_CURRENT = 1 << 5,       /* electric current of a voltage regulator */
    GPU_THROTTLE_RELIABILITY = 1 << 6,   /* voltage limits that protect the chip's life */
    GPU_THROTTLE_CLOCK_SETTING = 1 << 7, /* somebody set the clocks */
    GPU_THROTTLE_SYNC_BOOST = 1 << 8,    /* another GPU of its group holds it back */
    GPU_THROTTLE_IDLE = 1 << 9,          /* nothing to do */
    GPU_THROTTLE_OTHER = 1 << 10,        /* a reason we have no name for */
};
struct gpu_throttle {
    uint64_t bit;
    const char *name; /* "power_cap": in scripts and as label `reason` */
    bool holds;       /* slower than asked for (not: idle, or as somebody set it) */
    const char *help;
};
enum { GPU_THROTTLE_COUNT = 11 };
extern const struct gpu_throttle GPU_THROTTLES[GPU_THROTTLE_COUNT]; /* row i is bit 1 << i */
/* "power_cap thermal", "none" for 0. Returns buf. */
const char *gpu_throttle_names(uint64_t reasons, char *buf, size_t size);

struct gpu_identity {
    char vendor[16]; /* "nvidia" "amd" "intel"; OpenCL devices: "arm" "qualcomm" ..., "opencl" when unknown */
    char name[96], driver[48];
    char source[16];                  /* who tells: "nvml" "amdgpu" "intel" "opencl" "kernel" */
    char bus[24];                     /* PCI address "0000:3b:00.0"; "" unknown */
    int64_t memory_bytes;             /* -1 unknown */
    int compute_major, compute_minor; /* -1: not NVIDIA or unknown */
    char trouble[160];                /* what keeps its sensors away and what to do about it; "" nothing */
};

enum { GPU_PROCESSES = 8 };
struct gpu_process {
    int pid;
    double mem_used_bytes; /* NAN: not told */
};

/* All of one device that is known now: each field as of the last time it was due. */
struct gpu_reading {
    char vendor[16], name[96], uuid[48], bus[24];
    int index;         /* place in the list, as in struct machine's gpu[] */
    bool lost;         /* fallen off the bus: everything below is unknown from then on */
    int partitions;    /* MIG devices it is cut into, 0: whole, -1 unknown */
    int processes;     /* that use it, -1 unknown; the largest of them: */
    int process_count; /* rows of process[] */
    struct gpu_process process[GPU_PROCESSES];

    double busy_ratio;        /* of time in which a kernel ran */
    double memory_busy_ratio; /* of time in which its memory was read or written */
    double mem_used_bytes, mem_total_bytes;
    double host_mem_used_bytes; /* the machine's memory it uses beside its own (AMD: GTT) */
    double power_watts;         /* as the vendor's tool shows it: averaged over up to a second */
    double power_instant_watts; /* not averaged, where the device tells both */
    double power_limit_watts;
    double energy_joules; /* since the driver was loaded or since we opened it: only differences mean
                             something */
    double temperature_celsius, hotspot_temperature_celsius, memory_temperature_celsius;
    double fan_ratio; /* of the fan's full speed */
    double core_hertz, core_max_hertz, memory_hertz;
    int pcie_generation, pcie_width;             /* of the link now; -1 unknown */
    double pcie_rx_bytes_s, pcie_tx_bytes_s;     /* received and sent by the GPU */
    double ecc_corrected, ecc_uncorrected;       /* memory errors since the driver was loaded */
    bool throttle_known;                         /* false: the two below mean nothing */
    uint64_t throttle_reasons;                   /* GPU_THROTTLE_* */
    double throttle_seconds[GPU_THROTTLE_COUNT]; /* time seen with that reason since we opened it */
};

/* The numbers of a reading, by name: for whoever shows all of them. */
struct gpu_field {
    const char *name; /* of the member: "power_watts" */
    size_t offset;
};
enum { GPU_FIELD_COUNT = 20 };
extern const struct gpu_field GPU_FIELDS[GPU_FIELD_COUNT];
double gpu_field_get(const struct gpu_reading *r, const struct gpu_field *f); /* NAN unknown */
/* Everything of a reading; unknown = null. New reference. */
json_t *gpu_reading_to_json(const struct gpu_reading *r);

struct telemetry;
struct sampler_thread;
/* The devices as of the last sample, at most `max`; returns how many there are. With `out` NULL only the
 * count. */
int telemetry_gpus(const struct telemetry *t, struct gpu_reading *out, int max);
/* The same of a sampling thread. Thread-safe. */
int sampler_gpus(struct sampler_thread *s, struct gpu_reading *out, int max);

#endif
