/* tui/cli/command_models_hub.h - the parts of `qdyno models` that ask the hub, and fetching the model that -m
 * names. */
#ifndef QDYNO_CLI_COMMAND_MODELS_HUB_H
#define QDYNO_CLI_COMMAND_MODELS_HUB_H

#include "advisor/models/models.h"
#include "tui/cli/cli.h"

/* qdyno models --search TEXT, --remote OWNER/REPO, --pull NAME. They read --limit, --yes, --offline and
 * --into where the command has them. Return the exit status. */
int models_search(const struct cli_global *g, const struct cli_args *a, const char *text);
int models_remote(const struct cli_global *g, const struct cli_args *a, const char *text);
int models_pull(const struct cli_global *g, const struct cli_args *a, const char *text);

/* May the model of a name be fetched: with --yes, or because a person can answer a question? */
bool cli_may_fetch(const struct cli_global *g);
/* Fetches the model of a name that is not on this machine. Asks first on a terminal, with size and free
 * space; with
 * --yes it does not ask; without both it refuses and says what to run. *path owned: the file that a command
 * opens. Errors: as hub_pull_open, hub_pull_run; ERR_USAGE: not asked, ERR_CANCELLED: the person said no. */
enum err_code cli_fetch(char **path, const struct cli_global *g, const struct cli_args *a,
                        const struct model_name *name, struct err *why);

#endif
