/* kernels/opencl/weights.h - the layout of matrices on a device: planes, which formats.cl reads. */
#ifndef QDYNO_KERNELS_OPENCL_WEIGHTS_H
#define QDYNO_KERNELS_OPENCL_WEIGHTS_H

#include "kernels/opencl/opencl.h"
#include "kernels/opencl/shapes.h"

/* The layout of one matrix, as byte offsets. Planes begin at multiples of PLANE_ALIGN. */
enum { PLANE_ALIGN = 128, PLANE_COUNT = 4 };
struct planes {
    int64_t at[PLANE_COUNT]; /* low, high, fine, coarse */
    int64_t row_bytes[PLANE_COUNT];
    int64_t units; /* that a row is padded to */
    int64_t end;
};
struct planes opencl_planes(const struct format *f, int64_t rows, int64_t cols);

enum weight_family opencl_family(const struct format *f);

/* Bits per code in the low plane, for formats with integer codes, which integers.cl can multiply; 0 for
 * others. */
int opencl_code_bits(const struct format *f);

/* Write the compile options of formats.cl for this format into buf. Returns buf. */
const char *opencl_format_options(const struct format *f, char *buf, size_t size);

/* The device addresses of a weight's arrays `order` and `divide`, which follow its planes; NULL: none. */
const void *opencl_order(const struct weight *w);
const void *opencl_divide(const struct weight *w);

#endif
