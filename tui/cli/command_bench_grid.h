/* tui/cli/command_bench_grid.h - the workloads that `qdyno bench` measures, as its flags name them. */
#ifndef QDYNO_TUI_CLI_COMMAND_BENCH_GRID_H
#define QDYNO_TUI_CLI_COMMAND_BENCH_GRID_H

#include "engine/config/config.h"
#include "tui/cli/cli.h"

enum { WORKLOADS_MAX = 256 };

struct bench_grid {
    struct workload workload[WORKLOADS_MAX];
    int n;
    int ctx;           /* largest context of them, in tokens */
    bool side_by_side; /* some workload has more than one sequence */
    /* Consecutive workloads that are measured in one process, where each repetition runs all of them in turn.
     * 1 without --rows; with it, all row counts at one depth, of which the first is 1. */
    int group;
};

/* Errors: ERR_USAGE for flags that contradict each other or leave nothing to measure. */
enum err_code bench_grid_init(struct bench_grid *g, const struct cli_args *a, struct err *why);

#endif
