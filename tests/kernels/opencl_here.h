/* tests/kernels/opencl_here.h - helpers of the OpenCL tests: open the first device or skip visibly, and copy
 * arrays to and from it. */
#ifndef QDYNO_TESTS_OPENCL_HERE_H
#define QDYNO_TESTS_OPENCL_HERE_H

#include "tests/kernels/numbers.h"

/* The first OpenCL device, ready for `rows` rows of `cols` inputs; skips the test when there is none. */
static inline struct backend *opencl_or_skip(int64_t rows, int64_t cols)
{
    struct err why;
    struct backend *b;
    struct device_info device;
    if (!opencl_devices(&device, 1)) {
        print_message("SKIPPED: no OpenCL device here\n");
        skip();
    }
    CHECK_OK(backend_open(&b, device.name, &(struct backend_options){ .threads = 1 }, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = rows, .cols = cols }, &why));
    return b;
}

/* Copy floats to the device; the caller frees them with backend_free. */
static inline float *sent(struct backend *b, const float *x, int64_t n)
{
    float *there = backend_alloc(b, (size_t)n * sizeof *x);
    CHECK(there);
    backend_write(b, there, x, (size_t)n * sizeof *x);
    return there;
}

/* Copy floats from the device to x, and check that all operations before succeeded. */
static inline void fetched(struct backend *b, float *x, const float *there, int64_t n)
{
    struct err why;
    backend_read(b, x, there, (size_t)n * sizeof *x);
    CHECK_OK(backend_finish(b, &why));
}

#endif
