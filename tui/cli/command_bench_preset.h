/* tui/cli/command_bench_preset.h - `qdyno bench --preset`: all scenarios of a folder, one after the other. */
#ifndef QDYNO_CLI_COMMAND_BENCH_PRESET_H
#define QDYNO_CLI_COMMAND_BENCH_PRESET_H

#include <jansson.h>

#include "tui/cli/cli.h"

/* Refuses --again without --preset, and flags that a preset decides. */
enum err_code bench_preset_check(const struct cli_args *a, struct err *why);
int bench_preset(const struct cli_global *g, const struct cli_args *a);

/* command_bench.c: measures what the flags name as one run, and prints nothing. *document: its table, in
 * which a config that fails is a row with an error; NULL after an error of the return value (new reference).
 */
enum err_code bench_measure(json_t **document, const struct cli_global *g, const struct cli_args *a,
                            struct err *why);

#endif
