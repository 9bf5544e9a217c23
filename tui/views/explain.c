/* tui/views/explain.c - details of a selected row, and help for the field of a form, over the view; and the
 * line that a filter is typed into. */
#include "tui/views/parts.h"

#include <stdlib.h>
#include <string.h>

const unsigned PAGE_STYLES[] = { [PAGE_PLAIN] = ROLE_TEXT,
                                 [PAGE_HEAD] = ROLE_TITLE | STYLE_BOLD,
                                 [PAGE_DIM] = ROLE_DIM,
                                 [PAGE_GOOD] = ROLE_BETTER | STYLE_BOLD,
                                 [PAGE_BAD] = ROLE_WORSE | STYLE_BOLD,
                                 [PAGE_UNSURE] = ROLE_UNSURE | STYLE_BOLD };

/* The next piece of a text that fits into `columns`: up to a blank if there is one, so that words stay whole.
 */
static size_t piece_bytes(const char *text, int columns)
{
    size_t n = 0, blank = 0;
    uint32_t code;
    for (int used = 0; text[n] && used < columns; used++) {
        if (text[n] == ' ') blank = n;
        n += str_utf8_next(text + n, strlen(text + n), &code);
    }
    if (!text[n] || text[n] == ' ') return n;
    return blank ? blank : n;
}

/* One line of the page in as many rows as it needs, from row *y on; rows below 0 are above the screen. */
static void draw_line(struct grid *g, struct rect in, const struct page_line *l, int *y)
{
    const char *t = l->text;
    do {
        const size_t n = piece_bytes(t, in.w);
        if (*y >= 0 && *y < in.h) {
            char row[PAGE_TEXT];
            snprintf(row, sizeof row, "%.*s", (int)n, t);
            struct pen p = pen_at(g, in, 0, *y);
            pen_put(&p, PAGE_STYLES[l->tone], row);
        }
        (*y)++;
        t += n;
        while (*t == ' ') t++;
    } while (*t);
}

static int page_rows(const struct text_page *page, int columns)
{
    int y = 0;
    struct grid nowhere = { 0 };
    for (int i = 0; i < page->count; i++)
        draw_line(&nowhere, (struct rect){ 0, 0, columns, 0 }, &page->line[i], &y);
    return y;
}

void view_explanation(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    enum { SIDES = 4, FRAME = 2, COLUMNS = 100 };
    struct text_page *page = malloc(sizeof *page);
    if (!page || !(field_explained(page, u, s) || list_details(page, u, s))) {
        free(page);
        return;
    }
    const int w = MIN(body.w - SIDES, COLUMNS), rows = page_rows(page, w - SIDES);
    struct rect area = layout_overlay(body, w, MIN(rows + FRAME, body.h));
    grid_fill(g, area, ' ', ROLE_TEXT);
    grid_hit(g, grid_area(g), HIT_CLOSE, 0);
    struct rect in = grid_box(g, area, page->title,
                              rows > area.h - FRAME ? "j k scroll   Esc closes" : "Esc closes");
    int y = -MAX(MIN(u->explains_row, rows - in.h), 0);
    for (int i = 0; i < page->count; i++) draw_line(g, in, &page->line[i], &y);
    free(page);
}

void view_filter(struct grid *g, struct rect row, const struct snapshot *s, const struct ui *u)
{
    const char *text = u->form.field[0].text;
    const bool database = u->view == VIEW_HISTORY;
    char note[160];
    snprintf(note, sizeof note, "%d %s   %sEnter keeps it   Esc shows all", ui_rows(u, s),
             LISTS[u->view].items,
             row.w < 100 ? ""
             : database  ? "!TEXT: without it   /RE/: a regular expression   "
                         : "!TEXT: rows without it   ");
    grid_fill(g, row, ' ', ROLE_TEXT);
    struct pen p = pen_at(g, row, 1, 0);
    pen_put(&p, ROLE_KEY | STYLE_BOLD, "/ ");
    struct rect field = { row.x + p.x, row.y, MAX(row.w - p.x - text_columns(note) - 3, 8), 1 };
    struct pen input = pen_at(g, field, 0, 0);
    draw_input(&input, &u->form, 0);
    p.x = row.w - text_columns(note) - 1;
    pen_put(&p, *text ? ROLE_TEXT : ROLE_DIM, note);
}
