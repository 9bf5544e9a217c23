/* tui/report/plot.h - a plot as a value: two axes and layers of marks, in the units of the data.
 *
 * The figures (content.h) define what is drawn. plot_svg draws a plot as a picture and plot_text with
 * characters, so that a Markdown report shows the same as an HTML report. All functions are pure. A point
 * with a coordinate that is not finite is not drawn, never drawn at 0.
 *
 * Points and texts are borrowed: they live in the arena of the caller. */
#ifndef QDYNO_REPORT_PLOT_H
#define QDYNO_REPORT_PLOT_H

#include "base/base.h"

/* How the values of an axis are printed. */
enum plot_unit {
    UNIT_NUMBER,
    UNIT_COUNT,   /* whole numbers only */
    UNIT_CHANGE,  /* a ratio minus one: 0.584 is "+58.4%" */
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
    bool log;                 /* logarithmic: values <= 0 are not drawn */
    double low, high;         /* NAN: chosen from the layers */
    const char *const *names; /* names of the lanes 0, 1, ... from the bottom up; NULL: a numeric axis */
    int n_names;
};

/* Colour and shape: one for each arm, then those of other marks. */
enum { HUE_ARMS = 8, HUE_MUTED = HUE_ARMS, HUE_ALERT, HUE_COUNT };

enum mark {
    MARK_BOX,      /* x_low..x_high times y_low..y_high; a NAN edge lies on the frame */
    MARK_BAND,     /* y_low..y_high over x */
    MARK_RULE,     /* a line across the frame at y, or at x (the other one is NAN) */
    MARK_LINE,     /* through all x, y; a point that is not finite interrupts it */
    MARK_STEP,     /* like MARK_LINE, but each value holds until the next x */
    MARK_INTERVAL, /* y_low..y_high at x and x_low..x_high at y, those that are finite */
    MARK_DOT       /* the shape of the hue at x, y */
};

struct plot_point {
    double x, y, x_low, x_high, y_low, y_high;
    const char *label; /* printed beside the mark; NULL: none */
    const char *hint;  /* tooltip in SVG; NULL: none */
};

struct plot_layer {
    enum mark mark;
    int hue;
    const char *name; /* text in the legend; NULL: not in the legend */
    bool soft;        /* pale, as background */
    bool loose;       /* does not influence the range of the axes */
    struct plot_point *point;
    int n;
};

enum { PLOT_LAYERS = 40 };
struct plot {
    const char *title; /* NULL: none */
    struct plot_axis x, y;
    struct plot_layer layer[PLOT_LAYERS];
    int layers;
    double height; /* of the frame in SVG units; 0: PLOT_HEIGHT */
    double gutter; /* space left of the frame; 0: as wide as its values. Stacked plots share the widest. */
};

/* A point with all coordinates NAN. */
extern const struct plot_point PLOT_NOWHERE;

/* Adds a layer of n points, all PLOT_NOWHERE, which the caller fills. NULL: out of memory or of PLOT_LAYERS;
 * then the layer is not drawn. */
struct plot_layer *plot_layer(struct plot *p, struct arena *a, enum mark mark, int hue, int n);
/* Adds a layer with the single point `at`. */
struct plot_layer *plot_place(struct plot *p, struct arena *a, enum mark mark, int hue, struct plot_point at);

/* ---------------------------------------------------------------- scales, for SVG and text */

struct plot_scale {
    double low, high; /* low < high, both finite */
    bool log;
};
/* The range of axis 'x' or 'y': its own bounds, else the range of the layers that are not loose plus 5 % on
 * each side. Without data: 0..1. */
struct plot_scale plot_scale(const struct plot *p, char axis);
/* Position on the axis: 0 at low, 1 at high, beyond for values outside; NAN for values without a position. */
double plot_at(const struct plot_scale *s, double value);

enum { PLOT_TICKS = 16 };
struct plot_ticks {
    int n;
    double at[PLOT_TICKS];
    char text[PLOT_TICKS][24];
};
/* At most `most` round values within the scale, printed with the fewest digits that distinguish them. */
void plot_ticks(struct plot_ticks *t, const struct plot_axis *axis, const struct plot_scale *s, int most);

/* ---------------------------------------------------------------- drawing */

enum { PLOT_WIDTH = 760, PLOT_HEIGHT = 260 };

/* Appends the plot as one <g> of SVG with its upper left corner at (x, y). Returns its height. `id` makes
 * element ids unique ("f1p0"). Colours are CSS classes of PLOT_STYLE. */
double plot_svg(struct str *out, const struct plot *p, double x, double y, double width, const char *id);
double plot_svg_height(const struct plot *p, double width);
double plot_svg_gutter(const struct plot *p); /* the space its values need */
extern const char PLOT_STYLE[];               /* CSS for light, dark and print */

/* Appends the plot as UTF-8 lines of at most `columns` characters; the frame has `rows` lines. */
void plot_text(struct str *out, const struct plot *p, int columns, int rows);

/* Appends text as XML: escaped, with characters that XML forbids replaced by U+FFFD. */
void xml_text(struct str *out, const char *text);

/* Width of a text in character cells. Independent of the locale, so that equal runs give equal files. */
int plot_columns(const char *text);

/* The shape of a hue as a character: "●" "◆" ... */
const char *plot_glyph(int hue);

#endif
