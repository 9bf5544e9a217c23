/* tui/views/list_draw.c - draws the list of a view from its row of LISTS: heading, rows, a bar over the
 * selected row, and how many rows are above and below. */
#include "tui/views/parts.h"

#include <stdlib.h>
#include <string.h>

enum { FLEXIBLE_LEAST = 4 };

struct table_shape {
    int x[LIST_COLUMNS], w[LIST_COLUMNS]; /* w 0: not shown */
};

static int column_width(const struct list_column *c, int columns)
{
    int w = c->width;
    for (size_t i = 0; i < COUNT_OF(c->wide); i++)
        if (c->wide[i].from && columns >= c->wide[i].from) w = c->wide[i].width;
    return w;
}

static struct table_shape shape_make(const struct list *l, const struct snapshot *s, int columns)
{
    struct table_shape t = { 0 };
    int rest = columns, flexible = -1, x = 0;
    const int n = list_columns(l);
    for (int i = 0; i < n; i++) {
        const struct list_column *c = &l->column[i];
        if (columns < c->from || (c->until && columns >= c->until) || (c->hidden && c->hidden(s))) continue;
        t.w[i] = column_width(c, columns);
        if (!t.w[i]) flexible = i;
        rest -= t.w[i] + c->gap;
    }
    if (flexible >= 0) t.w[flexible] = rest >= FLEXIBLE_LEAST ? rest : 0;
    for (int i = 0; i < n; i++) {
        if (t.w[i]) x += l->column[i].gap;
        t.x[i] = x;
        t.w[i] = MAX(MIN(t.w[i], columns - x), 0); /* a very narrow list loses its last columns */
        x += t.w[i];
    }
    return t;
}

/* "effect↓": the column that the rows are sorted by, and its direction. */
static void draw_heading(struct grid *g, struct rect row, const struct list *l,
                         const struct list_state *state, const struct table_shape *t)
{
    char text[96];
    for (int i = 0; i < list_columns(l); i++) {
        const struct list_column *c = &l->column[i];
        const bool sorted = state->sort == i + 1;
        const bool up = sorted && state->reversed == (c->value != NULL); /* the smallest first */
        if (!t->w[i] || !c->title[0]) continue;
        snprintf(text, sizeof text, "%s%s", c->title, !sorted ? "" : up ? "↑" : "↓");
        const unsigned style = sorted ? ROLE_KEY | STYLE_BOLD : (unsigned)ROLE_DIM;
        struct pen p = pen_at(g, row, t->x[i], 0);
        const bool right = c->right && text_columns(text) <= t->w[i];
        if (right)
            pen_field_right(&p, t->w[i], style, text);
        else
            pen_field(&p, t->w[i], style, text);
        grid_hit(g, (struct rect){ row.x + t->x[i], row.y, t->w[i], 1 }, HIT_COLUMN, i);
    }
}

/* What the cells of one frame share. */
struct list_frame {
    const struct list_view *v;
    const struct list *l;
    struct table_shape shape;
    const int *items;
    int rows;
};

/* The texts of a column of config lines, for text_shorten(). */
struct column_texts {
    char text[LIST_ROWS][LIST_CELL];
    const char *of[LIST_ROWS];
};

static void draw_cell(const struct list_frame *f, struct rect row, int column, int item,
                      struct column_texts *const lines[LIST_COLUMNS], bool chosen)
{
    const struct list_view *v = f->v;
    const struct list_column *c = &f->l->column[column];
    const int w = f->shape.w[column];
    char buf[LIST_CELL], shorter[LIST_CELL];
    struct pen p = pen_at(v->g, row, f->shape.x[column], 0);
    const unsigned extra = chosen ? STYLE_REVERSE : 0u;
    if (!c->text) {
        if (v->draw) v->draw(&p, w, item, extra, v->ctx);
        return;
    }
    const char *text = c->text(v->u, v->s, item, buf, sizeof buf);
    if (c->config)
        text = text_shorten(text, lines[column] ? lines[column]->of : NULL, lines[column] ? f->rows : 0, w,
                            shorter, sizeof shorter);
    const unsigned own = c->style ? c->style(v->u, v->s, item) : (unsigned)ROLE_TEXT;
    /* One colour for the whole bar, so that it is seen as one. */
    const unsigned style = chosen ? (own & ~(unsigned)STYLE_ROLE) | ROLE_TEXT | extra : own;
    if (c->right)
        pen_field_right(&p, w, style, text);
    else
        pen_field(&p, w, style, text);
}

static void draw_rows(const struct list_frame *f, struct rect in, int top,
                      struct column_texts *const lines[LIST_COLUMNS])
{
    const struct list_view *v = f->v;
    const int chosen = v->u->selected[v->u->view];
    for (int i = top; i < f->rows && i - top < in.h; i++) {
        struct rect row = rect_rows(in, i - top, 1);
        if (i == chosen) grid_fill(v->g, row, ' ', ROLE_TEXT | STYLE_REVERSE);
        struct pen p = pen_at(v->g, row, 0, 0);
        const unsigned style = i == chosen ? ROLE_TEXT | STYLE_REVERSE : (unsigned)ROLE_DIM;
        const bool whole = v->whole && v->whole(&p, f->items[i], style, v->ctx);
        for (int c = 0; c < list_columns(f->l) && !whole; c++)
            if (f->shape.w[c]) draw_cell(f, row, c, f->items[i], lines, i == chosen);
        grid_hit(v->g, row, HIT_ROW, i);
    }
}

/* " ↑3 ↓12 " in the upper edge of the box. */
static void draw_marks(struct grid *g, struct rect box, const char *title, int above, int below)
{
    char text[48] = " ";
    size_t n = 1;
    if (above <= 0 && below <= 0) return;
    if (above > 0) n += (size_t)snprintf(text + n, sizeof text - n, "↑%d ", above);
    if (below > 0) snprintf(text + n, sizeof text - n, "↓%d ", below);
    const int columns = text_columns(text), free = box.w - 6 - text_columns(title);
    if (columns > free) return;
    struct pen p = pen_at(g, (struct rect){ box.x + box.w - 2 - columns, box.y, columns, 1 }, 0, 0);
    pen_put(&p, ROLE_KEY, text);
}

static void list_title(const struct list_view *v, int rows, int all, char *buf, size_t size)
{
    const char *filter = list_filter(v->u);
    const bool typing = v->u->form.kind == FORM_FILTER;
    if (!*filter)
        snprintf(buf, size, "%s", v->title);
    else if (v->u->view == VIEW_HISTORY && !v->u->list[VIEW_HISTORY].filter[0])
        snprintf(buf, size, "%s: %d with \"%s\"%s", v->title, rows, filter, typing ? "" : " (Esc: all)");
    else
        snprintf(buf, size, "%s: %d of %d with \"%s\"%s", v->title, rows, all, filter,
                 typing ? "" : " (Esc: all)");
}

/* NULL: not a column of config lines, or it has one row. */
static struct column_texts *texts_of(const struct list_frame *f, int column)
{
    struct column_texts *t = f->l->column[column].config && f->rows > 1 ? malloc(sizeof *t) : NULL;
    for (int i = 0; t && i < f->rows; i++)
        t->of[i] = f->l->column[column].text(f->v->u, f->v->s, f->items[i], t->text[i], sizeof t->text[i]);
    return t;
}

struct rect list_draw(const struct list_view *v)
{
    const struct list *l = &LISTS[v->u->view];
    int items[LIST_ROWS];
    char title[300];
    struct list_frame f = { v, l, { { 0 }, { 0 } }, items, list_order(v->u, v->s, items) };
    const int all = l->count(v->s);
    list_title(v, f.rows, MAX(all, 0), title, sizeof title);
    struct rect in = grid_box(v->g, v->box, title, v->note);
    if (all <= 0) return in;
    const int below = MIN(v->below, MAX(in.h - 2, 0));
    struct rect rest = rect_rows(in, in.h - below, below);
    in.h -= below;
    if (!f.rows) {
        grid_wrap(v->g, in, ROLE_DIM, "no row matches: Esc shows all rows, / changes the filter");
        return rest;
    }
    f.shape = shape_make(l, v->s, in.w);
    if (in.h > 0) draw_heading(v->g, rect_rows(in, 0, 1), l, &v->u->list[v->u->view], &f.shape);
    struct rect rows = rect_rows(in, 1, in.h - 1);
    const int chosen = v->u->selected[v->u->view];
    const int top = list_top(chosen, rows.h, f.rows);
    struct column_texts *lines[LIST_COLUMNS] = { NULL };
    for (int i = 0; i < list_columns(l); i++) lines[i] = texts_of(&f, i);
    draw_rows(&f, rows, top, lines);
    for (int i = 0; i < list_columns(l); i++) free(lines[i]);
    draw_marks(v->g, v->box, title, top, f.rows - top - rows.h);
    return rest;
}
