/* tui/report/plot.h - a plot as a value: two axes and layers of marks, in the units of the data.
 *
 * Figures (figures.h) say what is drawn; plot_svg draws it as a picture and plot_text with characters, from
 * the same value, so a report in Markdown shows what the one in HTML shows. Everything here is pure. A point
 * with a coordinate that is not finite is left out, never drawn at 0.
 *
 * Nothing here is owned: points and texts live in the arena of whoever makes the plot. */
#ifndef QDYNO_REPORT_PLOT_H
#define QDYNO_REPORT_PLOT_H

#include "base/base.h"

/* How a coordinate is written on its axis. */
enum plot_unit {
    UNIT_NUMBER,
    UNIT_COUNT,   /* whole numbers only */
    UNIT_CHANGE,  /* a ratio less one: 0.584 is "+58.4%" */
    UNIT_SHARE,   /* 0.25 is "25%" */
    UNIT_SECONDS, /* "26ms" */
    UNIT_CLOCK,   /* seconds as "1:05" */
    UNIT_BYTES,
    UNIT_HERTZ,
    UNIT_CELSIUS,
    UNIT_WATTS
};

struct plot_axis {
    const char *title; /* NULL: none */
    enum plot_unit unit;
    bool log;                 /* values <= 0 are left out */
    double low, high;         /* NAN: as the layers ask for */
    const char *const *names; /* lanes: name of 0, 1, ... from the bottom up; NULL: numbers */
    int n_names;
};

/* Colour and shape: the arms by number, then what is no arm. */
enum { HUE_ARMS = 8, HUE_MUTED = HUE_ARMS, HUE_ALERT, HUE_COUNT };

enum mark {
    MARK_BOX,      /* x_low..x_high times y_low..y_high; an edge that is NAN is the frame's */
    MARK_BAND,     /* y_low..y_high over x */
    MARK_RULE,     /* the whole width at y, or the whole height at x (the other one is NAN) */
    MARK_LINE,     /* through x, y; a point that is not finite interrupts it */
    MARK_STEP,     /* the same with corners, each value holding until the next x */
    MARK_INTERVAL, /* from y_low to y_high at x, and from x_low to x_high at y: whichever is known */
    MARK_DOT       /* the shape of the hue at x, y */
};

struct plot_point {
    double x, y, x_low, x_high, y_low, y_high;
    const char *label; /* written beside it; NULL: none */
    const char *hint;  /* shown where a picture is pointed at; NULL: none */
};

struct plot_layer {
    enum mark mark;
    int hue;
    const char *name; /* in the legend; NULL: not there */
    bool soft;        /* pale: background to what lies above */
    bool loose;       /* does not stretch the axes */
    struct plot_point *point;
    int n;
};

enum { PLOT_LAYERS = 40 };
struct plot {
    const char *title; /* NULL: none */
    struct plot_axis x, y;
    struct plot_layer layer[PLOT_LAYERS];
    int layers;
    double height; /* of its picture, in the units of plot_svg; 0: PLOT_HEIGHT */
    double gutter; /* left of its frame; 0: what its values need. Plots above each other share one. */
};

/* A point with nothing known. */
extern const struct plot_point PLOT_NOWHERE;

/* One more layer of n points, all PLOT_NOWHERE, to be filled. NULL when memory or layers are out: then the
 * layer is not drawn, and `a` or PLOT_LAYERS is too small. */
struct plot_layer *plot_layer(struct plot *p, struct arena *a, enum mark mark, int hue, int n);
/* A rule or a box with a label: `at` with the coordinates that matter. */
struct plot_layer *plot_place(struct plot *p, struct arena *a, enum mark mark, int hue, struct plot_point at);

/* Does any layer hold a point that can be drawn? */
bool plot_has_points(const struct plot *p);

/* ---------------------------------------------------------------- scales, for both ways of drawing */

struct plot_scale {
    double low, high; /* low < high, both finite */
    bool log;
};
/* What an axis ('x' or 'y') spans: its own bounds, else those of the layers that are not loose and a little
 * more. Nothing to go by: 0..1. */
struct plot_scale plot_scale(const struct plot *p, char axis);
/* 0 at low, 1 at high; outside for what is outside; NAN for what has no place. */
double plot_at(const struct plot_scale *s, double value);

enum { PLOT_TICKS = 16 };
struct plot_ticks {
    int n;
    double at[PLOT_TICKS];
    char text[PLOT_TICKS][24];
};
/* At most `most` round values within the scale, written with the fewest digits that tell them apart. */
void plot_ticks(struct plot_ticks *t, const struct plot_axis *axis, const struct plot_scale *s, int most);

/* ---------------------------------------------------------------- drawing */

enum { PLOT_WIDTH = 760, PLOT_HEIGHT = 260 };

/* As one <g> of SVG with its upper left corner at (x, y), `width` wide; returns its height. `id` makes names
 * inside unique ("f1p0"). Looks are classes of PLOT_STYLE. */
double plot_svg(struct str *out, const struct plot *p, double x, double y, double width, const char *id);
double plot_svg_height(const struct plot *p, double width);
double plot_svg_gutter(const struct plot *p); /* what its values need */
extern const char PLOT_STYLE[];               /* CSS: light, dark, print */

/* As lines of `columns` characters at most (UTF-8), `rows` of them for the frame. */
void plot_text(struct str *out, const struct plot *p, int columns, int rows);

/* Text as XML: escaped, and without what XML cannot hold. */
void xml_text(struct str *out, const char *text);

/* Columns of characters a text takes, whatever the locale: what is in a file does not depend on who wrote it.
 */
int plot_columns(const char *text);

/* The shape of an arm as a character: "●" "◆" ... */
const char *plot_glyph(int hue);

#endif
