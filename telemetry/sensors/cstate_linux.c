/* telemetry/sensors/cstate_linux.c - the share of time that processors sleep in C-states. Waking up from a
 * deep C-state delays work.
 *
 * The kernel updates its counter when a sleep ends, so a long sleep appears all at once. The state "POLL" is
 * busy waiting, not sleep. On large machines CPUS_READ processors, evenly spread, represent all. */
#include "telemetry/sensors/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "base/sysfs/sysfs.h"

enum { CPUS_READ = 16 };

struct cstates {
    int cpus, states;
    int cpu[CPUS_READ];
    bool sleeps[SYS_LIST]; /* [states]: true for C-states, false for POLL */
    struct rate any, deepest;
};

static enum err_code cstate_open(void **state, const struct sensors *s, struct err *why)
{
    struct sys_list list;
    char online[4096], name[32];
    int cpu[SYS_CPUS];
    sys_list(&list, s->root, "state", "/sys/devices/system/cpu/cpu0/cpuidle");
    if (!list.count)
        return err_set(why, ERR_ABSENT,
                       "the kernel manages no C-states (no '%s/sys/devices/system/cpu/cpu0/cpuidle'): usual "
                       "in virtual machines and with idle=poll",
                       s->root);
    struct cstates *c = calloc(1, sizeof *c);
    if (!c) return err_set(why, ERR_NOMEM, "out of memory opening the C-state sensors");
    c->states = list.count;
    for (int i = 0; i < c->states; i++) {
        sys_read(s->root, name, sizeof name, "/sys/devices/system/cpu/cpu0/cpuidle/state%d/name", i);
        c->sleeps[i] = *name && strcmp(name, "POLL") != 0;
    }
    sys_read(s->root, online, sizeof online, "/sys/devices/system/cpu/online");
    const int n = MIN(sys_cpulist(online, cpu, SYS_CPUS), SYS_CPUS),
              step = MAX(1, (n + CPUS_READ - 1) / CPUS_READ);
    for (int i = 0; i < n; i += step) c->cpu[c->cpus++] = cpu[i];
    *state = c;
    return ERR_OK;
}

static void cstate_sample(void *state, struct sensors *s, double *row)
{
    struct cstates *c = state;
    double any_us = 0, deepest_us = 0;
    if (!s->due[METRIC_CPU_CSTATE] && !s->due[METRIC_CPU_DEEPEST_CSTATE]) return;
    for (int i = 0; i < c->cpus; i++)
        for (int k = 0; k < c->states; k++) {
            if (!c->sleeps[k]) continue;
            double us = sys_number(s->root, "/sys/devices/system/cpu/cpu%d/cpuidle/state%d/time", c->cpu[i],
                                   k);
            any_us += us;
            if (k == c->states - 1) deepest_us += us;
        }
    const struct {
        enum metric_id metric;
        struct rate *rate;
        double us;
    } OUT[] = { { METRIC_CPU_CSTATE, &c->any, any_us },
                { METRIC_CPU_DEEPEST_CSTATE, &c->deepest, deepest_us } };
    for (size_t i = 0; i < COUNT_OF(OUT); i++) {
        if (!s->due[OUT[i].metric]) continue;
        double seconds_s = rate_next(OUT[i].rate, c->cpus ? OUT[i].us : NAN, 0, s->now_ns) / 1e6;
        if (!isnan(seconds_s)) row[OUT[i].metric] = MIN(seconds_s / c->cpus, 1);
    }
}

const struct source SOURCE_CSTATE_LINUX = {
    .name = "cstate_linux", .open = cstate_open, .sample = cstate_sample, .close = free
};
