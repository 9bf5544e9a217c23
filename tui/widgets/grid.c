/* tui/widgets/grid.c - cells, clipping, and the drawing primitives built on them.
 *
 * All drawing ends in grid_put(), the only function that writes a cell, so clipping and wide characters are
 * handled in one place. */
#include "tui/widgets/widgets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { GRID_MAX = 4096 };

struct rect rect_inset(struct rect r, int dx, int dy)
{
    return (struct rect){ r.x + dx, r.y + dy, MAX(r.w - 2 * dx, 0), MAX(r.h - 2 * dy, 0) };
}

struct rect rect_rows(struct rect r, int from, int rows)
{
    from = MIN(MAX(from, 0), r.h);
    return (struct rect){ r.x, r.y + from, r.w, MAX(MIN(rows, r.h - from), 0) };
}

enum err_code grid_open(struct grid *g, int w, int h, enum glyph_level glyphs, struct err *why)
{
    *g = (struct grid){ .glyphs = glyphs };
    if (w < 1 || h < 1 || w > GRID_MAX || h > GRID_MAX)
        return err_set(why, ERR_USAGE, "screen size %dx%d: expected 1x1 to %dx%d", w, h, GRID_MAX, GRID_MAX);
    g->cells = calloc((size_t)w * (size_t)h, sizeof *g->cells);
    if (!g->cells) return err_set(why, ERR_NOMEM, "no memory for a screen of %dx%d", w, h);
    g->w = w;
    g->h = h;
    grid_clear(g);
    return ERR_OK;
}

void grid_close(struct grid *g)
{
    free(g->cells);
    *g = (struct grid){ 0 };
}

void grid_clear(struct grid *g)
{
    for (int i = 0; i < g->w * g->h; i++) g->cells[i] = (struct cell){ ' ', ROLE_TEXT };
    g->hits = 0;
}

void grid_hit(struct grid *g, struct rect at, enum hit_kind kind, int what)
{
    if (g->hits < GRID_HITS) g->hit[g->hits++] = (struct hit){ at, kind, what };
}

struct hit grid_hit_at(const struct grid *g, int x, int y)
{
    for (int i = g->hits - 1; i >= 0; i--) {
        const struct rect *r = &g->hit[i].at;
        if (x >= r->x && x < r->x + r->w && y >= r->y && y < r->y + r->h) return g->hit[i];
    }
    return (struct hit){ .kind = HIT_NOTHING };
}

struct rect grid_area(const struct grid *g)
{
    return (struct rect){ 0, 0, g->w, g->h };
}

/* Columns of a code point after its replacement was chosen: 1 or 2; 0 for combining marks. */
static int code_columns(uint32_t code)
{
    if (code < 0x7f) return 1;
    int w = wcwidth((wchar_t)code);
    return w < 0 ? 1 : w;
}

/* When half of a wide character is overwritten, blank the other half. */
static void cell_release(struct grid *g, int x, int y)
{
    struct cell *c = &g->cells[y * g->w + x];
    if (c->code == 0 && x > 0) c[-1].code = ' ';
    if (c->code != 0 && x + 1 < g->w && c[1].code == 0) c[1].code = ' ';
}

void grid_put(struct grid *g, struct rect area, int x, int y, uint32_t code, unsigned style)
{
    code = glyph_at_level(code, g->glyphs);
    int columns = code_columns(code);
    if (columns == 0 || x < 0 || y < 0 || x + columns > area.w || y >= area.h) return;
    int ax = area.x + x, ay = area.y + y;
    if (ax < 0 || ay < 0 || ax + columns > g->w || ay >= g->h) return;
    struct cell *c = &g->cells[ay * g->w + ax];
    for (int i = 0; i < columns; i++) cell_release(g, ax + i, ay);
    c[0] = (struct cell){ code, (uint16_t)style };
    if (columns == 2) c[1] = (struct cell){ 0, (uint16_t)style };
}

void grid_fill(struct grid *g, struct rect area, uint32_t code, unsigned style)
{
    for (int y = 0; y < area.h; y++)
        for (int x = 0; x < area.w; x++) grid_put(g, area, x, y, code, style);
}

static void box_edge(struct grid *g, struct rect area, int y, const uint32_t corner[2], const char *text)
{
    for (int x = 0; x < area.w; x++) grid_put(g, area, x, y, 0x2500, ROLE_BORDER);
    grid_put(g, area, 0, y, corner[0], ROLE_BORDER);
    grid_put(g, area, area.w - 1, y, corner[1], ROLE_BORDER);
    if (!text || !*text || area.w < 6) return;
    struct rect inside = { area.x + 2, area.y, area.w - 4, area.h };
    struct pen p = pen_at(g, inside, 0, y);
    pen_put(&p, ROLE_BORDER, " ");
    pen_field(&p, MIN(text_columns(text), pen_left(&p) - 1), ROLE_TITLE | STYLE_BOLD, text);
    pen_put(&p, ROLE_BORDER, " ");
}

struct rect grid_box(struct grid *g, struct rect area, const char *title, const char *note)
{
    for (int y = 1; y + 1 < area.h; y++) {
        grid_put(g, area, 0, y, 0x2502, ROLE_BORDER);
        grid_put(g, area, area.w - 1, y, 0x2502, ROLE_BORDER);
    }
    if (area.h > 1) box_edge(g, area, area.h - 1, (const uint32_t[]){ 0x2514, 0x2518 }, note);
    if (area.h > 0) box_edge(g, area, 0, (const uint32_t[]){ 0x250c, 0x2510 }, title);
    return rect_inset(area, 2, 1);
}

/* Columns of the first n bytes. */
static int columns_of(const char *text, size_t n)
{
    int columns = 0;
    uint32_t code;
    for (size_t used; (used = str_utf8_next(text, n, &code)) > 0; text += used, n -= used)
        columns += code_columns(character_is_unsafe(code) ? 0xfffd : code);
    return columns;
}

int text_columns(const char *text)
{
    return columns_of(text, strlen(text));
}

/* ---------------------------------------------------------------- pens */

struct pen pen_at(struct grid *g, struct rect area, int x, int y)
{
    return (struct pen){ g, area, x, y };
}

int pen_left(const struct pen *p)
{
    return MAX(p->area.w - p->x, 0);
}

enum { ELLIPSIS = 0x2026 };

/* Put what fits. Returns whether a character other than a blank fell behind the right edge. */
static bool put_clipped(struct pen *p, unsigned style, const char *text)
{
    size_t n = strlen(text), used;
    uint32_t code;
    bool cut = false;
    for (; (used = str_utf8_next(text, n, &code)) > 0; text += used, n -= used) {
        code = glyph_at_level(character_is_unsafe(code) ? 0xfffd : code, p->g->glyphs);
        grid_put(p->g, p->area, p->x, p->y, code, style);
        p->x += code_columns(code);
        cut |= p->x > p->area.w && code != ' ';
    }
    return cut;
}

void pen_put(struct pen *p, unsigned style, const char *text)
{
    if (put_clipped(p, style, text)) grid_put(p->g, p->area, p->area.w - 1, p->y, ELLIPSIS, style);
}

void pen_printf(struct pen *p, unsigned style, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pen_put(p, style, text);
}

void pen_field(struct pen *p, int columns, unsigned style, const char *text)
{
    if (columns <= 0) return;
    bool cut = text_columns(text) > columns;
    struct pen inner = { p->g, p->area, p->x, p->y };
    if (p->x + columns > p->area.w) { /* the row ends before the field */
        columns = pen_left(p);
        cut = text_columns(text) > columns;
        if (!columns && cut) grid_put(p->g, p->area, p->area.w - 1, p->y, ELLIPSIS, style);
    }
    inner.area.w = p->x + columns - (cut ? 1 : 0);
    put_clipped(&inner, style, text);
    if (cut && columns > 0) grid_put(p->g, p->area, p->x + columns - 1, p->y, ELLIPSIS, style);
    p->x += columns;
}

void pen_field_right(struct pen *p, int columns, unsigned style, const char *text)
{
    int pad = MAX(columns - text_columns(text), 0);
    p->x += pad;
    pen_field(p, columns - pad, style, text);
}

void pen_meter(struct pen *p, int columns, double ratio, unsigned style)
{
    double full = isnan(ratio) ? 0 : MIN(MAX(ratio, 0.0), 1.0) * columns;
    for (int i = 0; i < columns; i++) {
        double part = MIN(MAX(full - i, 0.0), 1.0);
        int eighths = (int)lround(part * 8);
        if (eighths == 0)
            grid_put(p->g, p->area, p->x + i, p->y, 0xb7, ROLE_DIM);
        else
            grid_put(p->g, p->area, p->x + i, p->y, 0x2588 + (uint32_t)(8 - eighths), style);
    }
    p->x += columns;
}

/* ---------------------------------------------------------------- graphs */

/* Braille dots of the left and right column of a cell, from the bottom up. */
static const uint8_t BRAILLE_DOTS[2][4] = { { 0x40, 0x04, 0x02, 0x01 }, { 0x80, 0x20, 0x10, 0x08 } };

struct graph_scale {
    double lo, hi;
    int steps; /* of the whole height */
};

/* Steps of value number i counted from the newest, -1 for none. */
static int graph_steps(const struct graph *graph, const struct graph_scale *s, int back)
{
    int i = graph->n - 1 - back;
    if (i < 0 || isnan(graph->v[i])) return -1;
    double part = s->hi > s->lo ? (graph->v[i] - s->lo) / (s->hi - s->lo) : 0;
    return MAX(1, (int)lround(MIN(MAX(part, 0.0), 1.0) * s->steps));
}

/* One cell: `row` counted from the bottom, `column` from the right. */
static uint32_t graph_cell(const struct grid *g, const struct graph *graph, const struct graph_scale *s,
                           int row, int column)
{
    if (g->glyphs == GLYPHS_BRAILLE) {
        unsigned dots = 0;
        for (int half = 0; half < 2; half++) {
            int high = graph_steps(graph, s, column * 2 + (1 - half)) - row * 4;
            for (int d = 0; d < MIN(high, 4); d++) dots |= BRAILLE_DOTS[half][d];
        }
        return dots ? 0x2800 + dots : ' ';
    }
    int per_cell = g->glyphs == GLYPHS_BLOCKS ? 8 : 3;
    int high = MIN(graph_steps(graph, s, column) - row * per_cell, per_cell);
    if (high <= 0) return ' ';
    return g->glyphs == GLYPHS_BLOCKS ? 0x2580 + (uint32_t)high : (uint32_t) ".:#"[high - 1];
}

void grid_graph(struct grid *g, struct rect area, const struct graph *graph)
{
    static const int PER_CELL[] = { [GLYPHS_ASCII] = 3, [GLYPHS_BLOCKS] = 8, [GLYPHS_BRAILLE] = 4 };
    struct graph_scale s = { graph->lo, graph->hi, area.h * PER_CELL[g->glyphs] };
    if (isnan(s.hi)) {
        s.hi = s.lo;
        for (int i = 0; i < graph->n; i++)
            if (graph->v[i] > s.hi) s.hi = graph->v[i];
    }
    for (int y = 0; y < area.h; y++)
        for (int x = 0; x < area.w; x++)
            grid_put(g, area, x, y, graph_cell(g, graph, &s, area.h - 1 - y, area.w - 1 - x), graph->style);
}

void pen_graph(struct pen *p, int columns, const struct graph *graph)
{
    columns = MIN(columns, pen_left(p));
    if (columns <= 0) return;
    grid_graph(p->g, (struct rect){ p->area.x + p->x, p->area.y + p->y, columns, p->y < p->area.h ? 1 : 0 },
               graph);
    p->x += columns;
}

/* ---------------------------------------------------------------- text */

/* A word, broken at the edge where it is longer than a row. */
static void wrap_word(struct pen *p, unsigned style, const char *text, size_t n)
{
    uint32_t code;
    for (size_t used; (used = str_utf8_next(text, n, &code)) > 0; text += used, n -= used) {
        code = glyph_at_level(character_is_unsafe(code) ? 0xfffd : code, p->g->glyphs);
        if (p->x > 0 && p->x + code_columns(code) > p->area.w) *p = pen_at(p->g, p->area, 0, p->y + 1);
        grid_put(p->g, p->area, p->x, p->y, code, style);
        p->x += code_columns(code);
    }
}

int grid_wrap(struct grid *g, struct rect area, unsigned style, const char *text)
{
    struct pen p = pen_at(g, area, 0, 0);
    int end = 0; /* where the text of the last row ends */
    while (*text && p.y < area.h) {
        const size_t n = strcspn(text, " ");
        if (p.x > 0 && p.x + columns_of(text, n) > area.w) p = pen_at(g, area, 0, p.y + 1);
        const bool begins = p.y < area.h;
        wrap_word(&p, style, text, n);
        if (begins) end = p.y < area.h ? p.x : area.w;
        if (p.x < area.w) p.x++;
        text += n;
        while (*text == ' ') text++;
    }
    const bool cut = *text || p.y >= area.h;
    if (cut && area.h > 0) grid_put(g, area, MIN(end, area.w - 1), area.h - 1, ELLIPSIS, style);
    return MIN(p.y + (p.x > 0 ? 1 : 0), area.h);
}

int grid_wrap_rows(struct grid *g, int columns, const char *text)
{
    enum { MANY = 1000 };
    return grid_wrap(g, (struct rect){ g->w, 0, columns, MANY }, ROLE_TEXT, text); /* beyond the right edge */
}

int grid_wrap_cut(struct grid *g, struct rect area, unsigned style, const char *text, const char *more)
{
    char mark[48];
    const int rows = grid_wrap(g, area, style, text);
    if (grid_wrap_rows(g, area.w, text) <= area.h || area.h < 1) return rows;
    snprintf(mark, sizeof mark, "… %s", more);
    const int columns = MIN(text_columns(mark), area.w);
    const struct rect end = { area.x + area.w - columns, area.y + area.h - 1, columns, 1 };
    grid_fill(g, end, ' ', ROLE_TEXT);
    struct pen p = pen_at(g, end, 0, 0);
    pen_field(&p, columns, ROLE_KEY, mark);
    return rows;
}

void grid_text(const struct grid *g, struct str *out)
{
    for (int y = 0; y < g->h; y++) {
        const struct cell *row = g->cells + y * g->w;
        int end = g->w;
        while (end > 0 && row[end - 1].code == ' ') end--;
        for (int x = 0; x < end; x++) {
            char utf8[4];
            if (row[x].code) str_append_n(out, utf8, str_utf8_put(row[x].code, utf8));
        }
        str_append(out, "\n");
    }
}
