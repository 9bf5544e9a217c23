/* base/topology.h - the hwloc topology of what this process may use. For files that bind threads or memory;
 * others need usable_cpus.h only. */
#ifndef QDYNO_BASE_TOPOLOGY_H
#define QDYNO_BASE_TOPOLOGY_H

#include <stdbool.h>

struct hwloc_topology; /* hwloc_topology_t is a pointer to it: files that use it include <hwloc.h> */

/* *out: hwloc_topology_destroy. Has only processors in the affinity mask and the cpuset of this process
 * (usable_cpus), so that no thread is bound outside them. A made-up topology (HWLOC_SYNTHETIC, HWLOC_XMLFILE)
 * stays whole. False: *out is NULL. */
bool topology_load(struct hwloc_topology **out);

#endif
