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
 * becomes NULL) b const void *, size_t `row` (may be NULL) is called for each result row; an error it returns
 * ends the query. */
typedef enum err_code db_row_fn(void *ctx, sqlite3_stmt *row, struct err *why);
struct db_call {
    const char *doing, *sql;
    db_row_fn *row;
    void *ctx;
};
enum err_code db_execute(struct db *d, const struct db_call *call, struct err *why, const char *types, ...);

/* For a statement that is executed many times: db_prepare, then db_execute_prepared for each set of values,
 * then sqlite3_finalize. */
enum err_code db_prepare(struct db *d, sqlite3_stmt **out, const char *doing, const char *sql,
                         struct err *why);
enum err_code db_execute_prepared(struct db *d, sqlite3_stmt *s, const char *doing, struct err *why,
                                  const char *types, ...);

/* A transaction: db_begin executes BEGIN IMMEDIATE. db_end commits if rc is ERR_OK and rolls back otherwise;
 * the caller returns its result. */
enum err_code db_begin(struct db *d, const char *doing, struct err *why);
enum err_code db_end(struct db *d, enum err_code rc, const char *doing, struct err *why);

/* Maps fields of a C struct to columns of a table. The first column is usually `id`, assigned by SQLite. TEXT
 * is a char array, truncated to fit; KEY is a TEXT that references another table and stores "" as NULL; OWNED
 * is a malloc'd string or NULL. COLUMN gives the column the field's name, COLUMN_AS another name. */
enum column_kind {
    COLUMN_I64,
    COLUMN_U64,
    COLUMN_INT,
    COLUMN_BOOL,
    COLUMN_REAL,
    COLUMN_TEXT,
    COLUMN_KEY,
    COLUMN_OWNED
};
struct column {
    const char *name;
    enum column_kind kind;
    size_t offset, size;
};
#define COLUMN(type, field, kind) COLUMN_AS(#field, type, field, kind)
#define COLUMN_AS(column, type, field, kind)                                                                 \
    {                                                                                                        \
        column, COLUMN_##kind, offsetof(struct type, field), sizeof(((struct type *)0)->field)               \
    }
struct table {
    const char *name;
    const struct column *columns;
    size_t n, row_size; /* columns; sizeof the struct */
};
#define TABLE(name, type, columns)                                                                           \
    {                                                                                                        \
        name, columns, COUNT_OF(columns), sizeof(struct type)                                                \
    }

/* Inserts the struct at `row` and fills its id field. */
enum err_code table_insert(struct db *d, const struct table *t, void *row, const char *doing,
                           struct err *why);
/* Appends "SELECT <all columns> FROM <table> <tail>" to *out. */
void table_select(struct str *out, const struct table *t, const char *tail);
/* Fills the struct at `row` from a result row of such a SELECT. ERR_NOMEM. */
enum err_code table_read(const struct table *t, void *row, sqlite3_stmt *s, struct err *why);

/* Executes such a SELECT and returns all rows as an array of structs, [*n]; fields without a column are zero.
 * The caller frees *rows, and OWNED fields. On error *rows is NULL and *n is 0. `types` as for db_execute. */
struct table_query {
    const struct table *table;
    const char *doing, *tail;
};
enum err_code table_list(struct db *d, const struct table_query *q, void **rows, int *n, struct err *why,
                         const char *types, ...);

/* request.c and span.c. Called within the transaction of db_cell_insert. */
enum err_code spans_insert(struct db *d, struct span_row *rows, int n, struct err *why);
enum err_code requests_insert(struct db *d, int64_t cell_id, const struct request_rows *r, struct err *why);

/* The migrations in schema.c: step i updates version i to i + 1. */
extern const char *const SCHEMA_STEPS[];
extern const int SCHEMA_VERSION;
enum { SCHEMA_APPLICATION_ID = 0x7164796e }; /* "qdyn": marks a file as ours */

#endif
