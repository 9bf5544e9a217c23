/* telemetry/machine/machine.h - identifies the machine: processor, caches, memory, GPUs, container limits,
 * and the system settings that affect speed.
 *
 * `root` is "" for this machine, or a folder that holds recorded proc/ and sys/ trees. */
#ifndef QDYNO_TELEMETRY_MACHINE_H
#define QDYNO_TELEMETRY_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "telemetry/gpu/gpu.h"

/* Unknown fields are -1, NAN or "". */
struct machine {
    char id[13]; /* fingerprint of the hardware: a hash of CPU, core counts, caches, memory size class and
                    GPUs, none of which changes at a reboot */
    char host[64], kernel[96], os[96], cpu[96], governor[32], hypervisor[32];
    uint32_t isa; /* ISA_* bits detected on this machine, or derived from a recording's CPU flags */
    int sockets, cores, processors, numa_nodes;
    int64_t cache_bytes[3]; /* L1d and L2 of one core, all L3 of the machine */
    int64_t memory_bytes;
    int64_t memory_available_bytes; /* what one more program can allocate within all control group limits */
    int64_t cgroup_memory_bytes;    /* lowest memory limit; -1: no limit */
    double cgroup_cpus;             /* lowest of CPU quota and cpuset, in processors; NAN: no limit */
    int usable_processors;          /* in the affinity mask of this process and in its cpusets */
    int usable_cores;               /* cores that have at least one of them */
    int usable_threads; /* the default for `threads`: see base/usable_cpus.h and machine_threads */
    int gpus;
    struct gpu_identity gpu[MACHINE_GPUS];
    bool has_battery, on_battery;
};

/* Errors: ERR_IO when <root>/proc/cpuinfo cannot be read, ERR_NOMEM. */
enum err_code machine_detect(struct machine *out, const char *root, struct err *why);

/* The default for `threads` on this machine, at least 1. A description of a machine may lack usable_threads:
 * then its cores, at most cgroup_cpus. */
int machine_threads(const struct machine *m);
/* The cores that threads can be put on, at least 1: usable_cores, where a description lacks them the cores.
 */
int machine_usable_cores(const struct machine *m);

/* Unknown fields become null. New reference. */
json_t *machine_to_json(const struct machine *m);
/* ERR_FORMAT: not an object, a newer schema, or an unknown ISA name. */
enum err_code machine_from_json(struct machine *m, const json_t *object, struct err *why);

/* The settings of this machine that affect speed and can change while the hardware stays, by group: "kernel"
 * (release, command line, huge pages, mitigations ...), "governor" (governor, driver, turbo, SMT ...),
 * "microcode". Values are texts as the system writes them; unknown values are null. New reference. */
json_t *machine_state_to_json(const char *root);

/* A short description for a title line: "Xeon 2c AMX·VNNI·BF16 23.0G no GPU". Returns buf. */
const char *machine_short(const struct machine *m, char *buf, size_t size);

/* Which other programs use the processors: "ffmpeg 48 %, cc1 12 %, processes that ended meanwhile 9 %", by
 * program name, shares of the time of all processors during window_ms, in which this call sleeps; "" when
 * none uses 1 % or /proc cannot be read. The processes of `own`, first the calling one, and their descendants
 * are left out. Names are as /proc has them: not safe for a terminal. Returns buf. */
struct own_processes {
    int n, pid[16]; /* 0: none */
};
char *machine_busiest(char *buf, size_t size, const char *root, const struct own_processes *own,
                      int window_ms);
enum { BUSIEST_WINDOW_MS = 300 };

/* has_battery false: a desktop or a server. *on_battery is false when the power source is unknown. */
void machine_battery(const char *root, bool *has_battery, bool *on_battery);

/* Removes from a kernel command line, in place, all words except those known to affect speed. The removed
 * words name disks, consoles and users. */
void machine_boot_parameters(char *line);

/* The raw CPUID answers of this processor: {"cpuid": [{"leaf", "subleaf", "eax", ...}], "xcr0"}. NULL on
 * processors without the instruction. New reference. */
json_t *machine_cpuid_to_json(void);

#endif
