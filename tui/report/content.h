/* tui/report/content.h - what a report says, before it has a form: blocks in order, all text in one arena.
 * Inside tui/report/ only.
 *
 * Texts hold one kind of markup, `code` between backticks; whatever comes from outside (names, errors, config
 * lines) goes through content_plain first, so that it cannot hold any. Writers escape everything. */
#ifndef QDYNO_REPORT_CONTENT_H
#define QDYNO_REPORT_CONTENT_H

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "tui/report/plot.h"
#include "tui/report/report.h"

enum content_kind {
    CONTENT_SECTION, /* text: its heading */
    CONTENT_TEXT,    /* text: a paragraph */
    CONTENT_WARNING, /* text: a paragraph that must not be missed */
    CONTENT_TABLE,
    CONTENT_FIGURE,
    CONTENT_CODE /* text: lines to type */
};

enum { CONTENT_COLUMNS = 14 };
struct content_table {
    const char *caption; /* NULL: none */
    int columns;
    const char *head[CONTENT_COLUMNS]; /* all NULL: a list of properties, the first column names them */
    bool right[CONTENT_COLUMNS];       /* numbers */
    struct content_row {
        const char *cell[CONTENT_COLUMNS];
        struct content_row *next;
    } * first, *last;
};

enum { FIGURE_PLOTS = 8 };
struct figure_plots {
    const char *title, *reading; /* what it is, and how it is to be read */
    struct plot *plot[FIGURE_PLOTS];
    int plots;
};

struct content {
    enum content_kind kind;
    const char *text;
    struct content_table table;
    struct figure_plots figure;
    struct content *next;
};

struct report {
    struct arena arena;
    bool failed; /* out of memory somewhere on the way */
    const char *title, *subtitle;
    const char *mark; /* "▲ better": the verdict in a word */
    enum verdict verdict;
    const char *footer;
    struct content *first, *last;
    /* the card */
    const struct plot *card_plot; /* NULL: none */
    const struct content_table *card_table;
    /* written to instead when memory is out: the report is thrown away then */
    struct content spare;
    struct content_row spare_row;
};

/* Text into the arena; "" when memory is out (and failed is set). */
const char *content_printf(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line of text from outside: no markup, no controls. */
const char *content_plain(struct report *r, const char *text);

/* A new block at the end; never NULL. */
struct content *content_add(struct report *r, enum content_kind kind, const char *text);
struct content_table *content_table(struct report *r, const char *caption, int columns);
struct content_row *content_row(struct report *r, struct content_table *t);
/* A row of two: name and value. NULL or "" as value is "unknown". */
void content_fact(struct report *r, struct content_table *t, const char *name, const char *value);
void content_figure(struct report *r, const struct figure_plots *f); /* one without plots is left out */

/* ---------------------------------------------------------------- an arm against A (words.c) */

int report_arms(const struct report_source *s);
/* Arm 1, 2, ... against A, in the comparison of all. Borrowed from the source. */
const struct comparison *report_comparison(const struct report_source *s, int arm);
/* What the run says about it: an invalid run says nothing else. */
enum verdict report_verdict(const struct report_source *s, const struct comparison *c);
const char *report_arm_name(int arm); /* "A" "B" ... */

/* ---------------------------------------------------------------- figures (figures_*.c) */

/* One more plot under the others, its axes open. NULL when memory is out. */
struct plot *figure_plot(struct figure_plots *f, struct report *r);

/* Each returns how many plots it has; 0: the run holds nothing to draw. */
int figure_effect(struct figure_plots *f, struct report *r, const struct report_source *s,
                  const struct comparison *c, int arm);
int figure_evidence(struct figure_plots *f, struct report *r, const struct report_source *s);
int figure_spread(struct figure_plots *f, struct report *r, const struct report_source *s);
int figure_pareto(struct figure_plots *f, struct report *r, const struct report_source *s);
int figure_control(struct figure_plots *f, struct report *r, const struct report_source *s);
int figure_timeline(struct figure_plots *f, struct report *r, const struct report_source *s);

/* ---------------------------------------------------------------- words (words.c) */

/* The metric that was compared; never NULL. */
const struct metric *report_metric(const struct report_source *s);
/* Log ratio "positive is better" as B/A - 1 of the metric itself, in figures: "+58.4 %". */
double report_change(const struct report_source *s, double log_ratio);
const char *report_percent(struct report *r, const struct report_source *s, double log_ratio);
/* "+58.4 % (+56.9 to +60.1 %)", "unknown". */
const char *report_interval(struct report *r, const struct report_source *s, struct interval i);
const char *report_evidence(struct report *r, double e);
const char *report_value(struct report *r, const struct metric *m, double v); /* "24.1 tokens/s" */
void report_headline(struct report *r, const struct report_source *s);        /* title, subtitle, mark */

/* ---------------------------------------------------------------- sections (sections.c, claims.c, about.c)
 */

/* What speed, memory, energy and quality say of each arm together. */
void joint_sentences(struct report *r, const struct report_source *s);

void section_summary(struct report *r, const struct report_source *s);
void section_results(struct report *r, const struct report_source *s);
void section_quality(struct report *r, const struct report_source *s);
void section_gate(struct report *r, const struct report_source *s); /* only where one was given */
void section_control(struct report *r, const struct report_source *s);
void section_timeline(struct report *r, const struct report_source *s);
void section_compared(struct report *r, const struct report_source *s);
void section_machine(struct report *r, const struct report_source *s);
void section_method(struct report *r, const struct report_source *s);
void section_again(struct report *r, const struct report_source *s);

/* ---------------------------------------------------------------- writers */

void write_html(struct str *out, const struct report *r);
void write_markdown(struct str *out, const struct report *r);
void write_card(struct str *out, const struct report *r);

#endif
