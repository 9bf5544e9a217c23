/* db/run.c - runs, the identities they refer to, and their events. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

static const struct column RUN_COLUMNS[] = {
    COLUMN(run_row, id, I64),           COLUMN(run_row, kind, TEXT),
    COLUMN(run_row, state, TEXT),       COLUMN(run_row, machine, KEY),
    COLUMN(run_row, model_sha256, KEY), COLUMN(run_row, model_name, TEXT),
    COLUMN(run_row, workload, TEXT),    COLUMN(run_row, label, TEXT),
    COLUMN(run_row, metric, TEXT),      COLUMN(run_row, seed, U64),
    COLUMN(run_row, verdict, TEXT),     COLUMN(run_row, effect_ratio, REAL),
    COLUMN(run_row, started_ms, I64),   COLUMN(run_row, ended_ms, I64),
    COLUMN(run_row, spec_json, OWNED),  COLUMN(run_row, outcome_json, OWNED),
};
static const struct table RUN = TABLE("run", run_row, RUN_COLUMNS);

enum err_code db_machine_put(struct db *d, const char *machine_id, const char *json, struct err *why)
{
    return db_execute(d,
                      &(struct db_call){ .doing = "store the machine",
                                         .sql = "INSERT INTO machine(id, json, first_ms) VALUES(?,?,?)"
                                                " ON CONFLICT(id) DO UPDATE SET json = excluded.json" },
                      why, "tti", machine_id, json, clock_unix_ms());
}

static enum err_code text_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    char **text = ctx;
    *text = strdup((const char *)sqlite3_column_text(row, 0));
    return *text ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory reading a machine");
}

enum err_code db_machine_get(struct db *d, const char *machine_id, char **json, struct err *why)
{
    *json = NULL;
    return db_execute(d,
                      &(struct db_call){ .doing = "read a machine",
                                         .sql = "SELECT json FROM machine WHERE id = ?",
                                         .row = text_row,
                                         .ctx = json },
                      why, "t", machine_id);
}

enum err_code db_model_put(struct db *d, const char *sha256, const char *name, const char *path,
                           const char *json, struct err *why)
{
    return db_execute(
        d,
        &(struct db_call){ .doing = "store the model",
                           .sql = "INSERT INTO model(sha256, name, path, json, first_ms)"
                                  " VALUES(?,?,?,?,?) ON CONFLICT(sha256) DO UPDATE SET"
                                  " name = excluded.name, path = excluded.path, json = excluded.json" },
        why, "tttti", sha256, name, path, json, clock_unix_ms());
}

void run_row_free(struct run_row *r)
{
    free(r->spec_json);
    free(r->outcome_json);
    r->spec_json = r->outcome_json = NULL;
}

enum err_code db_run_insert(struct db *d, struct run_row *r, struct err *why)
{
    r->started_ms = clock_unix_ms();
    return table_insert(d, &RUN, r, "store a run", why);
}

enum err_code db_run_insert_locked(struct db *d, struct db *holder, struct run_row *r, struct err *why)
{
    enum err_code rc = db_begin(d, "store a run", why);
    if (rc) return rc;
    rc = db_run_insert(d, r, why);
    if (!rc) rc = db_run_lock(holder, r->id, why);
    return db_end(d, rc, "store a run", why);
}

enum err_code db_run_finish(struct db *d, int64_t id, const char *state, const char *verdict,
                            double effect_ratio, const char *outcome_json, struct err *why)
{
    enum err_code rc = db_execute(
        d,
        &(struct db_call){ .doing = "finish a run",
                           .sql = "UPDATE run SET state = ?, verdict = ?, effect_ratio = ?,"
                                  " outcome_json = ?, ended_ms = ? WHERE id = ?" },
        why, "ttdtii", state, verdict ? verdict : "", effect_ratio, outcome_json, clock_unix_ms(), id);
    if (!rc && !sqlite3_changes(d->handle))
        rc = err_set(why, ERR_USAGE, "no run %lld in '%s'", (long long)id, d->path);
    return rc;
}

/* A deleted run that is continued is wanted again. */
enum err_code db_run_reopen(struct db *d, int64_t id, struct err *why)
{
    enum err_code rc = db_begin(d, "go on with a run", why);
    if (rc) return rc;
    rc = db_execute(d,
                    &(struct db_call){ .doing = "go on with a run",
                                       .sql = "UPDATE run SET state = 'running', verdict = '', ended_ms = 0"
                                              " WHERE id = ?" },
                    why, "i", id);
    if (!rc)
        rc = db_execute(
            d,
            &(struct db_call){ .doing = "restore a run", .sql = "DELETE FROM run_deleted WHERE run_id = ?" },
            why, "i", id);
    return db_end(d, rc, "go on with a run", why);
}

enum err_code db_run_get(struct db *d, int64_t id, struct run_row *out, struct err *why)
{
    const struct table_query q = { .table = &RUN, .doing = "read a run", .tail = "WHERE id = ?" };
    void *list;
    int n;
    memset(out, 0, sizeof *out);
    const enum err_code rc = table_list(d, &q, &list, &n, why, "i", id);
    if (rc) return rc;
    if (n) memcpy(out, list, sizeof *out);
    free(list);
    return n ? ERR_OK
             : err_set(why, ERR_USAGE, "no run %lld in '%s': `qdyno history` lists them", (long long)id,
                       d->path);
}

static enum err_code runs_list(struct db *d, const struct table_query *q, const char *filter, int limit,
                               struct run_row **rows, int *n, struct err *why)
{
    void *list;
    const enum err_code rc = table_list(d, q, &list, n, why, "xi", filter,
                                        limit > 0 ? (int64_t)limit : (int64_t)-1);
    *rows = list;
    return rc;
}

enum err_code db_run_list(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why)
{
    const struct table_query q = {
        .table = &RUN,
        .doing = "list runs",
        .tail = "WHERE (?1 IS NULL OR instr(lower(label || char(10) || model_name || char(10) || workload ||"
                " char(10) || kind || char(10) || verdict || char(10) || state), lower(?1)) > 0)"
                " AND id NOT IN (SELECT run_id FROM run_deleted) ORDER BY id DESC LIMIT ?2"
    };
    return runs_list(d, &q, filter, limit, rows, n, why);
}

enum err_code db_run_list_deleted(struct db *d, int limit, struct run_row **rows, int *n, struct err *why)
{
    const struct table_query q = {
        .table = &RUN,
        .doing = "list deleted runs",
        .tail = "WHERE ?1 IS NULL AND id IN (SELECT run_id FROM run_deleted) ORDER BY id DESC LIMIT ?2"
    };
    return runs_list(d, &q, NULL, limit, rows, n, why);
}

enum err_code db_event_add(struct db *d, int64_t run_id, const char *kind, const char *text, struct err *why)
{
    return db_execute(
        d,
        &(struct db_call){ .doing = "store an event",
                           .sql = "INSERT INTO event(run_id, unix_ms, kind, text) VALUES(?,?,?,?)" },
        why, "iitt", run_id, clock_unix_ms(), kind, text);
}

struct event_reader {
    void (*row)(void *ctx, int64_t unix_ms, const char *kind, const char *text);
    void *ctx;
};

static enum err_code event_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    const struct event_reader *r = ctx;
    r->row(r->ctx, sqlite3_column_int64(row, 0), (const char *)sqlite3_column_text(row, 1),
           (const char *)sqlite3_column_text(row, 2));
    return ERR_OK;
}

enum err_code db_event_list(struct db *d, int64_t run_id,
                            void (*row)(void *ctx, int64_t unix_ms, const char *kind, const char *text),
                            void *ctx, struct err *why)
{
    struct event_reader r = { row, ctx };
    return db_execute(
        d,
        &(struct db_call){ .doing = "list events",
                           .sql = "SELECT unix_ms, kind, text FROM event WHERE run_id = ? ORDER BY id",
                           .row = event_row,
                           .ctx = &r },
        why, "i", run_id);
}
