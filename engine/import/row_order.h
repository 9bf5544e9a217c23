/* engine/import/row_order.h - which row of the checkpoint's tensor each row of ours is. */
#ifndef QDYNO_ENGINE_IMPORT_ROW_ORDER_H
#define QDYNO_ENGINE_IMPORT_ROW_ORDER_H

#include "engine/import/checkpoint.h"

/* *out [*rows] from `memory`: row i of ours is row out[i] of a tensor with `have` rows, in each of its
 * matrices; *out NULL: the same rows in the same order. *rows: how many ours has. `change`: bits of enum
 * change, `kv_heads`: heads of this tensor have KV heads' number (for CHANGE_ROTARY). ERR_FORMAT: the number
 * of rows does not fit the model; the caller adds the tensor's name. */
enum err_code row_order(const int64_t **out, int64_t *rows, struct arena *memory, const struct hf_sizes *s,
                        unsigned change, bool kv_heads, int64_t have, struct err *why);

#endif
