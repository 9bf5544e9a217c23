/* engine/import/tensors.h - the tensors of a checkpoint as tensors of a model. */
#ifndef QDYNO_ENGINE_IMPORT_TENSORS_H
#define QDYNO_ENGINE_IMPORT_TENSORS_H

#include "engine/import/checkpoint.h"
#include "engine/import/quantized.h"

/* Fill c->parts.tensors: every tensor that the architecture may have and the checkpoint has, under our name.
 * Tensors that nobody here knows become metadata keys that arch_unknown names. Metadata was put before.
 * ERR_FORMAT, ERR_NOMEM. */
enum err_code tensors_map(struct checkpoint *c, struct err *why);

/* How a tensor of tensors_map is made from a quantized matrix: the matrix, and the row of it that row `row`
 * of the tensor (of all matrices together) is. NULL: it is not made from one. */
const struct linear *tensor_matrix(const struct gguf_tensor *t);
int64_t tensor_matrix_row(const struct gguf_tensor *t, int64_t row);

#endif
