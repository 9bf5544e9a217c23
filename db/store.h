/* db/store.h - the one way in which db/ uses SQLite (internal to db/): statements, transactions, error
 * messages, and the conversion between structs and rows. NAN is stored as NULL. */
#ifndef QDYNO_DB_STORE_H
#define QDYNO_DB_STORE_H

#include <sqlite3.h>

#include "db/db.h"

struct db {
    sqlite3 *handle;
    char *path;
    int lock_file;       /* file descriptor of lock.c; -1: not open */
    int64_t sending_at;  /* first byte of the lock of db_spool_lock in that file; 0: not locked */
    int wait_ms;         /* how long to wait for locks of other processes */
    int64_t deadline_ns; /* when running statements are interrupted; 0: never */
};

/* Converts SQLite's last error: a full disk is ERR_FIT, a damaged file or another program's ERR_FORMAT, a
 * missing referenced row ERR_USAGE. `doing` completes the message "cannot ...": "store a cell". */
enum err_code db_error(struct db *d, const char *doing, struct err *why);

/* Runs that are stored as running and that no handle has locked (db_runs_close_abandoned). *out: free. A
 * database in memory has none. ERR_IO, ERR_NOMEM. */
struct abandoned_run {
    int64_t id;
    char kind[16];
};
enum err_code abandoned_list(struct db *d, struct abandoned_run **out, int *n, struct err *why);

/* Executes one statement. `types` gives the types of the variable arguments, in the order of the statement's
 * "?": i int64_t   d double (NAN becomes NULL)   t const char * (NULL becomes NULL)   x const char * (""
 * becomes NULL). `row` (may be NULL) is called for each result row; an error it returns ends the query. */
typedef enum err_code db_row_fn(void *ctx, sqlite3_stmt *row, struct err *why);
struct db_call {
    const char *doing, *sql;
    db_row_fn *row;
    void *ctx;
};
enum err_code db_execute(struct db *d, const struct db_call *call, struct err *why, const char *types, ...);

/* A transaction: db_begin executes BEGIN IMMEDIATE. db_end commits if rc is ERR_OK and rolls back otherwise;
 * the caller returns its result. */
enum err_code db_begin(struct db *d, const char *doing, struct err *why);
enum err_code db_end(struct db *d, enum err_code rc, const char *doing, struct err *why);

/* Maps fields of a C struct to columns of a table, so that a column is named once for writing and reading.
 * TEXT is a char array, truncated to fit when it is read; KEY is a TEXT that references another table and
 * stores "" as NULL; OWNED is a malloc'd string or NULL. BORROWED is a const char *, and BLOB a struct
 * db_blob, that are valid only within the callback of db_table_each when they are read. DB_COLUMN gives the
 * column the field's name, DB_COLUMN_AS another name. */
struct db_blob {
    const void *data;
    size_t bytes;
};
enum db_column_kind {
    DB_COLUMN_I64,
    DB_COLUMN_U64,
    DB_COLUMN_INT,
    DB_COLUMN_BOOL,
    DB_COLUMN_REAL,
    DB_COLUMN_TEXT,
    DB_COLUMN_KEY,
    DB_COLUMN_OWNED,
    DB_COLUMN_BORROWED,
    DB_COLUMN_BLOB
};
struct db_column {
    const char *name;
    enum db_column_kind kind;
    size_t offset, size;
};
#define DB_COLUMN(type, field, kind) DB_COLUMN_AS(#field, type, field, kind)
#define DB_COLUMN_AS(column, type, field, kind)                                                              \
    {                                                                                                        \
        column, DB_COLUMN_##kind, offsetof(struct type, field), sizeof(((struct type *)0)->field)            \
    }
struct db_table {
    const char *name;
    const struct db_column *columns;
    size_t n, row_size; /* columns; sizeof the struct */
    bool assigns_id;    /* SQLite assigns the first column, an integer */
};
/* DB_TABLE: the first column is `id`, which SQLite assigns. DB_TABLE_KEYED: the caller gives all columns. */
#define DB_TABLE(table_name, type, table_columns)                                                            \
    {                                                                                                        \
        .name = table_name, .columns = table_columns, .n = COUNT_OF(table_columns),                          \
        .row_size = sizeof(struct type), .assigns_id = true                                                  \
    }
#define DB_TABLE_KEYED(table_name, type, table_columns)                                                      \
    {                                                                                                        \
        .name = table_name, .columns = table_columns, .n = COUNT_OF(table_columns),                          \
        .row_size = sizeof(struct type)                                                                      \
    }

/* An INSERT of all columns that SQLite does not assign. */
struct db_put {
    const struct db_table *table;
    const char *doing;
    const char *verb; /* "INSERT OR REPLACE"; NULL: "INSERT" */
    const char *tail; /* "ON CONFLICT ..."; NULL: none */
};
/* Stores the struct at `row`. */
enum err_code db_table_put(struct db *d, const struct db_put *p, const void *row, struct err *why);
/* Inserts the struct at `row` and fills its id field. Only for tables with an assigned id. */
enum err_code db_table_insert(struct db *d, const struct db_table *t, void *row, const char *doing,
                              struct err *why);
/* The same for many rows: db_put_prepare, then db_put_row for each, then sqlite3_finalize, also after an
 * error
 * (*out is NULL if it was not prepared). */
enum err_code db_put_prepare(struct db *d, sqlite3_stmt **out, const struct db_put *p, struct err *why);
enum err_code db_put_row(struct db *d, sqlite3_stmt *s, const struct db_put *p, const void *row,
                         struct err *why);

/* "SELECT <all columns> FROM <table> <tail>". `types` as for db_execute. */
struct db_query {
    const struct db_table *table;
    const char *doing, *tail;
};
/* Calls `row` for each result row. */
enum err_code db_table_each(struct db *d, const struct db_query *q, db_row_fn *row, void *ctx,
                            struct err *why, const char *types, ...);
/* Fills the struct at `row` from a result row of such a SELECT. ERR_NOMEM. */
enum err_code db_table_read(const struct db_table *t, void *row, sqlite3_stmt *s, struct err *why);
/* Returns all rows as an array of structs, [*n]; fields without a column are zero. The caller frees *rows,
 * and OWNED fields. On error *rows is NULL and *n is 0. */
enum err_code db_table_list(struct db *d, const struct db_query *q, void **rows, int *n, struct err *why,
                            const char *types, ...);
/* Fills the struct at `row` from the first row; it is zero when there is none (*found false) or on error. The
 * caller frees OWNED fields. */
enum err_code db_table_first(struct db *d, const struct db_query *q, void *row, bool *found, struct err *why,
                             const char *types, ...);

/* request.c and span.c. Called within the transaction of db_cell_insert. */
enum err_code spans_insert(struct db *d, struct span_row *rows, int n, struct err *why);
enum err_code requests_insert(struct db *d, int64_t cell_id, const struct request_rows *r, struct err *why);

/* The migrations in schema.c: step i updates version i to i + 1. */
extern const char *const SCHEMA_STEPS[];
extern const int SCHEMA_VERSION;
enum { SCHEMA_APPLICATION_ID = 0x7164796e }; /* "qdyn": marks a file as ours */

#endif
