/* engine/operations.h - what one forward pass is made of, by shape and format: what a cost model adds up.
 *
 * Computed from a file's metadata and a config, like the memory plan; nothing is loaded. */
#ifndef QDYNO_ENGINE_OPERATIONS_H
#define QDYNO_ENGINE_OPERATIONS_H

#include "engine/model.h"

/* When a product meets which rows. */
enum product_part {
    PRODUCT_EARLY,  /* up to attention: every row */
    PRODUCT_LATE,   /* behind it: of the last layer only rows whose logits are wanted */
    PRODUCT_OUTPUT, /* logits: rows whose logits are wanted */
};

struct model_product {
    const struct format *format;
    enum product_part part;
    int64_t rows, cols;
    int64_t together; /* weights of all that one call multiplies with the same inputs, these among them */
    int count;        /* such matrices in all layers */
    int last;         /* of them, those of the last layer */
};

enum { MODEL_PRODUCTS_MAX = 320 };
struct model_operations {
    struct model_shape shape;
    const struct format *k_format, *v_format;
    int batch;                   /* rows per pass at most */
    int window, windowed_layers; /* layers that look back `window` tokens only; 0, 0: none */
    int n;
    struct model_product product[MODEL_PRODUCTS_MAX];
};
/* Errors: as memory_plan_compute. */
enum err_code model_operations_read(struct model_operations *out, const struct gguf *g,
                                    const struct config *c, struct err *why);

#endif
