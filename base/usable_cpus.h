/* base/usable_cpus.h - which processors this process may use, and for how much of the time.
 *
 * Three things limit a process: its affinity mask (`taskset`), the cpuset of its control group (containers),
 * and CPU quotas of its control groups at every level, in version 1 or 2. Threads that are more than these
 * allow wait for each other in every product. So whatever chooses a number of threads or a processor asks
 * here, and nothing else reads these limits. */
#ifndef QDYNO_BASE_USABLE_CPUS_H
#define QDYNO_BASE_USABLE_CPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { USABLE_CPUS_MOST = 8192 }; /* the most processors that Linux supports */

struct usable_cpus {
    int online;        /* processors of the machine, or of the part that a container shows; 0: unknown */
    int online_cores;  /* their physical cores; 0: unknown */
    int processors;    /* processors in the affinity mask and in every cpuset; 0: unknown */
    int cpuset;        /* processors in the smallest cpuset of the control groups; 0: unknown */
    int cores;         /* physical cores that have at least one of them; 0: unknown */
    double quota_cpus; /* the lowest CPU quota, in processors; NAN: none */
    int threads; /* the default for `threads`: cores, at most the whole processors of the quota; at least 1 */
    uint64_t mask[USABLE_CPUS_MOST / 64]; /* bit cpu % 64 of word cpu / 64; see usable_cpus_has */
};

/* Reads the limits of this process, or below `root` those of the process that recorded the machine ("" is
 * this machine). Files that are absent or malformed limit nothing. */
void usable_cpus_read(struct usable_cpus *out, const char *root);

/* The limits of this process when they were first asked for. A thread pool asks before it binds a thread to a
 * processor, so that its own bindings never count as limits. Never NULL; may be called from any thread. */
const struct usable_cpus *usable_cpus(void);

bool usable_cpus_has(const struct usable_cpus *u, int cpu);

/* A sentence for somebody who asked for more threads than the processors or the quota allow; "" if they are
 * not more. Returns buf. */
const char *usable_cpus_warning(const struct usable_cpus *u, int threads, char *buf, size_t size);

#endif
