/* tui/cli/command_govern_serve.h - internal: `qdyno govern --port`: real clients are answered over HTTP, and
 * a rule chooses the config that does. */
#ifndef QDYNO_CLI_COMMAND_GOVERN_SERVE_H
#define QDYNO_CLI_COMMAND_GOVERN_SERVE_H

#include "advisor/govern/govern.h"
#include "tui/cli/commands.h"

/* Serves until Ctrl-C, SIGTERM, or the limits of o (requests, for_s). The rule looks at the server every
 * o->every_s (0: 1 s). Switches and configs are in *out as after governor_run; nothing is stored. o->told is
 * called as governor_run does, s->request being the number of requests completed. Errors: those of opening
 * the models and of server_start; ERR_USAGE for a rule that does not fit. */
enum err_code governed_serve(struct governor_result *out, const struct governor_options *o,
                             const struct cli_global *g, const struct cli_args *a, struct err *why);

#endif
