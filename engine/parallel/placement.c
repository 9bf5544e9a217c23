/* Divides the processors of this process among the ranks of a machine: neighbouring cores, so that a rank's
 * threads share caches and a NUMA node. */
#include "engine/parallel/parallel_internal.h"

#include <hwloc.h>

static int bind_to_part(hwloc_topology_t topology, int here, int count)
{
    const hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE
                                                                                         : HWLOC_OBJ_PU;
    const int n = hwloc_get_nbobjs_by_type(topology, type); /* only those that this process may use */
    const int from = (int)((int64_t)here * n / count), to = (int)((int64_t)(here + 1) * n / count);
    hwloc_bitmap_t part = hwloc_bitmap_alloc();
    int bound = 0;
    for (int i = from; part && i < MAX(to, from + 1) && i < n; i++)
        hwloc_bitmap_or(part, part, hwloc_get_obj_by_type(topology, type, (unsigned)i)->cpuset);
    if (part && !hwloc_bitmap_iszero(part) && !hwloc_set_cpubind(topology, part, HWLOC_CPUBIND_PROCESS))
        bound = MAX(to - from, 1);
    if (part) hwloc_bitmap_free(part);
    return bound;
}

int placement_bind(int here, int count)
{
    hwloc_topology_t topology;
    if (!topology_load(&topology)) return 0;
    const int bound = bind_to_part(topology, here, count);
    hwloc_topology_destroy(topology);
    return bound;
}
