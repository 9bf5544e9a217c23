/* telemetry/sensors/perf.c - finds, opens and reads hardware counters. */
#include "telemetry/sensors/perf.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/sysfs/sysfs.h"

/* ---------------------------------------------------------------- events */

/* Places the bits of `value`, lowest first, at the positions that a format such as "config:0-7,21" lists.
 * False: the format is not for `config`, or has too few positions. */
static bool event_place_bits(uint64_t *config, const char *format, uint64_t value)
{
    if (!str_starts(format, "config:")) return false;
    for (const char *p = format + strlen("config:"); *p;) {
        char *end;
        unsigned long low = strtoul(p, &end, 10), high = low;
        if (end == p) return false;
        if (*end == '-') {
            p = end + 1;
            high = strtoul(p, &end, 10);
            if (end == p) return false;
        }
        if (high < low || high > 63) return false;
        const unsigned width = (unsigned)(high - low + 1);
        const uint64_t mask = width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
        *config |= (value & mask) << low;
        value = width == 64 ? 0 : value >> width;
        if (*end && *end != ',') return false;
        p = *end ? end + 1 : end;
    }
    return value == 0; /* bits are left over: the event of another chip */
}

/* Applies terms such as "event=0x0a,rdwrmask=0x1" to *config. */
static bool event_place_terms(uint64_t *config, const char *root, const char *pmu, char *terms)
{
    for (char *save, *term = strtok_r(terms, ",", &save); term; term = strtok_r(NULL, ",", &save)) {
        char format[64], *equals = strchr(term, '='), *end = NULL;
        uint64_t value = 1; /* a term without a value is a flag */
        if (equals) {
            *equals = '\0';
            value = strtoull(equals + 1, &end, 0);
            if (end == equals + 1 || *end) return false;
        }
        if (sys_read(root, format, sizeof format, "/sys/bus/event_source/devices/%s/format/%s", pmu, term) <=
                0 ||
            !event_place_bits(config, format, value))
            return false;
    }
    return true;
}

bool perf_event_find(struct perf_event *out, const char *root, const char *pmu, const char *event)
{
    char terms[256], unit[32] = "";
    const int64_t type = sys_integer(root, "/sys/bus/event_source/devices/%s/type", pmu);
    *out = (struct perf_event){ .scale = 1 };
    if (type < 0) return false;
    out->type = (uint32_t)type;
    if (strchr(event, '=')) {
        snprintf(terms, sizeof terms, "%s", event);
    } else {
        if (sys_read(root, terms, sizeof terms, "/sys/bus/event_source/devices/%s/events/%s", pmu, event) <=
            0)
            return false;
        const double scale = sys_number(root, "/sys/bus/event_source/devices/%s/events/%s.scale", pmu, event);
        sys_read(root, unit, sizeof unit, "/sys/bus/event_source/devices/%s/events/%s.unit", pmu, event);
        if (!isnan(scale)) out->scale = scale * (!strcmp(unit, "MiB") ? 1 << 20 : 1);
    }
    return event_place_terms(&out->config, root, pmu, terms);
}

/* ---------------------------------------------------------------- counting */

int perf_sum_add(struct perf_sum *s, const struct perf_event *e, int pid, int cpu)
{
    struct perf_event_attr attr = {
        .size = sizeof attr,
        .type = e->type,
        .config = e->config,
        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .inherit = pid >= 0,
        /* without privileges only user mode may be counted; units outside the cores have no modes */
        .exclude_kernel = pid >= 0,
        .exclude_hv = pid >= 0,
    };
    struct perf_counter *grown = realloc(s->counter, (size_t)(s->n + 1) * sizeof *grown);
    if (!grown) return ENOMEM;
    s->counter = grown;
    const int fd = (int)syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0) return errno;
    s->counter[s->n++] = (struct perf_counter){ .fd = fd,
                                                .scale = e->scale,
                                                .one_of_several = e->one_of_several };
    return 0;
}

double perf_sum_read(struct perf_sum *s)
{
    bool known = s->n > 0;
    for (int i = 0; i < s->n; i++) {
        struct perf_counter *c = &s->counter[i];
        struct {
            uint64_t value, enabled_ns, running_ns;
        } now;
        if (read(c->fd, &now, sizeof now) != (ssize_t)sizeof now) {
            known = false;
            continue;
        }
        const double value = (double)(now.value - c->value),
                     enabled = (double)(now.enabled_ns - c->enabled_ns),
                     running = (double)(now.running_ns - c->running_ns);
        if (c->one_of_several)
            s->total += c->scale * value;
        else if (running > 0)
            s->total += c->scale * value * (enabled / running);
        else if (enabled > 0)
            known = false; /* other users occupied the counter all the time */
        c->value = now.value;
        c->enabled_ns = now.enabled_ns;
        c->running_ns = now.running_ns;
    }
    return known ? s->total : NAN;
}

void perf_sum_close(struct perf_sum *s)
{
    for (int i = 0; i < s->n; i++) close(s->counter[i].fd);
    free(s->counter);
    *s = (struct perf_sum){ 0 };
}

const char *perf_advice(int error, bool everything)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return everything
                   ? "counting for all programs is not permitted: run as root, or once per boot "
                     "`sudo sysctl kernel.perf_event_paranoid=0` (in a container: allow perf_event_open)"
                   : "counting is not permitted: `sudo sysctl kernel.perf_event_paranoid=2` (in a container: "
                     "allow perf_event_open)";
    case EMFILE:
    case ENFILE: return "too many open files for one counter per thread or processor: `ulimit -n` higher";
    case ENOSYS: return "this kernel has no perf_event_open";
    case ESRCH: return "the process is gone";
    default: return "no such counter on this processor: virtual machines often have none";
    }
}
