/* telemetry/gpu_vendor.h - the one interface every vendor's GPUs stand behind (inside telemetry/).
 *
 * A vendor is a row of GPU_VENDORS (gpu.c). See telemetry/README.md for how to add one. */
#ifndef QDYNO_TELEMETRY_GPU_VENDOR_H
#define QDYNO_TELEMETRY_GPU_VENDOR_H

#include <math.h>

#include "telemetry/gpu_library.h"
#include "telemetry/sysfs.h"
#include "telemetry/telemetry.h"

/* The fields of struct gpu_reading wanted at this tick; a source leaves the others as they are. */
struct gpu_due {
    bool busy;     /* busy_ratio, memory_busy_ratio */
    bool memory;   /* mem_*, host_mem_* */
    bool clock;    /* core_hertz, memory_hertz, pcie_*_bytes_s */
    bool throttle; /* throttle_known, throttle_reasons */
    bool power;    /* power_*, energy_joules */
    bool slow;     /* everything else: temperatures, fan, processes, errors, the link, most clocks */
};

struct gpu_list {
    int count;
    struct gpu_identity gpu[MACHINE_GPUS];
};

struct gpu_vendor {
    const char *name;
    /* Append the vendor's devices to *list (the rows before are other vendors'). ERR_ABSENT: none here, the
     * usual case. *state is the vendor's own, *why tells more in either case. */
    enum err_code (*open)(void **state, const char *root, struct gpu_list *list, struct err *why);
    /* Write what is due and known into reading[i] of the i-th device this vendor appended; a due value that
     * cannot be read now becomes NAN. identify: fields vendor, name and bus are already there. NULL: names
     * only. */
    void (*sample)(void *state, const char *root, const struct gpu_due *due, int64_t now_ns,
                   struct gpu_reading *reading);
    void (*close)(void *state);
    const struct gpu_library_kind *library; /* whose answers a recording keeps; NULL: files only */
};
extern const struct gpu_vendor *const GPU_VENDORS[];
extern const size_t GPU_VENDOR_COUNT;
extern const struct gpu_vendor GPU_VENDOR_NVML, GPU_VENDOR_AMDGPU, GPU_VENDOR_INTEL, GPU_VENDOR_OPENCL;

/* The devices alone. Returns how many (at most MACHINE_GPUS). */
int gpu_identify(const char *root, struct gpu_identity gpu[MACHINE_GPUS]);

/* A new row of the list with everything unknown but the vendor; NULL when it is full. */
struct gpu_identity *gpu_list_add(struct gpu_list *list, const char *vendor, const char *source);

/* Every measured field becomes unknown; who the device is stays. */
void gpu_reading_forget(struct gpu_reading *r);

/* One more process of the device: counted, and kept when it is among the largest. */
void gpu_process_add(struct gpu_reading *r, int pid, double mem_used_bytes);

/* NAN below 0: no such quantity is negative. */
static inline double gpu_positive(double v)
{
    return v >= 0 ? v : (double)NAN;
}

/* ---------------------------------------------------------------- devices that DRM shows (gpu_drm.c) */

/* GPUs on the PCI bus: /sys/class/drm/cardN whose vendor is `pci_vendor` ("0x1002"). */
struct drm_cards {
    int count;
    char card[MACHINE_GPUS][SYS_NAME];  /* "card0" */
    char hwmon[MACHINE_GPUS][SYS_NAME]; /* "hwmon3" below the card's device, "" none */
};
void drm_cards_find(struct drm_cards *out, const char *root, const char *pci_vendor);
/* Append them all: name (the card's own file or the PCI id list, when installed), driver, PCI address. */
void drm_cards_identify(struct gpu_list *list, const char *root, const struct drm_cards *cards,
                        const char *vendor, const char *source);
/* Generation and width of the card's PCI Express link now, -1 unknown. */
void drm_pcie_link(const char *root, const char *card, int *generation, int *width);

/* A table of files with one number each, as the vendors' drivers have them. */
struct drm_file {
    enum { DUE_BUSY, DUE_MEMORY, DUE_CLOCK, DUE_POWER, DUE_SLOW } due;
    size_t offset;    /* of a double of struct gpu_reading */
    const char *file; /* below the card, "@" in front: below its hwmon folder */
    double scale;
    bool may_be_negative;
};
/* Where several rows fill one field, the first whose file can be read does. */
void drm_files_read(const struct drm_file *files, size_t n, const char *root, const struct drm_cards *cards,
                    int card, const struct gpu_due *due, struct gpu_reading *r);

#endif
