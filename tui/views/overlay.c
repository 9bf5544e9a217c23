/* tui/views/overlay.c - what lies over a view: the form that is being filled in, the palette, the keys. */
#include "tui/views/views.h"

#include <string.h>

/* A line being typed, scrolled so that the cursor stays in sight. */
static void draw_input(struct pen *p, const struct form_field *field, bool here)
{
    char before[FORM_TEXT];
    snprintf(before, sizeof before, "%.*s", field->cursor, field->text);
    int cursor = text_columns(before), room = MAX(pen_left(p) - 1, 1), from = p->x;
    const char *shown = field->text;
    uint32_t code;
    while (cursor > room && *shown) {
        size_t used = str_utf8_next(shown, strlen(shown), &code);
        shown += used;
        cursor--;
    }
    pen_field(p, room, ROLE_TEXT | STYLE_UNDERLINE, shown);
    if (!here) return;
    struct cell under = { ' ', 0 };
    const int x = p->area.x + from + cursor, y = p->area.y + p->y;
    if (x >= 0 && x < p->g->w && y >= 0 && y < p->g->h) under = p->g->cells[y * p->g->w + x];
    grid_put(p->g, p->area, from + cursor, p->y, under.code ? under.code : ' ', ROLE_TEXT | STYLE_REVERSE);
}

/* Nothing but what is drawn from now on can be clicked. */
static void cover(struct grid *g, enum hit_kind kind)
{
    grid_hit(g, grid_area(g), kind, 0);
}

void view_form(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    (void)s;
    const struct form *f = &u->form;
    const struct form_description *d = &FORMS[f->kind];
    char title[128], hint[700];
    snprintf(title, sizeof title, "%s   (Enter %s, Tab next, Esc leave)", d->title, d->go);
    struct rect area = layout_drawer(body, d->fields + 5);
    grid_fill(g, area, ' ', ROLE_TEXT);
    cover(g, HIT_NOTHING);
    struct rect in = grid_box(g, area, title, NULL);
    for (int i = 0; i < d->fields; i++) {
        bool good = !f->field[i].error[0], here = i == f->focus;
        struct pen p = pen_at(g, in, 0, i);
        pen_field(&p, 9, here ? ROLE_KEY | STYLE_BOLD : ROLE_DIM, d->label[i]);
        pen_put(&p, good ? ROLE_BETTER : ROLE_WORSE, good ? "✓ " : "✕ ");
        draw_input(&p, &f->field[i], here);
        grid_hit(g, rect_rows(in, i, 1), HIT_FIELD, i);
    }
    const char *error = f->field[f->focus].error;
    struct rect rest = rect_rows(in, d->fields, in.h - d->fields);
    bool say = error[0] && (f->tried || f->field[f->focus].text[0]);
    int used = say ? grid_wrap(g, rest, ROLE_WARN, error) : 0;
    grid_wrap(g, rect_rows(rest, used, rest.h - used), ROLE_DIM,
              f->kind == FORM_COMMAND ? ui_command_hint(u, hint, sizeof hint)
                                      : form_hint(f, hint, sizeof hint));
}

static void palette_row(struct grid *g, struct rect row, const struct palette_entry *e, bool chosen)
{
    static const char *const KINDS[] = {
        [PALETTE_KEY] = "here", [PALETTE_SETTING] = "setting", [PALETTE_COMMAND] = "shell"
    };
    const unsigned extra = chosen ? STYLE_REVERSE : 0u;
    struct pen p = pen_at(g, row, 0, 0);
    pen_put(&p, ROLE_KEY | extra, chosen ? "▸ " : "  ");
    pen_field(&p, 18, ROLE_TEXT | STYLE_BOLD | extra, e->name);
    pen_field(&p, 8, ROLE_DIM | extra, KINDS[e->kind]);
    pen_field_right(&p, 7, ROLE_KEY | extra, e->key ? e->key->name : "");
    pen_put(&p, ROLE_TEXT | extra, "  ");
    pen_field(&p, pen_left(&p), ROLE_TEXT | extra, e->help);
}

void view_palette(struct grid *g, struct rect body, const struct ui *u)
{
    struct palette_entry found[PALETTE_ROWS];
    const int n = ui_palette(u, found);
    struct rect area = layout_overlay(body, MIN(body.w - 4, 110), 20);
    char note[64];
    snprintf(note, sizeof note, "%d found   Enter chooses   Esc closes", n);
    grid_fill(g, area, ' ', ROLE_TEXT);
    cover(g, HIT_CLOSE);
    grid_hit(g, area, HIT_NOTHING, 0);
    struct rect in = grid_box(g, area, "Find", n ? note : NULL);
    struct pen p = pen_at(g, in, 0, 0);
    pen_put(&p, ROLE_KEY | STYLE_BOLD, ": ");
    draw_input(&p, &u->form.field[0], true);
    const int rows = in.h - 1, top = MAX(MIN(u->palette_row - rows / 2, n - rows), 0);
    if (!n)
        grid_wrap(g, rect_rows(in, 1, rows), ROLE_DIM, "nothing is called so; Backspace takes letters away");
    for (int i = top; i < n && i - top < rows; i++) {
        struct rect row = rect_rows(in, 1 + i - top, 1);
        palette_row(g, row, &found[i], i == u->palette_row);
        grid_hit(g, row, HIT_ENTRY, i);
    }
}

void view_help(struct grid *g, struct rect body, const struct ui *u)
{
    static const char LEGEND[] =
        "▲ better  ▼ worse  ≈ equal  ? unsure  ✕ invalid or failed   n/a: not measurable here";
    struct rect area = layout_overlay(body, MIN(body.w - 4, 110), (int)KEY_COUNT + 5);
    grid_fill(g, area, ' ', ROLE_TEXT);
    cover(g, HIT_CLOSE);
    struct rect in = grid_box(g, area, "Keys", "Esc closes   j k scroll");
    int rows = in.h - 2, top = MAX(MIN(u->help_scroll, (int)KEY_COUNT - rows), 0);
    for (int i = 0; i < rows && top + i < (int)KEY_COUNT; i++) {
        const struct key_binding *k = &KEYS[top + i];
        struct pen p = pen_at(g, in, 0, i);
        pen_field_right(&p, 7, ROLE_KEY | STYLE_BOLD, k->name);
        pen_put(&p, ROLE_TEXT, "  ");
        pen_put(&p, ROLE_TEXT, k->help);
        if (k->command && pen_left(&p) > text_columns(k->command) + 4) {
            p.x = in.w - text_columns(k->command) - 2;
            pen_printf(&p, ROLE_DIM, "$ %s", k->command);
        }
    }
    struct pen p = pen_at(g, in, 0, in.h - 1);
    pen_field(&p, pen_left(&p), ROLE_DIM, LEGEND);
}
