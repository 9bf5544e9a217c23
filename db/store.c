/* db/store.c - statements, transactions, and conversion between structs and rows. */
#include "db/store.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Our code for an SQLite result, and advice for the user. The first matching row is used, so an extended code
 * comes before its primary one. cause: an errno; 0: any. */
static const struct {
    int sqlite, cause;
    enum err_code code;
    const char *advice;
} CAUSES[] = {
    { .sqlite = SQLITE_FULL, .code = ERR_FIT, .advice = "make room on that disk" },
    { .sqlite = SQLITE_IOERR, .cause = ENOSPC, .code = ERR_FIT, .advice = "make room on that disk" },
    { .sqlite = SQLITE_IOERR,
      .cause = EFBIG,
      .code = ERR_FIT,
      .advice = "make room: the file may not grow further" },
    { .sqlite = SQLITE_IOERR, .cause = EDQUOT, .code = ERR_FIT, .advice = "make room: the quota is used up" },
    { .sqlite = SQLITE_NOMEM, .code = ERR_NOMEM },
    { .sqlite = SQLITE_IOERR, .cause = ENOMEM, .code = ERR_NOMEM },
    { .sqlite = SQLITE_CANTOPEN, .cause = EMFILE, .code = ERR_FIT, .advice = "too many files are open" },
    { .sqlite = SQLITE_NOTADB, .code = ERR_FORMAT, .advice = "name another file with --db" },
    { .sqlite = SQLITE_CORRUPT,
      .code = ERR_FORMAT,
      .advice = "move it away and start anew, or restore a copy" },
    { .sqlite = SQLITE_TOOBIG,
      .code = ERR_FORMAT,
      .advice = "expected values of at most 64 MiB: restore a copy or name another file with --db" },
    { .sqlite = SQLITE_BUSY, .code = ERR_IO, .advice = "another process has locked it" },
    { .sqlite = SQLITE_LOCKED, .code = ERR_IO, .advice = "another process has locked it" },
    { .sqlite = SQLITE_INTERRUPT, .code = ERR_IO, .advice = "it exceeded the time limit" },
    { .sqlite = SQLITE_READONLY, .code = ERR_IO, .advice = "this user may not write it" },
    { .sqlite = SQLITE_CANTOPEN, .code = ERR_IO, .advice = "its folder must exist and be writable" },
    { .sqlite = SQLITE_PERM, .code = ERR_IO },
    { .sqlite = SQLITE_IOERR, .code = ERR_IO },
    { .sqlite = SQLITE_CONSTRAINT_FOREIGNKEY,
      .code = ERR_USAGE,
      .advice = "the run, machine or model it refers to is not stored" },
    { .sqlite = SQLITE_CONSTRAINT, .code = ERR_USAGE },
    /* our statements are right, so a table or column is missing or there twice */
    { .sqlite = SQLITE_ERROR,
      .code = ERR_FORMAT,
      .advice = "its tables are not those of its version: it is damaged; restore a copy or name another file "
                "with --db" },
};

/* The errno of the last failed call for the database (SQLITE_FCNTL_FILE_POINTER) or its log
 * (SQLITE_FCNTL_JOURNAL_POINTER). SQLite reports "disk I/O error" for everything but ENOSPC, and keeps the
 * errno with the file. */
static int file_errno(struct db *d, int which)
{
    sqlite3_file *file = NULL;
    int cause = 0;
    if (sqlite3_file_control(d->handle, "main", which, &file) || !file || !file->pMethods ||
        !file->pMethods->xFileControl)
        return 0;
    return file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &cause) ? 0 : cause;
}

/* The extended result code of the last call. SQLite reports a page that the disk cannot read (EIO) as one
 * with wrong contents. The two differ in what helps: another disk, or another copy. A file whose disk ever
 * failed while it was open has EIO from then on; damage found in it later is taken for the disk's. */
static int error_code(struct db *d)
{
    const int rc = sqlite3_extended_errcode(d->handle);
    const bool unreadable = file_errno(d, SQLITE_FCNTL_FILE_POINTER) == EIO ||
                            file_errno(d, SQLITE_FCNTL_JOURNAL_POINTER) == EIO;
    return (rc & 0xff) == SQLITE_CORRUPT && unreadable ? SQLITE_IOERR_CORRUPTFS : rc;
}

enum err_code db_error(struct db *d, const char *doing, struct err *why)
{
    int rc = error_code(d), cause = 0;
    if (rc == SQLITE_IOERR_CORRUPTFS)
        cause = EIO;
    else if ((rc & 0xff) == SQLITE_IOERR)
        cause = file_errno(d, SQLITE_FCNTL_JOURNAL_POINTER);
    if (((rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN) && !cause)
        cause = sqlite3_system_errno(d->handle);
    enum err_code code = ERR_INTERNAL;
    const char *advice = NULL;
    for (size_t i = 0; i < COUNT_OF(CAUSES); i++) {
        bool same = CAUSES[i].sqlite == rc || CAUSES[i].sqlite == (rc & 0xff);
        if (!same || (CAUSES[i].cause && CAUSES[i].cause != cause)) continue;
        code = CAUSES[i].code;
        advice = CAUSES[i].advice;
        break;
    }
    return err_set(why, code, "cannot %s in database '%s': %s%s%s%s%s%s", doing, d->path,
                   rc == SQLITE_IOERR_CORRUPTFS ? sqlite3_errstr(rc) : sqlite3_errmsg(d->handle),
                   cause ? " (" : "", cause ? strerror(cause) : "", cause ? ")" : "", advice ? "; " : "",
                   advice ? advice : "");
}

/* Binds one argument per character of `types`. Returns an SQLite code. */
static int bind_all(sqlite3_stmt *s, const char *types, va_list ap)
{
    int rc = SQLITE_OK;
    for (int i = 1; *types && !rc; types++, i++) {
        const char *text;
        switch (*types) {
        case 'i': rc = sqlite3_bind_int64(s, i, va_arg(ap, int64_t)); break;
        case 'd': rc = sqlite3_bind_double(s, i, va_arg(ap, double)); break; /* SQLite: NaN is NULL */
        default:                                                             /* t x */
            text = va_arg(ap, const char *);
            if (!text || (*types == 'x' && !*text))
                rc = sqlite3_bind_null(s, i);
            else
                rc = sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
        }
    }
    return rc;
}

static enum err_code statement_prepare(struct db *d, sqlite3_stmt **out, const char *doing, const char *sql,
                                       struct err *why)
{
    return sqlite3_prepare_v2(d->handle, sql, -1, out, NULL) ? db_error(d, doing, why) : ERR_OK;
}

/* Has SQLite the memory for the texts and blobs of this row? For those without, it returns NULL, as for the
 * value NULL; a second call returns the same pointer as the first. */
static bool row_is_whole(sqlite3_stmt *s)
{
    for (int i = 0; i < sqlite3_column_count(s); i++) {
        const int type = sqlite3_column_type(s, i);
        if (type == SQLITE_TEXT && !sqlite3_column_text(s, i)) return false;
        if (type == SQLITE_BLOB && !sqlite3_column_blob(s, i) && sqlite3_column_bytes(s, i)) return false;
    }
    return true;
}

static enum err_code execute_va(struct db *d, const struct db_call *call, struct err *why, const char *types,
                                va_list ap)
{
    sqlite3_stmt *s;
    enum err_code rc = memory_check(call->doing, why);
    if (!rc) rc = statement_prepare(d, &s, call->doing, call->sql, why);
    if (rc) return rc;
    int step = bind_all(s, types, ap);
    if (!step) step = sqlite3_step(s);
    while (!rc && step == SQLITE_ROW) {
        if (!row_is_whole(s)) rc = db_error(d, call->doing, why);
        if (!rc && call->row) rc = call->row(call->ctx, s, why);
        if (!rc) step = sqlite3_step(s);
    }
    if (!rc && step != SQLITE_DONE) rc = db_error(d, call->doing, why);
    sqlite3_finalize(s);
    return rc;
}

enum err_code db_execute(struct db *d, const struct db_call *call, struct err *why, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    const enum err_code rc = execute_va(d, call, why, types, ap);
    va_end(ap);
    return rc;
}

enum err_code db_begin(struct db *d, const char *doing, struct err *why)
{
    return db_execute(d, &(struct db_call){ .doing = doing, .sql = "BEGIN IMMEDIATE" }, why, "");
}

enum err_code db_end(struct db *d, enum err_code rc, const char *doing, struct err *why)
{
    if (!rc) rc = db_execute(d, &(struct db_call){ .doing = doing, .sql = "COMMIT" }, why, "");
    /* after a full disk SQLite may have rolled back already; another ROLLBACK would be an error */
    if (rc && !sqlite3_get_autocommit(d->handle)) sqlite3_exec(d->handle, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int column_bind(sqlite3_stmt *s, int i, const struct db_column *c, const void *row)
{
    const void *p = (const char *)row + c->offset;
    const char *text = p;
    const struct db_blob *blob = p;
    switch (c->kind) {
    case DB_COLUMN_I64:
    case DB_COLUMN_U64:
        return sqlite3_bind_int64(s, i, *(const int64_t *)p); /* the same 64 bits; SQL has no unsigned type */
    case DB_COLUMN_INT: return sqlite3_bind_int(s, i, *(const int *)p);
    case DB_COLUMN_BOOL: return sqlite3_bind_int(s, i, *(const bool *)p);
    case DB_COLUMN_REAL: return sqlite3_bind_double(s, i, *(const double *)p);
    case DB_COLUMN_KEY:
        if (!*text) return sqlite3_bind_null(s, i);
        break;
    case DB_COLUMN_OWNED:
    case DB_COLUMN_BORROWED: text = *(const char *const *)p; break;
    case DB_COLUMN_BLOB: return sqlite3_bind_blob64(s, i, blob->data, blob->bytes, SQLITE_STATIC);
    case DB_COLUMN_TEXT: break;
    }
    return text ? sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC) : sqlite3_bind_null(s, i);
}

/* Copies a string to an array of fixed size; truncation never splits a UTF-8 character. */
static void text_copy(char *out, size_t size, const char *text)
{
    size_t n = strlen(text);
    if (n >= size)
        for (n = size - 1; n && ((unsigned char)text[n] & 0xC0) == 0x80;) n--;
    memcpy(out, text, n);
    out[n] = '\0';
}

static enum err_code column_read(sqlite3_stmt *s, int i, const struct db_column *c, void *row,
                                 struct err *why)
{
    void *p = (char *)row + c->offset;
    bool null = sqlite3_column_type(s, i) == SQLITE_NULL;
    const char *text;
    switch (c->kind) {
    case DB_COLUMN_I64:
    case DB_COLUMN_U64: *(int64_t *)p = sqlite3_column_int64(s, i); break;
    case DB_COLUMN_INT: *(int *)p = sqlite3_column_int(s, i); break;
    case DB_COLUMN_BOOL: *(bool *)p = sqlite3_column_int(s, i) != 0; break;
    case DB_COLUMN_REAL: *(double *)p = null ? (double)NAN : sqlite3_column_double(s, i); break;
    case DB_COLUMN_TEXT:
    case DB_COLUMN_KEY:
        text = (const char *)sqlite3_column_text(s, i);
        text_copy(p, c->size, text ? text : "");
        break;
    case DB_COLUMN_OWNED:
        text = (const char *)sqlite3_column_text(s, i);
        *(char **)p = text ? strdup(text) : NULL;
        if (!null && !*(char **)p) return err_set(why, ERR_NOMEM, "out of memory reading column %s", c->name);
        break;
    case DB_COLUMN_BORROWED: *(const char **)p = (const char *)sqlite3_column_text(s, i); break;
    case DB_COLUMN_BLOB:
        *(struct db_blob *)p = (struct db_blob){ .data = sqlite3_column_blob(s, i),
                                                 .bytes = (size_t)sqlite3_column_bytes(s, i) };
    }
    return ERR_OK;
}

enum err_code db_put_prepare(struct db *d, sqlite3_stmt **out, const struct db_put *p, struct err *why)
{
    const struct db_table *t = p->table;
    const size_t first = t->assigns_id;
    struct str sql = { 0 };
    *out = NULL;
    str_printf(&sql, "%s INTO %s(", p->verb ? p->verb : "INSERT", t->name);
    for (size_t i = first; i < t->n; i++) str_printf(&sql, "%s%s", i > first ? "," : "", t->columns[i].name);
    str_append(&sql, ") VALUES(");
    for (size_t i = first; i < t->n; i++) str_append(&sql, i > first ? ",?" : "?");
    str_printf(&sql, ") %s", p->tail ? p->tail : "");
    const enum err_code rc = sql.failed ? err_set(why, ERR_NOMEM, "out of memory: cannot %s", p->doing)
                                        : statement_prepare(d, out, p->doing, str_text(&sql), why);
    str_free(&sql);
    return rc;
}

enum err_code db_put_row(struct db *d, sqlite3_stmt *s, const struct db_put *p, const void *row,
                         struct err *why)
{
    const struct db_table *t = p->table;
    const size_t first = t->assigns_id;
    int bad = 0;
    for (size_t i = first; i < t->n && !bad; i++)
        bad = column_bind(s, (int)(i - first) + 1, &t->columns[i], row);
    const enum err_code rc = bad || sqlite3_step(s) != SQLITE_DONE ? db_error(d, p->doing, why) : ERR_OK;
    sqlite3_reset(s);
    return rc;
}

enum err_code db_table_put(struct db *d, const struct db_put *p, const void *row, struct err *why)
{
    sqlite3_stmt *s;
    enum err_code rc = db_put_prepare(d, &s, p, why);
    if (!rc) rc = db_put_row(d, s, p, row, why);
    sqlite3_finalize(s);
    return rc;
}

enum err_code db_table_insert(struct db *d, const struct db_table *t, void *row, const char *doing,
                              struct err *why)
{
    const struct db_put p = { .table = t, .doing = doing };
    const enum err_code rc = db_table_put(d, &p, row, why);
    if (!rc) *(int64_t *)((char *)row + t->columns[0].offset) = sqlite3_last_insert_rowid(d->handle);
    return rc;
}

enum err_code db_table_read(const struct db_table *t, void *row, sqlite3_stmt *s, struct err *why)
{
    for (size_t i = 0; i < t->n; i++) {
        enum err_code rc = column_read(s, (int)i, &t->columns[i], row, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

struct row_array {
    const struct db_table *table;
    char *rows;
    int n, cap;
};

static void row_free_owned(const struct db_table *t, char *row)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->columns[i].kind == DB_COLUMN_OWNED) free(*(char **)(void *)(row + t->columns[i].offset));
}

static enum err_code row_array_append(void *ctx, sqlite3_stmt *s, struct err *why)
{
    struct row_array *a = ctx;
    const size_t size = a->table->row_size;
    if (a->n == a->cap) {
        const int cap = a->cap ? 2 * a->cap : 16;
        char *rows = realloc(a->rows, (size_t)cap * size);
        if (!rows) return err_set(why, ERR_NOMEM, "out of memory reading table %s", a->table->name);
        a->rows = rows;
        a->cap = cap;
    }
    char *row = a->rows + (size_t)a->n * size;
    memset(row, 0, size);
    const enum err_code rc = db_table_read(a->table, row, s, why);
    if (rc)
        row_free_owned(a->table, row);
    else
        a->n++;
    return rc;
}

static enum err_code query_va(struct db *d, const struct db_query *q, db_row_fn *row, void *ctx,
                              struct err *why, const char *types, va_list ap)
{
    struct str sql = { 0 };
    for (size_t i = 0; i < q->table->n; i++)
        str_printf(&sql, "%s%s", i ? "," : "SELECT ", q->table->columns[i].name);
    str_printf(&sql, " FROM %s %s", q->table->name, q->tail);
    const struct db_call call = { .doing = q->doing, .sql = str_text(&sql), .row = row, .ctx = ctx };
    const enum err_code rc = sql.failed ? err_set(why, ERR_NOMEM, "out of memory: cannot %s", q->doing)
                                        : execute_va(d, &call, why, types, ap);
    str_free(&sql);
    return rc;
}

enum err_code db_table_each(struct db *d, const struct db_query *q, db_row_fn *row, void *ctx,
                            struct err *why, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    const enum err_code rc = query_va(d, q, row, ctx, why, types, ap);
    va_end(ap);
    return rc;
}

enum err_code db_table_list(struct db *d, const struct db_query *q, void **rows, int *n, struct err *why,
                            const char *types, ...)
{
    struct row_array a = { .table = q->table };
    va_list ap;
    va_start(ap, types);
    const enum err_code rc = query_va(d, q, row_array_append, &a, why, types, ap);
    va_end(ap);
    for (int i = 0; rc && i < a.n; i++) row_free_owned(q->table, a.rows + (size_t)i * q->table->row_size);
    if (rc) free(a.rows);
    *rows = rc ? NULL : a.rows;
    *n = rc ? 0 : a.n;
    return rc;
}

struct first_row {
    const struct db_table *table;
    void *row;
    bool found;
};

static enum err_code first_row_read(void *ctx, sqlite3_stmt *s, struct err *why)
{
    struct first_row *f = ctx;
    if (f->found) return ERR_OK;
    f->found = true;
    return db_table_read(f->table, f->row, s, why);
}

enum err_code db_table_first(struct db *d, const struct db_query *q, void *row, bool *found, struct err *why,
                             const char *types, ...)
{
    struct first_row f = { .table = q->table, .row = row };
    memset(row, 0, q->table->row_size);
    va_list ap;
    va_start(ap, types);
    const enum err_code rc = query_va(d, q, first_row_read, &f, why, types, ap);
    va_end(ap);
    if (rc) {
        row_free_owned(q->table, row);
        memset(row, 0, q->table->row_size);
    }
    *found = f.found && !rc;
    return rc;
}
