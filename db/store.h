/* db/store.h - inside of db/: one way to talk to SQLite, so that binding, stepping, error wording and the
 * NAN <-> NULL rule are written once. */
#ifndef QDYNO_DB_STORE_H
#define QDYNO_DB_STORE_H

#include <sqlite3.h>

#include "db/db.h"

struct db {
    sqlite3 *handle;
    char *path;
    int holds;           /* descriptor of hold.c's file, -1: no run is held */
    int wait_ms;         /* for another's lock */
    int64_t deadline_ns; /* of statements */
};

/* What SQLite's last error means for us: full disk is ERR_FIT, a foreign or damaged file ERR_FORMAT, a broken
 * reference ERR_USAGE. `doing` reads after "cannot": "store a cell". */
enum err_code db_fail(struct db *d, const char *doing, struct err *why);

/* One statement. `types` says what the variable arguments are, in order of the ?s:
 *   i int64_t   d double (NAN becomes NULL)   t const char * (NULL is NULL)   x const char * ("" is NULL too)
 *   b const void *, size_t
 * `row` (may be NULL) is called for each row and ends the query by returning an error. `doing` as in db_fail.
 */
typedef enum err_code db_row_fn(void *ctx, sqlite3_stmt *row, struct err *why);
struct db_call {
    const char *doing, *sql;
    db_row_fn *row;
    void *ctx;
};
enum err_code db_do(struct db *d, const struct db_call *call, struct err *why, const char *types, ...);

/* The same for a statement that runs many times: prepare, db_again for each row of values, finalize. */
enum err_code db_prepare(struct db *d, sqlite3_stmt **out, const char *doing, const char *sql,
                         struct err *why);
enum err_code db_again(struct db *d, sqlite3_stmt *s, const char *doing, struct err *why, const char *types,
                       ...);

/* BEGIN IMMEDIATE; then db_end commits when rc is ERR_OK and rolls back otherwise. Returns what the caller
 * should return. */
enum err_code db_begin(struct db *d, const char *doing, struct err *why);
enum err_code db_end(struct db *d, enum err_code rc, const char *doing, struct err *why);

/* How the fields of a C struct and the columns of its table correspond. The first column is `id`, given by
 * SQLite. TEXT is a char array (cut to fit, never unterminated); KEY the same with "" stored as NULL, for
 * references; OWNED a malloc'd string or NULL. */
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
#define COLUMN(type, field, kind)                                                                            \
    {                                                                                                        \
#field, COLUMN_##kind, offsetof(struct type, field), sizeof(((struct type *)0)->field)               \
    }
struct table {
    const char *name;
    const struct column *columns;
    size_t n;
};

/* Insert the struct at `row`; its id field is filled. */
enum err_code table_insert(struct db *d, const struct table *t, void *row, const char *doing,
                           struct err *why);
/* "SELECT every column FROM table <tail>" into *out. */
void table_select(struct str *out, const struct table *t, const char *tail);
/* Fill the struct from a row of such a SELECT. ERR_NOMEM. */
enum err_code table_read(const struct table *t, void *row, sqlite3_stmt *s, struct err *why);

/* Inside of db_cell_insert's transaction (request.c). */
enum err_code requests_insert(struct db *d, int64_t cell_id, const struct request_rows *r, struct err *why);

/* The steps of schema.c: step i brings version i to i + 1. */
extern const char *const SCHEMA_STEPS[];
extern const int SCHEMA_VERSION;
enum { SCHEMA_APPLICATION_ID = 0x7164796e }; /* "qdyn": tells our file from another program's */

#endif
