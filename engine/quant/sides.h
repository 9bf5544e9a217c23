/* engine/quant/sides.h - small tensors that belong to a matrix and lie beside it in the file, as
 * "<matrix>.<what>": the quantizer writes them, loading a model reads them. docs/formats.md describes them.
 */
#ifndef QDYNO_ENGINE_QUANT_SIDES_H
#define QDYNO_ENGINE_QUANT_SIDES_H

#include "engine/gguf.h"

enum side_what {
    SIDE_ORDER,           /* f32 [cols]: stored input i is input order[i] of x */
    SIDE_DIVIDE,          /* f32 [cols]: inputs are divided by it */
    SIDE_INPUT,           /* f32 [3]: scale, zero and largest code of static activations */
    SIDE_OUTLIERS,        /* f32 [n]: columns kept aside, ascending */
    SIDE_OUTLIER_WEIGHTS, /* f16 [n][rows]: their weights, column by column */
    SIDE_MAX
};

/* "blk.0.attn_q.weight.order" into buf; returns buf. */
const char *side_name(const char *matrix, enum side_what what, char *buf, size_t size);
const struct format *side_format(enum side_what what);

/* The side tensor of a matrix, NULL when it has none. */
const struct gguf_tensor *side_find(const struct gguf *g, const char *matrix, enum side_what what);

/* Is this the name of some matrix's side tensor? */
bool side_is(const char *name);

#endif
