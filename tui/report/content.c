/* content.c - builds the content of a report, in the order of its sections. */
#include "tui/report/content.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text_store(struct report *r, struct str *s)
{
    const char *text = s->failed ? NULL : arena_strdup(&r->arena, str_text(s));
    str_free(s);
    if (!text) r->failed = true;
    return text ? text : "";
}

const char *content_printf(struct report *r, const char *fmt, ...)
{
    char *text = NULL;
    struct str s = { 0 };
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) text = NULL;
    va_end(args);
    if (!text) r->failed = true;
    str_append(&s, text ? text : "");
    free(text);
    return text_store(r, &s);
}

const char *content_plain(struct report *r, const char *text)
{
    struct str s = { 0 };
    size_t n = strlen(text), used;
    uint32_t code;
    for (; (used = str_utf8_next(text, n, &code)) > 0; text += used, n -= used) {
        char bytes[4];
        if (code == '`') code = '\'';
        if (character_is_unsafe(code)) code = code < 0x20 ? ' ' : 0xfffd;
        str_append_n(&s, bytes, str_utf8_put(code, bytes));
    }
    return text_store(r, &s);
}

struct content *content_add(struct report *r, enum content_kind kind, const char *text)
{
    struct content *c = arena_alloc(&r->arena, sizeof *c);
    if (!c) {
        r->failed = true;
        return &r->spare;
    }
    c->kind = kind;
    c->text = text;
    if (r->last)
        r->last->next = c;
    else
        r->first = c;
    r->last = c;
    return c;
}

struct content_table *content_table(struct report *r, const char *caption, int columns)
{
    struct content_table *t = &content_add(r, CONTENT_TABLE, NULL)->table;
    t->caption = caption;
    t->columns = columns;
    return t;
}

struct content_row *content_row(struct report *r, struct content_table *t)
{
    struct content_row *row = arena_alloc(&r->arena, sizeof *row);
    if (!row) {
        r->failed = true;
        return &r->spare_row;
    }
    for (int i = 0; i < CONTENT_COLUMNS; i++) row->cell[i] = "";
    if (t->last)
        t->last->next = row;
    else
        t->first = row;
    t->last = row;
    return row;
}

void content_fact(struct report *r, struct content_table *t, const char *name, const char *value)
{
    struct content_row *row = content_row(r, t);
    row->cell[0] = name;
    row->cell[1] = value && *value ? value : "unknown";
}

void content_figure(struct report *r, const struct figure_plots *f)
{
    double gutter = 0;
    for (int i = 0; i < f->plots; i++) gutter = fmax(gutter, plot_svg_gutter(f->plot[i]));
    for (int i = 0; i < f->plots; i++) f->plot[i]->gutter = gutter;
    if (f->plots) content_add(r, CONTENT_FIGURE, NULL)->figure = *f;
}

struct plot *figure_plot(struct figure_plots *f, struct report *r)
{
    struct plot *p = f->plots < FIGURE_PLOTS ? arena_alloc(&r->arena, sizeof *p) : NULL;
    if (!p) {
        r->failed = true;
        return NULL;
    }
    p->x.low = p->x.high = p->y.low = p->y.high = NAN;
    f->plot[f->plots++] = p;
    return p;
}

/* ---------------------------------------------------------------- the report */

enum err_code report_build(struct report **out, const struct report_source *s, struct err *why)
{
    static void (*const SECTIONS[])(struct report *, const struct report_source *) = {
        report_headline, section_story,    section_summary, section_results,  section_quality,
        section_gate,    section_compared, section_control, section_timeline, section_machine,
        section_load,    section_method,   section_repeat,  section_raw,
    };
    struct report *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return err_set(why, ERR_NOMEM, "out of memory for the report");
    for (size_t i = 0; i < COUNT_OF(SECTIONS) && !r->failed; i++) SECTIONS[i](r, s);
    if (r->failed) {
        report_free(r);
        return err_set(why, ERR_NOMEM, "out of memory for the report of run %lld",
                       (long long)s->state.run_id);
    }
    *out = r;
    return ERR_OK;
}

void report_free(struct report *r)
{
    if (!r) return;
    arena_free(&r->arena);
    free(r);
}

enum err_code report_format_of(enum report_format *out, const char *path, struct err *why)
{
    static const char *const ENDINGS[] = {
        [REPORT_HTML] = ".html", [REPORT_MD] = ".md", [REPORT_SVG] = ".svg"
    };
    for (size_t i = 0; i < COUNT_OF(ENDINGS); i++) {
        if (!str_ends(path, ENDINGS[i]) || strlen(path) == strlen(ENDINGS[i])) continue;
        *out = (enum report_format)i;
        return ERR_OK;
    }
    return err_set(why, ERR_USAGE, "--out %s: expected a name that ends in .html, .md or .svg", path);
}

void report_write(struct str *out, const struct report *r, enum report_format format)
{
    static void (*const WRITE[])(struct str *, const struct report *) = {
        [REPORT_HTML] = write_html, [REPORT_MD] = write_markdown, [REPORT_SVG] = write_card
    };
    WRITE[format](out, r);
}
