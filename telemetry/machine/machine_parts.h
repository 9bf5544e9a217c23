/* telemetry/machine/machine_parts.h - the steps of machine_detect (internal to telemetry/machine). */
#ifndef QDYNO_TELEMETRY_MACHINE_PARTS_H
#define QDYNO_TELEMETRY_MACHINE_PARTS_H

#include "telemetry/machine/machine.h"

/* Fills cpu, isa, sockets, cores, processors, numa_nodes, cache_bytes, governor and hypervisor from sysfs and
 * from `cpuinfo`, the text of /proc/cpuinfo. Leaves fields unchanged that it cannot determine. */
void machine_cpu_detect(struct machine *m, const char *root, const char *cpuinfo);

/* The ISA_* bits that a "flags" (x86) or "Features" (ARM) line of /proc/cpuinfo implies. */
uint32_t machine_isa_from_flags(const char *flags);

/* Applies the limits of the control groups of this process: of all levels, the lowest limit counts. */
void machine_cgroup_detect(struct machine *m, const char *root);

#endif
