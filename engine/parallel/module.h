/* engine/parallel/module.h - what the module for MPI (qdyno_mpi.so) offers to the program.
 *
 * The module is the only code that needs an MPI library, so that the program runs on machines without one.
 * Ranks load the library first, and then the module, which is not linked to it. It uses nothing of the
 * program. Errors of the library end the process and, through its launcher, all other ranks: the process that
 * started them sees that. */
#ifndef QDYNO_ENGINE_PARALLEL_MODULE_H
#define QDYNO_ENGINE_PARALLEL_MODULE_H

#include <stdbool.h>

enum { RANK_MODULE_VERSION = 1, RANK_MODULE_TEXT = 256 };
#define RANK_MODULE_SYMBOL "qdyno_rank_module"

/* A process among the others. */
struct rank_place {
    int rank, size;
    int here, here_size; /* the same among the ranks of this machine */
};

/* Groups are numbers: 0 is all ranks, others come from `split`. Sizes are in bytes and below 2^31. All ranks
 * of a group must call its collective operations in the same order. */
struct rank_module {
    int version;
    const char *(*library)(void); /* name and version */
    /* 0, or another number with a text in why[RANK_MODULE_TEXT]. */
    int (*open)(struct rank_place *out, char *why);
    void (*close)(void);
    void (*stop)(int status); /* ends all ranks */
    /* The group of all ranks that give the same color, ordered by key. -1: no more groups are possible. */
    int (*split)(int color, int key);
    int (*group_size)(int group);
    /* all = the parts of all ranks, part i at[i] bytes from its start and bytes[i] long */
    void (*all_gather)(int group, const void *mine, int n, void *all, const int *bytes, const int *at);
    /* The same on rank `root` only. */
    void (*gather)(int group, int root, const void *mine, int n, void *all, const int *bytes, const int *at);
    void (*all_reduce)(int group, float *x, int n); /* sums of n numbers; their order is the library's */
    void (*broadcast)(int group, int root, void *x, int n);
    void (*barrier)(int group);
    /* Between two ranks of all; `tag` tells kinds of messages apart. */
    void (*send)(int to, int tag, const void *x, int n);
    void (*receive)(int from, int tag, void *x, int n);
    bool (*arrived)(int from, int tag); /* would `receive` find a message? */
};

#endif
