/* telemetry/machine/machine_battery.c - whether the machine has a battery and runs on it. */
#include "telemetry/machine/machine.h"

#include <string.h>

#include "base/sysfs/sysfs.h"

void machine_battery(const char *root, bool *has_battery, bool *on_battery)
{
    struct sys_list list;
    bool mains = false, mains_online = false, discharging = false;
    *has_battery = *on_battery = false;
    sys_list(&list, root, "", "/sys/class/power_supply");
    for (int i = 0; i < list.count; i++) {
        char type[32], scope[32], status[32];
        sys_read(root, type, sizeof type, "/sys/class/power_supply/%s/type", list.name[i]);
        sys_read(root, scope, sizeof scope, "/sys/class/power_supply/%s/scope", list.name[i]);
        if (!strcmp(scope, "Device")) continue; /* the battery of a mouse or another device */
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
