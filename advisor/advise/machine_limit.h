/* advisor/advise/machine_limit.h - which limit gives this process fewer threads than the machine has cores.
 * Internal to advisor/advise/. */
#ifndef QDYNO_ADVISOR_MACHINE_LIMIT_H
#define QDYNO_ADVISOR_MACHINE_LIMIT_H

#include <stddef.h>

struct machine;

enum { MACHINE_LIMIT_TEXT = 120 };
/* "an affinity mask or cpuset allows 2 of 8 cores", or "a CPU quota of the control group (cgroup) allows 1.5
 * CPUs on 8 cores"; "": none does. Returns buf. */
const char *machine_limit_text(const struct machine *m, char *buf, size_t size);

#endif
