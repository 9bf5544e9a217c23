/* tui/cli/command_quantize_export.h - `qdyno quantize --to`: the result as a Hugging Face folder. */
#ifndef QDYNO_CLI_QUANTIZE_EXPORT_H
#define QDYNO_CLI_QUANTIZE_EXPORT_H

#include "engine/import/import.h"
#include "tui/cli/lib/lib.h"

/* Refuse what cannot be before anything is quantized: a folder that exists, flags that do not go together.
 * ERR_USAGE. */
enum err_code export_target_check(const struct cli_args *a, const char *folder, struct err *why);
/* Write the folder from the quantized file. Errors: as export_write. */
enum err_code export_run(struct export_report *out, const struct cli_global *g, const struct cli_args *a,
                         const char *in, const struct gguf *made, const char *folder, struct err *why);
/* The columns "exported_*". */
void export_put(const struct export_report *r, const struct cli_args *a, json_t *row);

#endif
