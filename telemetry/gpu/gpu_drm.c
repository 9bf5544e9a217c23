/* telemetry/gpu/gpu_drm.c - GPUs in the kernel's DRM and hwmon files: finds and names cards, and reads tables
 * of files with one number each. */
#include "telemetry/gpu/gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/gpu/gpu_vendor.h"
#include "base/sysfs/sysfs.h"

void drm_cards_find(struct drm_cards *out, const char *root, const char *pci_vendor)
{
    struct sys_list list, hwmon;
    char vendor[16];
    *out = (struct drm_cards){ 0 };
    sys_list(&list, root, "card", "/sys/class/drm");
    for (int i = 0; i < list.count && out->count < MACHINE_GPUS; i++) {
        if (strchr(list.name[i], '-')) continue; /* a connector: "card0-HDMI-A-1" */
        sys_read(root, vendor, sizeof vendor, "/sys/class/drm/%s/device/vendor", list.name[i]);
        if (strcmp(vendor, pci_vendor)) continue;
        memcpy(out->card[out->count], list.name[i], SYS_NAME);
        sys_list(&hwmon, root, "hwmon", "/sys/class/drm/%s/device/hwmon", list.name[i]);
        if (hwmon.count) memcpy(out->hwmon[out->count], hwmon.name[0], SYS_NAME);
        out->count++;
    }
}

static const char PCI_IDS[] = "/usr/share/misc/pci.ids";

/* Finds a device in the text of pci.ids, where a line "vvvv  vendor" is followed by lines "\tdddd  device" in
 * lower-case hex. A recording may contain the vendor's line more than once. Returns the name, or NULL. */
static const char *pci_line(const char *ids, const char *vendor, const char *device)
{
    for (const char *start = ids; (start = strstr(start, vendor)); start++) {
        const char *line = strstr(start, device);
        const char *next = start + 1; /* no unindented line may lie between: it would begin another vendor */
        while ((next = strchr(next, '\n')) && (next[1] == '\t' || next[1] == '#')) next++;
        if (line && (!next || line < next)) return line + strlen(device);
    }
    return NULL;
}

/* The name of a device "10DE:2204" in the installed PCI id list. */
static bool pci_name(const char *root, const char *id, char *buf, size_t size)
{
    char path[4096], vendor[16], device[16], *ids = NULL;
    if (strlen(id) != 9 || id[4] != ':') return false;
    snprintf(vendor, sizeof vendor, "\n%.4s  ", id);
    snprintf(device, sizeof device, "\n\t%.4s  ", id + 5);
    for (char *p = vendor; *p; p++) *p = (char)tolower((unsigned char)*p);
    for (char *p = device; *p; p++) *p = (char)tolower((unsigned char)*p);
    snprintf(path, sizeof path, "%s%s", root, PCI_IDS);
    if (file_read(&ids, NULL, path, 8 << 20, NULL)) return false;
    const char *name = pci_line(ids, vendor, device);
    if (name) {
        struct str record = { 0 }; /* a recording keeps only this line of the large file */
        snprintf(buf, size, "%.*s", (int)strcspn(name, "\r\n"), name);
        str_printf(&record, "#%s%s%s\n", vendor, device, buf);
        sys_observed(root, PCI_IDS, str_text(&record), record.len);
        str_free(&record);
    }
    free(ids);
    return name != NULL;
}

void drm_cards_identify(struct gpu_list *list, const char *root, const struct drm_cards *cards,
                        const char *vendor, const char *source)
{
    for (int i = 0; i < cards->count; i++) {
        const char *card = cards->card[i];
        struct gpu_identity *gpu = gpu_list_add(list, vendor, source);
        char uevent[1024], id[16];
        if (!gpu) return;
        sys_read(root, uevent, sizeof uevent, "/sys/class/drm/%s/device/uevent", card);
        sys_text_field(uevent, "DRIVER", gpu->driver, sizeof gpu->driver);
        sys_text_field(uevent, "PCI_ID", id, sizeof id);
        sys_text_field(uevent, "PCI_SLOT_NAME", gpu->bus, sizeof gpu->bus);
        if (sys_read(root, gpu->name, sizeof gpu->name, "/sys/class/drm/%s/device/product_name", card) > 0)
            continue;
        if (!pci_name(root, id, gpu->name, sizeof gpu->name))
            snprintf(gpu->name, sizeof gpu->name, "%s GPU %s", vendor, *id ? id : card);
    }
}

void drm_pcie_link(const char *root, const char *card, int *generation, int *width)
{
    static const double GT_S[] = { 2.5, 5, 8, 16, 32, 64 }; /* of generation 1, 2, ... */
    char speed[64];                                         /* "16.0 GT/s PCIe" */
    double gt_s;
    *generation = -1;
    sys_read(root, speed, sizeof speed, "/sys/class/drm/%s/device/current_link_speed", card);
    if (sscanf(speed, "%lf GT/s", &gt_s) == 1)
        for (size_t i = 0; i < COUNT_OF(GT_S); i++)
            if (gt_s > GT_S[i] * 0.99 && gt_s < GT_S[i] * 1.01) *generation = (int)i + 1;
    const int64_t lanes = sys_integer(root, "/sys/class/drm/%s/device/current_link_width", card);
    *width = lanes > 0 && lanes <= 32 ? (int)lanes : -1;
}

static bool file_is_due(const struct drm_file *f, const struct gpu_due *due)
{
    switch (f->due) {
    case DUE_BUSY: return due->busy;
    case DUE_MEMORY: return due->memory;
    case DUE_CLOCK: return due->clock;
    case DUE_POWER: return due->power;
    case DUE_SLOW: return due->slow;
    }
    return false;
}

void drm_files_read(const struct drm_file *files, size_t n, const char *root, const struct drm_cards *cards,
                    int card, const struct gpu_due *due, struct gpu_reading *r)
{
    const char *name = cards->card[card], *hwmon = cards->hwmon[card];
    for (size_t i = 0; i < n; i++) {
        const struct drm_file *f = &files[i];
        if (!file_is_due(f, due)) continue;
        double *value = (double *)((char *)r + f->offset);
        bool again = false; /* an earlier row fills the same field */
        for (size_t k = 0; k < i; k++) again |= files[k].offset == f->offset;
        if (again && !isnan(*value)) continue;
        double v = NAN;
        if (*f->file != '@')
            v = sys_number(root, "/sys/class/drm/%s/%s", name, f->file);
        else if (*hwmon)
            v = sys_number(root, "/sys/class/drm/%s/device/hwmon/%s/%s", name, hwmon, f->file + 1);
        *value = (f->may_be_negative ? v : gpu_positive(v)) * f->scale;
    }
}
