/* telemetry/sensors/rapl_linux.c - power and energy of processors and memory from the running counters of
 * RAPL (Intel, and AMD since Zen), as the powercap driver shows them.
 *
 * A package holds its cores and its built-in graphics ("uncore"); memory ("dram") is beside it, the platform
 * ("psys") around all of it: so domains are summed by kind over the packages, and never with each other.
 * Since 2020 only root may read the counters (CVE-2020-8694): that is said, for it is not the same as having
 * none. */
#include "telemetry/sensors/sensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/source.h"
#include "telemetry/sysfs/sysfs.h"

enum { KINDS = 5 };
static const struct {
    const char *name; /* a zone's name begins so */
    enum metric_id metric;
} KIND[KINDS] = {
    { "package-", METRIC_CPU_POWER }, { "core", METRIC_CORES_POWER },  { "uncore", METRIC_UNCORE_POWER },
    { "dram", METRIC_DRAM_POWER },    { "psys", METRIC_SYSTEM_POWER },
};

struct domain {
    char zone[SYS_NAME];
    int kind;
    double range_uj; /* the counter starts over there; NAN unknown */
    struct rate energy;
    struct energy_reading total;
};

struct rapl {
    int count;
    struct domain domain[ENERGY_MAX];
};

static const char DENIED[] = "only root may read the energy counters: run as root, or once per boot "
                             "`sudo chmod o+r /sys/class/powercap/*/energy_uj`";

/* "core" below "package-1" is "package-1-core". */
static void domain_name(struct domain *d, const char *root, const char *name)
{
    char parent[32] = "";
    const char *last = strrchr(d->zone, ':');
    if (strchr(d->zone, ':') != last)
        sys_read(root, parent, sizeof parent, "/sys/class/powercap/%.*s/name", (int)(last - d->zone),
                 d->zone);
    snprintf(d->total.domain, sizeof d->total.domain, "%s%s%s", parent, *parent ? "-" : "", name);
}

/* Adds the zone if it is of a known kind and answers; `state` by kind. */
enum kind_state { NOT_THERE, IS_DENIED, ANSWERS };
static void zone_add(struct rapl *r, const char *root, const char *zone, enum kind_state state[KINDS])
{
    char name[32];
    struct domain *d = &r->domain[r->count];
    sys_read(root, name, sizeof name, "/sys/class/powercap/%s/name", zone);
    *d = (struct domain){ .total.joules = NAN };
    while (d->kind < KINDS && !str_starts(name, KIND[d->kind].name)) d->kind++;
    if (d->kind == KINDS) return;
    if (sys_denied(root, "/sys/class/powercap/%s/energy_uj", zone)) state[d->kind] = IS_DENIED;
    if (isnan(sys_number(root, "/sys/class/powercap/%s/energy_uj", zone))) return;
    memcpy(d->zone, zone, SYS_NAME);
    d->range_uj = sys_number(root, "/sys/class/powercap/%s/max_energy_range_uj", zone);
    domain_name(d, root, name);
    state[d->kind] = ANSWERS;
    r->count++;
}

static enum err_code rapl_open(void **out, const struct sensors *s, struct err *why)
{
    struct sys_list list;
    enum kind_state state[KINDS] = { NOT_THERE };
    bool denied = false;
    struct rapl *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory opening the power sensors");
    /* "intel-rapl-mmio:0" shows the same package a second time */
    sys_list(&list, s->root, "intel-rapl:", "/sys/class/powercap");
    for (int i = 0; i < list.count && r->count < ENERGY_MAX; i++) zone_add(r, s->root, list.name[i], state);
    for (int k = 0; k < KINDS; k++) {
        denied |= state[k] == IS_DENIED;
        if (state[k] == IS_DENIED)
            sensor_denied(s, KIND[k].metric, DENIED);
        else if (state[k] != ANSWERS && list.count)
            sensor_absent(s, KIND[k].metric, "no RAPL domain '%s' on this machine", KIND[k].name);
    }
    if (r->count || denied) {
        *out = r; /* denied: with nothing to read, but each metric says why */
        return ERR_OK;
    }
    free(r);
    return err_set(why, ERR_ABSENT,
                   "no RAPL counters in '%s/sys/class/powercap': not in most virtual machines", s->root);
}

static void rapl_sample(void *state, struct sensors *s, double *row)
{
    struct rapl *r = state;
    double watts[KINDS] = { 0 }; /* NAN as soon as one domain is unknown: half of the power is no power */
    bool any[KINDS] = { false };
    for (int i = 0; i < r->count; i++) {
        struct domain *d = &r->domain[i];
        if (!s->due[KIND[d->kind].metric]) continue;
        const double seconds = (double)(s->now_ns - d->energy.t_ns) / 1e9;
        const double uj = sys_number(s->root, "/sys/class/powercap/%s/energy_uj", d->zone);
        const double w = rate_next(&d->energy, uj, d->range_uj, s->now_ns) / 1e6;
        watts[d->kind] += w;
        any[d->kind] = true;
        if (!isnan(w)) d->total.joules = (isnan(d->total.joules) ? 0 : d->total.joules) + w * seconds;
    }
    for (int i = 0; i < r->count; i++) s->energy[i] = r->domain[i].total;
    s->energies = r->count;
    for (int k = 0; k < KINDS; k++)
        if (any[k]) row[KIND[k].metric] = watts[k];
}

const struct source SOURCE_RAPL_LINUX = { "rapl_linux", rapl_open, rapl_sample, free };
