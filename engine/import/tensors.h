/* engine/import/tensors.h - the tensors of a checkpoint as tensors of a model. */
#ifndef QDYNO_ENGINE_IMPORT_TENSORS_H
#define QDYNO_ENGINE_IMPORT_TENSORS_H

#include "engine/import/checkpoint.h"

/* Fill c->parts.tensors: every tensor that the architecture may have and the checkpoint has, under our name.
 * Tensors that nobody here knows become metadata keys that arch_unknown names. Metadata was put before.
 * ERR_FORMAT, ERR_NOMEM. */
enum err_code tensors_map(struct checkpoint *c, struct err *why);

#endif
