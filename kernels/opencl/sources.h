/* kernels/opencl/sources.h - the OpenCL C files embedded in the program. */
#ifndef QDYNO_KERNELS_OPENCL_SOURCES_H
#define QDYNO_KERNELS_OPENCL_SOURCES_H

#include "kernels/opencl/opencl.h"

struct opencl_text {
    const char *name, *begin, *end;
};
extern const struct opencl_text OPENCL_TEXTS[SOURCE_COUNT];

#endif
