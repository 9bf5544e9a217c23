/* The module for MPI: struct rank_module by the functions of an MPI library. Built as qdyno_mpi.so where one
 * is installed; nothing else of the program uses MPI. */
#include "engine/parallel/module.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 16 };

static MPI_Comm GROUP[GROUPS_MAX];
static int GROUP_COUNT;

static const char *module_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS) return "MPI";
    text[strcspn(text, ",\n")] = '\0'; /* "Open MPI v4.1.4, package: ..." */
    return text;
}

static int module_open(struct rank_place *out, char *why)
{
    MPI_Comm here;
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS ||
        level < MPI_THREAD_FUNNELED) {
        snprintf(why, RANK_MODULE_TEXT,
                 "MPI_Init_thread: this library does not allow a process with threads");
        return 1;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &out->size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, out->rank, MPI_INFO_NULL, &here);
    MPI_Comm_rank(here, &out->here);
    MPI_Comm_size(here, &out->here_size);
    MPI_Comm_free(&here);
    GROUP[0] = MPI_COMM_WORLD;
    GROUP_COUNT = 1;
    return 0;
}

static void module_close(void)
{
    while (GROUP_COUNT > 1) MPI_Comm_free(&GROUP[--GROUP_COUNT]);
    MPI_Finalize();
}

static void module_stop(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
    abort();
}

static int module_split(int color, int key)
{
    if (GROUP_COUNT == GROUPS_MAX) return -1;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &GROUP[GROUP_COUNT]);
    return GROUP_COUNT++;
}

static int module_group_size(int group)
{
    int size;
    MPI_Comm_size(GROUP[group], &size);
    return size;
}

static void module_all_gather(int group, const void *mine, int n, void *all, const int *bytes, const int *at)
{
    MPI_Allgatherv(mine, n, MPI_BYTE, all, bytes, at, MPI_BYTE, GROUP[group]);
}

static void module_gather(int group, int root, const void *mine, int n, void *all, const int *bytes,
                          const int *at)
{
    MPI_Gatherv(mine, n, MPI_BYTE, all, bytes, at, MPI_BYTE, root, GROUP[group]);
}

static void module_all_reduce(int group, float *x, int n)
{
    MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, GROUP[group]);
}

static void module_broadcast(int group, int root, void *x, int n)
{
    MPI_Bcast(x, n, MPI_BYTE, root, GROUP[group]);
}

static void module_barrier(int group)
{
    MPI_Barrier(GROUP[group]);
}

static void module_send(int to, int tag, const void *x, int n)
{
    MPI_Send(x, n, MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

static void module_receive(int from, int tag, void *x, int n)
{
    MPI_Recv(x, n, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static bool module_arrived(int from, int tag)
{
    int found = 0;
    MPI_Iprobe(from, tag, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    return found;
}

extern const struct rank_module qdyno_rank_module;
__attribute__((visibility("default"))) const struct rank_module qdyno_rank_module = {
    .version = RANK_MODULE_VERSION,
    .library = module_library,
    .open = module_open,
    .close = module_close,
    .stop = module_stop,
    .split = module_split,
    .group_size = module_group_size,
    .all_gather = module_all_gather,
    .gather = module_gather,
    .all_reduce = module_all_reduce,
    .broadcast = module_broadcast,
    .barrier = module_barrier,
    .send = module_send,
    .receive = module_receive,
    .arrived = module_arrived,
};
