/* tui/widgets/charts.c - planes: axes, the mapping from values to cells, and marks. */
#include "tui/widgets/widgets.h"

#include <math.h>
#include <string.h>

struct axis axis_around(struct axis a)
{
    if (!isfinite(a.lo) || !isfinite(a.hi)) return a;
    if (a.log) {
        const double room = a.hi > a.lo ? pow(a.hi / a.lo, 0.05) : 1.5;
        a.lo /= room;
        a.hi *= room;
        return a;
    }
    const double room = a.hi > a.lo ? (a.hi - a.lo) * 0.05 : MAX(fabs(a.lo) * 0.1, 1e-9);
    a.lo -= room;
    a.hi += room;
    return a;
}

/* Position of a value on the axis: 0 at lo, 1 at hi; NAN for values a logarithmic axis cannot show. */
static double axis_part(const struct axis *a, double v)
{
    if (a->log) return v > 0 ? log(v / a->lo) / log(a->hi / a->lo) : NAN;
    return (v - a->lo) / (a->hi - a->lo);
}

static double axis_value(const struct axis *a, double part)
{
    return a->log ? a->lo * pow(a->hi / a->lo, part) : a->lo + part * (a->hi - a->lo);
}

static bool axis_is_good(const struct axis *a)
{
    return isfinite(a->lo) && isfinite(a->hi) && a->hi > a->lo && (!a->log || a->lo > 0);
}

/* ---------------------------------------------------------------- axes */

static void label_y(const struct plane *p, struct rect area, int row)
{
    const double part = p->at.h > 1 ? 1 - (double)row / (p->at.h - 1) : 1;
    struct pen pen = pen_at(p->g, area, 0, row);
    pen_field_right(&pen, PLANE_LEFT - 2, ROLE_DIM, p->y.show(axis_value(&p->y, part)).text);
    grid_put(p->g, area, PLANE_LEFT - 1, row, 0x2524, ROLE_BORDER);
}

static void draw_axis_y(const struct plane *p, struct rect area)
{
    for (int row = 0; row < p->at.h; row++) grid_put(p->g, area, PLANE_LEFT - 1, row, 0x2502, ROLE_BORDER);
    const int steps = MAX(MIN((p->at.h - 1) / 4, 4), 1);
    for (int i = 0; i <= steps && p->at.h > 1; i++) label_y(p, area, (p->at.h - 1) * i / steps);
    if (!p->y.name || p->at.h < 3) return; /* the name goes below the topmost label */
    struct pen pen = pen_at(p->g, area, 0, 1);
    pen_field_right(&pen, PLANE_LEFT - 2, ROLE_DIM, p->y.name);
}

/* Labels along the lower edge. The last one is followed by the name of the axis; the others are centred below
 * their ticks if they fit. */
static void draw_axis_x(const struct plane *p, struct rect area)
{
    const int row = p->at.h, steps = MAX(MIN((p->at.w - 1) / 20, 6), 1);
    const struct rect below = { p->at.x, area.y, p->at.w, area.h };
    char end[64];
    snprintf(end, sizeof end, "%s%s%s", p->x.show(p->x.hi).text, p->x.name ? " " : "",
             p->x.name ? p->x.name : "");
    const int last = MAX(p->at.w - text_columns(end), 0);
    grid_put(p->g, area, PLANE_LEFT - 1, row, 0x2514, ROLE_BORDER);
    for (int x = 0; x < p->at.w; x++) grid_put(p->g, below, x, row, 0x2500, ROLE_BORDER);
    for (int i = 0, from = 0; i < steps; i++) {
        const int x = (p->at.w - 1) * i / steps;
        const struct figure f = p->x.show(axis_value(&p->x, (double)i / steps));
        const int at = MAX(x - text_columns(f.text) / 2, from);
        if (at + text_columns(f.text) >= last) continue;
        struct pen pen = pen_at(p->g, below, at, row + 1);
        grid_put(p->g, below, x, row, 0x253c, ROLE_BORDER);
        pen_put(&pen, ROLE_DIM, f.text);
        from = pen.x + 1;
    }
    struct pen pen = pen_at(p->g, below, last, row + 1);
    grid_put(p->g, below, p->at.w - 1, row, 0x253c, ROLE_BORDER);
    pen_put(&pen, ROLE_DIM, end);
}

struct plane plane_open(struct grid *g, struct rect area, struct axis x, struct axis y)
{
    struct plane p = { .g = g,
                       .at = { area.x + PLANE_LEFT, area.y, area.w - PLANE_LEFT, area.h - PLANE_BOTTOM },
                       .x = x,
                       .y = y };
    if (p.at.w < 8 || p.at.h < 2 || !axis_is_good(&x) || !axis_is_good(&y)) {
        p.at = (struct rect){ area.x, area.y, 0, 0 };
        return p;
    }
    draw_axis_y(&p, area);
    draw_axis_x(&p, area);
    return p;
}

/* ---------------------------------------------------------------- marks */

bool plane_holds(const struct plane *p, double x, double y)
{
    if (p->at.w <= 0) return false;
    const double a = axis_part(&p->x, x), b = axis_part(&p->y, y);
    return a >= 0 && a <= 1 && b >= 0 && b <= 1; /* false for NAN */
}

/* Column or row of a position; outside of the plane: its edge. */
static int axis_cell(const struct axis *a, double v, int cells, bool downwards)
{
    const double part = MIN(MAX(axis_part(a, v), 0.0), 1.0);
    return (int)lround((downwards ? 1 - part : part) * (cells - 1));
}

/* Add a dot to those the cell has already. */
static void add_dot(struct grid *g, struct rect at, int dot_x, int dot_y, unsigned style)
{
    static const uint8_t BITS[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } };
    const int x = dot_x / 2, y = dot_y / 4, gx = at.x + x, gy = at.y + y;
    if (gx < 0 || gy < 0 || gx >= g->w || gy >= g->h) return;
    const uint32_t there = g->cells[gy * g->w + gx].code;
    const uint32_t base = there > 0x2800 && there <= 0x28ff ? there : 0x2800;
    if (there != ' ' && base == 0x2800) return; /* the cell holds a mark */
    grid_put(g, at, x, y, base | BITS[dot_y % 4][dot_x % 2], style);
}

void plane_dot(const struct plane *p, double x, double y, unsigned style)
{
    if (!plane_holds(p, x, y)) return;
    if (p->g->glyphs == GLYPHS_BRAILLE) {
        add_dot(p->g, p->at, axis_cell(&p->x, x, p->at.w * 2, false), axis_cell(&p->y, y, p->at.h * 4, true),
                style);
        return;
    }
    grid_put(p->g, p->at, axis_cell(&p->x, x, p->at.w, false), axis_cell(&p->y, y, p->at.h, true), 0xb7,
             style);
}

void plane_line(const struct plane *p, const double from[2], const double to[2], unsigned style)
{
    if (p->at.w <= 0) return;
    const int steps = 4 * MAX(p->at.w, p->at.h);
    const double x0 = axis_part(&p->x, from[0]), x1 = axis_part(&p->x, to[0]);
    const double y0 = axis_part(&p->y, from[1]), y1 = axis_part(&p->y, to[1]);
    if (!isfinite(x0) || !isfinite(x1) || !isfinite(y0) || !isfinite(y1)) return;
    for (int i = 0; i <= steps; i++) {
        const double t = (double)i / steps, a = x0 + t * (x1 - x0), b = y0 + t * (y1 - y0);
        plane_dot(p, axis_value(&p->x, a), axis_value(&p->y, b), style);
    }
}

void plane_mark(const struct plane *p, double x, double y, uint32_t code, unsigned style)
{
    if (p->at.w <= 0 || isnan(axis_part(&p->x, x)) || isnan(axis_part(&p->y, y))) return;
    grid_put(p->g, p->at, axis_cell(&p->x, x, p->at.w, false), axis_cell(&p->y, y, p->at.h, true), code,
             style);
}

void plane_whisker_x(const struct plane *p, double lo, double hi, double y, unsigned style)
{
    if (p->at.w <= 0 || !isfinite(lo) || !isfinite(hi) || !isfinite(y)) return;
    const int from = axis_cell(&p->x, lo, p->at.w, false), to = axis_cell(&p->x, hi, p->at.w, false),
              row = axis_cell(&p->y, y, p->at.h, true);
    for (int x = from; x <= to; x++) grid_put(p->g, p->at, x, row, 0x2500, style);
    /* an end beyond the plane is an arrow, not an end mark */
    grid_put(p->g, p->at, from, row, lo < p->x.lo ? U'←' : U'├', style);
    grid_put(p->g, p->at, to, row, hi > p->x.hi ? U'→' : U'┤', style);
}

void plane_whisker_y(const struct plane *p, double x, double lo, double hi, unsigned style)
{
    if (p->at.w <= 0 || !isfinite(lo) || !isfinite(hi) || !isfinite(x)) return;
    const int from = axis_cell(&p->y, hi, p->at.h, true), to = axis_cell(&p->y, lo, p->at.h, true),
              column = axis_cell(&p->x, x, p->at.w, false);
    for (int y = from; y <= to; y++) grid_put(p->g, p->at, column, y, 0x2502, style);
    if (hi > p->y.hi) grid_put(p->g, p->at, column, from, U'↑', style);
    if (lo < p->y.lo) grid_put(p->g, p->at, column, to, U'↓', style);
}
