/* telemetry/machine.h - the parts machine_detect is made of (inside telemetry/). */
#ifndef QDYNO_TELEMETRY_MACHINE_H
#define QDYNO_TELEMETRY_MACHINE_H

#include "telemetry/telemetry.h"

/* Name, isa, sockets, cores, processors, NUMA nodes, caches, governor, hypervisor. `cpuinfo` is the text of
 * /proc/cpuinfo. Fields it cannot find are left as they are. */
void machine_cpu_detect(struct machine *m, const char *root, const char *cpuinfo);

/* The isa bits a "flags" (x86) or "Features" (ARM) line of /proc/cpuinfo stands for. */
uint32_t machine_isa_from_flags(const char *flags);

/* Of a kernel command line only what concerns speed, in place. */
void machine_boot_parameters(char *line);

/* What the processor says of itself, raw: {"cpuid": [{"leaf", "subleaf", "eax", ...}], "xcr0"}; NULL where
 * there is no such instruction. New reference. */
json_t *cpuid_to_json(void);

/* Limits of the control group this process runs in, versions 1 and 2, the tightest of all levels. */
void machine_cgroup_detect(struct machine *m, const char *root);

#endif
