/* tui/report/content.h - the content of a report before it has a form: a list of sections, texts, tables
 * and figures; all memory is in one arena. Private to tui/report/.
 *
 * Texts may contain one kind of markup: `code` between backticks. Text from outside (names, errors, config
 * lines) goes through content_plain first, so that it cannot contain markup. The writers escape everything.
 */
#ifndef QDYNO_REPORT_CONTENT_H
#define QDYNO_REPORT_CONTENT_H

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/plot.h"
#include "tui/report/report.h"

enum content_kind {
    CONTENT_SECTION, /* text: its heading */
    CONTENT_TEXT,    /* text: a paragraph */
    CONTENT_WARNING, /* text: a paragraph that is highlighted */
    CONTENT_TABLE,
    CONTENT_FIGURE,
    CONTENT_CODE,    /* text: lines to type */
    CONTENT_DOWNLOAD /* text: name of a file that the page contains; data: its text. HTML only */
};

enum { CONTENT_COLUMNS = 14 };
struct content_table {
    const char *caption; /* NULL: none */
    int columns;
    const char *head[CONTENT_COLUMNS]; /* all NULL: a list of properties, named by the first column */
    bool right[CONTENT_COLUMNS];       /* align right: numbers */
    struct content_row {
        const char *cell[CONTENT_COLUMNS];
        const char *link; /* target of the link in cell `linked`, a file beside the page; NULL: none */
        int linked;
        struct content_row *next;
    } * first, *last;
};

enum { FIGURE_PLOTS = 8 };
struct figure_plots {
    const char *title, *reading; /* heading, and how to read the figure */
    struct plot *plot[FIGURE_PLOTS];
    int plots;
};

struct content {
    enum content_kind kind;
    const char *text, *data;
    struct content_table table;
    struct figure_plots figure;
    struct content *next;
};

struct report {
    struct arena arena;
    bool failed; /* some allocation failed */
    const char *title, *subtitle;
    const char *mark; /* "▲ better": the verdict as a word */
    enum verdict verdict;
    const char *footer;
    bool wide;             /* wide tables: the page may be wider than is good for text */
    const char *generator; /* of a page of a site: SITE_GENERATOR; NULL: a page of its own */
    /* links above the title: file and text; file NULL past the last */
    struct report_link {
        const char *file, *text;
    } link[3];
    struct content *first, *last;
    /* only for the card (write_card.c) */
    const struct plot *card_plot; /* NULL: none */
    const struct content_table *card_table;
    /* target of writes after an allocation failed; the report is then discarded */
    struct content spare;
    struct content_row spare_row;
};

/* Formats text into the arena. Out of memory: returns "" and sets failed. */
const char *content_printf(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Copies text from outside as one line without markup and control characters. */
const char *content_plain(struct report *r, const char *text);

/* Appends an item; never NULL. */
struct content *content_add(struct report *r, enum content_kind kind, const char *text);
struct content_table *content_table(struct report *r, const char *caption, int columns);
struct content_row *content_row(struct report *r, struct content_table *t);
/* Appends a row of name and value. A value of NULL or "" is printed as "unknown". */
void content_fact(struct report *r, struct content_table *t, const char *name, const char *value);
void content_figure(struct report *r, const struct figure_plots *f); /* does nothing without plots */

/* ---------------------------------------------------------------- an arm against A (words.c) */

const char *report_arm_name(int arm); /* "A" "B" ... */

/* ---------------------------------------------------------------- figures (figures_*.c) */

/* Adds a plot below the others, with automatic axis ranges. NULL: out of memory. */
struct plot *figure_plot(struct figure_plots *f, struct report *r);

/* Each returns its number of plots; 0: the run has no data for it. */
int figure_effect(struct figure_plots *f, struct report *r, const struct report_source *s,
                  const struct comparison *c, int arm);
int figure_evidence(struct figure_plots *f, struct report *r, const struct report_source *s);
int figure_spread(struct figure_plots *f, struct report *r, const struct report_source *s);
int figure_pareto(struct figure_plots *f, struct report *r, const struct report_source *s);
int figure_control(struct figure_plots *f, struct report *r, const struct report_source *s);
int figure_timeline(struct figure_plots *f, struct report *r, const struct report_source *s);

/* ---------------------------------------------------------------- words (words.c) */

/* A gain (experiment_change) as B/A - 1 of the metric. */
double report_change(const struct report_source *s, double gain);
/* Changes, log ratios, as text: "+58.4 %"; "+58.4 % (+56.9 to +60.1 %)"; "unknown". */
const char *report_percent(struct report *r, double change);
const char *report_interval(struct report *r, struct interval change);
const char *report_evidence(struct report *r, double e);
const char *report_value(struct report *r, const struct metric *m, double v); /* "24.1 tokens/s" */
void report_headline(struct report *r, const struct report_source *s);        /* title, subtitle, mark */

/* ---------------------------------------------------------------- sections (sections.c, claims.c, about.c)
 */

/* One sentence for each arm about speed, memory, energy and quality together. */
void joint_sentences(struct report *r, const struct report_source *s);

void section_story(struct report *r, const struct report_source *s); /* story.c */
void section_load(struct report *r, const struct report_source *s);
void section_raw(struct report *r, const struct report_source *s); /* raw.c */
void section_summary(struct report *r, const struct report_source *s);
void section_results(struct report *r, const struct report_source *s);
void section_quality(struct report *r, const struct report_source *s);
void section_gate(struct report *r, const struct report_source *s); /* empty if the run has no gate */
void section_control(struct report *r, const struct report_source *s);
void section_timeline(struct report *r, const struct report_source *s);
void section_compared(struct report *r, const struct report_source *s);
void section_machine(struct report *r, const struct report_source *s);
void section_method(struct report *r, const struct report_source *s);
void section_repeat(struct report *r, const struct report_source *s);

/* ---------------------------------------------------------------- writers */

void write_html(struct str *out, const struct report *r);
void write_markdown(struct str *out, const struct report *r);
void write_card(struct str *out, const struct report *r);

#endif
