/* kernels/opencl/shapes.h - how products are cut into groups of work items on a device. What is best differs
 * from device to device by a factor, so it is measured once (opencl_tune) and kept by whoever calls. */
#ifndef QDYNO_KERNELS_OPENCL_SHAPES_H
#define QDYNO_KERNELS_OPENCL_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Formats of one family differ in nothing that changes which shape is best. */
enum weight_family { FAMILY_32, FAMILY_16, FAMILY_8, FAMILY_4, FAMILY_2, FAMILY_COUNT };

/* Products by rows of x: one; to 8; to 32; more. The first two run gemv, the others gemm. */
enum product_kind { PRODUCT_ONE, PRODUCT_FEW, PRODUCT_NARROW, PRODUCT_WIDE, PRODUCT_KIND_COUNT };
enum { PRODUCT_FEW_MAX = 8, PRODUCT_NARROW_MAX = 32 };

/* The options of products.cl that have its name. */
struct opencl_shape {
    uint16_t lanes, ways, rows; /* gemv; else 0 */
    uint16_t tm, tn, rm, rn;    /* gemm; else 0 */
    bool half_tiles;            /* MEDIUM only, and where the device has f16 */
};

/* One for each kind of product and family; all zeros: not measured, defaults run. */
struct opencl_tuning {
    struct opencl_shape shapes[PRODUCT_KIND_COUNT][FAMILY_COUNT];
};

#endif
