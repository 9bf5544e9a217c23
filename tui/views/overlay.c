/* tui/views/overlay.c - what is drawn over a view: forms with suggestions, text pages, questions, the
 * palette, the help. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

/* Columns [from, to) of the field in reverse: what typing replaces. */
static void draw_selection(const struct pen *p, int x, int from, int to)
{
    for (int i = MAX(from, 0); i < to; i++) {
        const int at = p->area.x + x + i, y = p->area.y + p->y;
        if (at < 0 || at >= p->g->w || y < 0 || y >= p->g->h) continue;
        const uint32_t code = p->g->cells[y * p->g->w + at].code;
        if (code) grid_put(p->g, p->area, x + i, p->y, code, ROLE_TEXT | STYLE_REVERSE);
    }
}

/* The part of a field's text that fits on the screen. */
struct field_window {
    int head; /* columns before the tail: the beginning of the text, with "…" as the last; 0: none */
    const char *tail; /* from here on the text is shown */
    int cursor;       /* column of the cursor */
};

/* A field scrolls so that its cursor stays visible. The beginning of a command stays, too: it says what will
 * run. */
static struct field_window field_window(const struct form *f, int i, int room)
{
    const struct form_field *field = &f->field[i];
    char before[FORM_TEXT];
    const char *at = before;
    uint32_t code;
    snprintf(before, sizeof before, "%.*s", field->cursor, field->text);
    const int columns = text_columns(before);
    if (columns <= room) return (struct field_window){ .tail = field->text, .cursor = columns };
    const int head = f->kind == FORM_COMMAND ? room / 2 : 1;
    const int tail = room - head - (field->text[field->cursor] ? 1 : 0); /* "…" is below the cursor then */
    while (*at && text_columns(at) > tail) at += str_utf8_next(at, strlen(at), &code);
    return (struct field_window){ .head = head,
                                  .tail = field->text + (at - before),
                                  .cursor = head + text_columns(at) };
}

void draw_input(struct pen *p, const struct form *f, int i)
{
    const struct form_field *field = &f->field[i];
    const int selected = f->focus == i ? form_selected_from(f, i) : -1;
    const int room = MAX(pen_left(p) - 1, 1), from = p->x;
    const struct field_window w = field_window(f, i, room);
    pen_field(p, w.head, ROLE_TEXT | STYLE_UNDERLINE, field->text);
    pen_field(p, room - w.head, ROLE_TEXT | STYLE_UNDERLINE, w.tail);
    if (f->focus != i) return;
    if (selected >= 0)
        draw_selection(p, from, selected ? w.cursor - text_columns(field->text + selected) : 0, w.cursor);
    struct cell under = { ' ', 0 };
    const int x = p->area.x + from + w.cursor, y = p->area.y + p->y;
    if (x >= 0 && x < p->g->w && y >= 0 && y < p->g->h) under = p->g->cells[y * p->g->w + x];
    grid_put(p->g, p->area, from + w.cursor, p->y, under.code ? under.code : ' ', ROLE_TEXT | STYLE_REVERSE);
}

/* Cover the click targets drawn so far; `kind` is what a click outside of the overlay does. */
static void cover_clicks(struct grid *g, enum hit_kind kind)
{
    grid_hit(g, grid_area(g), kind, 0);
}

/* ---------------------------------------------------------------- suggestions */

/* Write a text that may be too long: its end is shown, because the end of a path says the most. */
static void pen_tail(struct pen *p, int columns, unsigned style, const char *text)
{
    uint32_t code;
    const char *from = text;
    if (text_columns(text) <= columns || columns < 2) {
        pen_field(p, columns, style, text);
        return;
    }
    while (*from && text_columns(from) > columns - 1) from += str_utf8_next(from, strlen(from), &code);
    pen_put(p, style, "…");
    pen_field(p, columns - 1, style, from);
}

/* "70.6B" parameters. */
static struct figure figure_params(int64_t n)
{
    struct figure f;
    const bool billions = n >= 1000000000;
    snprintf(f.text, sizeof f.text, "%s%s", figure_number((double)n * (billions ? 1e-9 : 1e-6)).text,
             billions ? "B" : "M");
    return f;
}

/* A model whose header was read. The details below the list show what does not fit into the row. */
static void model_row(struct pen *p, const struct snapshot *s, const struct file_entry *e, const char *name,
                      unsigned extra)
{
    enum { BYTES = 8, ARCH = 10, PARAMS = 8, FORMAT = 9, FITS = 22, WIDE = 96 };
    const int64_t free = s->machine_known ? s->machine.memory_available_bytes : -1;
    const bool wide = pen_left(p) >= WIDE, fits = free < 0 || e->needs_bytes <= free;
    char text[64];
    pen_tail(p, MAX(pen_left(p) - BYTES - FORMAT - FITS - (wide ? ARCH + PARAMS : 0), 12), ROLE_TEXT | extra,
             name);
    pen_field_right(p, BYTES, ROLE_TEXT | extra, figure_bytes(e->bytes).text);
    if (wide) {
        pen_put(p, ROLE_TEXT | extra, "  ");
        pen_field(p, ARCH - 2, ROLE_TEXT | extra, e->arch);
        pen_field_right(p, PARAMS, ROLE_TEXT | extra, figure_params(e->params).text);
    }
    pen_put(p, ROLE_TEXT | extra, "  ");
    pen_field(p, FORMAT - 2, ROLE_TEXT | extra, e->format);
    snprintf(text, sizeof text, " %s needs %s",
             free < 0 ? "?"
             : fits   ? "✓ fits,"
                      : "✕",
             figure_bytes(e->needs_bytes).text);
    pen_field(p, pen_left(p), (free < 0 ? ROLE_DIM : fits ? ROLE_BETTER : ROLE_WORSE) | extra, text);
}

static void file_row(struct pen *p, const struct snapshot *s, const struct suggestion *c, unsigned extra)
{
    enum { BYTES = 8 };
    const struct file_entry *e = c->file;
    if (e->kind == FILE_MODEL && e->known && !e->trouble[0]) {
        model_row(p, s, e, c->text, extra);
        return;
    }
    const char *note = e->trouble[0]            ? e->trouble
                       : e->kind == FILE_FOLDER ? e->note
                       : !e->known              ? "reading its header"
                                                : "";
    const int room = *note ? pen_left(p) * 45 / 100 : pen_left(p) - BYTES - 2;
    pen_tail(p, MIN(MAX(text_columns(c->text), 20), MAX(room, 12)),
             (e->kind == FILE_FOLDER ? ROLE_TITLE : ROLE_TEXT) | extra, c->text);
    pen_field_right(p, BYTES, ROLE_DIM | extra, e->bytes >= 0 ? figure_bytes(e->bytes).text : "");
    pen_put(p, ROLE_DIM | extra, "  ");
    pen_field(p, pen_left(p), (e->trouble[0] ? ROLE_WARN : ROLE_DIM) | extra, note);
}

/* Everything known about the selected file. */
static void draw_file(struct grid *g, struct rect in, const struct snapshot *s, const struct suggestion *c)
{
    const struct file_entry *e = c->file;
    const int64_t free = s->machine_known ? s->machine.memory_available_bytes : -1;
    struct str text = { 0 };
    str_append(&text, c->text);
    if (e->note[0]) str_printf(&text, ", %s", e->note);
    if (e->trouble[0]) str_printf(&text, ": %s", e->trouble);
    if (e->arch[0])
        str_printf(&text, ": %s, %s parameters, %s in %s", e->arch, figure_params(e->params).text,
                   figure_bytes(e->bytes).text, e->format);
    if (e->needs_bytes >= 0)
        str_printf(&text, "; a session needs %s%s%s", figure_bytes(e->needs_bytes).text,
                   free < 0 ? "" : " of ", free < 0 ? "" : figure_bytes(free).text);
    if (e->needs_bytes >= 0 && free >= 0) str_append(&text, " free");
    grid_wrap(g, in, e->trouble[0] ? ROLE_WARN : ROLE_TEXT, str_text(&text));
    str_free(&text);
}

static void suggestion_row(struct grid *g, struct rect row, const struct snapshot *s,
                           const struct suggestion *c, bool chosen)
{
    enum { NAME = 20, BYTES = 8 };
    const unsigned extra = chosen ? STYLE_REVERSE : 0u;
    const bool refused = c->refusal[0] != '\0';
    struct pen p = pen_at(g, row, 0, 0);
    pen_put(&p, ROLE_KEY | extra, chosen ? "▸ " : "  ");
    if (c->file) {
        file_row(&p, s, c, extra);
        return;
    }
    pen_field(&p, NAME, (refused ? (unsigned)ROLE_DIM : ROLE_TEXT | STYLE_BOLD) | extra, c->text);
    pen_field_right(&p, BYTES, ROLE_TEXT | extra,
                    c->bytes >= 0 && !refused ? figure_bytes(c->bytes).text : "");
    pen_put(&p, ROLE_TEXT | extra, "  ");
    if (refused) pen_put(&p, ROLE_WARN | extra, "✕ ");
    pen_field(&p, pen_left(&p), (refused ? ROLE_WARN : ROLE_TEXT) | extra, refused ? c->refusal : c->about);
}

static void form_draw_suggestions(struct grid *g, struct rect in, const struct snapshot *s,
                                  const struct form *f, const struct suggestions *c)
{
    const int top = MAX(MIN(f->chosen - in.h / 2, c->n - in.h), 0);
    for (int i = top; i < c->n && i - top < in.h; i++) {
        struct rect row = rect_rows(in, i - top, 1);
        suggestion_row(g, row, s, &c->list[i], i == f->chosen);
        grid_hit(g, row, HIT_ENTRY, i);
    }
}

/* ---------------------------------------------------------------- the form */

/* Below the suggestions: the error, the estimates for the line, and the hint for the word, as far as they
 * fit. */
static void form_draw_notes(struct grid *g, struct rect in, const struct snapshot *s, const struct ui *u)
{
    const struct form *f = &u->form;
    const struct form_field *field = &f->field[f->focus];
    const struct line_estimates *j = &s->estimates;
    char hint[700];
    int used = 0;
    const char *why;
    const bool say = form_field_state(u, s, f->focus, &why) == FIELD_REFUSED &&
                     (f->tried || (field->text[0] && f->kind != FORM_MODEL));
    if (say) used = grid_wrap(g, in, ROLE_WARN, why);
    const enum form_ask ask = form_asks(f);
    if (ask == ASK_RECIPE && !say)
        used = grid_wrap(g, in, ROLE_WARN,
                         *recipe_refusal(&s->recipes, field->text)
                             ? recipe_refusal(&s->recipes, field->text)
                             : recipe_warning(&s->recipes, field->text));
    const bool estimated = f->kind == FORM_AB && (ask == ASK_CONFIG || ask == ASK_MORE) &&
                           !strcmp(j->text, field->text);
    struct pen p = pen_at(g, rect_rows(in, used, in.h - used), 0, 0);
    if (estimated && !say && j->total_bytes >= 0 && used < in.h) {
        pen_printf(&p, ROLE_TEXT, "needs %s", figure_bytes(j->total_bytes).text);
        if (s->machine_known && s->machine.memory_available_bytes >= 0)
            pen_printf(&p, ROLE_DIM, " of %s free", figure_bytes(s->machine.memory_available_bytes).text);
        int runs;
        const struct interval rate = snapshot_decode_rate(s, field->text, &runs);
        if (isfinite(rate.estimate))
            pen_printf(&p, ROLE_TEXT, "; decode about %s tok/s (%s to %s), %s",
                       figure_number(rate.estimate).text, figure_number(rate.lower).text,
                       figure_number(rate.upper).text, runs ? "measured before" : "predicted");
        used++;
    }
    const struct experiment_forecast *c = form_forecast(u, s);
    if (c && !say && in.h > used && f->focus == form_budget_field(f->kind)) {
        char forecast[FORECAST_TEXT], line[FORECAST_TEXT + 48];
        const bool is_short = experiment_forecast_is_short(c);
        snprintf(line, sizeof line, "%s%s%s", experiment_forecast_text(forecast, c),
                 is_short ? "; Ctrl-T sets " : "", is_short ? c->budget : "");
        used += grid_wrap(g, rect_rows(in, used, in.h - used), is_short ? ROLE_WARN : ROLE_TEXT, line);
    }
    if (in.h > used)
        grid_wrap(g, rect_rows(in, used, in.h - used), ROLE_DIM,
                  f->kind == FORM_COMMAND ? ui_command_hint(u, hint, sizeof hint)
                                          : form_hint(f, hint, sizeof hint));
}

/* Height of the form: a list of files uses the whole body, other suggestions at most a third of it. */
static int form_rows(const struct form_description *d, const struct suggestions *c, int body)
{
    enum { BORDERS = 2, NOTES = 3, LEAST = 9 };
    const int rest = MAX(body - d->fields - BORDERS - NOTES, 0);
    return d->fields + BORDERS + NOTES + (c->files ? rest : MIN(MIN(c->n, MAX((int)LEAST, body / 3)), rest));
}

void view_form(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    enum { LABEL = 10, NOTES = 3, WIDE = 76 };
    const struct form *f = &u->form;
    const struct form_description *d = &FORMS[f->kind];
    char title[160], note[128];
    struct suggestions c;
    ui_suggestions(&c, u, s);
    const char *go = f->chosen >= 0 ? "take" : d->go;
    if (body.w >= WIDE)
        snprintf(title, sizeof title, "%s   (Enter %s, %sEsc leave)", d->title, go,
                 d->fields > 1 ? "Tab next, " : "");
    else
        snprintf(title, sizeof title, "%s (Enter %s, Esc)", d->title, go);
    const bool selected = form_selected_from(f, f->focus) >= 0;
    snprintf(note, sizeof note, "%s%s   F1 explains%s", c.n ? "↑ ↓ select   " : "",
             selected ? "type to replace" : "Ctrl-U clears",
             body.w >= WIDE ? "   Ctrl-Y copies the command" : "");
    struct rect area = layout_drawer(body, form_rows(d, &c, body.h));
    grid_fill(g, area, ' ', ROLE_TEXT);
    cover_clicks(g, HIT_NOTHING);
    struct rect in = grid_box(g, area, title, note);
    for (int i = 0; i < d->fields; i++) {
        const enum field_state state = form_field_state(u, s, i, NULL);
        const bool good = state == FIELD_GOOD, here = i == f->focus;
        struct pen p = pen_at(g, in, 0, i);
        pen_field(&p, LABEL, here ? ROLE_KEY | STYLE_BOLD : ROLE_DIM, d->field[i].label);
        const bool browsing = f->kind == FORM_MODEL && !good && !f->tried && state != FIELD_CHECKING;
        pen_put(&p,
                state == FIELD_CHECKING ? ROLE_DIM
                : good                  ? ROLE_BETTER
                                        : ROLE_WORSE,
                browsing                  ? "  "
                : state == FIELD_CHECKING ? "… "
                : good                    ? "✓ "
                                          : "✕ ");
        draw_input(&p, f, i);
        grid_hit(g, rect_rows(in, i, 1), HIT_FIELD, i);
    }
    const int rows = MAX(in.h - d->fields - NOTES, 0);
    form_draw_suggestions(g, rect_rows(in, d->fields, rows), s, f, &c);
    struct rect below = rect_rows(in, d->fields + rows, in.h - d->fields - rows);
    if (c.files && f->chosen >= 0 && f->chosen < c.n && c.list[f->chosen].file->kind != FILE_FOLDER)
        draw_file(g, below, s, &c.list[f->chosen]);
    else
        form_draw_notes(g, below, s, u);
    if (c.files && !c.n)
        grid_wrap(g, rect_rows(in, d->fields, rows), ROLE_DIM,
                  s->folder.error[0] ? s->folder.error
                  : s->folder.read   ? "no file name matches; Backspace deletes letters"
                                     : "reading the folder");
}

/* ---------------------------------------------------------------- pages, questions */

void view_page(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    const struct text_page *page = &s->page;
    const bool wide = text_page_columns(page) > body.w - 2;
    char note[128];
    grid_fill(g, body, ' ', ROLE_TEXT);
    cover_clicks(g, HIT_CLOSE);
    snprintf(note, sizeof note, "j k scroll%s   Esc closes", wide ? "   h l left and right" : "");
    struct rect in = grid_box(g, body, page->title, note);
    const int top = MAX(MIN(u->page_row, page->count - in.h), 0);
    for (int i = 0; i < in.h && top + i < page->count; i++) {
        const struct page_line *l = &page->line[top + i];
        const char *from = l->text;
        uint32_t code;
        for (int skip = u->page_column; skip > 0 && *from; skip--)
            from += str_utf8_next(from, strlen(from), &code);
        struct pen p = pen_at(g, in, 0, i);
        pen_field(&p, in.w, PAGE_STYLES[l->tone], from);
    }
    if (!page->count) grid_wrap(g, in, ROLE_DIM, "the command wrote nothing");
}

void view_question(struct grid *g, struct rect body, const struct ui *u)
{
    const struct question *q = &u->question;
    struct rect area = layout_overlay(body, MIN(body.w - 4, 96), 9);
    struct str command = { 0 };
    grid_fill(g, area, ' ', ROLE_TEXT);
    cover_clicks(g, HIT_NOTHING);
    struct rect in = grid_box(g, area, "Confirm", "y yes   n no");
    const int used = grid_wrap(g, rect_rows(in, 0, MAX(in.h - 2, 0)), ROLE_WARN | STYLE_BOLD, q->text);
    command_print(&command, u, &q->command);
    struct pen p = pen_at(g, rect_rows(in, used + 1, MAX(in.h - used - 1, 0)), 0, 0);
    pen_put(&p, ROLE_DIM, "$ ");
    p.area.x += p.x;
    p.area.w = MAX(p.area.w - p.x, 0);
    grid_wrap(g, p.area, ROLE_DIM, str_text(&command));
    str_free(&command);
}

/* ---------------------------------------------------------------- palette, keys */

static void palette_row(struct grid *g, struct rect row, const struct palette_entry *e, bool chosen)
{
    static const char *const KINDS[] = {
        [PALETTE_KEY] = "key", [PALETTE_SETTING] = "setting", [PALETTE_COMMAND] = "command"
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
    snprintf(note, sizeof note, "%d found   Enter selects   Esc closes", n);
    grid_fill(g, area, ' ', ROLE_TEXT);
    cover_clicks(g, HIT_CLOSE);
    grid_hit(g, area, HIT_NOTHING, 0);
    struct rect in = grid_box(g, area, "Find", n ? note : NULL);
    struct pen p = pen_at(g, in, 0, 0);
    pen_put(&p, ROLE_KEY | STYLE_BOLD, ": ");
    draw_input(&p, &u->form, 0);
    const int rows = in.h - 1, top = MAX(MIN(u->palette_row - rows / 2, n - rows), 0);
    if (!n) grid_wrap(g, rect_rows(in, 1, rows), ROLE_DIM, "nothing matches; Backspace deletes letters");
    for (int i = top; i < n && i - top < rows; i++) {
        struct rect row = rect_rows(in, 1 + i - top, 1);
        palette_row(g, row, &found[i], i == u->palette_row);
        grid_hit(g, row, HIT_ENTRY, i);
    }
}

/* One row of the help: a key, or what this machine cannot tell. Long texts continue in further rows. Returns
 * the rows used. */
static int help_row(struct grid *g, struct rect in, int y, const struct absent_part *absent, int lacks, int i)
{
    enum { KEY = 7, TEXT = KEY + 2 };
    const struct key_binding *k = i >= lacks ? &KEYS[i - lacks] : NULL;
    char text[400];
    struct pen p = pen_at(g, in, 0, y);
    if (!k) {
        snprintf(text, sizeof text, "no %s: %s", absent[i].name, absent[i].why);
        return MAX(grid_wrap(g, rect_rows(in, y, MAX(in.h - y, 0)), ROLE_TITLE, text), 1);
    }
    pen_field_right(&p, KEY, ROLE_KEY | STYLE_BOLD, k->name);
    const struct rect at = { in.x + TEXT, in.y + y, MAX(in.w - TEXT, 0), MAX(in.h - y, 0) };
    const int used = MAX(grid_wrap(g, at, ROLE_TEXT, k->help), 1);
    p.x = TEXT + text_columns(k->help);
    if (used > 1 || !k->command || pen_left(&p) <= text_columns(k->command) + 4) return used;
    p.x = in.w - text_columns(k->command) - 2;
    pen_printf(&p, ROLE_DIM, "$ %s", k->command);
    return used;
}

/* The keys, after what this machine cannot tell and why. */
void view_help(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    static const char LEGEND[] =
        "▲ better, ▼ worse, ≈ equal, ? unsure, ✕ invalid or failed; n/a: not measurable here";
    struct absent_part absent[ABSENT_PARTS];
    const int lacks = machine_absent(s, absent), count = (int)KEY_COUNT + lacks;
    struct rect area = layout_overlay(body, MIN(body.w - 4, 110), count + 5);
    grid_fill(g, area, ' ', ROLE_TEXT);
    cover_clicks(g, HIT_CLOSE);
    struct rect in = grid_box(g, area, "Keys", "Esc closes   j k scroll");
    const struct rect nowhere = { g->w, 0, in.w, area.h }; /* counts without drawing */
    const int legend = MAX(grid_wrap(g, nowhere, ROLE_DIM, LEGEND), 1);
    struct rect rows = rect_rows(in, 0, MAX(in.h - legend - 1, 0));
    int top = count, left = rows.h; /* the last page is full */
    while (top > 0 && left > 0) left -= help_row(g, nowhere, 0, absent, lacks, --top);
    top = MIN(u->help_scroll, left < 0 ? top + 1 : top);
    for (int i = top, y = 0; i < count && y < rows.h; i++) y += help_row(g, rows, y, absent, lacks, i);
    grid_wrap(g, rect_rows(in, in.h - legend, legend), ROLE_DIM, LEGEND);
}
