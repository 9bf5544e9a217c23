/* base/numa.c - NUMA nodes, with hwloc. */
#include "base/numa.h"

#include <hwloc.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/topology.h"

struct numa {
    hwloc_topology_t topology;
    hwloc_cpuset_t before; /* binding of the thread before it entered a node; NULL: not in a node */
};

enum err_code numa_open(struct numa **out, struct err *why)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory for the memory nodes");
    if (topology_load(&(*out)->topology)) return ERR_OK;
    free(*out);
    *out = NULL;
    return err_set(why, ERR_IO, "the topology of this machine cannot be read");
}

void numa_close(struct numa *n)
{
    if (!n) return;
    numa_leave(n);
    hwloc_topology_destroy(n->topology);
    free(n);
}

static hwloc_obj_t node_of(const struct numa *n, int node)
{
    return node < 0 ? NULL : hwloc_get_obj_by_type(n->topology, HWLOC_OBJ_NUMANODE, (unsigned)node);
}

int numa_count(const struct numa *n)
{
    const int nodes = hwloc_get_nbobjs_by_type(n->topology, HWLOC_OBJ_NUMANODE);
    return nodes < 1 ? 1 : nodes;
}

int numa_cores(const struct numa *n, int node)
{
    const hwloc_obj_t object = node_of(n, node);
    if (!object) return 0;
    const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(n->topology, object->cpuset, HWLOC_OBJ_CORE);
    return cores > 0 ? cores
                     : hwloc_get_nbobjs_inside_cpuset_by_type(n->topology, object->cpuset, HWLOC_OBJ_PU);
}

int numa_home(const struct numa *n)
{
    int home = 0;
    for (int i = 1; i < numa_count(n); i++)
        if (numa_cores(n, i) > numa_cores(n, home)) home = i;
    return home;
}

int numa_member_node(const struct numa *n, enum numa_policy policy, int member, int members)
{
    int64_t cores = 0;
    if (policy == NUMA_OFF) return -1;
    if (policy == NUMA_LOCAL) return numa_home(n);
    for (int i = 0; i < numa_count(n); i++) cores += numa_cores(n, i);
    int64_t core = member * cores / members; /* the member's core, where cores are numbered node by node */
    for (int i = 0; i < numa_count(n); i++) {
        if (core < numa_cores(n, i)) return i;
        core -= numa_cores(n, i);
    }
    return numa_home(n); /* the system names no cores */
}

int numa_default_threads(enum numa_policy policy, int cores)
{
    struct numa *n;
    if (policy != NUMA_LOCAL || numa_open(&n, NULL)) return cores;
    const int near = numa_cores(n, numa_home(n));
    numa_close(n);
    return near > 0 && near < cores ? near : cores;
}

bool numa_interleave(const struct numa *n, void *p, size_t bytes)
{
    const hwloc_const_nodeset_t all = hwloc_topology_get_topology_nodeset(n->topology);
    return all && !hwloc_set_area_membind(n->topology, p, bytes, all, HWLOC_MEMBIND_INTERLEAVE,
                                          HWLOC_MEMBIND_BYNODESET);
}

bool numa_place(const struct numa *n, int node, void *p, size_t bytes)
{
    const hwloc_obj_t object = node_of(n, node);
    return object && !hwloc_set_area_membind(n->topology, p, bytes, object->nodeset, HWLOC_MEMBIND_BIND,
                                             HWLOC_MEMBIND_BYNODESET);
}

bool numa_enter(struct numa *n, int node)
{
    const hwloc_obj_t object = node_of(n, node);
    if (!object || n->before || !(n->before = hwloc_bitmap_alloc())) return false;
    if (!hwloc_get_cpubind(n->topology, n->before, HWLOC_CPUBIND_THREAD) &&
        !hwloc_set_cpubind(n->topology, object->cpuset, HWLOC_CPUBIND_THREAD))
        return true;
    hwloc_bitmap_free(n->before);
    n->before = NULL;
    return false;
}

void numa_leave(struct numa *n)
{
    if (!n->before) return;
    hwloc_set_cpubind(n->topology, n->before, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(n->before);
    n->before = NULL;
}
