/* db/deleted.c - runs that a person deleted. Deleting only marks a run, so it can be restored; its rows are
 * removed when the mark is old. */
#include "db/store.h"

#include <string.h>

struct run_deleted {
    int64_t run_id, unix_ms;
};
static const struct db_column DELETED_COLUMNS[] = {
    DB_COLUMN(run_deleted, run_id, I64),
    DB_COLUMN(run_deleted, unix_ms, I64),
};
static const struct db_table DELETED = DB_TABLE_KEYED("run_deleted", run_deleted, DELETED_COLUMNS);

/* A run that is being measured would go on writing rows, so it cannot be deleted. */
static enum err_code deletable_check(struct db *d, int64_t id, struct err *why)
{
    struct run_row run;
    enum err_code rc = db_run_get(d, id, &run, why);
    if (rc) return rc;
    if (!strcmp(run.state, "running"))
        rc = err_set(why, ERR_USAGE, "run %lld is being measured: expected a run that has ended",
                     (long long)id);
    run_row_free(&run);
    return rc;
}

enum err_code db_run_delete(struct db *d, int64_t id, struct err *why)
{
    const struct db_put p = { .table = &DELETED, .doing = "delete a run", .verb = "INSERT OR IGNORE" };
    const struct run_deleted mark = { .run_id = id, .unix_ms = clock_unix_ms() };
    enum err_code rc = db_begin(d, "delete a run", why);
    if (rc) return rc;
    rc = deletable_check(d, id, why);
    if (!rc) rc = db_table_put(d, &p, &mark, why);
    return db_end(d, rc, "delete a run", why);
}

enum err_code db_run_restore(struct db *d, int64_t id, struct err *why)
{
    const enum err_code rc = db_execute(
        d, &(struct db_call){ .doing = "restore a run", .sql = "DELETE FROM run_deleted WHERE run_id = ?" },
        why, "i", id);
    if (rc || sqlite3_changes(d->handle)) return rc;
    return err_set(why, ERR_USAGE, "run %lld is not deleted: `qdyno history --deleted` lists deleted runs",
                   (long long)id);
}

enum err_code db_runs_purge(struct db *d, int64_t before_ms, int *removed, struct err *why)
{
    const enum err_code rc = db_execute(
        d,
        &(struct db_call){ .doing = "remove deleted runs",
                           .sql = "DELETE FROM run WHERE state <> 'running' AND id IN"
                                  " (SELECT run_id FROM run_deleted WHERE unix_ms < ?)" },
        why, "i", before_ms);
    *removed = rc ? 0 : sqlite3_changes(d->handle);
    return rc;
}
