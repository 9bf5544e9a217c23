/* kernels/opencl/shapes.h - how products are cut into groups of work items on a device. What is best differs
 * from device to device by a factor, so it can be measured, and is kept by whoever asked for it: a name and a
 * text for each kind of product and family of formats, good for that device and driver. */
#ifndef QDYNO_KERNELS_OPENCL_SHAPES_H
#define QDYNO_KERNELS_OPENCL_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* Formats of one family differ in nothing that changes which shape is best. */
enum weight_family { FAMILY_32, FAMILY_16, FAMILY_8, FAMILY_4, FAMILY_2, FAMILY_COUNT };

/* Products by rows of x: one; to 8; to 32; more. The first two run gemv, the others gemm. Then the same of
 * integers (act=int8), which formats of 8 bits and less have. */
enum product_kind {
    PRODUCT_ONE,
    PRODUCT_FEW,
    PRODUCT_NARROW,
    PRODUCT_WIDE,
    PRODUCT_ONE_INT8,
    PRODUCT_FEW_INT8,
    PRODUCT_NARROW_INT8,
    PRODUCT_WIDE_INT8,
    PRODUCT_KIND_COUNT
};
enum { PRODUCT_FEW_MAX = 8, PRODUCT_NARROW_MAX = 32 };

/* The options of products.cl that have its name. */
struct opencl_shape {
    uint16_t lanes, ways, rows; /* gemv; else 0 */
    bool staged;                /* gemv: x by way of local memory */
    uint16_t tm, tn, rm, rn;    /* gemm; else 0 */
    bool half_tiles;            /* only where precision is MEDIUM; else as without */
    bool int8;                  /* of a kind ..._INT8; these are neither staged nor have half tiles */
};

/* One for each kind of product and family; all zeros: not measured, defaults run. */
struct opencl_tuning {
    struct opencl_shape shapes[PRODUCT_KIND_COUNT][FAMILY_COUNT];
};

/* ---------------------------------------------------------------- for callers that measure and keep */

struct backend;

enum { OPENCL_TUNINGS = PRODUCT_KIND_COUNT * FAMILY_COUNT, OPENCL_TUNING_TEXT = 64 };

/* "product.one.4bit", "product.one_int8.4bit", of tuning 0 <= i < OPENCL_TUNINGS. Returns buf. */
const char *opencl_tuning_name(int i, char *buf, size_t size);
bool opencl_tuning_is_used(int i); /* false: there are no such products (integers, of floats) */

/* What is tried for tuning i (which is used) on this device, and how long one product takes so: the median of
 * several on made-up matrices of a large model's size. Takes seconds, mostly of compiling. The best is used
 * from now on; its text ("lanes=32 ways=4 rows=2") goes to `text`, for opencl_tuning_use in later runs.
 * trials: what was measured, at most `most`, or NULL; returns through *count how many. Errors: those of the
 * device. */
struct opencl_trial {
    char text[OPENCL_TUNING_TEXT];
    double seconds; /* NAN: this device cannot run it */
};
enum err_code opencl_tune(struct backend *b, int i, char text[OPENCL_TUNING_TEXT],
                          struct opencl_trial *trials, int most, int *count, struct err *why);

/* Run tuning i in that shape from now on. ERR_FORMAT: the text is none, or this device cannot run it. */
enum err_code opencl_tuning_use(struct backend *b, int i, const char *text, struct err *why);

#endif
