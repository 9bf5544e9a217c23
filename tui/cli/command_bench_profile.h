/* tui/cli/command_bench_profile.h - `qdyno bench --profile`: what each operator of a forward pass takes. */
#ifndef QDYNO_CLI_COMMAND_BENCH_PROFILE_H
#define QDYNO_CLI_COMMAND_BENCH_PROFILE_H

#include "tui/cli/cli.h"

/* Refuses --layers and --folded without --profile, and flags that do not go with it. */
enum err_code bench_profile_check(const struct cli_args *a, struct err *why);
int bench_profile(const struct cli_global *g, const struct cli_args *a);

#endif
