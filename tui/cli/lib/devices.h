/* tui/cli/lib/devices.h - the OpenCL devices of this machine and what they can do, queried in a child
 * process.
 *
 * Listing devices loads the driver of each of them. Drivers are foreign code that may hang or crash. The
 * child process has a time limit, and its crash or time-out becomes an ordinary error. */
#ifndef QDYNO_CLI_DEVICES_H
#define QDYNO_CLI_DEVICES_H

#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "tui/cli/lib/lib.h"

enum { DEVICES_MOST = 16 };
struct devices {
    int count; /* 0: no device, no driver or no OpenCL loader */
    struct device_info device[DEVICES_MOST];
};
extern const double
    DEVICES_SECONDS; /* time limit for listing; drivers of several boards may have to wake up */

/* Errors: ERR_INTERNAL if a driver crashed or did not answer within `seconds`. */
enum err_code devices_list(struct devices *out, double seconds, struct err *why);

/* Runs opencl_ceilings with `seconds` for each measurement. Errors: those of opencl_ceilings; ERR_INTERNAL as
 * above. */
enum err_code devices_measure(struct device_ceilings *out, const char *device, double seconds,
                              struct err *why);

/* Index in m->gpu of the device, found by PCI address; -1: telemetry does not know it. */
int device_gpu(const struct machine *m, const struct device_info *d);

/* "fp16 fp64 int_dot": the optional features that kernels may use; "" for none. Returns buf. */
const char *device_abilities(const struct device_info *d, char *buf, size_t size);

/* All known properties; unknown ones are null. Returns a new reference. */
json_t *devices_to_json(const struct devices *all, const struct machine *m);

#endif
