/* tui/cli/lib/output.h - one table, written in five formats.
 *
 * A command fills rows of named values. md is for people: scaled, rounded, aligned. The other formats are for
 * scripts: raw units, unknown values null or empty. JSON is one document with "schema"; jsonl is one object
 * for each row. */
#ifndef QDYNO_CLI_OUTPUT_H
#define QDYNO_CLI_OUTPUT_H

#include "advisor/stats/stats.h"
#include "base/fields/fields.h"
#include "tui/cli/cli.h"

enum column_kind { COLUMN_TEXT, COLUMN_INT, COLUMN_NUM, COLUMN_BYTES, COLUMN_BOOL };

struct column {
    const char *name;  /* for scripts, with the unit at its end: "decode_tok_s" */
    const char *title; /* heading in md, with the unit if it is scaled; NULL: not in md */
    enum column_kind kind;
    double scale;    /* COLUMN_NUM in md: factor, e.g. 1e3 for ms from s; 0 means 1 */
    int digits;      /* COLUMN_NUM in md: digits after the point */
    const char *sql; /* column type in -o sql; NULL: chosen by kind */
    bool keep;       /* never left out where a terminal is too narrow for all columns: table_keep */
    /* A column of a metric takes everything above from its row in METRICS: METRIC_COLUMN(METRIC_TTFT). With a
     * title of its own it takes the name and the kind only. */
    const struct metric *metric;
    /* A column that is a member of a struct is filled by document_put; .kind is needed for bytes only. */
    const char *of;          /* "struct advice"; NULL: the command fills the column */
    struct json_field value; /* its name is that of the column */
};
/* A row of a table of columns: COL("ttft_s", "TTFT ms", .kind = COLUMN_NUM, .scale = 1e3). KEY is not in md.
 */
#define COL(script_name, heading, ...)                                                                       \
    {                                                                                                        \
        .name = (script_name), .title = (heading), __VA_ARGS__                                               \
    }
#define KEY(script_name, ...)                                                                                \
    {                                                                                                        \
        .name = (script_name), __VA_ARGS__                                                                   \
    }
/* The member of a column, of its usual kind or of another one (base/fields): MEMBER_AS(struct run_row, id,
 * ID). */
#define MEMBER(type, member)          MEMBER_KIND(type, member, JSON_FIELD_KIND(type, member))
#define MEMBER_AS(type, member, KIND) MEMBER_KIND(type, member, JSON_FIELD_##KIND)
#define MEMBER_KIND(type, member, json_kind)                                                                 \
    .of = #type,                                                                                             \
    .value = { .kind = (json_kind), .offset = offsetof(type, member), .size = sizeof(((type *)0)->member) }
#define METRIC_COLUMN(id)                                                                                    \
    {                                                                                                        \
        .metric = &METRICS[id]                                                                               \
    }
/* The columns of requests that come and go, in the order of METRICS. */
#define LOAD_METRIC_COLUMNS                                                                                  \
    METRIC_COLUMN(METRIC_TTFT_P50), METRIC_COLUMN(METRIC_TTFT_P95), METRIC_COLUMN(METRIC_TTFT_P99),          \
        METRIC_COLUMN(METRIC_TTFT_SENT), METRIC_COLUMN(METRIC_TPOT), METRIC_COLUMN(METRIC_TPOT_P50),         \
        METRIC_COLUMN(METRIC_TPOT_P95), METRIC_COLUMN(METRIC_TPOT_P99), METRIC_COLUMN(METRIC_ITL_MAX),       \
        METRIC_COLUMN(METRIC_E2E), METRIC_COLUMN(METRIC_E2E_P50), METRIC_COLUMN(METRIC_E2E_P95),             \
        METRIC_COLUMN(METRIC_E2E_P99), METRIC_COLUMN(METRIC_QUEUE), METRIC_COLUMN(METRIC_QUEUE_P50),         \
        METRIC_COLUMN(METRIC_QUEUE_P95), METRIC_COLUMN(METRIC_QUEUE_P99),                                    \
        METRIC_COLUMN(METRIC_REQUEST_RATE), METRIC_COLUMN(METRIC_IN_RATE), METRIC_COLUMN(METRIC_OUT_RATE),   \
        METRIC_COLUMN(METRIC_BATCH), METRIC_COLUMN(METRIC_KV_USE), METRIC_COLUMN(METRIC_PREFIX_HIT),         \
        METRIC_COLUMN(METRIC_PREEMPTIONS), METRIC_COLUMN(METRIC_LATE), METRIC_COLUMN(METRIC_SCHEDULER),      \
        METRIC_COLUMN(METRIC_FAILED), METRIC_COLUMN(METRIC_GOODPUT)

/* What a table is and which keys its JSON has. docs/documents.md has one section for each document of
 * DOCUMENTS (tui/cli/documents.h) and one row for each key; a test compares them. */
struct document {
    const char *schema; /* "qdyno.bench/1"; "bench" also names the SQL table */
    const struct column *columns;
    int n_columns;
    bool record; /* one row only: md is a list of properties, JSON has no "rows" */
    /* Paths of the other members of the JSON document, separated by spaces: "bad rules[].advice". "labels.*"
     * covers every key below labels. NULL: none. */
    const char *members;
    /* Keys of rows that only the database holds, separated by spaces: no format prints them. NULL: none. */
    const char *unprinted;
};
/* Defines DOCUMENT_NAME; further members follow: .record = true */
#define DOCUMENT(name, text, table, ...)                                                                     \
    const struct document DOCUMENT_##name = {                                                                \
        .schema = (text), .columns = (table), .n_columns = COUNT_OF(table), __VA_ARGS__                      \
    }

/* ERR_INTERNAL for a key of a row that is no column, and for a member of the document that is not declared:
 * such a key would be missing in the table or in docs/documents.md. Also for a table that names run 0. */
struct table;
enum err_code document_check(const struct table *t, struct err *why);

/* The result of a command for scripts: the first member of its JSON document. */
struct summary {
    const char *verdict, *gate; /* NULL: none */
    struct interval effect;     /* ratio to the reference, and its interval; NAN: none */
    int exit_status;
    int64_t run;          /* 0: none */
    char text[800];       /* the result in words; "": none */
    const char *estimand; /* what an experiment's effect is about: "quiet" or "loaded"; NULL: no experiment */
};
/* {"verdict":,"gate":,"effect":,"lower":,"upper":,"exit_status":,"run":,"text":,"estimand":}. New reference.
 */
json_t *summary_to_json(const struct summary *s);
/* The document with the summary as its first member. New reference. */
json_t *summary_put_first(const struct summary *s, json_t *document);

struct table {
    const struct document *document;
    struct column *columns; /* owned: those of the document, metrics filled in */
    int n_columns;
    bool record;         /* as in the document, unless the command changes it */
    bool recorded;       /* `show` prints a stored table: an older version may have stored other keys */
    bool skip_absent;    /* record: md leaves out properties without a value */
    bool skip_zero;      /* record: md leaves out properties that are 0 */
    json_t *rows;        /* array of objects */
    json_t *extra;       /* object: members of the JSON document besides rows */
    json_t *summary;     /* first member of the JSON document, owned; NULL: none */
    struct str headline; /* md only: lines above the table */
    struct str notes;    /* md only: lines under the table */
    struct str details;  /* md only: further lines, with --verbose */
    struct str result;   /* md only: the result in words, at the end; all that --quiet prints */
    struct str closing;  /* md only: after the result: evidence and conditions */
    struct str next;     /* md only: the last line, with a command that a line break would spoil */
};

/* How md is written for people. {0}: complete, as into a file. */
struct table_style {
    int width;    /* columns of the terminal: tables are made to fit; 0: no terminal */
    bool verbose; /* with details, and with all columns */
    bool quiet;   /* the result only, or the table where there is no result in words */
};

void table_init(struct table *t, const struct document *document);
/* Adds a row, to be filled with json_put_*. Borrowed. */
json_t *table_row(struct table *t);
/* table_init, and the only row. */
json_t *table_record(struct table *t, const struct document *document);
/* table_row for any list. */
json_t *list_row(json_t *list);
/* Adds the members of *from, a struct of this type, that are columns of the document to a row. */
#define document_put(document, row, type, from)                                                              \
    document_put_struct(document, row, #type, (const type *){ from })
void document_put_struct(const struct document *d, json_t *row, const char *type, const void *from);
/* Adds the value of each metric that has a column: value[METRIC_COUNT], by enum metric_id. */
void table_put_metrics(const struct table *t, json_t *row, const double *value);
/* Adds one of them. Bytes are written as integers; unknown ones are left out. */
void row_put_metric(json_t *row, enum metric_id id, double value);
/* Adds each member of `from` that has a column and no value yet. */
void row_put_known(const struct table *t, json_t *row, const json_t *from);
/* Adds a line above the md table. */
void table_headline(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a line below the md table, unless it is there already. */
void table_note(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a line that only --verbose prints. */
void table_detail(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a line of the result, which ends the output. */
void table_result(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a line after the result. */
void table_closing(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sets the last line: the next step, one command. */
void table_next(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds each line of a text with one of these: table_lines(t, table_note, text). NULL: none. */
void table_lines(struct table *t, void (*add)(struct table *t, const char *fmt, ...), const char *text);
/* Names of columns that a narrow terminal must show, separated by spaces. */
void table_keep(struct table *t, const char *names);
/* Sets or replaces the summary. `show` prints documents without one, because it has another exit status. */
void table_summarize(struct table *t, const struct summary *s);
void table_done(struct table *t);

/* Schema, rows, extra, headline and notes as one document, from which `show` prints the table again. New
 * reference. */
json_t *table_document(const struct table *t);
/* Errors: ERR_NOMEM; in builds with tests those of document_check. Write errors appear when the caller closes
 * `out`. */
enum err_code table_write(const struct table *t, enum output_format format, FILE *out, struct err *why);
enum err_code table_write_styled(const struct table *t, enum output_format format, struct table_style style,
                                 FILE *out, struct err *why);

/* Writes the rows without the csv header, to continue a stream. Errors: ERR_USAGE for formats other than csv
 * and jsonl, ERR_NOMEM. */
enum err_code table_write_more(const struct table *t, enum output_format format, FILE *out, struct err *why);

/* Writes one JSON value, indented, with a final newline. */
enum err_code output_json(const json_t *value, FILE *out, struct err *why);

#endif
