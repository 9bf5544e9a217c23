/* engine/parallel/parallel_internal.h - messages between the leader and rank 0, and where files are. */
#ifndef QDYNO_ENGINE_PARALLEL_INTERNAL_H
#define QDYNO_ENGINE_PARALLEL_INTERNAL_H

#include "engine/parallel/parallel.h"

/* Both directions of the socket: a header, then `bytes` bytes. */
enum frame_kind {
    FRAME_COMMAND, /* from the leader; what: enum rank_op */
    FRAME_HELLO,   /* rank 0 is there; what: number of ranks */
    FRAME_ALIVE,   /* work goes on */
    FRAME_ANSWER,  /* what: ERR_OK, then the payload; else an enum err_code, then its message */
};
struct frame {
    uint32_t kind, what;
    uint64_t bytes;
};
enum { FRAME_TEXT_MAX = 512 };

/* Write or read exactly n bytes. False: the other side is gone. */
bool frame_write(int fd, const void *bytes, size_t n);
bool frame_read(int fd, void *bytes, size_t n);

/* Path of qdyno_mpi.so: $QDYNO_MPI_MODULE, else beside the program (build tree) or in ../lib/qdyno. *out
 * owned: free. ERR_ABSENT: the message says why there is none. */
enum err_code module_path(char **out, struct err *why);
/* Path of mpirun: $QDYNO_MPIRUN, else in PATH. *out owned: free. ERR_ABSENT. */
enum err_code mpirun_path(char **out, struct err *why);

/* Bind this process, before it has threads, to the part of its processors that rank `here` of `count` ranks
 * on this machine gets: neighbouring cores, whole ones while there are enough. Returns the number of cores;
 * 0: the system refuses, and the process may use all of them. */
int placement_bind(int here, int count);

/* What the sensors of this rank's machine show; all unknown where another rank reads them. */
void rank_read_sensors(const struct rank *r, struct machine_use *out);

#endif
