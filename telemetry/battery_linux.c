/* telemetry/battery_linux.c - whether the machine runs from its battery, where clocks and power limits drop
 * and a comparison is worth nothing. */
#include "telemetry/sensors.h"

#include <math.h>
#include <string.h>

void battery_state(const char *root, bool *has_battery, bool *on_battery)
{
    struct sys_list list;
    bool mains = false, mains_online = false, discharging = false;
    *has_battery = *on_battery = false;
    sys_list(&list, root, "", "/sys/class/power_supply");
    for (int i = 0; i < list.count; i++) {
        char type[32], scope[32], status[32];
        sys_read(root, type, sizeof type, "/sys/class/power_supply/%s/type", list.name[i]);
        sys_read(root, scope, sizeof scope, "/sys/class/power_supply/%s/scope", list.name[i]);
        if (!strcmp(scope, "Device")) continue; /* the mouse's battery */
        if (!strcmp(type, "Battery")) {
            *has_battery = true;
            sys_read(root, status, sizeof status, "/sys/class/power_supply/%s/status", list.name[i]);
            if (!strcmp(status, "Discharging")) discharging = true;
        } else if (!strcmp(type, "Mains") || !strcmp(type, "USB")) {
            int64_t online = sys_integer(root, "/sys/class/power_supply/%s/online", list.name[i]);
            mains |= online >= 0;
            mains_online |= online > 0;
        }
    }
    *on_battery = *has_battery && (mains ? !mains_online : discharging);
}

static enum err_code battery_open(void **state, const struct sensors *s, struct err *why)
{
    bool has, on;
    battery_state(s->root, &has, &on);
    *state = NULL;
    return has ? ERR_OK : err_set(why, ERR_ABSENT, "no battery below '%s/sys/class/power_supply'", s->root);
}

static void battery_sample(void *state, struct sensors *s, double *row)
{
    bool has, on;
    (void)state;
    if (!s->due[METRIC_ON_BATTERY]) return;
    battery_state(s->root, &has, &on);
    if (has) row[METRIC_ON_BATTERY] = on;
}

static void battery_close(void *state)
{
    (void)state;
}

const struct source SOURCE_BATTERY_LINUX = { "battery_linux", battery_open, battery_sample, battery_close };
