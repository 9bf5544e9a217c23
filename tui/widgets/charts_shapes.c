/* tui/widgets/charts_shapes.c - charts with a layout of their own: timelines, histograms, heat maps. */
#include "tui/widgets/widgets.h"

#include <math.h>
#include <string.h>

#include "advisor/stats/stats.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"

/* ---------------------------------------------------------------- values over time */

static struct figure show_ago(double seconds_ago)
{
    struct figure f = { "now" };
    if (seconds_ago < -0.5) snprintf(f.text, sizeof f.text, "-%s", figure_duration(-seconds_ago).text);
    return f;
}

void chart_timeline(struct grid *g, struct rect area, const struct timeline *t)
{
    const int wide = MAX(area.w - PLANE_LEFT, 0), per_cell = g->glyphs == GLYPHS_BRAILLE ? 2 : 1;
    struct axis y = t->y;
    if (isnan(y.hi)) {
        y.hi = y.lo;
        for (int i = MAX(t->n - wide * per_cell, 0); i < t->n; i++)
            if (t->v[i] > y.hi) y.hi = t->v[i];
        if (y.hi <= y.lo) y.hi = y.lo + 1;
    }
    const struct axis x = { .lo = -t->step_s * per_cell * MAX(wide, 1), .hi = 0, .show = show_ago };
    const struct plane p = plane_open(g, area, x, y);
    if (p.at.w > 0) grid_graph(g, p.at, &(struct graph){ t->v, t->n, y.lo, y.hi, t->style });
}

/* ---------------------------------------------------------------- distributions */

/* Values in the bins from `from` to before `to`. */
static double latency_count_between(const struct latency_histogram *l, double from, double to)
{
    double sum = 0;
    for (int i = MAX((int)from, 0); i < LATENCY_BINS && i < to; i++) {
        const double part = MIN(to, i + 1.0) - MAX(from, (double)i);
        sum += part * l->bin[i];
    }
    return sum;
}

static uint32_t column_glyph(const struct grid *g, int eighths)
{
    if (g->glyphs == GLYPHS_ASCII) return eighths > 5 ? '#' : eighths > 2 ? ':' : '.';
    return 0x2580 + (uint32_t)eighths;
}

static void draw_columns(struct grid *g, struct rect at, const struct latency_histogram *l, unsigned style)
{
    double most = 0;
    for (int x = 0; x < at.w; x++)
        most = MAX(
            most, latency_count_between(l, (double)x * LATENCY_BINS / at.w, (x + 1.0) * LATENCY_BINS / at.w));
    for (int x = 0; x < at.w && most > 0; x++) {
        const double m = latency_count_between(l, (double)x * LATENCY_BINS / at.w,
                                               (x + 1.0) * LATENCY_BINS / at.w);
        int left = m > 0 ? MAX((int)lround(m / most * at.h * 8), 1) : 0;
        for (int y = at.h - 1; y >= 0 && left > 0; y--, left -= 8)
            grid_put(g, at, x, y, column_glyph(g, MIN(left, 8)), style);
    }
}

/* "p95┐" above its position; labels that would overlap are moved apart. */
static void draw_percentiles(struct grid *g, struct rect row, const struct latency_histogram *l)
{
    static const char *const NAMES[] = { "p50", "p95", "p99" };
    const double at[] = { l->p50, l->p95, l->p99 };
    int taken = 0;
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        if (!isfinite(at[i])) continue;
        const double part = log(at[i] / l->lo) / log(l->hi / l->lo);
        const int x = (int)lround(MIN(MAX(part, 0.0), 1.0) * (row.w - 1));
        const int from = MAX(x - 3, taken);
        if (from + 4 > row.w + 1) continue;
        struct pen p = pen_at(g, row, from, 0);
        pen_put(&p, ROLE_TEXT, NAMES[i]);
        if (p.x <= x) {
            p.x = x;
            pen_put(&p, ROLE_KEY | STYLE_BOLD, "▼");
        }
        taken = p.x + 1;
    }
}

/* A line through the columns where the limit is. */
static void draw_limit(struct grid *g, struct rect bars, const struct latency_histogram *l)
{
    const double part = l->limit > 0 ? log(l->limit / l->lo) / log(l->hi / l->lo) : (double)NAN;
    if (!(part >= 0 && part <= 1)) return;
    for (int y = 0; y < bars.h; y++)
        grid_put(g, bars, (int)lround(part * (bars.w - 1)), y, 0x2502, ROLE_WARN | STYLE_BOLD);
}

static void draw_figures(struct grid *g, struct rect row, const char *name, const struct latency_histogram *l)
{
    struct pen p = pen_at(g, row, 0, 0);
    const int needed = stats_samples_for_quantile(0.99, 0.99, 0),
              p95 = stats_samples_for_quantile(0.95, 0.99, 0);
    char text[3][64], few[24] = "";
    pen_put(&p, ROLE_TITLE, name);
    if (l->limit > 0)
        pen_printf(&p, l->within < 0.99 ? ROLE_WARN : ROLE_TEXT, " %s<%s", figure_percent(l->within).text,
                   figure_seconds(l->limit).text);
    pen_printf(&p, ROLE_TEXT, " p50 %s", figure_seconds(l->p50).text);
    pen_printf(&p, ROLE_TEXT, " p95 %s", figure_seconds(l->p95).text);
    pen_printf(&p, ROLE_TEXT, " p99 %s", figure_seconds(l->p99).text);
    /* the longest that fits */
    if (isnan(l->p95)) snprintf(few, sizeof few, "p95 needs %d, ", p95);
    if (isnan(l->p99))
        snprintf(text[0], sizeof text[0], " (%d measured; %sp99 needs %d)", l->n, few, needed);
    else
        snprintf(text[0], sizeof text[0], " (%d measured)", l->n);
    snprintf(text[1], sizeof text[1], isnan(l->p99) ? " (%d; p99: %d+)" : " (%d)", l->n, needed);
    snprintf(text[2], sizeof text[2], " (%d)", l->n);
    for (size_t i = 0; i < COUNT_OF(text); i++)
        if (pen_left(&p) >= text_columns(text[i])) {
            pen_put(&p, ROLE_DIM, text[i]);
            break;
        }
}

void chart_latency(struct grid *g, struct rect area, const char *name, const struct latency_histogram *l,
                   unsigned style)
{
    if (area.h < 1) return;
    if (!l->n) {
        struct pen p = pen_at(g, area, 0, 0);
        pen_put(&p, ROLE_TITLE, name);
        pen_put(&p, ROLE_DIM, " n/a: ");
        pen_field(&p, area.w - p.x, ROLE_DIM, l->missing ? l->missing : "none were measured");
        return;
    }
    draw_figures(g, rect_rows(area, 0, 1), name, l);
    if (area.h < 4 || area.w < 16) return;
    const struct rect bars = rect_rows(area, 2, area.h - 3), axis = rect_rows(area, area.h - 1, 1);
    draw_percentiles(g, rect_rows(area, 1, 1), l);
    draw_columns(g, bars, l, style);
    draw_limit(g, bars, l);
    struct pen p = pen_at(g, axis, 0, 0);
    const struct figure lo = figure_seconds(l->lo), hi = figure_seconds(l->hi);
    pen_put(&p, ROLE_DIM, lo.text);
    for (int x = p.x + 1; x < axis.w - text_columns(hi.text) - 1; x++)
        grid_put(g, axis, x, 0, 0x2500, ROLE_BORDER);
    p.x = axis.w - text_columns(hi.text);
    pen_put(&p, ROLE_DIM, hi.text);
}

/* ---------------------------------------------------------------- heat maps */

static const struct {
    uint32_t code;
    unsigned style;
} SHADES[] = { { 0xb7, ROLE_DIM },
               { 0x2591, ROLE_TEXT },
               { 0x2592, ROLE_GRAPH },
               { 0x2593, ROLE_WARN },
               { 0x2588, ROLE_WORSE | STYLE_BOLD } };
enum { SHADE_COUNT = COUNT_OF(SHADES), NAME_COLUMNS = 14, HEAT_SCALE = 1 };

struct heat_range {
    double lo, hi;
    bool cut; /* some values are below lo */
};

/* Range of the shades. A tiny value would give all others the same shade, so lo is at least a ten-thousandth
 * of the largest value. */
static struct heat_range heat_range(const struct heat *h)
{
    enum { DECADES = 10000 };
    struct heat_range r = { NAN, NAN, false };
    for (int y = 0; y < h->rows; y++)
        for (int x = 0; x < h->columns; x++) {
            const double v = h->value(h->data, y, x);
            if (!(v > 0)) continue;
            r.lo = fmin(r.lo, v);
            r.hi = fmax(r.hi, v);
        }
    r.cut = r.lo < r.hi / DECADES;
    if (r.cut) r.lo = r.hi / DECADES;
    return r;
}

static int shade_of(const struct heat_range *r, double v)
{
    if (!(v > 0) || !(r->hi > r->lo)) return v > 0 ? SHADE_COUNT - 1 : 0;
    return MAX(MIN((int)(log(v / r->lo) / log(r->hi / r->lo) * SHADE_COUNT), SHADE_COUNT - 1), 0);
}

/* The largest of the columns from..to-1 of a row; NAN when none is known. */
static double heat_most(const struct heat *h, int row, int from, int to)
{
    double most = NAN;
    for (int x = from; x < to; x++) most = fmax(most, h->value(h->data, row, x));
    return most;
}

/* Whether the largest of these columns is marked. */
static bool heat_marked(const struct heat *h, int row, int from, int to, double most)
{
    for (int x = from; x < to && h->marked; x++)
        if (h->value(h->data, row, x) == most && h->marked(h->data, row, x)) return true;
    return false;
}

/* Columns that share a cell, and how wide a cell is. */
static int heat_joined(const struct heat *h, int columns, int *wide)
{
    const int joined = MAX((h->columns + columns - 1) / MAX(columns, 1), 1),
              cells = (h->columns + joined - 1) / joined;
    *wide = MAX(MIN(columns / MAX(cells, 1), 4), 1);
    return joined;
}

static void heat_row(struct grid *g, struct rect at, int y, const struct heat *h, const struct heat_range *r,
                     int row)
{
    int wide;
    const int joined = heat_joined(h, at.w, &wide), cells = (h->columns + joined - 1) / joined;
    for (int i = 0; i < cells; i++) {
        const double v = heat_most(h, row, i * joined, MIN((i + 1) * joined, h->columns));
        const int shade = shade_of(r, v);
        const bool here = row == h->row && h->column >= i * joined && h->column < (i + 1) * joined;
        const unsigned extra = here ? STYLE_REVERSE : 0u;
        const bool marked = wide > 1 && heat_marked(h, row, i * joined, MIN((i + 1) * joined, h->columns), v);
        for (int k = 0; k < wide; k++)
            grid_put(g, at, i * wide + k, y,
                     marked && !k ? '~'
                     : isnan(v)   ? ' '
                                  : SHADES[shade].code,
                     SHADES[shade].style | extra);
    }
}

/* The numbers of the columns below their first cell, as many as fit. */
static void heat_numbers(struct grid *g, struct rect at, const struct heat *h)
{
    int wide, last = -1;
    const int joined = heat_joined(h, at.w, &wide);
    for (int i = 0; i * joined < h->columns; i++) {
        const int number = h->number(h->data, i * joined);
        char text[16];
        snprintf(text, sizeof text, "%d", number);
        if (number < 0 || i * wide <= last || i * wide + (int)strlen(text) > at.w) continue;
        struct pen p = pen_at(g, at, i * wide, 0);
        pen_put(&p, ROLE_DIM, text);
        last = p.x;
    }
}

static bool heat_any_marked(const struct heat *h)
{
    for (int y = 0; y < h->rows && h->marked; y++)
        for (int x = 0; x < h->columns; x++)
            if (h->marked(h->data, y, x)) return true;
    return false;
}

static void heat_scale(struct grid *g, struct rect row, const struct heat *h, const struct heat_range *r)
{
    struct pen p = pen_at(g, row, 0, 0);
    if (!isfinite(r->lo)) {
        pen_put(&p, ROLE_DIM, "nothing is lost");
        return;
    }
    pen_printf(&p, ROLE_DIM, r->cut ? "≤%.1e " : "%.1e ", r->lo);
    for (int i = 0; i < SHADE_COUNT; i++)
        for (int k = 0; k < 2; k++) grid_put(g, row, p.x++, 0, SHADES[i].code, SHADES[i].style);
    pen_printf(&p, ROLE_DIM, " %.1e%s", r->hi, heat_any_marked(h) ? "   ~ estimated" : "");
}

void chart_heat(struct grid *g, struct rect area, const struct heat *h)
{
    const struct heat_range r = heat_range(h);
    enum { NUMBERS_FROM = 5 };
    const int numbers = h->number && area.h >= NUMBERS_FROM ? 1 : 0;
    const int rows = MAX(MIN(h->rows, area.h - HEAT_SCALE - numbers), 0);
    const int top = MAX(MIN(h->row - rows / 2, h->rows - rows), 0);
    const struct rect cells = { area.x + NAME_COLUMNS, area.y, MAX(area.w - NAME_COLUMNS, 0), area.h };
    for (int i = 0; i < rows; i++) {
        struct pen p = pen_at(g, area, 0, i);
        pen_field(&p, NAME_COLUMNS - 1, top + i == h->row ? ROLE_TEXT | STYLE_BOLD : ROLE_TEXT,
                  h->name(h->data, top + i));
        heat_row(g, cells, i, h, &r, top + i);
    }
    if (numbers) {
        struct pen p = pen_at(g, area, 0, rows);
        pen_field(&p, NAME_COLUMNS - 1, ROLE_DIM, h->unit);
        heat_numbers(g, rect_rows(cells, rows, 1), h);
    }
    if (area.h > rows + numbers) heat_scale(g, rect_rows(area, rows + numbers, 1), h, &r);
}
