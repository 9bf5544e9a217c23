/* base/guard/guard.h - kills a group of processes when this process ends. Not part of base.h: few need it. */
#ifndef QDYNO_BASE_GUARD_H
#define QDYNO_BASE_GUARD_H

#include <sys/types.h>

#include "base/err.h"

/* Starts a process that does nothing but wait until this one has ended, however it ends, and then kills the
 * process group `group`: with PR_SET_PDEATHSIG alone, what the child of another program started would live
 * on. *guard: for process_guard_end. ERR_INTERNAL, ERR_NOMEM: the system refuses a process or a pipe. */
struct process_guard {
    pid_t pid; /* 0: none */
    int fd;    /* closed by the kernel when this process ends */
};
enum err_code process_guard_start(struct process_guard *guard, pid_t group, struct err *why);
/* Ends the guard; the group stays as it is. Fine for a zeroed one. */
void process_guard_end(struct process_guard *guard);

#endif
