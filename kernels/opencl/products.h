/* kernels/opencl/products.h - the shapes in which products run: defaults, and those that were measured. */
#ifndef QDYNO_KERNELS_OPENCL_PRODUCTS_H
#define QDYNO_KERNELS_OPENCL_PRODUCTS_H

#include "kernels/opencl/weights.h"

enum { ORDERED = 1, DIVIDED = 2, ADDED = 4 }; /* as in products.cl: of look-ups and prepared inputs */

/* The shape for such a product: measured, or the default. */
struct opencl_shape opencl_shape_of(const struct opencl *o, enum product_kind kind, const struct format *f);

/* What products.cl is compiled with for this shape and n rows of x, into buf. Returns buf. */
const char *opencl_shape_options(const struct opencl_shape *s, int n, char *buf, size_t size);

/* One product in that shape, whose x is as the weight wants it. Timed: seconds on the device, NAN on failure;
 * else NAN, and it is only enqueued. */
double opencl_product(struct opencl *o, const struct matmul *m, const struct opencl_shape *s, bool timed);

/* Whether inputs of that kind can be made on a device. */
bool opencl_prepares(enum input_kind kind);

/* Whether products with that weight are of integers: activations are asked for in 8 bits where precision
 * allows it and the weight prescribes none, and its codes are whole numbers. */
bool opencl_in_integers(const struct opencl *o, const struct weight *w);

/* m with x as its weight prescribes it, or as the codes that integers.cl takes: x itself, or in the backend's
 * scratch, which the next call overwrites. */
struct matmul opencl_prepared(struct opencl *o, const struct matmul *m);

#endif
