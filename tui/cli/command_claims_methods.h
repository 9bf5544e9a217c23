/* tui/cli/command_claims_methods.h - what is usually said of each quantization method, beside what was
 * measured of it here. */
#ifndef QDYNO_CLI_CLAIMS_METHODS_H
#define QDYNO_CLI_CLAIMS_METHODS_H

#include "tui/cli/lib/lib.h"

/* Adds the member "methods" and the same as lines under the table. The experiment's own arms have its
 * figures; other configs those of earlier runs of the model on this machine, or none. A failure becomes a
 * line, because the claims are judged already. */
void claims_put_methods(struct table *t, const struct cli_global *g, const struct experiment_state *s);

#endif
