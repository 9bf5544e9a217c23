/* telemetry/rapl_linux.c - processor power from the running energy counters of RAPL (Intel, and AMD since
 * Zen), as the powercap driver shows them.
 *
 * Only whole packages are added up: core and DRAM domains below them are parts of, or apart from, the
 * package. Since 2020 the counters are readable by root only (CVE-2020-8694): absent then, with the reason in
 * `why`. */
#include "telemetry/sensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PACKAGES = 16 };
struct rapl {
    int count;
    struct {
        char zone[SYS_NAME];
        double range_uj;
        struct rate energy;
    } package[PACKAGES];
};

static bool is_package(const char *root, const char *zone)
{
    char name[32];
    sys_read(root, name, sizeof name, "/sys/class/powercap/%s/name", zone);
    return str_starts(name, "package-"); /* not "psys", "core", "uncore", "dram" */
}

static enum err_code rapl_open(void **state, const struct sensors *s, struct err *why)
{
    struct sys_list list;
    struct rapl *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory opening the power sensors");
    /* "intel-rapl-mmio:0" shows the same package a second time */
    sys_list(&list, s->root, "intel-rapl:", "/sys/class/powercap");
    for (int i = 0; i < list.count && r->count < PACKAGES; i++) {
        if (!is_package(s->root, list.name[i])) continue;
        if (isnan(sys_number(s->root, "/sys/class/powercap/%s/energy_uj", list.name[i]))) continue;
        memcpy(r->package[r->count].zone, list.name[i], SYS_NAME);
        r->package[r->count].range_uj = sys_number(s->root, "/sys/class/powercap/%s/max_energy_range_uj",
                                                   list.name[i]);
        r->count++;
    }
    if (r->count) {
        *state = r;
        return ERR_OK;
    }
    free(r);
    return err_set(why, ERR_ABSENT, "no readable energy counter in '%s/sys/class/powercap' (%s)", s->root,
                   list.count ? "only root may read energy_uj" : "no intel-rapl zone");
}

static void rapl_sample(void *state, struct sensors *s, double *row)
{
    struct rapl *r = state;
    if (!s->due[METRIC_CPU_POWER]) return;
    double watts = 0; /* NAN as soon as one package is unknown: half of the power is no power */
    for (int i = 0; i < r->count; i++) {
        double uj = sys_number(s->root, "/sys/class/powercap/%s/energy_uj", r->package[i].zone);
        watts += rate_next(&r->package[i].energy, uj, r->package[i].range_uj, s->now_ns) / 1e6;
    }
    row[METRIC_CPU_POWER] = watts;
}

const struct source SOURCE_RAPL_LINUX = { "rapl_linux", rapl_open, rapl_sample, free };
