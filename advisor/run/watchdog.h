/* advisor/run/watchdog.h - decides when a worker that sends nothing must be killed. Private to advisor/run/.
 *
 * It is asked often while a request runs. Time while this process itself was stopped does not count, because
 * the worker may have been stopped with it. */
#ifndef QDYNO_ADVISOR_RUN_WATCHDOG_H
#define QDYNO_ADVISOR_RUN_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"

struct watchdog {
    double least_s;       /* a worker may always be silent this long; 0: 60 s */
    char known[640];      /* the request that was answered last */
    double known_gap_s;   /* its longest silence */
    char running[640];    /* the request that runs */
    double longest_gap_s; /* its longest silence so far */
    int64_t asked_ns;     /* time of the last question */
    int64_t looked_ns;    /* when the state of the process was read last */
    double silent_s;      /* since the last line */
    double idle_s;        /* since it last used CPU time or waited for a disk */
    double stopped_s;     /* stopped by a signal for so long */
    uint64_t cpu_ticks;   /* that it had used then */
    /* CPU seconds of the process and its descendants, for a worker that may be a script which only waits for
     * the real program. NULL: its own CPU time is all. */
    double (*tree_cpu_s)(int pid);
    double tree_s; /* its last answer */
};

/* A request begins. `what` names the work: the same text takes about the same time. */
void watchdog_begin(struct watchdog *d, const char *what);
/* The request was answered. Its longest silence limits that of the next request for the same work. */
void watchdog_answered(struct watchdog *d);
/* The worker sent a line. */
void watchdog_heard(struct watchdog *d);
/* The time since the last question was the caller's own and does not count. */
void watchdog_skip(struct watchdog *d);
/* ERR_INTERNAL with the reason when the worker must be killed. */
enum err_code watchdog_check(struct watchdog *d, pid_t worker, struct err *why);

#endif
