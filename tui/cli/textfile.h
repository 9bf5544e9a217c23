/* tui/cli/textfile.h - files for the node exporter's textfile collector. */
#ifndef QDYNO_CLI_TEXTFILE_H
#define QDYNO_CLI_TEXTFILE_H

#include "tui/cli/common.h"

/* ERR_USAGE when the collector would not read a file of that name. */
enum err_code textfile_name_check(const char *path, struct err *why);
/* Readers, also those of other users, see the old file or the new one. Errors: ERR_FIT (disk full), ERR_IO.
 */
enum err_code textfile_replace(const char *path, const struct str *text, struct err *why);

/* `qdyno push --textfile`: the latest outcome of every experiment into the file at `path`, which is whole at
 * any moment. Returns the exit status. */
int push_textfile(const struct cli_global *g, const struct cli_args *a, const char *path);

#endif
