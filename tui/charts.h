/* tui/charts.h - pictures on a grid: planes with axes and units, dots and lines on them, histograms, heat
 * maps, maps of blocks.
 *
 * Where braille can be shown a dot is an eighth of a cell, elsewhere a cell: pictures keep their shape at
 * every glyph level. Every picture is readable without colour: marks are letters, shades are in order, axes
 * have units. Values that are NAN are not drawn. */
#ifndef QDYNO_TUI_CHARTS_H
#define QDYNO_TUI_CHARTS_H

#include "tui/figures.h"
#include "tui/grid.h"
#include "tui/measured.h"

/* ---------------------------------------------------------------- planes */

struct axis {
    double lo, hi; /* hi > lo; both > 0 where log */
    bool log;
    const char *name;                /* "GB", "tok/s": stands at the end of the axis */
    struct figure (*show)(double v); /* labels */
};

/* Make room around values lo..hi, which may be equal: 5 % of the length, or of the value. */
struct axis axis_around(struct axis a);

struct plane {
    struct grid *g;
    struct rect at; /* where values are drawn */
    struct axis x, y;
};
/* Axes with labels along the left and the bottom of `area`; what is left is the plane. Too small an area
 * gives an empty plane, on which nothing is drawn. */
enum { PLANE_LEFT = 9, PLANE_BOTTOM = 2 };
struct plane plane_open(struct grid *g, struct rect area, struct axis x, struct axis y);

bool plane_holds(const struct plane *p, double x, double y);
void plane_dot(const struct plane *p, double x, double y, unsigned style);
/* Straight on the plane: on logarithmic axes that is a power. Parts outside are left out. */
void plane_line(const struct plane *p, const double from[2], const double to[2], unsigned style);
/* One character, on top of lines; at the edge when it lies outside. */
void plane_mark(const struct plane *p, double x, double y, uint32_t code, unsigned style);
/* From lo to hi at the other coordinate, in ─ or │ with ends. */
void plane_whisker_x(const struct plane *p, double lo, double hi, double y, unsigned style);
void plane_whisker_y(const struct plane *p, double x, double lo, double hi, unsigned style);

/* ---------------------------------------------------------------- values over time */

struct timeline {
    const float *v; /* [n], newest last, NAN unknown */
    int n;
    double step_s; /* between two of them */
    struct axis y; /* hi NAN: the largest value that is shown */
    unsigned style;
};
/* With the axis of values at the left, and seconds back from now along the bottom. */
void chart_timeline(struct grid *g, struct rect area, const struct timeline *t);

/* ---------------------------------------------------------------- distributions */

/* Columns over a logarithmic axis of seconds, with where p50, p95 and p99 lie; what n does not support is
 * said. */
void chart_latency(struct grid *g, struct rect area, const char *name, const struct latency *l,
                   unsigned style);

/* ---------------------------------------------------------------- heat maps */

struct heat {
    int rows, columns;
    const char *(*name)(const void *of, int row);
    double (*value)(const void *of, int row, int column); /* NAN unknown */
    const void *of;
    int row, column; /* the cell that is marked; -1 none */
};
/* Shades in order " ░▒▓█", by the logarithm of the value between the smallest and the largest. Columns that
 * do not fit are joined: the largest of them shows. The last row is the scale. */
void chart_heat(struct grid *g, struct rect area, const struct heat *h);

#endif
