/* tui/cli/lib/trained_context.h - says when a context is longer than what a model was trained on. */
#ifndef QDYNO_TUI_CLI_TRAINED_CONTEXT_H
#define QDYNO_TUI_CLI_TRAINED_CONTEXT_H

#include "base/base.h"

struct config; /* engine/config/config.h */

/* Compares the contexts of configs with those that their models were trained on. */
struct trained_context {
    bool known;              /* some model file says on which context it was trained */
    int64_t tokens, trained; /* of the first config that is beyond it; both 0: none is */
};

/* Adds a config that runs the model file at `model` ("": none). Its context is its ctx=, else `needed`, the
 * tokens of the workload. Files that cannot be read are skipped: opening them to run says why. Returns true
 * for the first config that is beyond the trained context. */
bool trained_context_add(struct trained_context *k, const char *model, const struct config *c,
                         int64_t needed);

/* Adds "beyond_trained_context" to the document, if known. */
void trained_context_put(json_t *document, const struct trained_context *k);

/* The text of the note, for printf: tokens, trained context. */
#define TRAINED_CONTEXT_NOTE                                                                                 \
    "the context has %lld tokens, but the model was trained on %lld: speed is measured as "                  \
    "usual, text beyond that may be meaningless"

#endif
