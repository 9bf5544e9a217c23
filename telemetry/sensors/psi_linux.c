/* telemetry/sensors/psi_linux.c - pressure stall information: how long tasks waited for a resource.
 *
 * The kernel's averages cover ten seconds or more. The increase of its microsecond counter covers exactly the
 * sampling period. Kernels before 4.20, or with psi=0, have neither. */
#include "telemetry/sensors/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "base/sysfs/sysfs.h"

enum { PRESSURES = 3 };
static const struct {
    const char *file;
    enum metric_id metric;
} PRESSURE[PRESSURES] = { { .file = "cpu", .metric = METRIC_PSI_CPU },
                          { .file = "memory", .metric = METRIC_PSI_MEMORY },
                          { .file = "io", .metric = METRIC_PSI_IO } };

struct psi {
    struct rate some[PRESSURES];
};

static enum err_code psi_open(void **state, const struct sensors *s, struct err *why)
{
    if (!sys_exists(s->root, "/proc/pressure"))
        return err_set(why, ERR_ABSENT, "the kernel provides no pressure information (%s/proc/pressure)",
                       s->root);
    *state = calloc(1, sizeof(struct psi));
    return *state ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory opening the pressure sensors");
}

/* Microseconds during which at least one task waited, from a line such as
 * "some avg10=0.08 avg60=0.49 avg300=1.18 total=11363445". */
static double some_total_us(const char *root, const char *file)
{
    char text[256];
    sys_read(root, text, sizeof text, "/proc/pressure/%s", file);
    text[strcspn(text, "\n")] = '\0';
    const char *total = strncmp(text, "some ", 5) ? NULL : strstr(text, " total=");
    int64_t us;
    return total && str_to_i64(total + strlen(" total="), &us) ? (double)us : NAN;
}

static void psi_sample(void *state, struct sensors *s, double *row)
{
    struct psi *p = state;
    for (int i = 0; i < PRESSURES; i++) {
        if (!s->due[PRESSURE[i].metric]) continue;
        double us_s = rate_next(&p->some[i], some_total_us(s->root, PRESSURE[i].file), 0, s->now_ns);
        if (!isnan(us_s)) row[PRESSURE[i].metric] = MIN(us_s / 1e6, 1);
    }
}

const struct source SOURCE_PSI_LINUX = {
    .name = "psi_linux", .open = psi_open, .sample = psi_sample, .close = free
};
