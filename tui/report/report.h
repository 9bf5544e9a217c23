/* tui/report/report.h - a finished, stopped or failed experiment as one file for people who did not see it:
 * HTML for a browser, Markdown for a pull request, SVG as a picture in a README.
 *
 * report_load reads the run from the database, report_build turns it into sections, tables and plots,
 * report_write renders those. Unknown values are printed as unknown. The files are self-contained: no
 * scripts, fonts or images from elsewhere. */
#ifndef QDYNO_REPORT_H
#define QDYNO_REPORT_H

#include "advisor/experiment/experiment.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"

/* One stored cell. Times are seconds since the start of the first cell. */
struct report_cell {
    int arm, block, slot; /* block -1: warm-up */
    const char *phase;    /* as in the database: "warmup" "control" "block" "confirm" "canary" ... */
    bool discarded;
    const char *reason; /* why it was discarded, or the error that ended it; "" */
    double start_s, seconds;
    double value[METRIC_COUNT]; /* by enum metric_id; NAN: unknown */
    const float *itl;           /* seconds between tokens, in order */
    int itls;
    struct report_sample {
        float t_s; /* since the start of the cell */
        short metric;
        double value;
    } * sample;
    int samples;
};

struct report_event {
    int64_t unix_ms;
    const char *kind, *text;
};

/* All data of a report, as a value that tests can build. */
struct report_source {
    struct arena arena; /* owns everything below */
    struct experiment_state state;
    struct machine machine;
    bool machine_known;
    struct run_labels labels;
    char version[32]; /* of the program that measured; "": unknown */
    struct measured_text
        text; /* that A's model is measured on now; losses on others are not ranked with it */
    /* settings of machine and program at the start of the run: "machine governor" and its value */
    struct report_fact {
        const char *name, *value;
    } * fact;
    int facts;
    struct report_cell *cell;
    int cells;
    struct report_event *event;
    int events;
    int64_t written_ms; /* when the report was made */
};

/* *out is owned by the caller: report_source_free. Errors: ERR_USAGE (no such run, or not an experiment),
 * ERR_NOMEM, those of the database. */
enum err_code report_load(struct report_source **out, struct db *d, int64_t run_id, struct err *why);
void report_source_free(struct report_source *s); /* accepts NULL */

struct report;
/* A pure function. *out is owned by the caller: report_free. It borrows nothing from the source. Errors:
 * ERR_NOMEM. */
enum err_code report_build(struct report **out, const struct report_source *s, struct err *why);
void report_free(struct report *r); /* accepts NULL */

/* The report of a run of `qdyno bench --profile`, from its stored document. Errors: ERR_USAGE (it has no
 * profile), ERR_NOMEM. */
enum err_code report_profile(struct report **out, const json_t *document, int64_t run_id, struct err *why);

/* The report of a search, from its stored document: its candidates as speed against loss and memory. Errors:
 * ERR_USAGE (it lists no candidates), ERR_NOMEM. */
enum err_code report_tradeoff(struct report **out, const json_t *document, int64_t run_id, struct err *why);
/* Its plot of speed and loss with characters, from `tried` of a document. Nothing where fewer than two
 * candidates are known. */
void report_tradeoff_text(struct str *out, const json_t *tried, int columns, int rows);

enum report_format { REPORT_HTML, REPORT_MD, REPORT_SVG };
/* Chooses the format by the ending of the file name. ERR_USAGE lists the possible endings. */
enum err_code report_format_of(enum report_format *out, const char *path, struct err *why);
void report_write(struct str *out, const struct report *r, enum report_format format);

/* ---------------------------------------------------------------- a site of many runs */

/* Pages of `qdyno report --all`: an index of all experiments, a page of the trade-offs between speed, loss
 * and memory, and one page for each run. Each page contains this text in a <meta> element, by which later
 * calls recognize the files that they may replace. */
#define SITE_GENERATOR "qdyno report --all"
#define SITE_INDEX     "index.html"
#define SITE_PARETO    "pareto.html"

struct report_site;
/* about: what the runs have in common, for the heading; "" nothing. *out: report_site_close. Errors:
 * ERR_NOMEM. */
enum err_code report_site_open(struct report_site **out, const char *about, struct err *why);
void report_site_close(struct report_site *site); /* accepts NULL */
/* Adds a run; borrows nothing from the source. Errors: ERR_NOMEM. */
enum err_code report_site_add(struct report_site *site, const struct report_source *s, struct err *why);
/* "run-12.html". Returns buf. */
const char *report_site_file(int64_t run_id, char *buf, size_t size);
/* Makes the report of a run a page of the site: with links to the other pages. */
void report_site_page(struct report *r);
/* The index, newest run first, and the trade-offs. *out: report_free. Errors: ERR_NOMEM. */
enum err_code report_site_index(struct report **out, const struct report_site *site, struct err *why);
enum err_code report_site_pareto(struct report **out, const struct report_site *site, struct err *why);

#endif
