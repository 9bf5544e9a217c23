/* advisor/span.h - noting when a part of a run began and ended (db.h, span_row), for telling it later
 * (advisor/trace.h).
 *
 * Durations are measured by the monotonic clock; the wall clock is read once, where a part begins. So what
 * lies inside a part stays inside, whatever somebody does to the wall clock meanwhile. */
#ifndef QDYNO_ADVISOR_SPAN_H
#define QDYNO_ADVISOR_SPAN_H

#include "db/db.h"

enum {
    SPANS_MOST = 8
}; /* of one answer or cell that are kept: a cell may repeat a short workload 256 times */

/* One moment on both clocks. */
struct moment {
    int64_t unix_ns, clock_ns;
};
struct moment moment_now(void);

/* From `begun` until now. arm and block -1; name and error cut to fit, error NULL: none. */
struct span_row span_until_now(const char *name, struct moment begun, const char *error);

/* The "spans" of a worker's answer (engine/worker.h) that lie between `begun` and now, behind rows[n] of
 * rows[most]. Returns their number with them. What lies elsewhere or ends before it begins is another
 * clock's, and not told. */
int spans_read(struct span_row *rows, int n, int most, const json_t *answer, struct moment begun);

/* The same of a cell that is stored (row->id) and took row->seconds from `begun`: the cell, and the spans of
 * its answer, into the database. */
enum err_code spans_store_cell(struct db *d, const struct cell_row *row, const json_t *answer,
                               struct moment begun, struct err *why);
/* How a process was loaded: from `begun` on, for `seconds`. */
struct span_load {
    struct moment begun;
    double seconds;
    const json_t *description; /* of the arm; NULL: it failed */
    const char *error;         /* "" when it did not */
};
enum err_code spans_store_load(struct db *d, int64_t run_id, int arm, const struct span_load *load,
                               struct err *why);

#endif
