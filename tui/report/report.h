/* tui/report/report.h - a finished, stopped or failed experiment as one file that a person who was not there
 * can read: HTML for the browser, Markdown for a pull request, SVG as a picture in a README.
 *
 * report_load reads the run out of the database, report_build says everything once as sections, tables and
 * plots, report_write renders those. What is not known is said to be unknown. No file refers to another one:
 * no scripts, no fonts, no images from elsewhere. */
#ifndef QDYNO_REPORT_H
#define QDYNO_REPORT_H

#include "advisor/experiment/experiment.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "telemetry/telemetry.h"

/* What one cell left behind. Times are seconds since the first cell began. */
struct report_cell {
    int arm, block, slot; /* block -1: warm-up */
    enum report_cell_phase { REPORT_WARMUP, REPORT_CONTROL, REPORT_BLOCK } phase;
    bool discarded;
    const char *reason; /* of the discard; an error that ended it; "" */
    double start_s, seconds;
    double value[METRIC_COUNT]; /* by enum metric_id, NAN unknown */
    const float *itl;           /* seconds between tokens, in their order */
    int itls;
    struct report_sample {
        float t_s; /* since the cell's start */
        short metric;
        double value;
    } * sample;
    int samples;
};

struct report_event {
    int64_t unix_ms;
    const char *kind, *text;
};

/* All that a report stands on: a value for tests to make up. */
struct report_source {
    struct arena arena; /* of what the pointers below lead to */
    struct experiment_state state;
    struct machine machine;
    bool machine_known;
    char version[32]; /* of the program that ran it, "" unknown */
    /* how machine and program were set up when the run started: "machine governor" and its value */
    struct report_fact {
        const char *name, *value;
    } * fact;
    int facts;
    struct report_cell *cell;
    int cells;
    struct report_event *event;
    int events;
    int64_t written_ms; /* when the report is made */
};

/* *out owned: report_source_free. Errors: ERR_USAGE (no such run; not an experiment), those of the database.
 */
enum err_code report_load(struct report_source **out, struct db *d, int64_t run_id, struct err *why);
void report_source_free(struct report_source *s); /* NULL is fine */

struct report;
/* Pure. *out owned: report_free; it borrows nothing from the source. Errors: ERR_NOMEM. */
enum err_code report_build(struct report **out, const struct report_source *s, struct err *why);
void report_free(struct report *r); /* NULL is fine */

enum report_format { REPORT_HTML, REPORT_MD, REPORT_SVG };
/* By the file's ending. ERR_USAGE names the endings there are. */
enum err_code report_format_of(enum report_format *out, const char *path, struct err *why);
void report_write(struct str *out, const struct report *r, enum report_format format);

#endif
