/* kernels/opencl/device.h - finding a device by the name that users give it. */
#ifndef QDYNO_KERNELS_OPENCL_DEVICE_H
#define QDYNO_KERNELS_OPENCL_DEVICE_H

#include "kernels/opencl/opencl.h"

/* "opencl:1" -> the second device that opencl_devices lists. ERR_USAGE, ERR_ABSENT. */
enum err_code device_find(struct device_info *out, cl_device_id *id, const char *device, struct err *why);

#endif
