/* base/process.h - starts child processes that end with their parent, however the parent ends. */
#ifndef QDYNO_BASE_PROCESS_H
#define QDYNO_BASE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

enum { PROCESS_CHANNEL_FD = 3 }; /* number of process_spec.channel_fd in the child */

/* The child reads /dev/null as its standard input, has no other descriptors of the parent, default signal
 * actions, no blocked signals, and a process group of its own, so that Ctrl-C reaches only the parent. */
struct process_spec {
    const char *program; /* path */
    char *const *argv;   /* ends with NULL; argv[0] is the name of the program */
    char *const *envp;   /* its environment, ends with NULL; NULL: that of this process */
    int output_fd;       /* becomes its standard output and standard error; the caller closes it */
    bool mute;           /* its standard error is /dev/null instead */
    int channel_fd;      /* becomes PROCESS_CHANNEL_FD; the caller closes it; -1: none */
};

/* Starts the program. The kernel kills it when the calling thread ends, so a thread that starts a process
 * must also wait for it. *pid: the child, for waitpid; its process group exists. ERR_IO: the program cannot
 * be started. ERR_INTERNAL: the system refuses a process or a pipe. */
enum err_code process_spawn(pid_t *pid, const struct process_spec *start, struct err *why);

/* Called by a child right after fork: the kernel kills it when its parent ends. Exits if the parent, whose
 * process id was `parent`, has ended already. Async-signal-safe. */
void process_die_with_parent(pid_t parent);

#endif
