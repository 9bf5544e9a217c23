/* db/store.c - statements, transactions and structs as rows: see store.h. */
#include "db/store.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Which of our codes an SQLite result is, and what a person can do about it. First match wins, so an
 * extended code stands before its primary one; errno 0 is "any". */
static const struct {
    int sqlite, cause;
    enum err_code code;
    const char *advice;
} CAUSES[] = {
    { SQLITE_FULL, 0, ERR_FIT, "make room on that disk" },
    { SQLITE_IOERR, ENOSPC, ERR_FIT, "make room on that disk" },
    { SQLITE_IOERR, EFBIG, ERR_FIT, "make room: the file may not grow further" },
    { SQLITE_IOERR, EDQUOT, ERR_FIT, "make room: the quota is used up" },
    { SQLITE_NOMEM, 0, ERR_NOMEM, NULL },
    { SQLITE_NOTADB, 0, ERR_FORMAT, "name another file with --db" },
    { SQLITE_CORRUPT, 0, ERR_FORMAT, "move it away and start anew, or restore a copy" },
    { SQLITE_BUSY, 0, ERR_IO, "another process holds it" },
    { SQLITE_LOCKED, 0, ERR_IO, "another process holds it" },
    { SQLITE_INTERRUPT, 0, ERR_IO, "it took too long" },
    { SQLITE_READONLY, 0, ERR_IO, "this user may not write it" },
    { SQLITE_CANTOPEN, 0, ERR_IO, "its folder must exist and be writable" },
    { SQLITE_PERM, 0, ERR_IO, NULL },
    { SQLITE_IOERR, 0, ERR_IO, NULL },
    { SQLITE_CONSTRAINT_FOREIGNKEY, 0, ERR_USAGE, "the run, machine or model it refers to is not stored" },
    { SQLITE_CONSTRAINT, 0, ERR_USAGE, NULL },
};

/* Why the last write to the log failed. SQLite says "disk I/O error" for everything but ENOSPC and keeps the
 * reason with the file. */
static int write_errno(struct db *d)
{
    sqlite3_file *log = NULL;
    int cause = 0;
    if (sqlite3_file_control(d->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) || !log ||
        !log->pMethods || !log->pMethods->xFileControl)
        return 0;
    return log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &cause) ? 0 : cause;
}

enum err_code db_fail(struct db *d, const char *doing, struct err *why)
{
    int rc = sqlite3_extended_errcode(d->handle), cause = 0;
    if ((rc & 0xff) == SQLITE_IOERR && !(cause = write_errno(d))) cause = sqlite3_system_errno(d->handle);
    enum err_code code = ERR_INTERNAL;
    const char *advice = NULL;
    for (size_t i = 0; i < COUNT_OF(CAUSES); i++) {
        bool same = CAUSES[i].sqlite == rc || CAUSES[i].sqlite == (rc & 0xff);
        if (!same || (CAUSES[i].cause && CAUSES[i].cause != cause)) continue;
        code = CAUSES[i].code;
        advice = CAUSES[i].advice;
        break;
    }
    return err_set(why, code, "cannot %s in database '%s': %s%s%s", doing, d->path, sqlite3_errmsg(d->handle),
                   advice ? "; " : "", advice ? advice : "");
}

/* Binds until `types` ends. Returns an SQLite code. */
static int bind_all(sqlite3_stmt *s, const char *types, va_list ap)
{
    int rc = SQLITE_OK;
    for (int i = 1; *types && !rc; types++, i++) {
        const char *text;
        const void *bytes;
        switch (*types) {
        case 'i': rc = sqlite3_bind_int64(s, i, va_arg(ap, int64_t)); break;
        case 'd': rc = sqlite3_bind_double(s, i, va_arg(ap, double)); break; /* SQLite: NaN is NULL */
        case 'b':
            bytes = va_arg(ap, const void *);
            rc = sqlite3_bind_blob64(s, i, bytes, va_arg(ap, size_t), SQLITE_STATIC);
            break;
        default: /* t x */
            text = va_arg(ap, const char *);
            if (!text || (*types == 'x' && !*text))
                rc = sqlite3_bind_null(s, i);
            else
                rc = sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
        }
    }
    return rc;
}

enum err_code db_prepare(struct db *d, sqlite3_stmt **out, const char *doing, const char *sql,
                         struct err *why)
{
    return sqlite3_prepare_v2(d->handle, sql, -1, out, NULL) ? db_fail(d, doing, why) : ERR_OK;
}

enum err_code db_again(struct db *d, sqlite3_stmt *s, const char *doing, struct err *why, const char *types,
                       ...)
{
    va_list ap;
    va_start(ap, types);
    int bound = bind_all(s, types, ap);
    va_end(ap);
    enum err_code rc = ERR_OK;
    if (bound || sqlite3_step(s) != SQLITE_DONE) rc = db_fail(d, doing, why);
    sqlite3_reset(s);
    return rc;
}

enum err_code db_do(struct db *d, const struct db_call *call, struct err *why, const char *types, ...)
{
    sqlite3_stmt *s;
    enum err_code rc = db_prepare(d, &s, call->doing, call->sql, why);
    if (rc) return rc;
    va_list ap;
    va_start(ap, types);
    int step = bind_all(s, types, ap);
    va_end(ap);
    if (!step) step = sqlite3_step(s);
    while (!rc && step == SQLITE_ROW) {
        if (call->row) rc = call->row(call->ctx, s, why);
        if (!rc) step = sqlite3_step(s);
    }
    if (!rc && step != SQLITE_DONE) rc = db_fail(d, call->doing, why);
    sqlite3_finalize(s);
    return rc;
}

enum err_code db_begin(struct db *d, const char *doing, struct err *why)
{
    return db_do(d, &(struct db_call){ doing, "BEGIN IMMEDIATE", NULL, NULL }, why, "");
}

enum err_code db_end(struct db *d, enum err_code rc, const char *doing, struct err *why)
{
    if (!rc) rc = db_do(d, &(struct db_call){ doing, "COMMIT", NULL, NULL }, why, "");
    /* A full disk may already have rolled back by itself; a second ROLLBACK would only add noise. */
    if (rc && !sqlite3_get_autocommit(d->handle)) sqlite3_exec(d->handle, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int column_bind(sqlite3_stmt *s, int i, const struct column *c, const void *row)
{
    const void *p = (const char *)row + c->offset;
    const char *text = p;
    switch (c->kind) {
    case COLUMN_I64:
    case COLUMN_U64:
        return sqlite3_bind_int64(s, i, *(const int64_t *)p); /* same 64 bits, SQL has no unsigned */
    case COLUMN_INT: return sqlite3_bind_int(s, i, *(const int *)p);
    case COLUMN_BOOL: return sqlite3_bind_int(s, i, *(const bool *)p);
    case COLUMN_REAL: return sqlite3_bind_double(s, i, *(const double *)p);
    case COLUMN_KEY:
        if (!*text) return sqlite3_bind_null(s, i);
        break;
    case COLUMN_OWNED: text = *(char *const *)p; break;
    case COLUMN_TEXT: break;
    }
    return text ? sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC) : sqlite3_bind_null(s, i);
}

/* A string into a fixed array; a cut never splits a UTF-8 character. */
static void text_copy(char *out, size_t size, const char *text)
{
    size_t n = strlen(text);
    if (n >= size)
        for (n = size - 1; n && ((unsigned char)text[n] & 0xC0) == 0x80;) n--;
    memcpy(out, text, n);
    out[n] = '\0';
}

static enum err_code column_read(sqlite3_stmt *s, int i, const struct column *c, void *row, struct err *why)
{
    void *p = (char *)row + c->offset;
    bool null = sqlite3_column_type(s, i) == SQLITE_NULL;
    const char *text;
    switch (c->kind) {
    case COLUMN_I64:
    case COLUMN_U64: *(int64_t *)p = sqlite3_column_int64(s, i); break;
    case COLUMN_INT: *(int *)p = sqlite3_column_int(s, i); break;
    case COLUMN_BOOL: *(bool *)p = sqlite3_column_int(s, i) != 0; break;
    case COLUMN_REAL: *(double *)p = null ? (double)NAN : sqlite3_column_double(s, i); break;
    case COLUMN_TEXT:
    case COLUMN_KEY:
        text = (const char *)sqlite3_column_text(s, i);
        text_copy(p, c->size, text ? text : "");
        break;
    case COLUMN_OWNED:
        text = (const char *)sqlite3_column_text(s, i);
        *(char **)p = text ? strdup(text) : NULL;
        if (!null && !*(char **)p) return err_set(why, ERR_NOMEM, "out of memory reading column %s", c->name);
    }
    return ERR_OK;
}

enum err_code table_insert(struct db *d, const struct table *t, void *row, const char *doing, struct err *why)
{
    struct str sql = { 0 };
    str_printf(&sql, "INSERT INTO %s(", t->name);
    for (size_t i = 1; i < t->n; i++) str_printf(&sql, "%s%s", i > 1 ? "," : "", t->columns[i].name);
    str_append(&sql, ") VALUES(");
    for (size_t i = 1; i < t->n; i++) str_append(&sql, i > 1 ? ",?" : "?");
    str_append(&sql, ")");
    if (sql.failed) {
        str_free(&sql);
        return err_set(why, ERR_NOMEM, "out of memory: cannot %s", doing);
    }
    sqlite3_stmt *s;
    enum err_code rc = db_prepare(d, &s, doing, str_text(&sql), why);
    str_free(&sql);
    if (rc) return rc;
    int bad = 0;
    for (size_t i = 1; i < t->n && !bad; i++) bad = column_bind(s, (int)i, &t->columns[i], row);
    if (bad || sqlite3_step(s) != SQLITE_DONE)
        rc = db_fail(d, doing, why);
    else
        *(int64_t *)((char *)row + t->columns[0].offset) = sqlite3_last_insert_rowid(d->handle);
    sqlite3_finalize(s);
    return rc;
}

void table_select(struct str *out, const struct table *t, const char *tail)
{
    for (size_t i = 0; i < t->n; i++) str_printf(out, "%s%s", i ? "," : "SELECT ", t->columns[i].name);
    str_printf(out, " FROM %s %s", t->name, tail);
}

enum err_code table_read(const struct table *t, void *row, sqlite3_stmt *s, struct err *why)
{
    for (size_t i = 0; i < t->n; i++) {
        enum err_code rc = column_read(s, (int)i, &t->columns[i], row, why);
        if (rc) return rc;
    }
    return ERR_OK;
}
