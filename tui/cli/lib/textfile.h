/* tui/cli/lib/textfile.h - files for the node exporter's textfile collector. */
#ifndef QDYNO_CLI_TEXTFILE_H
#define QDYNO_CLI_TEXTFILE_H

#include "tui/cli/lib/lib.h"

/* ERR_USAGE when the collector would not read a file of that name. */
enum err_code textfile_name_check(const char *path, struct err *why);
/* Readers, also those of other users, see the old file or the new one. Errors: ERR_FIT (disk full), ERR_IO.
 */
enum err_code textfile_replace(const char *path, const struct str *text, struct err *why);

#endif
