/* advisor/run/cell_parts.h - the steps of measuring a cell, shared by cell.c and turns.c. Private to
 * advisor/run/. */
#ifndef QDYNO_ADVISOR_RUN_CELL_PARTS_H
#define QDYNO_ADVISOR_RUN_CELL_PARTS_H

#include "advisor/run/run.h"

/* Runs the repeats and combines their answers. Between cell_clock_start and cell_clock_stop. */
enum err_code cell_run_repeats(struct measured_cell *c, const struct cell_ask *ask, struct err *why);
/* Computes the metrics that follow from the worker's fields and latencies. */
void cell_derive(struct measured_cell *c);
/* Adds METRIC_TOTAL_RATE and METRIC_SEQUENCE_RATE, once cell_derive has run. */
void cell_derive_sequences(struct measured_cell *c);

#endif
