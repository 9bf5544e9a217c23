/* write_markdown.c - the report as one Markdown file, with tables and with plots drawn in characters. */

#include <ctype.h>
#include <string.h>

#include "tui/report/content.h"

enum { COLUMNS = 78, ROWS = 14 };

/* Is this character markup at its position? Underscores inside words are not. */
static bool is_markup(const char *text, const char *at)
{
    if (*at == '_') return at == text || !isalnum((unsigned char)at[-1]) || !isalnum((unsigned char)at[1]);
    return strchr("\\*[]<>|#&~", *at) != NULL;
}

/* Copies code spans and escapes everything else. In a table cell also "|" inside code is escaped. */
static void write_markdown_put_text(struct str *out, const char *text, bool cell)
{
    bool code = false;
    for (const char *at = text; *at; at++) {
        if (*at == '`' && (code || strchr(at + 1, '`'))) {
            code = !code;
            str_append(out, "`");
        } else if (*at == '\n') {
            str_append(out, " ");
        } else if (code ? cell && *at == '|' : is_markup(text, at) || *at == '`') {
            str_printf(out, "\\%c", *at);
        } else {
            str_append_n(out, at, 1);
        }
    }
}

static void put_row(struct str *out, const struct content_table *t, const char *const *cell)
{
    str_append(out, "|");
    for (int i = 0; i < t->columns; i++) {
        str_append(out, " ");
        write_markdown_put_text(out, cell[i] ? cell[i] : "", true);
        str_append(out, " |");
    }
    str_append(out, "\n");
}

static void put_table(struct str *out, const struct content_table *t)
{
    if (!t->first) return;
    if (t->caption) {
        write_markdown_put_text(out, t->caption, false);
        str_append(out, "\n\n");
    }
    static const char *const PROPERTY[CONTENT_COLUMNS] = { "property", "value" };
    put_row(out, t, t->head[0] ? t->head : PROPERTY);
    str_append(out, "|");
    for (int i = 0; i < t->columns; i++) str_append(out, t->right[i] ? " ---: |" : " --- |");
    str_append(out, "\n");
    for (const struct content_row *row = t->first; row; row = row->next) put_row(out, t, row->cell);
    str_append(out, "\n");
}

/* The fence is longer than any run of backticks in the text, so the text cannot end it. */
static void put_fence(struct str *out, const char *text)
{
    int longest = 2, run = 0;
    for (const char *at = text; *at; at++) {
        run = *at == '`' ? run + 1 : 0;
        longest = MAX(longest, run);
    }
    for (int i = 0; i <= longest; i++) str_append(out, "`");
    str_printf(out, "text\n%s", text);
    if (!*text || text[strlen(text) - 1] != '\n') str_append(out, "\n");
    for (int i = 0; i <= longest; i++) str_append(out, "`");
    str_append(out, "\n\n");
}

static int plot_rows(const struct plot *p)
{
    if (p->y.names) return 2 * p->y.n_names + 1;
    return p->height > 0 && p->height < 100 ? 7 : ROWS;
}

static void put_figure(struct str *out, const struct figure_plots *f)
{
    str_append(out, "### ");
    write_markdown_put_text(out, f->title, false);
    str_append(out, "\n\n");
    if (f->reading) {
        write_markdown_put_text(out, f->reading, false);
        str_append(out, "\n\n");
    }
    for (int i = 0; i < f->plots; i++) {
        struct str drawn = { 0 };
        plot_text(&drawn, f->plot[i], COLUMNS, plot_rows(f->plot[i]));
        put_fence(out, str_text(&drawn));
        out->failed = out->failed || drawn.failed;
        str_free(&drawn);
    }
}

static void put_paragraph(struct str *out, const char *before, const char *text)
{
    str_append(out, before);
    write_markdown_put_text(out, text, false);
    str_append(out, "\n\n");
}

void write_markdown(struct str *out, const struct report *r)
{
    put_paragraph(out, "# ", r->title);
    str_append(out, "**");
    write_markdown_put_text(out, r->mark, false);
    str_append(out, "** ");
    put_paragraph(out, "", r->subtitle);
    for (const struct content *c = r->first; c; c = c->next) {
        switch (c->kind) {
        case CONTENT_SECTION: put_paragraph(out, "## ", c->text); break;
        case CONTENT_TEXT: put_paragraph(out, "", c->text); break;
        case CONTENT_WARNING: put_paragraph(out, "> **Warning:** ", c->text); break;
        case CONTENT_TABLE: put_table(out, &c->table); break;
        case CONTENT_FIGURE: put_figure(out, &c->figure); break;
        case CONTENT_CODE: put_fence(out, c->text); break;
        case CONTENT_DOWNLOAD: break; /* only a page can contain a file */
        }
    }
    put_paragraph(out, "", r->footer);
}
