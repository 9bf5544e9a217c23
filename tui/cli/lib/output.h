/* tui/cli/lib/output.h - one description of a result, five ways to write it.
 *
 * A command fills rows of named values; md is for people (scaled, rounded, aligned), the others are for
 * scripts (raw units, unknown = null or empty). JSON is one document with "schema"; jsonl is one object a
 * row. */
#ifndef QDYNO_CLI_OUTPUT_H
#define QDYNO_CLI_OUTPUT_H

#include "tui/cli/cli.h"

enum column_kind { COLUMN_TEXT, COLUMN_INT, COLUMN_NUM, COLUMN_BYTES, COLUMN_BOOL };

struct column {
    const char *name;  /* for scripts, unit at its end: "decode_tok_s" */
    const char *title; /* over the md column, unit included where the name does not say it; NULL: not in md */
    enum column_kind kind;
    double scale;    /* COLUMN_NUM in md: multiplies ("ms" from seconds: 1e3); 0 means 1 */
    int digits;      /* COLUMN_NUM in md: digits behind the point */
    const char *sql; /* type in -o sql; NULL: by kind */
};

struct table {
    const char *schema; /* "qdyno.bench/1": the middle names the SQL table, too */
    const struct column *columns;
    int n_columns;
    bool record;      /* one thing described: md is a list of its properties, JSON has no "rows" */
    json_t *rows;     /* array of objects */
    json_t *extra;    /* object: what the JSON document says besides rows */
    struct str notes; /* md only: lines under the table */
};

void table_init(struct table *t, const char *schema, const struct column *columns, int n_columns);
json_t *table_row(struct table *t); /* a new row to fill with json_put_*; borrowed */
void table_note(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_done(struct table *t);

/* Errors: ERR_NOMEM; ERR_IO is left to whoever closes `out`. */
enum err_code table_write(const struct table *t, enum output_format format, FILE *out, struct err *why);

/* The rows again without what stands before them: how a stream in csv or jsonl goes on. Errors: ERR_USAGE for
 * other formats, ERR_NOMEM. */
enum err_code table_write_more(const struct table *t, enum output_format format, FILE *out, struct err *why);

/* A whole JSON value, indented, with a newline. */
enum err_code output_json(const json_t *value, FILE *out, struct err *why);

#endif
