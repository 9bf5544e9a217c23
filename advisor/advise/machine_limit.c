#include "advisor/advise/machine_limit.h"

#include <stdio.h>

#include "telemetry/machine/machine.h"

/* Both limits may be there: the one that gives fewer threads is the cause. A cpuset is in cgroup_cpus, too,
 * but it then has at least as many CPUs as there are usable cores. */
const char *machine_limit_text(const struct machine *m, char *buf, size_t size)
{
    const int cores = machine_usable_cores(m);
    *buf = '\0';
    if (machine_threads(m) >= m->cores) return buf;
    if (m->cgroup_cpus < cores)
        snprintf(buf, size, "a CPU quota of the control group (cgroup) allows %.3g CPUs on %d cores",
                 m->cgroup_cpus, m->cores);
    else
        snprintf(buf, size, "an affinity mask or cpuset allows %d of %d cores", cores, m->cores);
    return buf;
}
