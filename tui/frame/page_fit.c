/* tui/frame/page_fit.c - a text page laid out for a width: tables of Markdown become columns, or where these
 * are too wide, one line for each figure; other long lines are wrapped. */
#include "tui/frame/frame.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MOST = 24, ROWS_MOST = 64, GAP = 2, LABELS_MOST = 24 };

/* ---------------------------------------------------------------- wrapped lines */

/* The bytes of the next row of `text`: up to the last blank that fits, else as many characters as fit. */
static size_t row_bytes(const char *text, int columns)
{
    size_t n = 0, blank = 0;
    int used = 0;
    uint32_t code;
    while (text[n]) {
        char one[8];
        const size_t step = str_utf8_next(text + n, strlen(text + n), &code);
        snprintf(one, sizeof one, "%.*s", (int)MIN(step, sizeof one - 1), text + n);
        used += text_columns(one);
        if (used > columns) return blank ? blank : MAX(n, step);
        if (text[n] == ' ' && n) blank = n;
        n += step;
    }
    return n;
}

/* Further rows begin `indent` columns to the right. */
static void put_wrapped(struct text_page *out, enum page_tone tone, const char *text, int columns, int indent)
{
    enum { LEAST = 8 };
    bool first = true;
    indent = MIN(indent, MAX(columns - LEAST, 0));
    do {
        const int room = MAX(columns - (first ? 0 : indent), 1);
        const size_t n = row_bytes(text, room);
        size_t shown = n;
        while (shown > 1 && text[shown - 1] == ' ') shown--;
        text_page_put(out, tone, "%*s%.*s", first ? 0 : indent, "", (int)shown, text);
        text += n;
        text += strspn(text, " ");
        first = false;
    } while (*text);
}

/* ---------------------------------------------------------------- tables */

struct page_table {
    int columns, rows; /* row 0: the heads */
    char *text;        /* all cells, each ends with 0 */
    const char *cell[ROWS_MOST][COLUMNS_MOST];
    bool right[COLUMNS_MOST];
    int width[COLUMNS_MOST];
};

static bool is_table_row(const char *text)
{
    return text[0] == '|' && text[1] == ' ';
}

/* "| --- | ---: |" */
static bool is_rule(const char *text)
{
    return is_table_row(text) && strspn(text, "|-: ") == strlen(text) && strchr(text, '-');
}

/* Split "| a | b |" into cells; \| is a letter of a cell. Returns where the next text may be written. */
static char *row_split(const char *line, const char **cell, int *n, char *to)
{
    const char *p = line + 1;
    for (*n = 0; *p && *n < COLUMNS_MOST; (*n)++) {
        char *begin = to;
        p += strspn(p, " ");
        while (*p && *p != '|') {
            if (p[0] == '\\' && p[1] == '|') p++;
            *to++ = *p++;
        }
        while (to > begin && to[-1] == ' ') to--;
        *to++ = '\0';
        cell[*n] = begin;
        if (!*p || !*++p) {
            (*n)++;
            break;
        }
    }
    return to;
}

/* Read the table that begins at line `at`. Returns the lines it takes; 0: there is none. */
static int table_read(struct page_table *t, const struct text_page *page, int at)
{
    int lines = 0, n;
    const int left = page->count - at;
    if (left < 2 || !is_table_row(page->line[at].text) || !is_rule(page->line[at + 1].text)) return 0;
    while (lines < left && is_table_row(page->line[at + lines].text)) lines++;
    *t = (struct page_table){ .text = malloc((size_t)lines * (PAGE_TEXT + COLUMNS_MOST)) };
    char *to = t->text;
    for (int i = 0; to && i < lines && t->rows < ROWS_MOST; i++) {
        const char **cell = t->cell[t->rows];
        to = row_split(page->line[at + i].text, cell, &n, to);
        if (i == 0) t->columns = n;
        for (int c = n; c < t->columns; c++) cell[c] = "";
        for (int c = 0; c < t->columns && i == 1; c++) t->right[c] = *cell[c] && str_ends(cell[c], ":");
        if (i == 1) continue;
        for (int c = 0; c < t->columns; c++) t->width[c] = MAX(t->width[c], text_columns(cell[c]));
        t->rows++;
    }
    return t->text ? lines : 0;
}

static int table_width(const struct page_table *t)
{
    int sum = 0;
    for (int c = 0; c < t->columns; c++) sum += t->width[c] + (c ? GAP : 0);
    return sum;
}

static void put_cell(struct str *row, const char *text, int width, bool right)
{
    const int blank = MAX(width - text_columns(text), 0);
    str_printf(row, "%*s%s%*s", right ? blank : 0, "", text, right ? 0 : blank, "");
}

static void put_columns(struct text_page *out, const struct page_table *t)
{
    struct str row = { 0 };
    for (int r = 0; r < t->rows; r++) {
        str_clear(&row);
        for (int c = 0; c < t->columns; c++) {
            str_append(&row, c ? "  " : "");
            put_cell(&row, t->cell[r][c], c + 1 < t->columns || t->right[c] ? t->width[c] : 0, t->right[c]);
        }
        text_page_put(out, r ? PAGE_PLAIN : PAGE_HEAD, "%s", str_text(&row));
    }
    str_free(&row);
}

/* Each row as lines "head  value"; a blank line between rows. */
static void put_records(struct text_page *out, const struct page_table *t, int columns)
{
    struct str line = { 0 };
    int label = 0;
    for (int c = 0; c < t->columns; c++) label = MAX(label, text_columns(t->cell[0][c]));
    label = MIN(label, (int)LABELS_MOST);
    for (int r = 1; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            if (!*t->cell[r][c]) continue;
            str_clear(&line);
            put_cell(&line, t->cell[0][c], label, false);
            str_printf(&line, "  %s", t->cell[r][c]);
            put_wrapped(out, c ? PAGE_PLAIN : PAGE_HEAD, str_text(&line), columns, label + GAP);
        }
        text_page_put(out, PAGE_PLAIN, " ");
    }
    str_free(&line);
}

void text_page_fit(struct text_page *out, const struct text_page *page, int columns)
{
    struct page_table *t = malloc(sizeof *t);
    *out = (struct text_page){ .number = page->number, .opens = page->opens, .left_out = page->left_out };
    snprintf(out->title, sizeof out->title, "%s", page->title);
    for (int i = 0; i < page->count;) {
        const int lines = t ? table_read(t, page, i) : 0;
        if (!lines) {
            const struct page_line *l = &page->line[i++];
            put_wrapped(out, l->tone, l->text, columns, (int)strspn(l->text, " ") + GAP);
            continue;
        }
        if (table_width(t) <= columns)
            put_columns(out, t);
        else
            put_records(out, t, columns);
        free(t->text);
        i += lines;
    }
    free(t);
}
