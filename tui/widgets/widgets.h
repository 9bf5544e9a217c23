/* tui/widgets/widgets.h - the drawing toolkit: grids, text, charts, colour themes and the terminal itself.
 *
 * Views draw into a grid and know nothing about terminals; screen.c sends grids to the terminal and knows
 * nothing about views. A view can therefore be compared with golden text and tested at every screen size. All
 * drawing is clipped to the grid and to the rectangle passed in, so a view cannot write outside its box.
 *
 * Sections: keys, numbers as text, grids, text on grids, graphs, charts, themes, the terminal. */
#ifndef QDYNO_TUI_WIDGETS_H
#define QDYNO_TUI_WIDGETS_H

#include "base/base.h"

/* ---------------------------------------------------------------- keys */

/* Key codes. A key with a character is its Unicode code point; the others have a value from this list, mostly
 * beyond the last code point. screen.c translates what the terminal sends. */
enum ui_key {
    UI_KEY_NONE = 0,
    UI_KEY_TAB = 0x09,
    UI_KEY_ENTER = 0x0a,
    UI_KEY_ESC = 0x1b,
    UI_KEY_UP = 0x110000,
    UI_KEY_DOWN,
    UI_KEY_LEFT,
    UI_KEY_RIGHT,
    UI_KEY_HOME,
    UI_KEY_END,
    UI_KEY_PAGE_UP,
    UI_KEY_PAGE_DOWN,
    UI_KEY_BACKSPACE,
    UI_KEY_DELETE,
    UI_KEY_BACKTAB,
    UI_KEY_F1,
    UI_KEY_CLICK, /* screen_pointer() returns the position */
    UI_KEY_WHEEL_UP,
    UI_KEY_WHEEL_DOWN,
};
#define UI_CTRL(letter) ((letter)&0x1f)

/* ---------------------------------------------------------------- numbers as text (figures.c) */

/* A formatted number. An unknown value (NAN, or -1 for counts) prints as "n/a", never as 0. The functions
 * return by value, so figure_number(v).text is valid until the end of the full expression. */
struct figure {
    char text[32];
};
struct figure figure_number(double v);           /* three significant digits: "38.2" "1610" "0.31" */
struct figure figure_percent(double ratio);      /* 0.931 -> "93%" */
struct figure figure_change(double log_ratio);   /* ln(B/A) -> "+58.4%" */
struct figure figure_bytes(int64_t bytes);       /* powers of 1024: "1.17G" */
struct figure figure_nats(double nats);          /* a digit and a power of ten: "2e-05" */
struct figure figure_seconds(double s);          /* "0.31s" "26.1ms" "310us" */
struct figure figure_duration(double s);         /* "0:41" "1:02:03" */
struct figure figure_age(int64_t ms);            /* "12 s" "3 min" "2 h" */
struct figure figure_hertz(double hz);           /* "3.1GHz" */
struct figure figure_celsius(double c);          /* "61°C" */
struct figure figure_per_second(double bytes_s); /* powers of 1000, as bandwidth is quoted: "24.1GB/s" */
struct figure figure_clock(int64_t unix_ms);     /* local time: "18:02:07" */
struct figure figure_date(int64_t unix_ms);      /* local time: "11-21 18:02" */

/* ---------------------------------------------------------------- grids (grid.c, glyphs.c) */

/* What a colour means. A theme says how each role looks at each colour level. */
enum role {
    ROLE_TEXT,
    ROLE_DIM,
    ROLE_TITLE,
    ROLE_BORDER,
    ROLE_KEY,
    ROLE_METER,
    ROLE_GRAPH,
    ROLE_ARM_A,
    ROLE_ARM_B,
    ROLE_BETTER,
    ROLE_WORSE,
    ROLE_EQUAL,
    ROLE_UNSURE,
    ROLE_WARN,
    ROLE_ERROR,
    ROLE_COUNT
};

/* A style is a role combined (|) with these attributes. */
enum { STYLE_BOLD = 0x100, STYLE_REVERSE = 0x200, STYLE_UNDERLINE = 0x400, STYLE_ROLE = 0xff };

/* The characters a terminal can show. Text has the same width at every level, so layouts do not depend on it.
 */
enum glyph_level { GLYPHS_ASCII, GLYPHS_BLOCKS, GLYPHS_BRAILLE };

/* codeset: of the locale ("UTF-8" or another); term: $TERM; wanted: $QDYNO_GLYPHS ("ascii" "blocks"
 * "braille"). Each may be NULL. */
enum glyph_level glyph_level_choose(const char *codeset, const char *term, const char *wanted);

/* The character to show for `code` at this level, one column wide: `code` itself or its ASCII replacement.
 * Control characters become spaces. */
uint32_t glyph_at_level(uint32_t code, enum glyph_level level);

struct cell {
    uint32_t code; /* 0: the right half of a wide character */
    uint16_t style;
};

struct rect {
    int x, y, w, h;
};
struct rect rect_inset(struct rect r, int dx, int dy);    /* the size never becomes negative */
struct rect rect_rows(struct rect r, int from, int rows); /* rows [from, from+rows) of r, clipped to r */

/* What a mouse click on a rectangle means. Views register click targets while they draw; a later target
 * covers an earlier one. */
enum hit_kind {
    HIT_NOTHING, /* swallows the click: a form covers what is below */
    HIT_ACTION,  /* what: enum action */
    HIT_ROW,     /* what: row of the view's list */
    HIT_COLUMN,  /* what: column of the view's list */
    HIT_FIELD,   /* what: field of the form */
    HIT_ENTRY,   /* what: row of the palette or of the suggestions */
    HIT_PANE,    /* what: pane of the view */
    HIT_TAB,     /* what: pane of the view, which is not shown */
    HIT_CLOSE,   /* closes the overlay that is open */
};
struct hit {
    struct rect at;
    enum hit_kind kind;
    int what;
};

enum { GRID_HITS = 192 };
struct grid {
    int w, h;
    enum glyph_level glyphs;
    struct cell *cells; /* [h][w] */
    int hits;
    struct hit hit[GRID_HITS];
};

/* The caller owns the grid and closes it with grid_close(). Errors: ERR_NOMEM; ERR_USAGE for a size below 1x1
 * or above 4096x4096. */
enum err_code grid_open(struct grid *g, int w, int h, enum glyph_level glyphs, struct err *why);
void grid_close(struct grid *g); /* accepts {0} */
void grid_clear(struct grid *g);
struct rect grid_area(const struct grid *g);

/* Register a click target. Targets beyond GRID_HITS are ignored. */
void grid_hit(struct grid *g, struct rect at, enum hit_kind kind, int what);
/* The topmost click target at (x, y); HIT_NOTHING where there is none. */
struct hit grid_hit_at(const struct grid *g, int x, int y);

/* Put one character at (x, y), relative to `area`; outside of it nothing is drawn. A wide character needs
 * both of its columns inside. */
void grid_put(struct grid *g, struct rect area, int x, int y, uint32_t code, unsigned style);
void grid_fill(struct grid *g, struct rect area, uint32_t code, unsigned style);

/* Draw a frame with a title in its upper edge and a note in its lower edge (NULL: none). Returns the inside.
 */
struct rect grid_box(struct grid *g, struct rect area, const char *title, const char *note);

/* The grid as UTF-8 lines without trailing blanks, appended to `out`. */
void grid_text(const struct grid *g, struct str *out);

/* ---------------------------------------------------------------- text on grids (grid.c) */

int text_columns(const char *text); /* columns a UTF-8 text takes */

/* Shorten a line of comma-separated settings to `columns`. The settings that all of the n other lines have,
 * too, give way to "…" first, then those that most of them have, so that different lines stay different; a
 * single setting that is still too long loses its middle. A line that fits is copied. Returns buf. */
const char *text_shorten(const char *text, const char *const *others, int n, int columns, char *buf,
                         size_t size);

/* A position in a row of `area` that moves right with each text written. */
struct pen {
    struct grid *g;
    struct rect area;
    int x, y; /* relative to area */
};
struct pen pen_at(struct grid *g, struct rect area, int x, int y);
/* Text that does not fit into the row is cut, and the row ends with "…". */
void pen_put(struct pen *p, unsigned style, const char *text);
void pen_printf(struct pen *p, unsigned style, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Write into a field of exactly `columns`: longer text is cut with an ellipsis, shorter text padded. */
void pen_field(struct pen *p, int columns, unsigned style, const char *text);
void pen_field_right(struct pen *p, int columns, unsigned style, const char *text);
int pen_left(const struct pen *p); /* columns left in the row, at least 0 */

/* A bar `columns` wide, filled to `ratio` (0..1; NAN draws an empty bar). */
void pen_meter(struct pen *p, int columns, double ratio, unsigned style);

/* Wrap `text` at spaces into `area`; a longer word is broken. Text that needs more than area.h rows ends with
 * "…". Returns the rows used. */
int grid_wrap(struct grid *g, struct rect area, unsigned style, const char *text);
/* The same; where rows are missing, the last one ends with "… `more`": what shows the rest. */
int grid_wrap_cut(struct grid *g, struct rect area, unsigned style, const char *text, const char *more);
/* The rows that `text` takes in so many columns; draws nothing. */
int grid_wrap_rows(struct grid *g, int columns, const char *text);

/* ---------------------------------------------------------------- graphs (grid.c) */

/* The newest values of v[n], newest at the right; lo..hi spans the height. NAN leaves a gap. A known value
 * draws at least one dot, so that zero and unknown look different. */
struct graph {
    const float *v;
    int n;
    double lo, hi; /* hi NAN: the largest value */
    unsigned style;
};
void grid_graph(struct grid *g, struct rect area, const struct graph *graph);
void pen_graph(struct pen *p, int columns, const struct graph *graph); /* one row high */

/* ---------------------------------------------------------------- charts (charts.c, charts_shapes.c) */

/* Charts use braille dots (2x4 dots a cell) where the terminal can show them and whole cells elsewhere; the
 * geometry is the same at every glyph level. A chart is readable without colour: series are marked by
 * letters, shades have an order, and axes carry units. NAN values are not drawn. */

struct axis {
    double lo, hi; /* hi > lo; both > 0 where log */
    bool log;
    const char *name;                /* "GB", "tok/s": written at the end of the axis */
    struct figure (*show)(double v); /* formats the labels */
};

/* The axis widened by 5 % of its length; when lo == hi by 5 % of the value. */
struct axis axis_around(struct axis a);

struct plane {
    struct grid *g;
    struct rect at; /* the area for data, without labels */
    struct axis x, y;
};
/* Draw labelled axes along the left and lower edge of `area` and return the plane between them. In too small
 * an area the plane is empty, and drawing on it does nothing. */
enum { PLANE_LEFT = 9, PLANE_BOTTOM = 2 };
struct plane plane_open(struct grid *g, struct rect area, struct axis x, struct axis y);

bool plane_holds(const struct plane *p, double x, double y);
void plane_dot(const struct plane *p, double x, double y, unsigned style);
/* A straight line on the plane; on two logarithmic axes it is a power law. Clipped to the plane. */
void plane_line(const struct plane *p, const double from[2], const double to[2], unsigned style);
/* One character, drawn over lines; a point outside of the plane is marked at its edge. */
void plane_mark(const struct plane *p, double x, double y, uint32_t code, unsigned style);
/* An interval lo..hi at one value of the other coordinate, with end marks. */
void plane_whisker_x(const struct plane *p, double lo, double hi, double y, unsigned style);
void plane_whisker_y(const struct plane *p, double x, double lo, double hi, unsigned style);

struct timeline {
    const float *v; /* [n], newest last, NAN unknown */
    int n;
    double step_s; /* seconds between two values */
    struct axis y; /* hi NAN: the largest value shown */
    unsigned style;
};
/* Values over time; the lower axis counts seconds back from now. */
void chart_timeline(struct grid *g, struct rect area, const struct timeline *t);

/* A distribution of durations in bins of equal width on a logarithmic axis. */
enum { LATENCY_BINS = 96 };
struct latency_histogram {
    int n;                     /* values counted; 0: none */
    const char *missing;       /* why there are none; NULL: none were measured */
    double lo, hi;             /* range in seconds; hi > lo > 0 */
    int bin[LATENCY_BINS];     /* counts, or values proportional to them */
    double p50, p95, p99, max; /* seconds; NAN where n is too small for the quantile */
    double limit;              /* that they are to stay below, marked on the axis; 0: none */
    double within;             /* share below the limit */
};
/* Fill *l from seconds[n] in any order. The function reorders `seconds`: values that are not positive and
 * finite are dropped, the rest is sorted to the front. */
void latency_histogram_make(struct latency_histogram *l, float *seconds, int n);

/* Columns over a logarithmic axis of seconds with p50, p95 and p99 marked. The chart says which quantiles n
 * does not support. */
void chart_latency(struct grid *g, struct rect area, const char *name, const struct latency_histogram *l,
                   unsigned style);

struct heat {
    int rows, columns;
    const char *(*name)(const void *data, int row);
    double (*value)(const void *data, int row, int column); /* NAN unknown */
    const void *data;                                       /* passed to name and value */
    int row, column;                                        /* the highlighted cell; -1 none */
    int (*number)(const void *data, int column); /* written below the columns; -1: none. NULL: no numbers */
    const char *unit;                            /* of these numbers: "layer" */
    bool (*marked)(const void *data, int row, int column); /* begins with "~": estimated; NULL: none */
};
/* A heat map in shades " ░▒▓█" by the logarithm of each value between the smallest and the largest one. When
 * the columns do not fit, neighbours are merged and the largest value is shown. Below are the numbers of the
 * columns, where there is room, and the scale. */
void chart_heat(struct grid *g, struct rect area, const struct heat *h);

/* ---------------------------------------------------------------- themes (theme.c) */

/* Themes are files with a line per role: "better 5fafff 75 12 bold" is the 24-bit colour, the index of 256
 * colours, the index of 16 colours, and the attributes used without colours. "-" means the terminal's own
 * foreground, "#" begins a comment, and a role that is missing looks as in the default theme. The default
 * theme is safe for colour-blind readers (blue and orange, never red against green) and sets no background.
 * Colour only repeats what marks and words already say. */

enum color_level { COLORS_MONO, COLORS_8, COLORS_16, COLORS_256, COLORS_DIRECT };

struct theme_row {
    uint32_t rgb;  /* 24-bit colour 0xRRGGBB */
    int16_t c256;  /* index, -1: the terminal's own foreground */
    int16_t c16;   /* 0..15 */
    unsigned mono; /* STYLE_* used without colours */
};
enum { THEME_NAME = 64 };
struct theme {
    char name[THEME_NAME];
    struct theme_row row[ROLE_COUNT]; /* indexed by enum role */
};
extern const struct theme THEME_DEFAULT;
extern const char *const ROLE_NAMES[ROLE_COUNT]; /* as written in theme files */

/* Read a theme file. On error *out is the default theme. Errors: ERR_IO, ERR_NOMEM; ERR_FORMAT names the line
 * and what was expected. */
enum err_code theme_read(struct theme *out, const char *path, struct err *why);
/* name: "default"; NAME of a NAME.theme file in $XDG_CONFIG_HOME/qdyno/themes or share/themes; or a path,
 * which has a slash. ERR_USAGE lists the names that exist. */
enum err_code theme_find(struct theme *out, const char *name, struct err *why);
/* The names theme_find() knows, "default" first, without duplicates; at most `max`. Returns the count. */
int theme_names(char names[][THEME_NAME], int max);

/* colors: the count in terminfo (below 8: no colours); direct: terminfo's RGB flag; want: false for NO_COLOR.
 */
enum color_level color_level_choose(int colors, bool direct, bool want);

/* $COLORFGBG ("15;0", "0;default;15"): whether it says that the background is light. NULL: not known, false.
 */
bool background_is_light(const char *colorfgbg);
/* $TERM and $COLORTERM (NULL: not set): the terminfo entry with 24-bit colours to try before $TERM's own,
 * such as "xterm-direct" for xterm-256color; "" when the terminal does not claim to have them. Returns buf.
 */
const char *terminal_direct_name(const char *term, const char *colorterm, char *buf, size_t size);

/* The colour number to pass to the terminal at this level; -1: its own foreground. */
int32_t theme_color(const struct theme *t, enum role role, enum color_level level);

/* The attributes of a style at this level: its own, plus those its role has without colours, plus bold for
 * the bright half of 16 colours on a terminal with 8. */
unsigned theme_attributes(const struct theme *t, unsigned style, enum color_level level);

/* ---------------------------------------------------------------- the terminal (screen.c) */

/* screen.c is the only file that uses ncurses. Signals arrive through a file descriptor, so no code runs in a
 * signal handler and the terminal is always restored on the normal exit path. Not thread-safe: one thread
 * draws. */
struct screen;

/* Take over the terminal. Blocks SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP, SIGCONT and SIGPIPE in the
 * calling thread; threads started later inherit the mask, and screen_close() restores it. The caller owns
 * *out. Errors: ERR_ABSENT (no terminal, or TERM unknown or too simple; the message says what to do), ERR_IO.
 */
enum err_code screen_open(struct screen **out, bool color, struct err *why);
void screen_close(struct screen *s); /* accepts NULL */

void screen_size(const struct screen *s, int *w, int *h);
enum glyph_level screen_glyphs(const struct screen *s);

void screen_theme(struct screen *s, const struct theme *theme); /* the next paint sends everything */
/* Turn mouse reports on or off (initially off). While they are on, the terminal needs a modifier key to
 * select text. */
void screen_mouse(struct screen *s, bool on);
/* The position of the last UI_KEY_CLICK or UI_KEY_WHEEL_*: column and row from 0. */
void screen_pointer(const struct screen *s, int *x, int *y);

/* Show g. Only cells that differ from the last paint are sent. A larger grid is clipped to the screen. */
void screen_paint(struct screen *s, const struct grid *g);
/* Send `text` to the terminal's clipboard (OSC 52). False: this terminal is known not to support it. True: it
 * was sent; terminals do not report whether they accepted it. */
bool screen_copy(struct screen *s, const char *text);
void screen_redraw(struct screen *s); /* the next paint sends everything */

enum screen_event {
    SCREEN_TIMEOUT,
    SCREEN_KEY,    /* *key: code point or UI_KEY_* */
    SCREEN_RESIZE, /* the size changed or the process was continued: draw again */
    SCREEN_END,    /* SIGTERM, SIGHUP or SIGINT, or the terminal is gone */
};
enum screen_event screen_wait(struct screen *s, int timeout_ms, int *key);

/* Give the terminal back to the shell and stop this process; returns when it is continued. */
void screen_suspend(struct screen *s);

#endif
