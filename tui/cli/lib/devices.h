/* tui/cli/lib/devices.h - the OpenCL devices of this machine and what they can do, asked for in a process of
 * its own.
 *
 * Listing loads the driver of every installed device, foreign code that may hang or crash: that process is
 * given a time, and what becomes of it is an error like others. */
#ifndef QDYNO_CLI_DEVICES_H
#define QDYNO_CLI_DEVICES_H

#include "tui/cli/lib/lib.h"

enum { DEVICES_MOST = 16 };
struct devices {
    int count; /* 0: no device, no driver or no loader */
    struct device_info device[DEVICES_MOST];
};
extern const double DEVICES_SECONDS; /* enough for drivers of several boards that wake up */
/* Errors: ERR_INTERNAL when a driver crashed or did not answer in `seconds`. */
enum err_code devices_list(struct devices *out, double seconds, struct err *why);

/* opencl_ceilings, each over `seconds`. Errors: its own; ERR_INTERNAL as above. */
enum err_code devices_measure(struct device_ceilings *out, const char *device, double seconds,
                              struct err *why);

/* Where in m->gpu the device is, by its PCI address; -1: telemetry does not know it. */
int device_gpu(const struct machine *m, const struct device_info *d);
/* The device that a GPU of telemetry is, by its PCI address; NULL: none. */
const struct device_info *device_of_gpu(const struct devices *all, const struct gpu_identity *gpu);

/* "fp16 fp64 int_dot": what its kernels may use; "" nothing. Returns buf. */
const char *device_abilities(const struct device_info *d, char *buf, size_t size);

/* Everything that is known of them; unknown = null. New reference. */
json_t *devices_to_json(const struct devices *all, const struct machine *m);

#endif
