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
static const struct table RUN = { "run", RUN_COLUMNS, COUNT_OF(RUN_COLUMNS) };

enum err_code db_machine_put(struct db *d, const char *machine_id, const char *json, struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "store the machine",
                                    "INSERT INTO machine(id, json, first_ms) VALUES(?,?,?)"
                                    " ON CONFLICT(id) DO UPDATE SET json = excluded.json",
                                    NULL, NULL },
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
    return db_do(
        d, &(struct db_call){ "read a machine", "SELECT json FROM machine WHERE id = ?", text_row, json },
        why, "t", machine_id);
}

enum err_code db_model_put(struct db *d, const char *sha256, const char *name, const char *path,
                           const char *json, struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "store the model",
                                    "INSERT INTO model(sha256, name, path, json, first_ms)"
                                    " VALUES(?,?,?,?,?) ON CONFLICT(sha256) DO UPDATE SET"
                                    " name = excluded.name, path = excluded.path, json = excluded.json",
                                    NULL, NULL },
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

enum err_code db_run_finish(struct db *d, int64_t id, const char *state, const char *verdict,
                            double effect_ratio, const char *outcome_json, struct err *why)
{
    enum err_code rc = db_do(d,
                             &(struct db_call){ "finish a run",
                                                "UPDATE run SET state = ?, verdict = ?, effect_ratio = ?,"
                                                " outcome_json = ?, ended_ms = ? WHERE id = ?",
                                                NULL, NULL },
                             why, "ttdtii", state, verdict ? verdict : "", effect_ratio, outcome_json,
                             clock_unix_ms(), id);
    if (!rc && !sqlite3_changes(d->handle))
        rc = err_set(why, ERR_USAGE, "no run %lld in '%s'", (long long)id, d->path);
    return rc;
}

enum err_code db_run_reopen(struct db *d, int64_t id, struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "go on with a run",
                                    "UPDATE run SET state = 'running', verdict = '', ended_ms = 0"
                                    " WHERE id = ?",
                                    NULL, NULL },
                 why, "i", id);
}

struct run_list {
    struct run_row *rows;
    int n, cap;
};

static enum err_code run_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct run_list *l = ctx;
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 16;
        struct run_row *rows = realloc(l->rows, (size_t)cap * sizeof *rows);
        if (!rows) return err_set(why, ERR_NOMEM, "out of memory listing runs");
        l->rows = rows;
        l->cap = cap;
    }
    struct run_row *r = &l->rows[l->n];
    memset(r, 0, sizeof *r);
    enum err_code rc = table_read(&RUN, r, row, why);
    if (rc)
        run_row_free(r);
    else
        l->n++;
    return rc;
}

static void run_list_free(struct run_list *l)
{
    for (int i = 0; i < l->n; i++) run_row_free(&l->rows[i]);
    free(l->rows);
}

enum err_code db_run_get(struct db *d, int64_t id, struct run_row *out, struct err *why)
{
    struct run_list l = { 0 };
    struct str sql = { 0 };
    memset(out, 0, sizeof *out);
    table_select(&sql, &RUN, "WHERE id = ?");
    enum err_code rc = db_do(d, &(struct db_call){ "read a run", str_text(&sql), run_append, &l }, why, "i",
                             id);
    str_free(&sql);
    if (!rc && !l.n)
        rc = err_set(why, ERR_USAGE, "no run %lld in '%s': `qdyno history` lists them", (long long)id,
                     d->path);
    if (rc) {
        run_list_free(&l);
        return rc;
    }
    *out = l.rows[0];
    free(l.rows);
    return ERR_OK;
}

enum err_code db_run_list(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why)
{
    struct run_list l = { 0 };
    struct str sql = { 0 };
    *rows = NULL;
    *n = 0;
    table_select(&sql, &RUN,
                 "WHERE ?1 IS NULL OR instr(lower(label || char(10) || model_name || char(10) || workload ||"
                 " char(10) || kind || char(10) || verdict), lower(?1)) > 0 ORDER BY id DESC LIMIT ?2");
    enum err_code rc = db_do(d, &(struct db_call){ "list runs", str_text(&sql), run_append, &l }, why, "xi",
                             filter, limit > 0 ? (int64_t)limit : (int64_t)-1);
    str_free(&sql);
    if (rc) {
        run_list_free(&l);
        return rc;
    }
    *rows = l.rows;
    *n = l.n;
    return ERR_OK;
}

enum err_code db_event_add(struct db *d, int64_t run_id, const char *kind, const char *text, struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "store an event",
                                    "INSERT INTO event(run_id, unix_ms, kind, text) VALUES(?,?,?,?)", NULL,
                                    NULL },
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
    return db_do(d,
                 &(struct db_call){ "list events",
                                    "SELECT unix_ms, kind, text FROM event WHERE run_id = ? ORDER BY id",
                                    event_row, &r },
                 why, "i", run_id);
}
