/* tui/cli/command_eval_run.h - the stored run of `qdyno eval`, with and without --task. */
#ifndef QDYNO_CLI_EVAL_RUN_H
#define QDYNO_CLI_EVAL_RUN_H

#include "engine/model/model.h"
#include "tui/cli/lib/measured.h"

/* The current config's model was loaded: stores its identity, also in sha256. kind: of the run, and what its
 * workload begins with; file: text or questions. Errors: as measured_opened. */
enum err_code eval_model_opened(struct measured *k, char sha256[HASH_HEX], const char *kind, const char *file,
                                const struct model *m, struct moment begun, struct err *why);

#endif
