/* kernels/opencl/weights.h - how matrices lie on a device: as planes, which formats.cl reads. */
#ifndef QDYNO_KERNELS_OPENCL_WEIGHTS_H
#define QDYNO_KERNELS_OPENCL_WEIGHTS_H

#include "kernels/opencl/opencl.h"
#include "kernels/opencl/shapes.h"

/* Where one matrix keeps what: bytes from its beginning. Planes begin at multiples of PLANE_ALIGN. */
enum { PLANE_ALIGN = 128, PLANE_COUNT = 4 };
struct planes {
    int64_t at[PLANE_COUNT]; /* low, high, fine, coarse */
    int64_t row_bytes[PLANE_COUNT];
    int64_t units; /* that a row is padded to */
    int64_t end;
};
struct planes opencl_planes(const struct format *f, int64_t rows, int64_t cols);

enum weight_family opencl_family(const struct format *f);

/* Bits of the low plane where weights are whole numbers under a scale, which integers.cl multiplies; else 0.
 */
int opencl_code_bits(const struct format *f);

/* What formats.cl is compiled with for this format, into buf. Returns buf. */
const char *opencl_format_options(const struct format *f, char *buf, size_t size);

/* Where the arrays of a weight's inputs lie on the device, behind its planes; NULL: there is none. */
const void *opencl_order(const struct weight *w);
const void *opencl_divide(const struct weight *w);

#endif
