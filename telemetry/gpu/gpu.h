/* telemetry/gpu/gpu.h - the GPUs of this machine: what each one is, and its current readings.
 *
 * Values that a device, its driver or missing permissions do not provide are NAN or -1, field by field. Base
 * units throughout; ratios are 0 to 1. */
#ifndef QDYNO_TELEMETRY_GPU_H
#define QDYNO_TELEMETRY_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/fields/fields.h"

enum { MACHINE_GPUS = 16 }; /* the most GPUs one server holds; further ones are ignored */

/* Reasons why a GPU lowers its clocks. The code of each vendor maps the vendor's own bits to these. */
enum gpu_throttle_bit {
    GPU_THROTTLE_POWER_CAP = 1 << 0,     /* the board's power limit, or a lower one that someone set */
    GPU_THROTTLE_THERMAL = 1 << 1,       /* temperature: the driver lowers the clocks */
    GPU_THROTTLE_HW_THERMAL = 1 << 2,    /* temperature: the hardware at least halves the clocks */
    GPU_THROTTLE_HW_SLOWDOWN = 1 << 3,   /* the hardware lowers the clocks and gives no reason */
    GPU_THROTTLE_POWER_BRAKE = 1 << 4,   /* the power supply or the server asserts the brake signal */
    GPU_THROTTLE_CURRENT = 1 << 5,       /* current limit of a voltage regulator */
    GPU_THROTTLE_RELIABILITY = 1 << 6,   /* voltage limit that protects the chip's lifetime */
    GPU_THROTTLE_CLOCK_SETTING = 1 << 7, /* someone set the clocks */
    GPU_THROTTLE_SYNC_BOOST = 1 << 8,    /* another GPU of the same synchronized group limits it */
    GPU_THROTTLE_IDLE = 1 << 9,          /* the GPU has no work */
    GPU_THROTTLE_OTHER = 1 << 10,        /* a vendor's reason that has no bit here */
};
struct gpu_throttle {
    uint64_t bit;
    const char *name; /* "power_cap": in scripts and as label `reason` */
    bool limits;      /* the GPU runs slower than requested; false for idle and for clocks someone set */
    const char *help;
};
enum { GPU_THROTTLE_COUNT = 11 };
extern const struct gpu_throttle GPU_THROTTLES[GPU_THROTTLE_COUNT]; /* row i is bit 1 << i */
/* "power_cap thermal", "none" for 0. Returns buf. */
const char *gpu_throttle_names(uint64_t reasons, char *buf, size_t size);

struct gpu_identity {
    char vendor[16]; /* "nvidia" "amd" "intel"; OpenCL devices: "arm" "qualcomm" ..., "opencl" when unknown */
    char name[96], driver[48];
    char source[16];      /* which vendor code found it: "nvml" "amdgpu" "intel" "opencl" "kernel" */
    char bus[24];         /* PCI address "0000:3b:00.0"; "" unknown */
    int64_t memory_bytes; /* -1 unknown */
    int compute_major, compute_minor; /* -1: not NVIDIA or unknown */
    char trouble[160];                /* why its sensors cannot be read and what to do; "": they can */
};

enum { GPU_PROCESSES = 8 };
struct gpu_process {
    int pid;
    double mem_used_bytes; /* NAN: the driver does not report it */
};

/* The current readings of one device. Each field holds the value of the last time it was due. */
struct gpu_reading {
    char vendor[16], name[96], uuid[48], bus[24];
    int index;         /* position in the list; the same as in struct machine's gpu[] */
    bool lost;         /* the device no longer answers on the bus; all readings stay unknown from then on */
    int partitions;    /* MIG partitions; 0: not partitioned, -1: unknown */
    int processes;     /* processes that use the device; -1: unknown */
    int process_count; /* rows of process[]: those that use the most memory, largest first */
    struct gpu_process process[GPU_PROCESSES];

    double busy_ratio;        /* share of time in which a kernel ran */
    double memory_busy_ratio; /* share of time in which its memory was accessed */
    double mem_used_bytes, mem_total_bytes;
    double host_mem_used_bytes; /* main memory it uses besides its own (AMD: GTT) */
    double power_watts;         /* what the vendor's tool shows: an average over up to 1 s */
    double power_instant_watts; /* not averaged; NAN unless the device reports both */
    double power_limit_watts;
    double energy_joules; /* the starting point differs by driver: use differences only */
    double temperature_celsius, hotspot_temperature_celsius, memory_temperature_celsius;
    double fan_ratio; /* 1: full speed */
    double core_hertz, core_max_hertz, memory_hertz;
    int pcie_generation, pcie_width;             /* of the link at present; -1: unknown */
    double pcie_rx_bytes_s, pcie_tx_bytes_s;     /* received, sent by the GPU */
    double ecc_corrected, ecc_uncorrected;       /* memory errors since the driver was loaded */
    bool throttle_known;                         /* false: the next two fields are not valid */
    uint64_t throttle_reasons;                   /* GPU_THROTTLE_* bits */
    double throttle_seconds[GPU_THROTTLE_COUNT]; /* time with each reason since opening */
};

/* Every numeric field of a reading by name, for code that shows all of them. */
enum { GPU_FIELD_COUNT = 20 };
extern const struct json_field GPU_FIELDS[GPU_FIELD_COUNT]; /* JSON_FIELD_NUM: "power_watts" */
double gpu_field_get(const struct gpu_reading *r, const struct json_field *f); /* NAN: unknown */
/* All fields of a reading; unknown values become null. New reference. */
json_t *gpu_reading_to_json(const struct gpu_reading *r);

/* ---------------------------------------------------------------- finding and reading devices */

/* The fields of struct gpu_reading that one sampling step shall update; the others keep their values. */
struct gpu_due {
    bool busy;     /* busy_ratio, memory_busy_ratio */
    bool memory;   /* mem_*, host_mem_* */
    bool clock;    /* core_hertz, memory_hertz, pcie_*_bytes_s */
    bool throttle; /* throttle_* */
    bool power;    /* power_*, energy_joules */
    bool slow;     /* all others: temperatures, fan, processes, errors, link, maximum clocks */
};

/* Identifies the devices without keeping them open. Returns their number, at most MACHINE_GPUS. */
int gpu_identify(const char *root, struct gpu_identity gpu[MACHINE_GPUS]);

struct gpu_set; /* all devices of all vendors, open */
/* Errors: ERR_ABSENT (no device; *why holds each vendor's reason), ERR_NOMEM. *out: gpu_set_close. `root` is
 * borrowed while the set is open. */
enum err_code gpu_set_open(struct gpu_set **out, const char *root, struct err *why);
void gpu_set_close(struct gpu_set *g);
int gpu_set_count(const struct gpu_set *g);
/* Updates what is due and returns the readings of all devices [gpu_set_count]. Borrowed until
 * gpu_set_close. */
struct gpu_reading *gpu_set_sample(struct gpu_set *g, const struct gpu_due *due, int64_t now_ns);

/* ---------------------------------------------------------------- recording */

/* The vendors' libraries, for telemetry/recording. gpu_library_name: the name of the i-th vendor's library
 * ("nvml"; in a recording its answers are nvml.json), NULL for a vendor whose code reads files only. */
enum { GPU_VENDOR_COUNT = 4 };
const char *gpu_library_name(int vendor);
/* All answers of that vendor's library on this machine; NULL when the library is not installed or has no
 * device. masked: serial numbers, UUIDs and process ids are replaced. New reference. */
json_t *gpu_library_answers(int vendor, bool masked);

#endif
