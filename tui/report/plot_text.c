/* plot_text.c - a plot drawn with characters, for Markdown. It draws the same marks in the same order as
 * plot_svg.c; labels become legend entries. */

#include <math.h>
#include <string.h>

#include "tui/report/plot.h"

enum { COLUMNS_MAX = 160, ROWS_MAX = 64 };

struct canvas {
    uint32_t cell[ROWS_MAX][COLUMNS_MAX]; /* 0: the right half of a wide character */
    int columns, rows;
    int left, w, h; /* first column and size of the frame */
    bool lanes;     /* the y axis has lanes: a box is one row high */
    struct plot_scale sx, sy;
};

/* Sets a character of the canvas; does nothing outside. */
static void put_code(struct canvas *c, int x, int y, uint32_t code)
{
    if (x >= 0 && x < c->columns && y >= 0 && y < c->rows) c->cell[y][x] = code;
}

static void put_words(struct canvas *c, int x, int y, const char *text)
{
    size_t n = strlen(text), used;
    uint32_t code;
    for (; (used = str_utf8_next(text, n, &code)) > 0; text += used, n -= used) {
        char one[5] = "";
        str_utf8_put(code, one);
        const int wide = plot_columns(one);
        if (!wide) continue;
        put_code(c, x, y, code);
        if (wide == 2) put_code(c, x + 1, y, 0);
        x += wide;
    }
}

static int column_at(const struct canvas *c, double v)
{
    const double at = plot_at(&c->sx, v);
    return isfinite(at) && at >= -0.001 && at <= 1.001 ? (int)lround(at * (c->w - 1)) : -1;
}

static int row_at(const struct canvas *c, double v)
{
    const double at = plot_at(&c->sy, v);
    return isfinite(at) && at >= -0.001 && at <= 1.001 ? (int)lround((1 - at) * (c->h - 1)) : -1;
}

/* The column or row of an edge, moved to the edge of the frame if it lies outside. */
static int clamp_at(const struct plot_scale *s, double v, int last, bool turned, int otherwise)
{
    double at = plot_at(s, v);
    if (isnan(at)) return otherwise;
    at = at < 0 ? 0 : at > 1 ? 1 : at;
    return (int)lround((turned ? 1 - at : at) * last);
}

/* Sets a character inside the frame; does nothing outside. */
static void put_mark(struct canvas *c, int x, int y, const char *glyph)
{
    uint32_t code;
    if (x < 0 || y < 0) return;
    str_utf8_next(glyph, strlen(glyph), &code);
    if (x < c->w && y < c->h) put_code(c, c->left + x, y, code);
}

static const char *box_glyph(const struct plot_layer *l)
{
    static const char *const BODIES[] = { "█", "▓", "▒", "░" };
    return l->hue == HUE_ALERT ? "╳" : l->soft ? "·" : BODIES[l->hue % (int)COUNT_OF(BODIES)];
}

static const char *line_glyph(const struct plot_layer *l)
{
    static const char *const LINES[HUE_COUNT] = { "─", "╌", "═", "┈", "━", "╍", "┄", "┅", "·", "~" };
    return LINES[l->hue];
}

static void draw_box(struct canvas *c, const struct plot_layer *l, const struct plot_point *p)
{
    const int right = c->w - 1, foot = c->h - 1;
    if (isnan(plot_at(&c->sx, p->x_low)) && isnan(plot_at(&c->sy, p->y_low)) &&
        isnan(plot_at(&c->sx, p->x_high)) && isnan(plot_at(&c->sy, p->y_high)))
        return;
    const int x0 = clamp_at(&c->sx, p->x_low, right, false, 0),
              x1 = clamp_at(&c->sx, p->x_high, right, false, right),
              y0 = clamp_at(&c->sy, p->y_high, foot, true, 0),
              y1 = clamp_at(&c->sy, p->y_low, foot, true, foot);
    const bool lane = c->lanes && isfinite(p->y_low);
    const int row = row_at(c, 0.5 * (p->y_low + p->y_high));
    for (int y = lane ? row : y0; y <= (lane ? row : y1); y++)
        for (int x = x0; x <= x1; x++) put_mark(c, x, y, box_glyph(l));
}

static void draw_rule(struct canvas *c, const struct plot_layer *l, const struct plot_point *p)
{
    const int y = row_at(c, p->y), x = column_at(c, p->x);
    for (int i = 0; y >= 0 && i < c->w; i++) put_mark(c, i, y, l->soft ? "┄" : "─");
    for (int i = 0; y < 0 && x >= 0 && i < c->h; i++) put_mark(c, x, i, "┊");
}

/* Draws every column between two points, so that the line has no gaps. */
static void draw_path(struct canvas *c, const struct plot_layer *l)
{
    for (int i = 0; i < l->n; i++) {
        const struct plot_point *p = &l->point[i], *to = i + 1 < l->n ? &l->point[i + 1] : p;
        const int x0 = column_at(c, p->x), x1 = column_at(c, to->x);
        put_mark(c, x0, row_at(c, p->y), line_glyph(l));
        for (int x = x0 + 1; x0 >= 0 && x < x1; x++) {
            const double share = l->mark == MARK_STEP ? 0 : (double)(x - x0) / (x1 - x0);
            put_mark(c, x, row_at(c, p->y + share * (to->y - p->y)), line_glyph(l));
        }
    }
}

static void draw_band(struct canvas *c, const struct plot_layer *l)
{
    const int foot = c->h - 1;
    for (int i = 0; i < l->n; i++) {
        const struct plot_point *p = &l->point[i];
        const int from = column_at(c, p->x), next = i + 1 < l->n ? column_at(c, l->point[i + 1].x) : from + 1;
        if (isnan(plot_at(&c->sy, p->y_low)) || isnan(plot_at(&c->sy, p->y_high))) continue;
        for (int x = from; x >= 0 && (x == from || x < next); x++)
            for (int y = clamp_at(&c->sy, p->y_high, foot, true, 0);
                 y <= clamp_at(&c->sy, p->y_low, foot, true, foot); y++)
                put_mark(c, x, y, "░");
    }
}

static void draw_interval(struct canvas *c, const struct plot_point *p)
{
    const int x = column_at(c, p->x), y = row_at(c, p->y), right = c->w - 1, foot = c->h - 1;
    if (y >= 0 && isfinite(p->x_low) && isfinite(p->x_high))
        for (int i = clamp_at(&c->sx, p->x_low, right, false, 0);
             i <= clamp_at(&c->sx, p->x_high, right, false, right); i++)
            put_mark(c, i, y, "━");
    if (y >= 0 && plot_at(&c->sx, p->x_low) < 0) put_mark(c, 0, y, "←"); /* cut off: not an end */
    if (y >= 0 && plot_at(&c->sx, p->x_high) > 1) put_mark(c, right, y, "→");
    if (x >= 0 && isfinite(p->y_low) && isfinite(p->y_high))
        for (int i = clamp_at(&c->sy, p->y_high, foot, true, 0);
             i <= clamp_at(&c->sy, p->y_low, foot, true, foot); i++)
            put_mark(c, x, i, "┃");
    if (x >= 0 && plot_at(&c->sy, p->y_high) > 1) put_mark(c, x, 0, "↑");
    if (x >= 0 && plot_at(&c->sy, p->y_low) < 0) put_mark(c, x, foot, "↓");
}

static void draw_layer(struct canvas *c, const struct plot_layer *l)
{
    if (l->mark == MARK_LINE || l->mark == MARK_STEP) draw_path(c, l);
    if (l->mark == MARK_BAND) draw_band(c, l);
    for (int i = 0; i < l->n; i++) {
        const struct plot_point *p = &l->point[i];
        if (l->mark == MARK_BOX) draw_box(c, l, p);
        if (l->mark == MARK_RULE) draw_rule(c, l, p);
        if (l->mark == MARK_INTERVAL) draw_interval(c, p);
        if (l->mark == MARK_DOT) put_mark(c, column_at(c, p->x), row_at(c, p->y), plot_glyph(l->hue));
    }
}

static void draw_axes(struct canvas *c, const struct plot_ticks *tx, const struct plot_ticks *ty)
{
    for (int y = 0; y < c->h; y++) put_code(c, c->left - 1, y, 0x2502); /* │ */
    put_code(c, c->left - 1, c->h, 0x2514);                             /* └ */
    for (int x = 0; x < c->w; x++) put_code(c, c->left + x, c->h, 0x2500);
    for (int i = 0; i < ty->n; i++) {
        const int y = row_at(c, ty->at[i]);
        if (y < 0) continue;
        put_words(c, c->left - 2 - plot_columns(ty->text[i]), y, ty->text[i]);
        put_code(c, c->left - 1, y, 0x2524); /* ┤ */
    }
    int free_from = 0;
    for (int i = 0; i < tx->n; i++) {
        const int w = plot_columns(tx->text[i]), x = column_at(c, tx->at[i]);
        const int from = MIN(c->left + x - w / 2, c->columns - w);
        if (x < 0) continue;
        put_code(c, c->left + x, c->h, 0x252c); /* ┬ */
        if (from < free_from) continue;
        put_words(c, from, c->h + 1, tx->text[i]);
        free_from = from + w + 2;
    }
}

static void put_canvas(struct str *out, const struct canvas *c)
{
    for (int y = 0; y < c->rows; y++) {
        int last = c->columns - 1;
        while (last >= 0 && c->cell[y][last] == ' ') last--;
        for (int x = 0; x <= last; x++) {
            char bytes[4];
            if (c->cell[y][x]) str_append_n(out, bytes, str_utf8_put(c->cell[y][x], bytes));
        }
        str_append(out, "\n");
    }
}

static const char *legend_mark(const struct plot_layer *l)
{
    switch (l->mark) {
    case MARK_DOT: return plot_glyph(l->hue);
    case MARK_BAND: return "░";
    case MARK_BOX: return box_glyph(l);
    case MARK_INTERVAL: return "━";
    case MARK_RULE: return l->soft ? "┄" : "─";
    default: return line_glyph(l);
    }
}

static void put_legend(struct str *out, const struct plot *p, int columns)
{
    int at = 0;
    for (int i = 0; i < p->layers; i++) {
        const struct plot_layer *l = &p->layer[i];
        for (int k = -1; k < l->n; k++) { /* the name of the layer, then the labels of its points */
            const char *text = k < 0 ? l->name : l->mark == MARK_RULE ? l->point[k].label : NULL;
            if (!text || !*text) continue;
            const int w = plot_columns(text) + 4;
            if (at && at + w > columns) {
                str_append(out, "\n");
                at = 0;
            }
            str_printf(out, "%s%s %s", at ? "  " : "", legend_mark(l), text);
            at += w;
        }
    }
    if (at) str_append(out, "\n");
}

void plot_text(struct str *out, const struct plot *p, int columns, int rows)
{
    struct canvas c = { .sx = plot_scale(p, 'x'), .sy = plot_scale(p, 'y') };
    struct plot_ticks tx, ty;
    c.lanes = p->y.names != NULL;
    c.columns = MAX(24, MIN(columns, COLUMNS_MAX));
    c.h = MAX(2, MIN(rows, ROWS_MAX - 2));
    c.rows = c.h + 2;
    plot_ticks(&ty, &p->y, &c.sy, MAX(3, c.h / 3));
    int gutter = 4;
    for (int i = 0; i < ty.n; i++) gutter = MAX(gutter, plot_columns(ty.text[i]) + 1);
    c.left = MIN(gutter, c.columns / 2) + 1;
    c.w = c.columns - c.left;
    plot_ticks(&tx, &p->x, &c.sx, MAX(2, c.w / 11));
    for (int y = 0; y < c.rows; y++)
        for (int x = 0; x < c.columns; x++) c.cell[y][x] = ' ';
    for (int i = 0; i < p->layers; i++) draw_layer(&c, &p->layer[i]);
    draw_axes(&c, &tx, &ty);
    if (p->title) str_printf(out, "%s\n", p->title);
    if (p->y.title) str_printf(out, "%s\n", p->y.title);
    put_canvas(out, &c);
    const int before = p->x.title ? MAX(0, c.columns - plot_columns(p->x.title)) : 0;
    if (p->x.title) str_printf(out, "%*s%s\n", before, "", p->x.title);
    put_legend(out, p, c.columns);
}
