/* tui/grid.h - a screen as a value: cells of code point, colour role and attributes.
 *
 * Views draw into a grid and know no terminal; screen.c paints grids and knows no view. So every view can be
 * compared with golden text and tried at every size. All drawing is clipped to the grid and to the rectangle
 * it was given: nothing a view does can write outside. */
#ifndef QDYNO_TUI_GRID_H
#define QDYNO_TUI_GRID_H

#include "base/base.h"

/* What a colour means. theme.c says how each looks at each colour level. */
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

/* A style is a role, or-ed with these. */
enum { STYLE_BOLD = 0x100, STYLE_REVERSE = 0x200, STYLE_UNDERLINE = 0x400, STYLE_ROLE = 0xff };

/* What the terminal can show. Text keeps its width at every level, so layouts do not depend on it. */
enum glyph_level { GLYPHS_ASCII, GLYPHS_BLOCKS, GLYPHS_BRAILLE };

/* From the codeset of the locale ("UTF-8" or not), TERM and QDYNO_GLYPHS ("ascii" "blocks" "braille"); NULLs
 * are fine. */
enum glyph_level glyph_level_choose(const char *codeset, const char *term, const char *wanted);

/* One column for `code` at this level: itself, or its stand-in in ASCII. Controls become spaces. */
uint32_t glyph_at_level(uint32_t code, enum glyph_level level);

struct cell {
    uint32_t code; /* 0: the right half of a wide character */
    uint16_t style;
};

struct rect {
    int x, y, w, h;
};
struct rect rect_inset(struct rect r, int dx, int dy);    /* never negative in size */
struct rect rect_rows(struct rect r, int from, int rows); /* rows [from, from+rows) of r, cut to it */

/* What a click on a place means. Views say so where they draw; what is drawn later lies on top. */
enum hit_kind {
    HIT_NOTHING, /* a form is open: what lies under it is out of reach */
    HIT_ACTION,  /* what: enum action */
    HIT_ROW,     /* what: row of the view's list */
    HIT_FIELD,   /* what: field of the form */
    HIT_ENTRY,   /* what: row of the palette */
    HIT_PANE,    /* what: pane of the view */
    HIT_CLOSE,   /* closes what is open */
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

/* Owned: grid_close. Errors: ERR_NOMEM, ERR_USAGE (size below 1x1 or above 4096x4096). */
enum err_code grid_open(struct grid *g, int w, int h, enum glyph_level glyphs, struct err *why);
void grid_close(struct grid *g); /* {0} is fine */
void grid_clear(struct grid *g);
struct rect grid_area(const struct grid *g);

/* A click inside `at` means this from now on; beyond GRID_HITS places nothing more is remembered. */
void grid_hit(struct grid *g, struct rect at, enum hit_kind kind, int what);
/* What lies on top at (x, y); HIT_NOTHING where nothing does. */
struct hit grid_hit_at(const struct grid *g, int x, int y);

/* One character at (x, y) inside `area` (relative to it); out of it: nothing. A wide character needs both
 * columns. */
void grid_put(struct grid *g, struct rect area, int x, int y, uint32_t code, unsigned style);
void grid_fill(struct grid *g, struct rect area, uint32_t code, unsigned style);

/* A frame with a title in its upper edge and a note in its lower one (NULL: none). Returns the inside. */
struct rect grid_box(struct grid *g, struct rect area, const char *title, const char *note);

/* Columns a UTF-8 text takes. */
int text_columns(const char *text);

/* Write along a row: where the next text goes. */
struct pen {
    struct grid *g;
    struct rect area;
    int x, y; /* relative to area */
};
struct pen pen_at(struct grid *g, struct rect area, int x, int y);
void pen_put(struct pen *p, unsigned style, const char *text);
void pen_printf(struct pen *p, unsigned style, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* At most `columns`, cut with an ellipsis; then the pen stands `columns` further, whatever was written. */
void pen_field(struct pen *p, int columns, unsigned style, const char *text);
void pen_field_right(struct pen *p, int columns, unsigned style, const char *text);
int pen_left(const struct pen *p); /* columns left in the row, at least 0 */

/* `columns` wide bar filled to `ratio` (0..1; NAN: an empty bar). */
void pen_meter(struct pen *p, int columns, double ratio, unsigned style);

/* The newest values of v[n] as a graph of area's size, newest at the right; lo..hi is the height. NAN leaves
 * a gap; a known value always shows at least one dot, so nothing is never mistaken for unknown. */
struct graph {
    const float *v;
    int n;
    double lo, hi; /* hi NAN: the largest value */
    unsigned style;
};
void grid_graph(struct grid *g, struct rect area, const struct graph *graph);
void pen_graph(struct pen *p, int columns, const struct graph *graph); /* one row */

/* Words of `text` into area, at most area.h rows; returns the rows used. */
int grid_wrap(struct grid *g, struct rect area, unsigned style, const char *text);

/* The grid as UTF-8 lines, blanks at line ends dropped. */
void grid_text(const struct grid *g, struct str *out);

#endif
