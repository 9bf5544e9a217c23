/* advisor/requests.h - every request that was ever measured, as totals and histograms.
 *
 * Cells store what each of their requests took (db/request.c); here they are counted, series by series of
 * model and workload, cell by cell as they come: a scrape reads only what is new. Counts are exact. Cells
 * from before requests were stored contribute nothing. */
#ifndef QDYNO_ADVISOR_REQUESTS_H
#define QDYNO_ADVISOR_REQUESTS_H

#include "db/db.h"
#include "telemetry/telemetry.h"

/* One answer of a worker to "cell" as a request: model, workload and sequences into *rows (they are the same
 * for all of a cell), figures into *f. False: it was none (evaluation, training). */
bool request_read(struct request_rows *rows, struct request_figures *f, const json_t *answer);

/* Series beyond so many, in order of appearance, are counted together as model "other", workload "other": a
 * page stays readable, sums stay right. */
enum { REQUEST_SERIES = 32, REQUEST_HISTOGRAMS = 6 };
struct request_series {
    char model[128], workload[576];
    double prompt_tokens, prompt_seconds, generated_tokens, generate_seconds;
    struct histogram_counts histogram[REQUEST_HISTOGRAMS];
};
struct request_totals {
    int64_t last_cell; /* all up to it are counted */
    int n;
    struct request_series series[REQUEST_SERIES + 1]; /* large: on the heap */
};
/* Count what came since the last call. Errors: those of reading; what was counted until then stays. */
enum err_code request_totals_update(struct request_totals *t, struct db *d, struct err *why);
/* One cell's. */
void request_totals_add(struct request_totals *t, const struct cell_requests *c);
void request_totals_tell(const struct request_totals *t, const struct family_sink *to);

#endif
