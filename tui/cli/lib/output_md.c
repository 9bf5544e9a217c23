/* output_md.c - tables for people: scaled, rounded and aligned Markdown, which on a terminal fits its width.
 *
 * A table that wraps cannot be read. So on a terminal a column that says the same in all rows is said once
 * below the table, columns that the command does not need are left out from the right, and named, and long
 * texts are shortened in their middle.
 */
#include "tui/cli/lib/output_md.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"

/* Appends a value as people read it: scaled, rounded, with units for bytes. */
static void value_append_scaled(const struct column *c, const json_t *v, struct str *out)
{
    char buf[64];
    if (value_is_null(v)) {
        str_append(out, "n/a");
    } else if (c->kind == COLUMN_NUM && json_is_number(v)) {
        double x = json_number_value(v) * (c->scale != 0 ? c->scale : 1);
        /* A small number would round to 0: print three significant digits instead. */
        bool small = x != 0 && fabs(x) < 0.5 * pow(10, -c->digits) * 100;
        str_printf(out, small ? "%#.*g" : "%.*f", small ? 3 : c->digits, x);
    } else if (c->kind == COLUMN_BYTES && json_is_integer(v)) {
        str_append(out, str_from_bytes(json_integer_value(v), buf, sizeof buf));
    } else if (c->kind == COLUMN_BOOL) {
        str_append(out, json_is_true(v) ? "yes" : "no");
    } else {
        value_append(v, out);
    }
}

/* Characters of a UTF-8 text: bytes that do not continue a character. */
static int text_width(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* The text of a cell, owned by the caller. Texts come from model files, too. */
static char *md_cell(const struct column *c, const json_t *v)
{
    struct str raw = { 0 };
    if (c->kind != COLUMN_TEXT || !value_is_null(v))
        value_append_scaled(c, v, &raw); /* a missing text is empty, a missing number is n/a */
    char *text = sink_text(SINK_MARKDOWN, str_text(&raw));
    str_free(&raw);
    return text ? text : strdup("");
}

static void write_padded(FILE *out, const char *text, int to, bool right)
{
    int missing = MAX(0, to - text_width(text));
    if (right) fprintf(out, "%*s", missing, "");
    fputs(text, out);
    if (!right) fprintf(out, "%*s", missing, "");
}

static void write_md_record(const struct table *t, FILE *out)
{
    int widest = 0;
    for (int c = 0; c < t->n_columns; c++)
        if (t->columns[c].title) widest = MAX(widest, text_width(t->columns[c].title));
    for (int c = 0; c < t->n_columns && json_array_size(t->rows); c++) {
        const json_t *value = table_cell(t, 0, c);
        const bool absent = value_is_null(value), zero = json_is_number(value) && !json_number_value(value);
        if (!t->columns[c].title || (absent && t->skip_absent) || (zero && t->skip_zero)) continue;
        char *text = md_cell(&t->columns[c], table_cell(t, 0, c));
        write_padded(out, t->columns[c].title, widest, false);
        fprintf(out, "  %s\n", absent ? "n/a" : text);
        free(text);
    }
}

/* The md table leaves out columns without a single value. */
static bool column_is_shown(const struct table *t, int c)
{
    if (!t->columns[c].title) return false;
    for (size_t r = 0; r < json_array_size(t->rows); r++) {
        const json_t *v = table_cell(t, r, c);
        if (!value_is_null(v) && !(json_is_string(v) && !*json_string_value(v))) return true;
    }
    return false;
}

struct md {
    const struct table *t;
    size_t rows, columns;
    int *width;  /* [columns] 0: not shown */
    char **text; /* [rows * columns] of shown columns, owned */
};

static void md_done(struct md *m)
{
    for (size_t i = 0; m->text && i < m->rows * m->columns; i++) free(m->text[i]);
    free(m->text);
    free(m->width);
}

static void md_fill(struct md *m)
{
    for (size_t c = 0; c < m->columns; c++) {
        if (!column_is_shown(m->t, (int)c)) continue;
        m->width[c] = MAX(2, text_width(m->t->columns[c].title));
        for (size_t r = 0; r < m->rows; r++) {
            char *text = m->text[r * m->columns + c] = md_cell(&m->t->columns[c],
                                                               table_cell(m->t, r, (int)c));
            m->width[c] = MAX(m->width[c], text_width(text));
        }
    }
}

/* A config by its short name; NULL: it is none of this version. */
static char *config_name(const char *line)
{
    struct config c;
    char label[CONFIG_LINE];
    if (config_parse(&c, line, NULL)) return NULL;
    return sink_text(SINK_MARKDOWN, config_label(&c, label, sizeof label));
}

/* Short names for configs, unless two configs would have the same. */
static void md_name_configs(struct md *m, size_t c)
{
    char **name = calloc(m->rows + 1, sizeof *name);
    bool unique = name != NULL;
    for (size_t r = 0; r < m->rows && unique; r++) {
        const char *line = json_string_value(table_cell(m->t, r, (int)c));
        name[r] = line ? config_name(line) : NULL;
        unique = name[r] != NULL;
        for (size_t k = 0; k < r && unique; k++)
            unique = strcmp(name[k], name[r]) ||
                     !strcmp(m->text[k * m->columns + c], m->text[r * m->columns + c]);
    }
    m->width[c] = unique ? MAX(2, text_width(m->t->columns[c].title)) : m->width[c];
    for (size_t r = 0; name && r < m->rows; r++) {
        if (unique) {
            free(m->text[r * m->columns + c]);
            m->text[r * m->columns + c] = name[r];
            m->width[c] = MAX(m->width[c], text_width(name[r]));
        } else {
            free(name[r]);
        }
    }
    free(name);
}

/* Of all columns with their bars. */
static int md_width(const struct md *m)
{
    int sum = 1;
    for (size_t c = 0; c < m->columns; c++) sum += m->width[c] ? m->width[c] + 3 : 0;
    return sum;
}

static bool md_repeats(const struct md *m, size_t c)
{
    for (size_t r = 1; r < m->rows; r++)
        if (strcmp(m->text[c], m->text[r * m->columns + c])) return false;
    return m->rows > 1;
}

/* "model bundled.gguf, workload tg64": takes the columns out that repeat one text. */
static void md_take_repeats(struct md *m, struct str *said)
{
    for (size_t c = 0; c < m->columns; c++) {
        if (!m->width[c] || m->t->columns[c].keep || m->t->columns[c].kind != COLUMN_TEXT ||
            !md_repeats(m, c))
            continue;
        str_printf(said, "%s%s %s", said->len ? ", " : "", m->t->columns[c].title, m->text[c]);
        m->width[c] = 0;
    }
}

/* Takes out columns that need not be kept, from the right, until the rest fits. */
static void md_take_columns(struct md *m, int width, struct str *taken)
{
    for (size_t c = m->columns; c-- > 1 && md_width(m) > width;) {
        if (!m->width[c] || m->t->columns[c].keep) continue;
        m->width[c] = 0;
        struct str all = { 0 };
        str_printf(&all, "%s%s%s", m->t->columns[c].title, taken->len ? ", " : "", str_text(taken));
        str_free(taken);
        *taken = all;
    }
}

/* The first `keep` bytes that hold `columns` characters. */
static size_t prefix_of(const char *text, int columns)
{
    size_t n = 0;
    for (int seen = 0; text[n]; n++) {
        seen += ((unsigned char)text[n] & 0xc0) != 0x80;
        if (seen > columns) break;
    }
    return n;
}

/* "gemma-3-270…Q4_K_M": *text is replaced. */
static void shorten(char **text, int to)
{
    const int length = text_width(*text), front = (to - 1) / 2, back = to - 1 - front;
    struct str s = { 0 };
    if (length <= to) return;
    str_printf(&s, "%.*s…%s", (int)prefix_of(*text, front), *text, *text + prefix_of(*text, length - back));
    char *taken = str_take(&s);
    if (!taken) return;
    free(*text);
    *text = taken;
}

/* Shortens texts, the widest column first, until the table fits or no text is long. */
static void md_shorten(struct md *m, int width)
{
    enum { SHORTEST = 12 };
    for (int over; (over = md_width(m) - width) > 0;) {
        size_t widest = m->columns;
        for (size_t c = 0; c < m->columns; c++)
            if (m->t->columns[c].kind == COLUMN_TEXT && m->width[c] > SHORTEST &&
                (widest == m->columns || m->width[c] > m->width[widest]))
                widest = c;
        if (widest == m->columns) return;
        const int to = MAX(m->width[widest] - over, MAX(SHORTEST, text_width(m->t->columns[widest].title)));
        if (to >= m->width[widest]) return;
        for (size_t r = 0; r < m->rows; r++) shorten(&m->text[r * m->columns + widest], to);
        m->width[widest] = to;
    }
}

static void md_write_heads(const struct md *m, FILE *out)
{
    const struct column *column = m->t->columns;
    for (size_t c = 0; c < m->columns; c++) {
        if (!m->width[c]) continue;
        fputs("| ", out);
        write_padded(out, column[c].title, m->width[c], column[c].kind != COLUMN_TEXT);
        fputc(' ', out);
    }
    fputs("|\n", out);
    for (size_t c = 0; c < m->columns; c++) {
        if (!m->width[c]) continue;
        const bool right = column[c].kind != COLUMN_TEXT;
        fputs("| ", out);
        for (int i = 0; i < m->width[c]; i++) fputc(right && i + 1 == m->width[c] ? ':' : '-', out);
        fputc(' ', out);
    }
    fputs("|\n", out);
}

static void md_write_rows(const struct md *m, FILE *out)
{
    if (m->rows) md_write_heads(m, out);
    for (size_t r = 0; r < m->rows; r++) {
        for (size_t c = 0; c < m->columns; c++) {
            if (!m->width[c]) continue;
            fputs("| ", out);
            write_padded(out, m->text[r * m->columns + c], m->width[c], m->t->columns[c].kind != COLUMN_TEXT);
            fputc(' ', out);
        }
        fputs("|\n", out);
    }
}

/* Lines of text, broken at spaces where the terminal is narrower. */
static void write_lines(const struct str *lines, int width, FILE *out)
{
    char *text = sink_text(SINK_TERMINAL, str_text(lines));
    for (char *p = text; p && *p;) {
        const size_t line = strcspn(p, "\n");
        size_t n = width ? MIN(line, prefix_of(p, width)) : line;
        if (n < line)
            for (size_t k = n; k > 0; k--)
                if (p[k] == ' ') {
                    n = k;
                    break;
                }
        fprintf(out, "%.*s\n", (int)n, p);
        p += n + (p[n] == '\n' || p[n] == ' ');
    }
    free(text);
}

static enum err_code write_md(const struct table *t, struct table_style style, FILE *out, struct err *why)
{
    struct md m = { .t = t, .rows = json_array_size(t->rows), .columns = (size_t)t->n_columns };
    struct str repeated = { 0 }, taken = { 0 }, below = { 0 };
    m.width = calloc(m.columns + 1, sizeof *m.width);
    m.text = calloc(m.rows * m.columns + 1, sizeof *m.text);
    if (!m.width || !m.text) {
        md_done(&m);
        return err_set(why, ERR_NOMEM, "out of memory for a table of %zu rows", m.rows);
    }
    md_fill(&m);
    if (style.width && !style.verbose) {
        for (size_t c = 0; c < m.columns; c++)
            if (m.width[c] && !strcmp(t->columns[c].name, "config")) md_name_configs(&m, c);
        md_take_repeats(&m, &repeated);
        md_take_columns(&m, style.width, &taken);
        md_shorten(&m, style.width);
    }
    md_write_rows(&m, out);
    if (repeated.len) str_printf(&below, "all rows: %s\n", str_text(&repeated));
    if (taken.len)
        str_printf(&below, "columns left out, because the terminal is too narrow (-v prints them): %s\n",
                   str_text(&taken));
    write_lines(&below, style.width, out);
    str_free(&below);
    str_free(&repeated);
    str_free(&taken);
    md_done(&m);
    return ERR_OK;
}

enum err_code table_write_md(const struct table *t, struct table_style style, FILE *out, struct err *why)
{
    const bool rows = json_array_size(t->rows) > 0;
    if (style.quiet && t->result.len) {
        write_lines(&t->result, style.width, out);
        return ERR_OK;
    }
    write_lines(&t->headline, style.width, out);
    if (t->headline.len) fputc('\n', out);
    if (t->record)
        write_md_record(t, out);
    else if (write_md(t, style, out, why))
        return ERR_NOMEM;
    if (style.quiet) return ERR_OK;
    const struct str *const parts[][3] = { { &t->notes, style.verbose ? &t->details : NULL, NULL },
                                           { &t->result, &t->closing, &t->next } };
    bool above = rows;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        bool any = false;
        for (int k = 0; k < 3; k++) any = any || (parts[i][k] && parts[i][k]->len);
        if (!any) continue;
        if (above) fputc('\n', out);
        above = true;
        for (int k = 0; k < 3; k++)
            if (parts[i]
                     [k]) /* a command is copied from the terminal: only the terminal itself may break it */
                write_lines(parts[i][k], parts[i][k] == &t->next ? 0 : style.width, out);
    }
    return ERR_OK;
}
