/* base/topology.c - hwloc by itself knows cpusets, but not affinity masks. */
#include "base/topology.h"

#include <hwloc.h>

#include "base/usable_cpus.h"

static void restrict_to_usable(hwloc_topology_t topology)
{
    const struct usable_cpus *u = usable_cpus();
    hwloc_bitmap_t mine = u->processors ? hwloc_bitmap_alloc() : NULL;
    if (!mine) return;
    for (int cpu = 0; cpu < USABLE_CPUS_MOST; cpu++)
        if (usable_cpus_has(u, cpu)) hwloc_bitmap_set(mine, (unsigned)cpu);
    hwloc_topology_restrict(topology, mine, 0); /* refused only where nothing would remain */
    hwloc_bitmap_free(mine);
}

bool topology_load(hwloc_topology_t *out)
{
    *out = NULL;
    if (hwloc_topology_init(out)) return false;
    if (!hwloc_topology_load(*out)) {
        if (hwloc_topology_is_thissystem(*out)) restrict_to_usable(*out);
        return true;
    }
    hwloc_topology_destroy(*out);
    *out = NULL;
    return false;
}
