/* tui/cli/command_bench_grid.h - the workloads that `qdyno bench` measures, as its flags name them. */
#ifndef QDYNO_TUI_CLI_COMMAND_BENCH_GRID_H
#define QDYNO_TUI_CLI_COMMAND_BENCH_GRID_H

#include "advisor/run/run.h"
#include "engine/config/config.h"
#include "tui/cli/cli.h"
#include "tui/cli/lib/output.h"

enum { WORKLOADS_MAX = 256 };

struct bench_grid {
    const char *prompts; /* file of --prompts; NULL: none */
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

/* Find the highest rate at which a load with rate=auto meets its limits with this config, and write it to w.
 * `what` describes the cells. Errors: those of the cells; ERR_USAGE: no rate does. */
enum err_code bench_find_rate(struct workload *w, struct run *run, const struct run_cell *what,
                              const struct config *config, struct err *why);
/* command_bench_notes.c: notes what the rows together say: rates beyond a limit, a slower machine, answers
 * not to rely on. without_text: the model's tokenizer is missing. */
void bench_note_rows(struct table *t, bool ceilings_known, bool without_text);
/* A note for each process of a cell with parallel=: its part of the model, its machine, and what it did with
 * its time. answer: of the cell's worker. */
void bench_note_ranks(struct table *t, const struct config *c, const char *workload, const json_t *answer);
/* What the server of a load counted itself: from an answer's served.server (NULL: nothing) to the row, and
 * from the row to a note. */
void bench_put_server(json_t *row, const json_t *server);
void bench_note_server(struct table *t, const json_t *row);
/* Notes which requests of a load the row's times are of. */
void bench_note_steady(struct table *t, const json_t *row);
/* What filling the cache up to the depth took, which is in no other figure: from a cell to the totals of its
 * workload, and to the row. */
void bench_add_fill(struct tally_totals *all, const struct measured_cell *c);
void bench_put_fill(json_t *row, const struct tally_totals *all);
/* command_bench_prompts.c: from a cell's answer to the members "prompts" and "classes" of the document, and
 * to notes. Errors: those of load_class_figures. */
enum err_code bench_put_prompts(struct table *t, const char *config, const struct workload *w,
                                const json_t *answer, struct err *why);
/* The columns of loads that are not metrics. */
void bench_put_load(json_t *row, const struct tally_totals *all, const struct workload *w);

#endif
