/* tui/cli/textfile.h - `qdyno push --textfile`. */
#ifndef QDYNO_CLI_TEXTFILE_H
#define QDYNO_CLI_TEXTFILE_H

#include "tui/cli/common.h"

/* The latest outcome of every experiment into the file at `path`, which is whole at any moment. Returns the
 * exit status. */
int push_textfile(const struct cli_global *g, const struct cli_args *a, const char *path);

#endif
