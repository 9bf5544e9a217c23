/* telemetry/gpu/gpu_vendor.h - the interface that the code of each GPU vendor implements (internal to
 * telemetry/gpu).
 *
 * A vendor is a row of GPU_VENDORS in gpu.c. README.md explains how to add one. */
#ifndef QDYNO_TELEMETRY_GPU_VENDOR_H
#define QDYNO_TELEMETRY_GPU_VENDOR_H

#include <math.h>

#include "telemetry/gpu/gpu.h"
#include "telemetry/gpu/gpu_library.h"
#include "base/sysfs/sysfs.h"

struct gpu_list {
    int count;
    struct gpu_identity gpu[MACHINE_GPUS];
};

struct gpu_vendor {
    const char *name;
    /* Appends the vendor's devices to *list, which may already hold devices of other vendors. *state belongs
     * to the vendor's code. ERR_ABSENT (the usual case): no device here, and *why says why. */
    enum err_code (*open)(void **state, const char *root, struct gpu_list *list, struct err *why);
    /* Updates the fields that are due. reading[i] is the i-th device this vendor appended; its identity
     * fields (vendor, name, bus) are already set. A field that is due but cannot be read becomes NAN. NULL:
     * the vendor's code identifies devices but reads no values. */
    void (*sample)(void *state, const char *root, const struct gpu_due *due, int64_t now_ns,
                   struct gpu_reading *reading);
    void (*close)(void *state);
    const struct gpu_library_kind *library; /* its answers are kept in a recording; NULL: files only */
};
extern const struct gpu_vendor *const GPU_VENDORS[GPU_VENDOR_COUNT];
extern const struct gpu_vendor GPU_VENDOR_NVML, GPU_VENDOR_AMDGPU, GPU_VENDOR_INTEL, GPU_VENDOR_OPENCL;

/* Appends a device with all fields unknown except vendor and source. Returns NULL when the list is full. */
struct gpu_identity *gpu_list_add(struct gpu_list *list, const char *vendor, const char *source);

/* Sets every measured field to unknown and keeps the identity fields. */
void gpu_reading_forget(struct gpu_reading *r);

/* Counts one more process of the device, and stores it if it is among the GPU_PROCESSES largest. */
void gpu_process_add(struct gpu_reading *r, int pid, double mem_used_bytes);

/* v, or NAN when v is negative: a negative reading of a quantity that cannot be negative is an error value.
 */
static inline double gpu_positive(double v)
{
    return v >= 0 ? v : (double)NAN;
}

/* ---------------------------------------------------------------- devices below /sys/class/drm (gpu_drm.c)
 */

/* The cards /sys/class/drm/cardN whose PCI vendor is `pci_vendor` ("0x1002"). */
struct drm_cards {
    int count;
    char card[MACHINE_GPUS][SYS_NAME];  /* "card0" */
    char hwmon[MACHINE_GPUS][SYS_NAME]; /* "hwmon3", a folder of the card's device; "": none */
};
void drm_cards_find(struct drm_cards *out, const char *root, const char *pci_vendor);
/* Appends all cards with name (from the card's own file or the installed PCI id list), driver and PCI
 * address. */
void drm_cards_identify(struct gpu_list *list, const char *root, const struct drm_cards *cards,
                        const char *vendor, const char *source);
/* Generation and lanes of the card's PCI Express link at present; -1: unknown. */
void drm_pcie_link(const char *root, const char *card, int *generation, int *width);

/* One row of a vendor's table: a driver file that holds one number, and the field it fills. */
struct drm_file {
    enum { DUE_BUSY, DUE_MEMORY, DUE_CLOCK, DUE_POWER, DUE_SLOW } due;
    size_t offset;    /* of the double in struct gpu_reading */
    const char *file; /* below the card's folder; with a leading "@": below its hwmon folder */
    double scale;     /* field value = number in the file * scale */
    bool may_be_negative;
};
/* Reads the files of all rows that are due. When several rows fill one field, the first readable file wins.
 */
void drm_files_read(const struct drm_file *files, size_t n, const char *root, const struct drm_cards *cards,
                    int card, const struct gpu_due *due, struct gpu_reading *r);

#endif
