/* telemetry/sensors/rapl_linux.c - power and energy of processors and memory, from the RAPL energy counters
 * of the powercap driver (Intel, and AMD since Zen).
 *
 * A package includes its cores and built-in graphics ("uncore"), excludes memory ("dram"), and is part of the
 * platform ("psys"). So values are added over the packages for each kind of domain, but never across kinds.
 * Since 2020 only root may read the counters (CVE-2020-8694); that is reported as denied, not as absent. */
#include "telemetry/sensors/sensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/source.h"
#include "base/sysfs/sysfs.h"

enum { KINDS = 5 };
static const struct {
    const char *name; /* prefix of the zone's name */
    enum metric_id metric;
} KIND[KINDS] = {
    { .name = "package-", .metric = METRIC_CPU_POWER },  { .name = "core", .metric = METRIC_CORES_POWER },
    { .name = "uncore", .metric = METRIC_UNCORE_POWER }, { .name = "dram", .metric = METRIC_DRAM_POWER },
    { .name = "psys", .metric = METRIC_SYSTEM_POWER },
};

struct domain {
    char zone[SYS_NAME];
    int kind;
    double range_uj; /* the counter wraps at this value; NAN: unknown */
    struct rate energy;
    struct energy_reading total;
};

struct rapl {
    int count;
    struct domain domain[ENERGY_MAX];
};

static const char DENIED[] = "only root may read the energy counters: run as root, or once per boot "
                             "`sudo chmod o+r /sys/class/powercap/*/energy_uj`";

/* Names a domain with its parent: "core" in "package-1" becomes "package-1-core". */
static void domain_name(struct domain *d, const char *root, const char *name)
{
    char parent[32] = "";
    const char *last = strrchr(d->zone, ':');
    if (strchr(d->zone, ':') != last)
        sys_read(root, parent, sizeof parent, "/sys/class/powercap/%.*s/name", (int)(last - d->zone),
                 d->zone);
    snprintf(d->total.domain, sizeof d->total.domain, "%s%s%s", parent, *parent ? "-" : "", name);
}

/* Adds the zone if its kind is known and its counter can be read; updates state[kind]. */
enum kind_state { KIND_ABSENT, KIND_DENIED, KIND_READABLE };
static void zone_add(struct rapl *r, const char *root, const char *zone, enum kind_state state[KINDS])
{
    char name[32];
    struct domain *d = &r->domain[r->count];
    sys_read(root, name, sizeof name, "/sys/class/powercap/%s/name", zone);
    *d = (struct domain){ .total.joules = NAN };
    while (d->kind < KINDS && !str_starts(name, KIND[d->kind].name)) d->kind++;
    if (d->kind == KINDS) return;
    if (sys_denied(root, "/sys/class/powercap/%s/energy_uj", zone)) state[d->kind] = KIND_DENIED;
    if (isnan(sys_number(root, "/sys/class/powercap/%s/energy_uj", zone))) return;
    memcpy(d->zone, zone, SYS_NAME);
    d->range_uj = sys_number(root, "/sys/class/powercap/%s/max_energy_range_uj", zone);
    domain_name(d, root, name);
    state[d->kind] = KIND_READABLE;
    r->count++;
}

static enum err_code rapl_open(void **out, const struct sensors *s, struct err *why)
{
    struct sys_list list;
    enum kind_state state[KINDS] = { KIND_ABSENT };
    bool denied = false;
    struct rapl *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory opening the power sensors");
    /* not "intel-rapl-mmio:0", which is the same package again */
    sys_list(&list, s->root, "intel-rapl:", "/sys/class/powercap");
    for (int i = 0; i < list.count && r->count < ENERGY_MAX; i++) zone_add(r, s->root, list.name[i], state);
    for (int k = 0; k < KINDS; k++) {
        denied |= state[k] == KIND_DENIED;
        if (state[k] == KIND_DENIED)
            sensor_denied(s, KIND[k].metric, DENIED);
        else if (state[k] != KIND_READABLE && list.count)
            sensor_absent(s, KIND[k].metric, "no RAPL domain '%s' on this machine", KIND[k].name);
    }
    if (r->count || denied) {
        *out = r; /* open even if all are denied, so that each metric has its reason */
        return ERR_OK;
    }
    free(r);
    return err_set(why, ERR_ABSENT,
                   "no RAPL counters in '%s/sys/class/powercap': most virtual machines have none", s->root);
}

static void rapl_sample(void *state, struct sensors *s, double *row)
{
    struct rapl *r = state;
    double watts[KINDS] = { 0 }; /* NAN when any domain is unknown: a partial sum would be wrong */
    bool any[KINDS] = { false }, advanced = false;
    for (int i = 0; i < r->count; i++) {
        struct domain *d = &r->domain[i];
        if (!s->due[KIND[d->kind].metric]) continue;
        const double seconds = (double)(s->now_ns - d->energy.t_ns) / 1e9;
        const double uj = sys_number(s->root, "/sys/class/powercap/%s/energy_uj", d->zone);
        const double w = rate_next(&d->energy, uj, d->range_uj, s->now_ns) / 1e6;
        advanced |= w > 0;
        watts[d->kind] += w;
        any[d->kind] = true;
        if (w > 0) d->total.joules = (isnan(d->total.joules) ? 0 : d->total.joules) + w * seconds;
    }
    for (int i = 0; i < r->count; i++) s->energy[i] = r->domain[i].total;
    s->energies = r->count;
    for (int k = 0; k < KINDS; k++)
        if (any[k] && advanced) row[KIND[k].metric] = watts[k];
}

const struct source SOURCE_RAPL_LINUX = {
    .name = "rapl_linux", .open = rapl_open, .sample = rapl_sample, .close = free
};
