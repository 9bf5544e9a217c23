/* telemetry/gpu.c - what the GPU sources share: adding several devices up, finding them on the PCI bus. */
#include "telemetry/sensors.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct gpu_throttle GPU_THROTTLES[GPU_THROTTLE_COUNT] = {
    { GPU_THROTTLE_POWER_CAP, "power_cap", true, "the power limit, set by somebody or the board's own" },
    { GPU_THROTTLE_THERMAL, "thermal", true, "too hot: the driver lowers the clocks" },
    { GPU_THROTTLE_HW_THERMAL, "hw_thermal", true, "too hot: the hardware halves the clocks or worse" },
    { GPU_THROTTLE_HW_SLOWDOWN, "hw_slowdown", true, "the hardware's brake, reason not told" },
    { GPU_THROTTLE_POWER_BRAKE, "power_brake", true, "the power supply or the server asked for it" },
    { GPU_THROTTLE_CURRENT, "current", true, "electric current of a voltage regulator" },
    { GPU_THROTTLE_RELIABILITY, "reliability", true, "voltage limits that protect the chip's life" },
    { GPU_THROTTLE_CLOCK_SETTING, "clock_setting", false, "somebody set the clocks" },
    { GPU_THROTTLE_SYNC_BOOST, "sync_boost", true, "another GPU of its group holds it back" },
    { GPU_THROTTLE_IDLE, "idle", false, "nothing to do" },
    { GPU_THROTTLE_OTHER, "other", true, "a reason without a name here" },
};

const char *gpu_throttle_names(uint64_t reasons, char *buf, size_t size)
{
    struct str out = { 0 };
    for (int i = 0; i < GPU_THROTTLE_COUNT; i++)
        if (reasons & GPU_THROTTLES[i].bit)
            str_printf(&out, "%s%s", out.len ? " " : "", GPU_THROTTLES[i].name);
    snprintf(buf, size, "%s", out.len ? str_text(&out) : "none");
    str_free(&out);
    return buf;
}

void gpu_merge(double *row, enum metric_id id, double value)
{
    bool adds = id == METRIC_GPU_MEM_USED || id == METRIC_GPU_MEM_TOTAL || id == METRIC_GPU_POWER;
    if (isnan(value)) return;
    if (isnan(row[id]))
        row[id] = value;
    else
        row[id] = adds ? row[id] + value : MAX(row[id], value);
}

void drm_cards_find(struct drm_cards *out, const char *root, const char *pci_vendor)
{
    struct sys_list list;
    char vendor[16];
    out->count = 0;
    sys_list(&list, root, "card", "/sys/class/drm");
    for (int i = 0; i < list.count && out->count < MACHINE_GPUS; i++) {
        if (strchr(list.name[i], '-')) continue; /* a connector: "card0-HDMI-A-1" */
        sys_read(root, vendor, sizeof vendor, "/sys/class/drm/%s/device/vendor", list.name[i]);
        if (!strcmp(vendor, pci_vendor)) memcpy(out->card[out->count++], list.name[i], SYS_NAME);
    }
}

/* The device's line in pci.ids: "vvvv  vendor" then "\tdddd  device", lower-case hex. */
static bool pci_name(const char *root, const char *id, char *buf, size_t size)
{
    char path[4096], vendor[16], device[16], *ids = NULL;
    if (strlen(id) != 9 || id[4] != ':') return false;
    snprintf(vendor, sizeof vendor, "\n%.4s  ", id);
    snprintf(device, sizeof device, "\n\t%.4s  ", id + 5);
    for (char *p = vendor; *p; p++) *p = (char)tolower((unsigned char)*p);
    for (char *p = device; *p; p++) *p = (char)tolower((unsigned char)*p);
    snprintf(path, sizeof path, "%s/usr/share/misc/pci.ids", root);
    if (file_read(&ids, NULL, path, 8 << 20, NULL)) return false;
    const char *start = strstr(ids, vendor), *line = start ? strstr(start, device) : NULL;
    bool found = false;
    if (line) {
        const char *next = start + 1; /* the device must belong to this vendor: no unindented line between */
        while ((next = strchr(next, '\n')) && (next[1] == '\t' || next[1] == '#')) next++;
        found = !next || line < next;
    }
    if (found) {
        line += strlen(device);
        snprintf(buf, size, "%.*s", (int)strcspn(line, "\r\n"), line);
    }
    free(ids);
    return found;
}

void drm_card_identify(struct gpu_identity *gpu, const char *root, const char *card, const char *vendor)
{
    char uevent[1024], id[16];
    *gpu = (struct gpu_identity){ .memory_bytes = -1, .compute_major = -1, .compute_minor = -1 };
    snprintf(gpu->vendor, sizeof gpu->vendor, "%s", vendor);
    sys_read(root, uevent, sizeof uevent, "/sys/class/drm/%s/device/uevent", card);
    sys_text_field(uevent, "DRIVER", gpu->driver, sizeof gpu->driver);
    sys_text_field(uevent, "PCI_ID", id, sizeof id);
    if (sys_read(root, gpu->name, sizeof gpu->name, "/sys/class/drm/%s/device/product_name", card) > 0)
        return;
    if (!pci_name(root, id, gpu->name, sizeof gpu->name))
        snprintf(gpu->name, sizeof gpu->name, "%s GPU %s", vendor, *id ? id : card);
}
