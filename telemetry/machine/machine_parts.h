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

/* ---------------------------------------------------------------- machine_busiest.c */

struct process_row {
    int pid, parent;
    bool own;
    char name[32];
    long long ticks; /* of processor time, with those of its threads */
};

struct process_list {
    struct process_row *row; /* owned */
    int n, capacity;
    long long busy, all; /* ticks of all processors together */
};

/* False: /proc cannot be read. l->row is the caller's: free. */
bool process_list_read(struct process_list *l, const char *root);
/* As machine_busiest, for two lists of which the second was read later. */
char *process_lists_compare(char *buf, size_t size, const struct process_list *before,
                            struct process_list *after, const struct own_processes *own);

#endif
