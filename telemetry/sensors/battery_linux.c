/* telemetry/sensors/battery_linux.c - whether the machine runs on battery. Clocks and power limits then drop,
 * and measurements are not comparable with those on mains. */
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/source.h"

static enum err_code battery_open(void **state, const struct sensors *s, struct err *why)
{
    bool has, on;
    machine_battery(s->root, &has, &on);
    *state = NULL;
    return has ? ERR_OK : err_set(why, ERR_ABSENT, "no battery below '%s/sys/class/power_supply'", s->root);
}

static void battery_sample(void *state, struct sensors *s, double *row)
{
    bool has, on;
    (void)state;
    if (!s->due[METRIC_ON_BATTERY]) return;
    machine_battery(s->root, &has, &on);
    if (has) row[METRIC_ON_BATTERY] = on;
}

static void battery_close(void *state)
{
    (void)state;
}

const struct source SOURCE_BATTERY_LINUX = {
    .name = "battery_linux", .open = battery_open, .sample = battery_sample, .close = battery_close
};
