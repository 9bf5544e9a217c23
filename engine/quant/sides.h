/* engine/quant/sides.h - small tensors that belong to a matrix and lie beside it in the file, as
 * "<matrix>.<what>": the quantizer writes them, loading a model reads them. docs/formats.md describes them.
 */
#ifndef QDYNO_ENGINE_QUANT_SIDES_H
#define QDYNO_ENGINE_QUANT_SIDES_H

#include "engine/gguf.h"

enum companion_kind {
    COMPANION_ORDER,           /* f32 [cols]: stored input i is input order[i] of x */
    COMPANION_DIVISORS,        /* f32 [cols]: inputs are divided by it */
    COMPANION_INPUT_SCALE,     /* f32 [3]: scale, zero and largest code of static activations */
    COMPANION_OUTLIERS,        /* f32 [n]: columns kept aside, ascending */
    COMPANION_OUTLIER_WEIGHTS, /* f16 [n][rows]: their weights, column by column */
    COMPANION_COUNT
};

/* "blk.0.attn_q.weight.order" into buf; returns buf. */
const char *companion_name(const char *matrix, enum companion_kind what, char *buf, size_t size);
const struct format *companion_format(enum companion_kind what);

/* The companion tensor of a matrix, NULL when it has none. */
const struct gguf_tensor *companion_find(const struct gguf *g, const char *matrix, enum companion_kind what);

/* Is this the name of some matrix's companion tensor? */
bool companion_is(const char *name);

#endif
