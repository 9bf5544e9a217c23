/* output.c - see output.h. Numbers for scripts have ten significant digits: more than any clock here
 * resolves, and few enough that 0.1 prints as 0.1. */
#include "tui/cli/lib/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tui/cli/lib/output_md.h"

enum { REAL_DIGITS = 10 };

static struct column column_of_metric(const struct metric *m)
{
    return (struct column){ .name = m->name,
                            .title = m->column.title,
                            .kind = strcmp(m->unit, "bytes") ? COLUMN_NUM : COLUMN_BYTES,
                            .scale = m->column.scale,
                            .digits = m->column.digits,
                            .metric = m };
}

static enum column_kind column_kind_of(const struct column *c)
{
    static const enum column_kind KINDS[] = {
        [JSON_FIELD_NUM] = COLUMN_NUM,     [JSON_FIELD_LOG_RATIO] = COLUMN_NUM,
        [JSON_FIELD_INT] = COLUMN_INT,     [JSON_FIELD_INT_OR_NULL] = COLUMN_INT,
        [JSON_FIELD_COUNT] = COLUMN_INT,   [JSON_FIELD_ID] = COLUMN_INT,
        [JSON_FIELD_BOOL] = COLUMN_BOOL,   [JSON_FIELD_BYTES] = COLUMN_BYTES,
        [JSON_FIELD_TEXT] = COLUMN_TEXT,   [JSON_FIELD_WORDS] = COLUMN_TEXT,
        [JSON_FIELD_STRING] = COLUMN_TEXT,
    };
    return c->of && c->kind == COLUMN_TEXT ? KINDS[c->value.kind] : c->kind;
}

static struct column column_resolve(const struct column *c)
{
    if (!c->metric) {
        struct column own = *c;
        own.kind = column_kind_of(c);
        return own;
    }
    struct column own = column_of_metric(c->metric);
    own.keep = c->keep;
    if (c->title) {
        own.title = c->title;
        own.scale = c->scale;
        own.digits = c->digits;
    }
    return own;
}

/* Without memory for its columns a table is empty, and writing it fails. */
void table_init(struct table *t, const struct document *document)
{
    const struct column *from = document->columns;
    *t = (struct table){ .document = document,
                         .record = document->record,
                         .columns = calloc((size_t)document->n_columns + 1, sizeof *from) };
    for (int c = 0; t->columns && c < document->n_columns; c++)
        t->columns[t->n_columns++] = column_resolve(&from[c]);
    t->rows = json_array();
    t->extra = json_object();
}

json_t *list_row(json_t *list)
{
    json_t *row = json_object();
    json_array_append_new(list, row);
    return row;
}

json_t *table_row(struct table *t)
{
    return list_row(t->rows);
}

json_t *table_record(struct table *t, const struct document *document)
{
    table_init(t, document);
    return table_row(t);
}

static bool notes_have(const char *notes, const char *line)
{
    const size_t n = strlen(line);
    for (; *notes; notes += strcspn(notes, "\n") + 1)
        if (strcspn(notes, "\n") == n && !memcmp(notes, line, n)) return true;
    return false;
}

/* Appends a line, unless `once` and it is there already. */
static void line_add(struct str *to, bool once, const char *fmt, va_list ap)
{
    char *text = NULL; /* a line may hold a command with long paths: it is never cut */
    if (vasprintf(&text, fmt, ap) < 0) {
        memory_short_set();
        return;
    }
    if (!once || !notes_have(str_text(to), text)) str_printf(to, "%s\n", text);
    free(text);
}

#define LINE_ADDER(function, member, once)                                                                   \
    void function(struct table *t, const char *fmt, ...)                                                     \
    {                                                                                                        \
        va_list ap;                                                                                          \
        va_start(ap, fmt);                                                                                   \
        line_add(&t->member, once, fmt, ap);                                                                 \
        va_end(ap);                                                                                          \
    }
LINE_ADDER(table_headline, headline, false)
LINE_ADDER(table_note, notes, true)
LINE_ADDER(table_detail, details, true)
LINE_ADDER(table_result, result, false)
LINE_ADDER(table_closing, closing, true)
LINE_ADDER(table_next, next, true)

void table_lines(struct table *t, void (*add)(struct table *t, const char *fmt, ...), const char *text)
{
    for (const char *line = text ? text : ""; *line;) {
        const int n = (int)strcspn(line, "\n");
        if (n) add(t, "%.*s", n, line);
        line += n + (line[n] == '\n');
    }
}

void table_keep(struct table *t, const char *names)
{
    for (int c = 0; c < t->n_columns; c++) {
        const size_t n = strlen(t->columns[c].name);
        for (const char *p = names; (p = strstr(p, t->columns[c].name)); p += n)
            if ((p == names || p[-1] == ' ') && (!p[n] || p[n] == ' ')) t->columns[c].keep = true;
    }
}

json_t *summary_to_json(const struct summary *s)
{
    json_t *o = json_object();
    json_put_str(o, "verdict", s->verdict);
    json_put_str(o, "gate", s->gate);
    json_put_num(o, "effect", s->effect.estimate);
    json_put_num(o, "lower", s->effect.lower);
    json_put_num(o, "upper", s->effect.upper);
    json_put_int(o, "exit_status", s->exit_status);
    json_put(o, "run", s->run ? json_integer(s->run) : json_null());
    json_put_str(o, "text", *s->text ? s->text : NULL);
    json_put_str(o, "estimand", s->estimand);
    return o;
}

json_t *summary_put_first(const struct summary *s, json_t *document)
{
    json_t *o = json_object();
    json_put(o, "summary", summary_to_json(s));
    json_object_update(o, document);
    return o;
}

void table_summarize(struct table *t, const struct summary *s)
{
    json_decref(t->summary);
    t->summary = summary_to_json(s);
}

void table_done(struct table *t)
{
    json_decref(t->summary);
    json_decref(t->rows);
    json_decref(t->extra);
    str_free(&t->headline);
    str_free(&t->notes);
    str_free(&t->details);
    str_free(&t->result);
    str_free(&t->closing);
    str_free(&t->next);
    free(t->columns);
    *t = (struct table){ 0 };
}

json_t *table_document(const struct table *t)
{
    json_t *o = json_object();
    json_put_str(o, "schema", t->document->schema);
    json_object_set(o, "rows", t->rows);
    json_object_set(o, "extra", t->extra);
    if (t->headline.len) json_put_str(o, "headline", str_text(&t->headline));
    if (t->notes.len) json_put_str(o, "notes", str_text(&t->notes));
    if (t->result.len) json_put_str(o, "result", str_text(&t->result));
    if (t->closing.len) json_put_str(o, "closing", str_text(&t->closing));
    return o;
}

void row_put_metric(json_t *row, enum metric_id id, double value)
{
    if (strcmp(METRICS[id].unit, "bytes"))
        json_put_num(row, METRICS[id].name, value);
    else if (metric_bytes(value) >= 0)
        json_put_int(row, METRICS[id].name, metric_bytes(value));
}

void row_put_known(const struct table *t, json_t *row, const json_t *from)
{
    for (int c = 0; c < t->n_columns; c++) {
        const char *name = t->columns[c].name;
        json_t *value = json_object_get(from, name);
        if (value && !json_object_get(row, name)) json_object_set(row, name, value);
    }
}

void document_put_struct(const struct document *d, json_t *row, const char *type, const void *from)
{
    int members = 0;
    for (int c = 0; c < d->n_columns; c++) {
        const struct column *column = &d->columns[c];
        struct json_field f = column->value;
        if (!column->of || strcmp(column->of, type)) continue;
        f.name = column->metric ? column->metric->name : column->name;
        json_put_fields(row, &f, 1, from);
        members++;
    }
#ifdef CHECK_DOCUMENTS
    if (!members) abort(); /* the document of another table */
#endif
    (void)members;
}

void table_put_metrics(const struct table *t, json_t *row, const double *value)
{
    for (int c = 0; c < t->n_columns; c++) {
        const struct metric *m = t->columns[c].metric;
        if (!m) continue;
        row_put_metric(row, (enum metric_id)(m - METRICS), value[m - METRICS]);
    }
}

const json_t *table_cell(const struct table *t, size_t row, int column)
{
    return json_object_get(json_array_get(t->rows, row), t->columns[column].name);
}

bool value_is_null(const json_t *v)
{
    return !v || json_is_null(v);
}

/* ---------------------------------------------------------------- json, jsonl */

static enum err_code value_print(const json_t *v, enum json_layout layout, FILE *out, struct err *why)
{
    char *text = json_write(v, layout, REAL_DIGITS);
    char *safe = text && !memory_is_short() ? sink_text(SINK_JSON, text) : NULL;
    free(text);
    if (!safe) return err_set(why, ERR_NOMEM, "out of memory for the JSON text");
    fprintf(out, "%s\n", safe);
    free(safe);
    return ERR_OK;
}

enum err_code output_json(const json_t *value, FILE *out, struct err *why)
{
    return value_print(value, JSON_INDENTED, out, why);
}

/* Copies every column in order; missing values become null. */
static void row_complete(const struct table *t, size_t row, json_t *to)
{
    for (int c = 0; c < t->n_columns; c++) {
        const json_t *v = table_cell(t, row, c);
        json_object_set(to, t->columns[c].name, v ? (json_t *)v : json_null());
    }
}

static enum err_code write_json(const struct table *t, FILE *out, struct err *why)
{
    json_t *doc = json_object();
    if (t->summary) json_object_set(doc, "summary", t->summary);
    json_put_str(doc, "schema", t->document->schema);
    if (t->record && json_array_size(t->rows)) row_complete(t, 0, doc);
    json_object_update(doc, t->extra);
    if (!t->record) {
        json_t *rows = json_array();
        for (size_t r = 0; r < json_array_size(t->rows); r++) row_complete(t, r, list_row(rows));
        json_put(doc, "rows", rows);
    }
    enum err_code rc = output_json(doc, out, why);
    json_decref(doc);
    return rc;
}

static enum err_code write_jsonl(const struct table *t, FILE *out, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (size_t r = 0; r < json_array_size(t->rows) && !rc; r++) {
        json_t *row = json_object();
        json_put_str(row, "schema", t->document->schema);
        row_complete(t, r, row);
        rc = value_print(row, JSON_TIGHT, out, why);
        json_decref(row);
    }
    return rc;
}

/* ---------------------------------------------------------------- csv, sql */

/* Appends a value as plain text; nothing for null. */
void value_append(const json_t *v, struct str *out)
{
    char num[48];
    if (value_is_null(v)) return;
    if (json_is_string(v))
        str_append(out, json_string_value(v));
    else if (json_is_integer(v))
        str_printf(out, "%lld", (long long)json_integer_value(v));
    else if (json_is_boolean(v))
        str_append(out, json_is_true(v) ? "1" : "0");
    else if (json_is_real(v)) {
        snprintf(num, sizeof num, "%.*g", REAL_DIGITS, json_real_value(v));
        str_append(out, num);
    } else {
        char *line = json_line(v);
        str_append(out, line ? line : "");
        free(line);
    }
}

static bool value_is_text(const json_t *v)
{
    return !value_is_null(v) && !json_is_number(v) && !json_is_boolean(v);
}

/* Appends a value for csv or SQL; nothing for null. */
static void value_append_to(struct str *out, enum text_sink sink, const json_t *v)
{
    struct str text = { 0 };
    value_append(v, &text);
    if (value_is_text(v))
        sink_append(out, sink, str_text(&text), text.len);
    else
        str_append(out, str_text(&text));
    str_free(&text);
}

static void write_csv(const struct table *t, bool header, FILE *out)
{
    for (int c = 0; header && c < t->n_columns; c++) fprintf(out, "%s%s", c ? "," : "", t->columns[c].name);
    if (header) fputc('\n', out);
    for (size_t r = 0; r < json_array_size(t->rows); r++) {
        for (int c = 0; c < t->n_columns; c++) {
            struct str text = { 0 };
            value_append_to(&text, SINK_CSV, table_cell(t, r, c));
            if (c) fputc(',', out);
            fputs(str_text(&text), out);
            str_free(&text);
        }
        fputc('\n', out);
    }
}

static void write_sql(const struct table *t, FILE *out)
{
    static const char *const TYPES[] = { [COLUMN_TEXT] = "TEXT",
                                         [COLUMN_INT] = "INTEGER",
                                         [COLUMN_NUM] = "REAL",
                                         [COLUMN_BYTES] = "INTEGER",
                                         [COLUMN_BOOL] = "INTEGER" };
    char name[64];
    const char *dot = strchr(t->document->schema, '.');
    snprintf(name, sizeof name, "qdyno_%.*s", (int)strcspn(dot + 1, "/"), dot + 1);
    fprintf(out, "CREATE TABLE IF NOT EXISTS %s (\n", name);
    for (int c = 0; c < t->n_columns; c++) {
        const struct column *col = &t->columns[c];
        fprintf(out, "  %s %s%s\n", col->name, col->sql ? col->sql : TYPES[col->kind],
                c + 1 < t->n_columns ? "," : "");
    }
    fprintf(out, ");\n");
    for (size_t r = 0; r < json_array_size(t->rows); r++) {
        fprintf(out, "INSERT INTO %s VALUES (", name);
        for (int c = 0; c < t->n_columns; c++) {
            const json_t *v = table_cell(t, r, c);
            struct str text = { 0 };
            value_append_to(&text, SINK_SQL, v);
            if (c) fputs(", ", out);
            fputs(value_is_null(v) ? "NULL" : str_text(&text), out);
            str_free(&text);
        }
        fprintf(out, ");\n");
    }
}

/* Whether the table is complete. Only builds with tests compare its keys with the document: a user's results
 * are worth more than a missing line of the manual. */
static enum err_code table_check(const struct table *t, struct err *why)
{
    if (!t->columns) return err_set(why, ERR_NOMEM, "out of memory for a table");
    enum err_code rc = memory_check("print the results", why);
#ifdef CHECK_DOCUMENTS
    if (!rc && !t->recorded) rc = document_check(t, why);
#endif
    return rc;
}

enum err_code table_write_styled(const struct table *t, enum output_format format, struct table_style style,
                                 FILE *out, struct err *why)
{
    const enum err_code rc = table_check(t, why);
    if (rc) return rc;
    switch (format) {
    case OUTPUT_JSON: return write_json(t, out, why);
    case OUTPUT_JSONL: return write_jsonl(t, out, why);
    case OUTPUT_CSV: write_csv(t, true, out); return ERR_OK;
    case OUTPUT_SQL: write_sql(t, out); return ERR_OK;
    case OUTPUT_MD: break;
    }
    return table_write_md(t, style, out, why);
}

enum err_code table_write(const struct table *t, enum output_format format, FILE *out, struct err *why)
{
    return table_write_styled(t, format, (struct table_style){ .verbose = true }, out, why);
}

enum err_code table_write_more(const struct table *t, enum output_format format, FILE *out, struct err *why)
{
    const enum err_code rc = table_check(t, why);
    if (rc) return rc;
    if (format == OUTPUT_JSONL) return write_jsonl(t, out, why);
    if (format != OUTPUT_CSV)
        return err_set(why, ERR_USAGE, "-o %s cannot be continued: expected csv or jsonl",
                       OUTPUT_NAMES[format]);
    write_csv(t, false, out);
    return ERR_OK;
}
