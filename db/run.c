/* db/run.c - runs, the identities they refer to, and their events. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

static const struct db_column RUN_COLUMNS[] = {
    DB_COLUMN(run_row, id, I64),           DB_COLUMN(run_row, kind, TEXT),
    DB_COLUMN(run_row, state, TEXT),       DB_COLUMN(run_row, machine, KEY),
    DB_COLUMN(run_row, model_sha256, KEY), DB_COLUMN(run_row, model_name, TEXT),
    DB_COLUMN(run_row, workload, TEXT),    DB_COLUMN(run_row, label, TEXT),
    DB_COLUMN(run_row, metric, TEXT),      DB_COLUMN(run_row, seed, U64),
    DB_COLUMN(run_row, verdict, TEXT),     DB_COLUMN(run_row, effect_ratio, REAL),
    DB_COLUMN(run_row, started_ms, I64),   DB_COLUMN(run_row, ended_ms, I64),
    DB_COLUMN(run_row, spec_json, OWNED),  DB_COLUMN(run_row, outcome_json, OWNED),
};
static const struct db_table RUN = DB_TABLE("run", run_row, RUN_COLUMNS);

struct machine_row {
    const char *id, *json;
    int64_t first_ms;
};
static const struct db_column MACHINE_COLUMNS[] = {
    DB_COLUMN(machine_row, id, BORROWED),
    DB_COLUMN(machine_row, json, BORROWED),
    DB_COLUMN(machine_row, first_ms, I64),
};
static const struct db_table MACHINE = DB_TABLE_KEYED("machine", machine_row, MACHINE_COLUMNS);

struct model_row {
    const char *sha256, *name, *path, *json;
    int64_t first_ms;
};
static const struct db_column MODEL_COLUMNS[] = {
    DB_COLUMN(model_row, sha256, BORROWED), DB_COLUMN(model_row, name, BORROWED),
    DB_COLUMN(model_row, path, BORROWED),   DB_COLUMN(model_row, json, BORROWED),
    DB_COLUMN(model_row, first_ms, I64),
};
static const struct db_table MODEL = DB_TABLE_KEYED("model", model_row, MODEL_COLUMNS);

struct event_row {
    int64_t id, run_id, unix_ms;
    const char *kind, *text;
};
static const struct db_column EVENT_COLUMNS[] = {
    DB_COLUMN(event_row, id, I64),        DB_COLUMN(event_row, run_id, I64),
    DB_COLUMN(event_row, unix_ms, I64),   DB_COLUMN(event_row, kind, BORROWED),
    DB_COLUMN(event_row, text, BORROWED),
};
static const struct db_table EVENT = DB_TABLE("event", event_row, EVENT_COLUMNS);

enum err_code db_machine_put(struct db *d, const char *machine_id, const char *json, struct err *why)
{
    const struct db_put p = { .table = &MACHINE,
                              .doing = "store the machine",
                              .tail = "ON CONFLICT(id) DO UPDATE SET json = excluded.json" };
    const struct machine_row row = { .id = machine_id, .json = json, .first_ms = clock_unix_ms() };
    return db_table_put(d, &p, &row, why);
}

static enum err_code machine_copy(void *ctx, sqlite3_stmt *s, struct err *why)
{
    char **text = ctx;
    struct machine_row row;
    const enum err_code rc = db_table_read(&MACHINE, &row, s, why);
    if (rc) return rc;
    *text = strdup(row.json);
    return *text ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory reading a machine");
}

enum err_code db_machine_get(struct db *d, const char *machine_id, char **json, struct err *why)
{
    const struct db_query q = { .table = &MACHINE, .doing = "read a machine", .tail = "WHERE id = ?" };
    *json = NULL;
    return db_table_each(d, &q, machine_copy, json, why, "t", machine_id);
}

enum err_code db_model_put(struct db *d, const char *sha256, const char *name, const char *path,
                           const char *json, struct err *why)
{
    const struct db_put p = { .table = &MODEL,
                              .doing = "store the model",
                              .tail = "ON CONFLICT(sha256) DO UPDATE SET name = excluded.name,"
                                      " path = excluded.path, json = excluded.json" };
    const struct model_row row = {
        .sha256 = sha256, .name = name, .path = path, .json = json, .first_ms = clock_unix_ms()
    };
    return db_table_put(d, &p, &row, why);
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
    return db_table_insert(d, &RUN, r, "store a run", why);
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
    const struct db_query q = { .table = &RUN, .doing = "read a run", .tail = "WHERE id = ?" };
    bool found;
    const enum err_code rc = db_table_first(d, &q, out, &found, why, "i", id);
    if (rc || found) return rc;
    return err_set(why, ERR_USAGE, "no run %lld in '%s': `qdyno history` lists them", (long long)id, d->path);
}

static enum err_code runs_list(struct db *d, const struct db_query *q, const char *filter, int limit,
                               struct run_row **rows, int *n, struct err *why)
{
    void *list;
    const enum err_code rc = db_table_list(d, q, &list, n, why, "xi", filter,
                                           limit > 0 ? (int64_t)limit : (int64_t)-1);
    *rows = list;
    return rc;
}

enum err_code db_run_list(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why)
{
    const struct db_query q = {
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
    const struct db_query q = {
        .table = &RUN,
        .doing = "list deleted runs",
        .tail = "WHERE ?1 IS NULL AND id IN (SELECT run_id FROM run_deleted) ORDER BY id DESC LIMIT ?2"
    };
    return runs_list(d, &q, NULL, limit, rows, n, why);
}

enum err_code db_event_add(struct db *d, int64_t run_id, const char *kind, const char *text, struct err *why)
{
    const struct event_row row = { .run_id = run_id, .unix_ms = clock_unix_ms(), .kind = kind, .text = text };
    return db_table_put(d, &(struct db_put){ .table = &EVENT, .doing = "store an event" }, &row, why);
}

struct event_reader {
    void (*row)(void *ctx, int64_t unix_ms, const char *kind, const char *text);
    void *ctx;
};

static enum err_code event_read(void *ctx, sqlite3_stmt *s, struct err *why)
{
    const struct event_reader *r = ctx;
    struct event_row row;
    const enum err_code rc = db_table_read(&EVENT, &row, s, why);
    if (!rc) r->row(r->ctx, row.unix_ms, row.kind, row.text);
    return rc;
}

enum err_code db_event_list(struct db *d, int64_t run_id,
                            void (*row)(void *ctx, int64_t unix_ms, const char *kind, const char *text),
                            void *ctx, struct err *why)
{
    const struct db_query q = { .table = &EVENT,
                                .doing = "list events",
                                .tail = "WHERE run_id = ? ORDER BY id" };
    struct event_reader r = { row, ctx };
    return db_table_each(d, &q, event_read, &r, why, "i", run_id);
}
