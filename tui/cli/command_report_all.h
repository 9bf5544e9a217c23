/* `qdyno report --all DIR`: a site of many runs. */
#ifndef QDYNO_CLI_COMMAND_REPORT_ALL_H
#define QDYNO_CLI_COMMAND_REPORT_ALL_H

#include "tui/cli/cli.h"

int report_all(const struct cli_global *g, const struct cli_args *a);
/* Replaces the file at once, so that readers never see a part (command_report.c). Errors: as
 * atomic_file_open. */
enum err_code report_write_file(const char *path, const struct str *text, struct err *why);

#endif
