/* Divides the processors of this process among the ranks of a machine: neighbouring cores, so that a rank's
 * threads share caches and a NUMA node. */
#include "engine/parallel/parallel_internal.h"

#include <hwloc.h>

/* The cores that this process may use, or its processors where cores are unknown. */
static int allowed_cores(hwloc_topology_t topology, hwloc_const_cpuset_t mine, hwloc_obj_t *out, int most)
{
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE
                                                                                   : HWLOC_OBJ_PU;
    int n = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topology, type, o)) && n < most;)
        if (hwloc_bitmap_intersects(o->cpuset, mine)) out[n++] = o;
    return n;
}

static int bind_to_part(hwloc_topology_t topology, int here, int count)
{
    enum { CORES_MAX = 4096 };
    static hwloc_obj_t core[CORES_MAX]; /* once, at the start of a process */
    hwloc_bitmap_t mine = hwloc_bitmap_alloc(), part = hwloc_bitmap_alloc();
    int bound = 0;
    if (mine && part && !hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS)) {
        const int n = allowed_cores(topology, mine, core, CORES_MAX);
        const int from = (int)((int64_t)here * n / count), to = (int)((int64_t)(here + 1) * n / count);
        for (int i = from; i < MAX(to, from + 1) && i < n; i++) hwloc_bitmap_or(part, part, core[i]->cpuset);
        hwloc_bitmap_and(part, part, mine);
        if (!hwloc_bitmap_iszero(part) && !hwloc_set_cpubind(topology, part, HWLOC_CPUBIND_PROCESS))
            bound = MAX(to - from, 1);
    }
    if (mine) hwloc_bitmap_free(mine);
    if (part) hwloc_bitmap_free(part);
    return bound;
}

int placement_bind(int here, int count)
{
    hwloc_topology_t topology;
    int bound = 0;
    if (hwloc_topology_init(&topology)) return 0;
    if (!hwloc_topology_load(topology)) bound = bind_to_part(topology, here, count);
    hwloc_topology_destroy(topology);
    return bound;
}
