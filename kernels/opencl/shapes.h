/* kernels/opencl/shapes.h - how products are divided into work groups on a device. The best shape differs
 * between devices, with large effects on speed, so it can be measured: a name and a text for each kind of
 * product and family of formats, valid for one device and driver. The caller stores the result. */
#ifndef QDYNO_KERNELS_OPENCL_SHAPES_H
#define QDYNO_KERNELS_OPENCL_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* Formats with the same bits per weight, which have the same best shape. */
enum weight_family { FAMILY_32, FAMILY_16, FAMILY_8, FAMILY_4, FAMILY_2, WEIGHT_FAMILY_COUNT };

/* Kinds of products by rows of x: one, up to 8, up to 32, more. The first two use gemv, the others gemm. Then
 * the same with integers (act=int8), for formats with at most 8 bits. */
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

/* The compile options of products.cl of the same names. */
struct opencl_shape {
    uint16_t lanes, ways, rows; /* gemv; else 0 */
    bool staged;                /* gemv: copy x to local memory first */
    uint16_t tm, tn, rm, rn;    /* gemm; else 0 */
    bool half_tiles;            /* only where precision is MEDIUM; else as without */
    bool int8;                  /* of a kind ..._INT8; these are neither staged nor have half tiles */
};

/* One shape for each kind of product and family; all zeros: not measured, use the default. */
struct opencl_tuning {
    struct opencl_shape shapes[PRODUCT_KIND_COUNT][WEIGHT_FAMILY_COUNT];
};

/* ---------------------------------------------------------------- for callers that measure and keep */

struct backend;

enum { OPENCL_TUNINGS = PRODUCT_KIND_COUNT * WEIGHT_FAMILY_COUNT, OPENCL_TUNING_TEXT = 64 };

/* "product.one.4bit", "product.one_int8.4bit", of tuning 0 <= i < OPENCL_TUNINGS. Returns buf. */
const char *opencl_tuning_name(int i, char *buf, size_t size);
bool opencl_tuning_is_used(int i); /* false: there are no such products (integers, of floats) */

/* Measure the candidate shapes of tuning i (opencl_tuning_is_used) on this device: the median time of several
 * products with random matrices of a large model's size. Takes seconds, mostly compilation. The best shape is
 * used from now on; its text ("lanes=32 ways=4 rows=2") goes to `text`, for opencl_tuning_use in later runs.
 * trials: NULL, or space for `most` results; *count: their number. Errors: those of the device. */
struct opencl_trial {
    char text[OPENCL_TUNING_TEXT];
    double seconds; /* NAN: the device cannot run it */
};
enum err_code opencl_tune(struct backend *b, int i, char text[OPENCL_TUNING_TEXT],
                          struct opencl_trial *trials, int most, int *count, struct err *why);

/* Use that shape for tuning i from now on. Errors: ERR_FORMAT if the text is no shape or the device cannot
 * run it. */
enum err_code opencl_tuning_use(struct backend *b, int i, const char *text, struct err *why);

#endif
