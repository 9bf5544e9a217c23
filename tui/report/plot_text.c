/* tui/report/plot_text.c - a plot with characters: what a report in Markdown shows. The same marks in the
 * same order as the picture; labels become a line of legend under it. */
#include "tui/report/plot.h"

#include <math.h>
#include <string.h>

#include "tui/grid.h"

struct canvas {
    struct grid g;
    struct rect frame;
    struct plot_scale sx, sy;
};

static int column_at(const struct canvas *c, double v)
{
    const double at = plot_at(&c->sx, v);
    return isfinite(at) && at >= -0.001 && at <= 1.001 ? (int)lround(at * (c->frame.w - 1)) : -1;
}

static int row_at(const struct canvas *c, double v)
{
    const double at = plot_at(&c->sy, v);
    return isfinite(at) && at >= -0.001 && at <= 1.001 ? (int)lround((1 - at) * (c->frame.h - 1)) : -1;
}

/* The column or row of an edge that may lie outside: the frame's edge then. */
static int clamp_at(const struct plot_scale *s, double v, int last, bool turned, int otherwise)
{
    double at = plot_at(s, v);
    if (isnan(at)) return otherwise;
    at = at < 0 ? 0 : at > 1 ? 1 : at;
    return (int)lround((turned ? 1 - at : at) * last);
}

static void put(struct canvas *c, int x, int y, const char *glyph)
{
    uint32_t code;
    if (x < 0 || y < 0) return;
    str_utf8_next(glyph, strlen(glyph), &code);
    grid_put(&c->g, c->frame, x, y, code, ROLE_TEXT);
}

static void draw_box(struct canvas *c, const struct plot_layer *l, const struct plot_point *p)
{
    const int right = c->frame.w - 1, foot = c->frame.h - 1;
    if (isnan(plot_at(&c->sx, p->x_low)) && isnan(plot_at(&c->sy, p->y_low)) &&
        isnan(plot_at(&c->sx, p->x_high)) && isnan(plot_at(&c->sy, p->y_high)))
        return;
    const int x0 = clamp_at(&c->sx, p->x_low, right, false, 0),
              x1 = clamp_at(&c->sx, p->x_high, right, false, right),
              y0 = clamp_at(&c->sy, p->y_high, foot, true, 0),
              y1 = clamp_at(&c->sy, p->y_low, foot, true, foot);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++)
            put(c, x, y, l->hue == HUE_ALERT ? "╳" : l->soft ? "·" : l->hue % 2 ? "▒" : "█");
}

static void draw_rule(struct canvas *c, const struct plot_layer *l, const struct plot_point *p)
{
    const int y = row_at(c, p->y), x = column_at(c, p->x);
    for (int i = 0; y >= 0 && i < c->frame.w; i++) put(c, i, y, l->soft ? "┄" : "─");
    for (int i = 0; y < 0 && x >= 0 && i < c->frame.h; i++) put(c, x, i, "┊");
}

/* Every column between two points gets its value, so that a line has no holes. */
static void draw_path(struct canvas *c, const struct plot_layer *l)
{
    for (int i = 0; i < l->n; i++) {
        const struct plot_point *p = &l->point[i], *to = i + 1 < l->n ? &l->point[i + 1] : p;
        const int x0 = column_at(c, p->x), x1 = column_at(c, to->x);
        put(c, x0, row_at(c, p->y), "─");
        for (int x = x0 + 1; x0 >= 0 && x < x1; x++) {
            const double share = l->mark == MARK_STEP ? 0 : (double)(x - x0) / (x1 - x0);
            put(c, x, row_at(c, p->y + share * (to->y - p->y)), "─");
        }
    }
}

static void draw_band(struct canvas *c, const struct plot_layer *l)
{
    const int foot = c->frame.h - 1;
    for (int i = 0; i < l->n; i++) {
        const struct plot_point *p = &l->point[i];
        const int from = column_at(c, p->x), next = i + 1 < l->n ? column_at(c, l->point[i + 1].x) : from + 1;
        if (isnan(plot_at(&c->sy, p->y_low)) || isnan(plot_at(&c->sy, p->y_high))) continue;
        for (int x = from; x >= 0 && (x == from || x < next); x++)
            for (int y = clamp_at(&c->sy, p->y_high, foot, true, 0);
                 y <= clamp_at(&c->sy, p->y_low, foot, true, foot); y++)
                put(c, x, y, "░");
    }
}

static void draw_interval(struct canvas *c, const struct plot_point *p)
{
    const int x = column_at(c, p->x), y = row_at(c, p->y), right = c->frame.w - 1, foot = c->frame.h - 1;
    if (y >= 0 && isfinite(p->x_low) && isfinite(p->x_high))
        for (int i = clamp_at(&c->sx, p->x_low, right, false, 0);
             i <= clamp_at(&c->sx, p->x_high, right, false, right); i++)
            put(c, i, y, "━");
    if (x >= 0 && isfinite(p->y_low) && isfinite(p->y_high))
        for (int i = clamp_at(&c->sy, p->y_high, foot, true, 0);
             i <= clamp_at(&c->sy, p->y_low, foot, true, foot); i++)
            put(c, x, i, "┃");
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
        if (l->mark == MARK_DOT) put(c, column_at(c, p->x), row_at(c, p->y), plot_glyph(l->hue));
    }
}

static void draw_axes(struct canvas *c, const struct plot_ticks *tx, const struct plot_ticks *ty)
{
    const struct rect f = c->frame, all = grid_area(&c->g);
    struct pen p;
    for (int y = 0; y < f.h; y++) grid_put(&c->g, all, f.x - 1, y, 0x2502, ROLE_TEXT); /* │ */
    grid_put(&c->g, all, f.x - 1, f.h, 0x2514, ROLE_TEXT);                             /* └ */
    for (int x = 0; x < f.w; x++) grid_put(&c->g, all, f.x + x, f.h, 0x2500, ROLE_TEXT);
    for (int i = 0; i < ty->n; i++) {
        const int y = row_at(c, ty->at[i]);
        if (y < 0) continue;
        p = pen_at(&c->g, all, f.x - 2 - text_columns(ty->text[i]), y);
        pen_put(&p, ROLE_TEXT, ty->text[i]);
        grid_put(&c->g, all, f.x - 1, y, 0x2524, ROLE_TEXT); /* ┤ */
    }
    int free_from = 0;
    for (int i = 0; i < tx->n; i++) {
        const int w = text_columns(tx->text[i]), x = column_at(c, tx->at[i]);
        const int from = MIN(f.x + x - w / 2, c->g.w - w);
        if (x < 0) continue;
        grid_put(&c->g, all, f.x + x, f.h, 0x252c, ROLE_TEXT); /* ┬ */
        if (from < free_from) continue;
        p = pen_at(&c->g, all, from, f.h + 1);
        pen_put(&p, ROLE_TEXT, tx->text[i]);
        free_from = from + w + 2;
    }
}

static void put_grid(struct str *out, const struct grid *g)
{
    for (int y = 0; y < g->h; y++) {
        int last = g->w - 1;
        while (last >= 0 && g->cells[y * g->w + last].code == ' ') last--;
        for (int x = 0; x <= last; x++) {
            char bytes[4];
            const uint32_t code = g->cells[y * g->w + x].code;
            if (code) str_append_n(out, bytes, str_utf8_put(code, bytes)); /* 0: right half of a wide one */
        }
        str_append(out, "\n");
    }
}

static const char *swatch(const struct plot_layer *l)
{
    switch (l->mark) {
    case MARK_DOT: return plot_glyph(l->hue);
    case MARK_BAND: return "░";
    case MARK_BOX: return l->hue == HUE_ALERT ? "╳" : l->soft ? "·" : l->hue % 2 ? "▒" : "█";
    case MARK_INTERVAL: return "━";
    case MARK_RULE: return l->soft ? "┄" : "─";
    default: return "─";
    }
}

static void put_legend(struct str *out, const struct plot *p, int columns)
{
    int at = 0;
    for (int i = 0; i < p->layers; i++) {
        const struct plot_layer *l = &p->layer[i];
        for (int k = -1; k < l->n; k++) { /* the layer's own name, then labels of its points */
            const char *text = k < 0 ? l->name : l->mark == MARK_RULE ? l->point[k].label : NULL;
            if (!text || !*text) continue;
            const int w = text_columns(text) + 4;
            if (at && at + w > columns) {
                str_append(out, "\n");
                at = 0;
            }
            str_printf(out, "%s%s %s", at ? "  " : "", swatch(l), text);
            at += w;
        }
    }
    if (at) str_append(out, "\n");
}

void plot_text(struct str *out, const struct plot *p, int columns, int rows)
{
    struct canvas c = { .sx = plot_scale(p, 'x'), .sy = plot_scale(p, 'y') };
    struct plot_ticks tx, ty;
    plot_ticks(&ty, &p->y, &c.sy, MAX(2, rows / 3));
    int gutter = 4;
    for (int i = 0; i < ty.n; i++) gutter = MAX(gutter, text_columns(ty.text[i]) + 1);
    gutter = MIN(gutter, columns / 2);
    c.frame = (struct rect){ gutter + 1, 0, MAX(8, columns - gutter - 1), rows };
    plot_ticks(&tx, &p->x, &c.sx, MAX(2, c.frame.w / 11));
    struct err why;
    if (grid_open(&c.g, gutter + 1 + c.frame.w, rows + 2, GLYPHS_BRAILLE, &why)) {
        out->failed = true;
        return;
    }
    grid_clear(&c.g);
    for (int i = 0; i < p->layers; i++) draw_layer(&c, &p->layer[i]);
    draw_axes(&c, &tx, &ty);
    if (p->title) str_printf(out, "%s\n", p->title);
    if (p->y.title) str_printf(out, "%s\n", p->y.title);
    put_grid(out, &c.g);
    if (p->x.title)
        str_printf(out, "%*s\n", MAX(0, columns - (text_columns(p->x.title) - (int)strlen(p->x.title))),
                   p->x.title);
    put_legend(out, p, columns);
    grid_close(&c.g);
}
