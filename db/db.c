/* db/db.c - opens the database: checks that the file is ours, migrates it, and sets up shared access.
 *
 * A file without write permission (another user's, a mounted archive) can be opened to read its history;
 * writing then fails with a message. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The largest values that are stored, latencies of a long cell, take some MB. A foreign file can contain
 * expressions that make values of any size. */
enum { LOCK_WAIT_MS = 5000, LOCK_RETRY_MS = 20, SCHEMA_NAME = 160, VALUE_BYTES_MOST = 64 << 20 };

static enum err_code read_int(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    *(int64_t *)ctx = sqlite3_column_int64(row, 0);
    return ERR_OK;
}

/* Reads one number; without a result row *out stays unchanged. */
static enum err_code number_read(struct db *d, const char *sql, int64_t *out, struct err *why)
{
    return db_execute(
        d, &(struct db_call){ .doing = "read the version", .sql = sql, .row = read_int, .ctx = out }, why,
        "");
}

static enum err_code read_name(void *ctx, sqlite3_stmt *row, struct err *why)
{
    char *name = ctx;
    (void)why;
    snprintf(name, SCHEMA_NAME, "%s", (const char *)sqlite3_column_text(row, 0));
    return ERR_OK;
}

/* A foreign file can define what we take for a table as a query that never ends, or that has effects. */
static enum err_code check_tables_only(struct db *d, struct err *why)
{
    char name[SCHEMA_NAME] = "";
    /* SQLite begins the text of tables and indexes like this. Others were not written by it, and may hide a
     * virtual table behind a comment. The text of an index that belongs to a constraint is NULL. */
    const struct db_call call = { .doing = "read the schema",
                                  .sql = "SELECT type || ' ' || name FROM sqlite_schema WHERE NOT ("
                                         "type = 'table' AND sql LIKE 'create table %' OR type = 'index' AND "
                                         "(sql IS NULL OR sql LIKE 'create index %' OR "
                                         "sql LIKE 'create unique index %')) LIMIT 1",
                                  .row = read_name,
                                  .ctx = name };
    enum err_code rc = db_execute(d, &call, why, "");
    if (rc || !*name) return rc;
    return err_set(
        why, ERR_FORMAT,
        "database '%s' contains the %s: expected only tables and indexes, as qdyno creates them; name "
        "another file with --db",
        d->path, name);
}

/* Checks that the file is a database of ours, and reads its version; 0: the file is empty. */
static enum err_code identify(struct db *d, int64_t *version, struct err *why)
{
    int64_t application = 0, tables = 0;
    enum err_code rc;
    /* count tables before reading the id, because another process may be creating both, the id first */
    if ((rc = number_read(d, "SELECT count(*) FROM sqlite_schema", &tables, why))) return rc;
    if ((rc = number_read(d, "PRAGMA application_id", &application, why))) return rc;
    if ((rc = number_read(d, "PRAGMA user_version", version, why))) return rc;
    if (tables && application != SCHEMA_APPLICATION_ID)
        return err_set(why, ERR_FORMAT,
                       "'%s' is another program's database (expected application id %d, found %lld); name "
                       "another file with --db",
                       d->path, (int)SCHEMA_APPLICATION_ID, (long long)application);
    if (*version < 0 || (*version == 0 && tables))
        return err_set(
            why, ERR_FORMAT,
            "database '%s' has version %lld, expected 1 to %d: it is damaged; restore a copy or name "
            "another file with --db",
            d->path, (long long)*version, SCHEMA_VERSION);
    if (*version > SCHEMA_VERSION)
        return err_set(why, ERR_FORMAT,
                       "database '%s' has version %lld, this qdyno supports up to %d: update qdyno or name "
                       "another file with --db",
                       d->path, (long long)*version, SCHEMA_VERSION);
    return check_tables_only(d, why);
}

static enum err_code run_script(struct db *d, const char *sql, const char *doing, struct err *why)
{
    return sqlite3_exec(d->handle, sql, NULL, NULL, NULL) ? db_error(d, doing, why) : ERR_OK;
}

static enum err_code migrate(struct db *d, struct err *why)
{
    enum err_code rc = db_begin(d, "bring the schema up to date", why);
    if (rc) return rc;
    int64_t version = 0;
    rc = identify(d, &version,
                  why); /* again within the transaction: another process may have migrated meanwhile */
    for (; !rc && version < SCHEMA_VERSION; version++) {
        char done[48];
        snprintf(done, sizeof done, "PRAGMA user_version = %d", (int)version + 1);
        rc = run_script(d, SCHEMA_STEPS[version], "bring the schema up to date", why);
        if (!rc) rc = run_script(d, done, "bring the schema up to date", why);
    }
    return db_end(d, rc, "bring the schema up to date", why);
}

/* Switching to WAL needs exclusive access, for which SQLite's busy timeout does not wait. */
static enum err_code use_wal(struct db *d, struct err *why)
{
    for (int waited = 0;; waited += LOCK_RETRY_MS) {
        int rc = sqlite3_exec(d->handle, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (!rc) return ERR_OK;
        if (rc != SQLITE_BUSY || waited >= LOCK_WAIT_MS) return db_error(d, "switch to WAL", why);
        clock_sleep_ns(LOCK_RETRY_MS * 1000000LL);
    }
}

static enum err_code connect(struct db *d, const char *name, int flags, int64_t *version, struct err *why)
{
    const int wait_ms = d->wait_ms;
    if (sqlite3_open_v2(name, &d->handle, flags | SQLITE_OPEN_NOMUTEX, NULL)) {
        if (!d->handle) return err_set(why, ERR_NOMEM, "out of memory opening database '%s'", d->path);
        return db_error(d, "open it", why);
    }
    /* SQLite opens a file for reading if it cannot open it for writing, whatever the reason */
    if (flags & SQLITE_OPEN_READWRITE && sqlite3_db_readonly(d->handle, "main") == 1)
        return err_set(
            why, ERR_IO,
            "cannot open database '%s' for writing, although its permissions allow it, e.g. because "
            "of too many open files or a disk that fails",
            d->path);
    sqlite3_extended_result_codes(d->handle, 1);
    sqlite3_limit(d->handle, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MOST);
    sqlite3_busy_timeout(d->handle, wait_ms);
    /* NORMAL: a killed process loses no committed transaction, a power failure at most the last cells. FULL
     * would disturb measurements with an fsync per cell. */
    enum err_code rc = run_script(
        d,
        "PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; "
        "PRAGMA cell_size_check = ON",
        "open it", why);
    return rc ? rc : identify(d, version, why);
}

/* Opens a WAL database in a folder without write permission, where SQLite cannot create its side files.
 * Without a left-over log the main file is complete, so it may be opened as immutable. */
static enum err_code connect_immutable(struct db *d, int64_t *version, struct err *why)
{
    struct str uri = { 0 };
    str_append(&uri, "file:");
    for (const char *p = d->path; *p; p++)
        if (*p == '?' || *p == '#' || *p == '%')
            str_printf(&uri, "%%%02X", (unsigned)*p);
        else
            str_append_n(&uri, p, 1);
    str_append(&uri, "?immutable=1");
    sqlite3_close(d->handle);
    d->handle = NULL;
    enum err_code rc = uri.failed
                           ? err_set(why, ERR_NOMEM, "out of memory opening '%s'", d->path)
                           : connect(d, str_text(&uri), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, version, why);
    str_free(&uri);
    return rc;
}

static bool log_exists(const char *path)
{
    struct str log = { 0 };
    str_printf(&log, "%s-wal", path);
    bool left = log.failed || !access(str_text(&log), F_OK);
    str_free(&log);
    return left;
}

static enum err_code db_path_choose(char **out, const char *path, struct err *why)
{
    struct str whole = { 0 };
    if (path) {
        str_append(&whole, path);
    } else {
        char *folder;
        enum err_code rc = file_place(&folder, FILE_DATA, why);
        if (rc) return rc;
        str_printf(&whole, "%s/qdyno.db", folder);
        free(folder);
    }
    *out = str_take(&whole);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory opening the database");
}

/* A new file is created with mode 0600; existing files of this user become private. mknod, because closing a
 * descriptor of the file would release the locks that other handles of this process have on it. */
static void database_make_private(const char *path)
{
    static const char *const ENDINGS[] = { "", "-wal", "-shm", "-holds" };
    if (!*path || !strcmp(path, ":memory:")) return;
    (void)mknod(path, S_IFREG | 0600, 0); /* a failure is reported when SQLite opens the file */
    for (size_t i = 0; i < COUNT_OF(ENDINGS); i++) {
        struct str file = { 0 };
        str_printf(&file, "%s%s", path, ENDINGS[i]);
        if (!file.failed) file_make_private(str_text(&file));
        str_free(&file);
    }
}

enum err_code db_open(struct db **out, const char *path, struct err *why)
{
    *out = NULL;
    struct db *d = calloc(1, sizeof *d);
    if (!d) return err_set(why, ERR_NOMEM, "out of memory opening the database");
    d->lock_file = -1;
    d->wait_ms = LOCK_WAIT_MS;
    int64_t version = 0;
    enum err_code rc;
    if ((rc = db_path_choose(&d->path, path, why))) goto fail;
    database_make_private(d->path);
    bool read_only = !access(d->path, F_OK) && access(d->path, W_OK);
    int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    rc = connect(d, d->path, flags, &version, why);
    if (rc == ERR_IO && read_only && !log_exists(d->path)) rc = connect_immutable(d, &version, why);
    if (rc) goto fail;
    if (!read_only && (rc = use_wal(d, why))) goto fail;
    if (version < SCHEMA_VERSION && (rc = migrate(d, why))) goto fail;
    /* Where this cannot be written, e.g. on a full disk, the file can still be read; the next db_open tries
     * again. */
    if (!read_only) (void)db_runs_close_abandoned(d, NULL);
    *out = d;
    return ERR_OK;
fail:
    db_close(d);
    return rc;
}

enum err_code db_open_reader(struct db **out, const char *path, int wait_ms, struct err *why)
{
    *out = NULL;
    struct db *d = calloc(1, sizeof *d);
    if (!d) return err_set(why, ERR_NOMEM, "out of memory opening the database");
    d->lock_file = -1;
    d->wait_ms = wait_ms;
    int64_t version = 0;
    enum err_code rc = db_path_choose(&d->path, path, why);
    if (!rc && access(d->path, F_OK)) rc = err_set(why, ERR_ABSENT, "there is no database '%s' yet", d->path);
    if (!rc) {
        rc = connect(d, d->path, SQLITE_OPEN_READONLY, &version, why);
        if (rc == ERR_IO && access(d->path, W_OK) && !log_exists(d->path))
            rc = connect_immutable(d, &version, why);
    }
    if (!rc && version < SCHEMA_VERSION)
        rc = err_set(
            why, ERR_FORMAT,
            "database '%s' has version %lld, this qdyno reads %d: any command that measures brings it "
            "up to date",
            d->path, (long long)version, SCHEMA_VERSION);
    if (rc)
        db_close(d);
    else
        *out = d;
    return rc;
}

static int is_late(void *ctx)
{
    const struct db *d = ctx;
    return clock_ns() >= d->deadline_ns;
}

void db_deadline(struct db *d, int64_t at_ns)
{
    enum { STEPS = 200 }; /* SQLite instructions between checks of the clock: well below 1 ms */
    d->deadline_ns = at_ns;
    sqlite3_progress_handler(d->handle, at_ns ? STEPS : 0, at_ns ? is_late : NULL, d);
}

void db_close(struct db *d)
{
    if (!d) return;
    db_unlock(d);
    sqlite3_close(d->handle);
    free(d->path);
    free(d);
}

const char *db_path(const struct db *d)
{
    return d->path;
}

static enum err_code collect_findings(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    struct str *found = ctx;
    const char *text = (const char *)sqlite3_column_text(row, 0);
    if (text && strcmp(text, "ok")) str_printf(found, "%s%s", found->len ? "; " : "", text);
    return ERR_OK;
}

enum err_code db_check(struct db *d, struct err *why)
{
    /* The second says "cell points to a row of run that is not there". */
    static const char *const CHECKS[] = {
        "PRAGMA integrity_check(10)",
        "SELECT \"table\" || ' points to a row of ' || parent || ' that is not there'"
        "  FROM pragma_foreign_key_check LIMIT 10",
    };
    struct str found = { 0 };
    enum err_code rc = ERR_OK;
    for (size_t i = 0; i < COUNT_OF(CHECKS) && !rc; i++)
        rc = db_execute(d,
                        &(struct db_call){
                            .doing = "check it", .sql = CHECKS[i], .row = collect_findings, .ctx = &found },
                        why, "");
    if (!rc && found.len)
        rc = err_set(why, ERR_FORMAT, "database '%s' is damaged: %s; move it away and start anew", d->path,
                     str_text(&found));
    str_free(&found);
    return rc;
}
