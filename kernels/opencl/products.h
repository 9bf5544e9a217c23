/* kernels/opencl/products.h - the work-group shapes of products (defaults and measured ones), and their
 * inputs. */
#ifndef QDYNO_KERNELS_OPENCL_PRODUCTS_H
#define QDYNO_KERNELS_OPENCL_PRODUCTS_H

#include "kernels/opencl/weights.h"

enum { ORDERED = 1, DIVIDED = 2, ADDED = 4 }; /* as in products.cl: of look-ups and prepared inputs */

/* The shape for such a product: measured, or the default. */
struct opencl_shape opencl_shape_of(const struct opencl *o, enum product_kind kind, const struct format *f);

/* Write the compile options of products.cl for this shape and n rows of x into buf. Returns buf. */
const char *opencl_shape_options(const struct opencl_shape *s, int n, char *buf, size_t size);

/* Run one product in that shape; x must be prepared as the weight prescribes. Returns the execution time in
 * seconds if `timed` (NAN on failure); otherwise enqueues it only and returns NAN. */
double opencl_product(struct opencl *o, const struct matmul *m, const struct opencl_shape *s, bool timed);

/* Whether a device supports that kind of activation quantization. */
bool opencl_prepares(enum input_kind kind);

/* Whether products with that weight use integers: act=int8, the precision allows rounding, the weight
 * prescribes nothing, and its codes are integers. */
bool opencl_in_integers(const struct opencl *o, const struct weight *w);

/* Return m with x prepared as its weight prescribes, or as the codes that integers.cl reads: x itself, or a
 * copy in the backend's scratch memory, which the next call overwrites. */
struct matmul opencl_prepared(struct opencl *o, const struct matmul *m);

#endif
