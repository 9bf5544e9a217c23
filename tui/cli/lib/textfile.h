/* tui/cli/lib/textfile.h - files for the node exporter's textfile collector. */
#ifndef QDYNO_CLI_TEXTFILE_H
#define QDYNO_CLI_TEXTFILE_H

#include "tui/cli/lib/lib.h"

/* ERR_USAGE if the name does not end in .prom: the collector reads no other files. */
enum err_code textfile_name_check(const char *path, struct err *why);

/* Replaces the file at once, readable by all users: a reader sees the old file or the new one, never a part.
 * Errors: ERR_FIT (disk full), ERR_IO. */
enum err_code textfile_replace(const char *path, const struct str *text, struct err *why);

#endif
