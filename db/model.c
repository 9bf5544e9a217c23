/* db/model.c - one model over all runs: the text chosen for it, its cells and requests. */
#include "db/store.h"

#include <math.h>
#include <stdlib.h>

static const char *text_at(sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    return text ? text : "";
}

/* ---------------------------------------------------------------- models */

struct model_reader {
    db_model_fn *row;
    void *ctx;
};

static enum err_code model_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    const struct model_reader *r = ctx;
    return r->row(r->ctx, text_at(row, 0), text_at(row, 1), why);
}

enum err_code db_model_list(struct db *d, db_model_fn *row, void *ctx, struct err *why)
{
    struct model_reader r = { row, ctx };
    return db_execute(d,
                      &(struct db_call){ .doing = "list models",
                                         .sql = "SELECT sha256, path FROM model ORDER BY first_ms",
                                         .row = model_row,
                                         .ctx = &r },
                      why, "");
}

/* ---------------------------------------------------------------- texts */

static const struct db_column TEXT_COLUMNS[] = {
    DB_COLUMN(model_text, model, TEXT),
    DB_COLUMN(model_text, path, TEXT),
    DB_COLUMN(model_text, sha256, TEXT),
    DB_COLUMN(model_text, set_ms, I64),
};
static const struct db_table TEXTS = DB_TABLE_KEYED("model_text", model_text, TEXT_COLUMNS);

enum err_code db_model_text_put(struct db *d, struct model_text *t, struct err *why)
{
    const struct db_put p = { .table = &TEXTS,
                              .doing = "store the text of a model",
                              .verb = "INSERT OR REPLACE" };
    t->set_ms = clock_unix_ms();
    return db_table_put(d, &p, t, why);
}

enum err_code db_model_text_remove(struct db *d, const char *model_sha256, struct err *why)
{
    return db_execute(d,
                      &(struct db_call){ .doing = "remove the text of a model",
                                         .sql = "DELETE FROM model_text WHERE model = ?" },
                      why, "t", model_sha256);
}

enum err_code db_model_text_list(struct db *d, struct model_text **rows, int *n, struct err *why)
{
    const struct db_query q = { .table = &TEXTS,
                                .doing = "list the texts of models",
                                .tail = "ORDER BY set_ms DESC, model" };
    void *list;
    const enum err_code rc = db_table_list(d, &q, &list, n, why, "");
    *rows = list;
    return rc;
}

/* ---------------------------------------------------------------- cells */

struct cell_reader {
    db_model_cell_fn *row;
    void *ctx;
};

static enum err_code cell_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    const struct cell_reader *r = ctx;
    const struct model_cell c = {
        .run_id = sqlite3_column_int64(row, 0),
        .started_ms = sqlite3_column_int64(row, 1),
        .config = text_at(row, 2),
        .first_config = text_at(row, 3),
        .worker_json = text_at(row, 4),
        .value = sqlite3_column_double(row, 5),
        .kind = text_at(row, 6),
        .run_text = text_at(row, 7),
        .error = sqlite3_column_type(row, 8) == SQLITE_NULL ? NAN : sqlite3_column_double(row, 8),
    };
    return r->row(r->ctx, &c, why);
}

enum err_code db_model_cells(struct db *d, const struct model_query *q, db_model_cell_fn *row, void *ctx,
                             struct err *why)
{
    struct cell_reader r = { row, ctx };
    return db_execute(
        d,
        &(struct db_call){
            .doing = "list what was measured of a model",
            .sql = "SELECT c.run_id, c.started_ms, c.config,"
                   " (SELECT f.config FROM cell f WHERE f.run_id = c.run_id AND f.arm = 0"
                   "  ORDER BY f.id LIMIT 1), c.worker_json, m.value, u.kind,"
                   " CASE WHEN json_valid(u.spec_json) THEN json_extract(u.spec_json, '$.text') END, e.value"
                   " FROM run u JOIN cell c ON c.run_id = u.id"
                   " JOIN measurement m ON m.cell_id = c.id AND m.metric = ?"
                   " LEFT JOIN measurement e ON e.cell_id = c.id AND e.metric = ?"
                   " WHERE u.model_sha256 = ? AND c.discarded = 0 AND c.error = ''"
                   " AND u.id NOT IN (SELECT run_id FROM run_deleted)"
                   " AND m.value IS NOT NULL ORDER BY c.id DESC LIMIT ?",
            .row = cell_row,
            .ctx = &r },
        why, "ttti", q->metric, q->error ? q->error : "", q->sha256, (int64_t)q->limit);
}

/* ---------------------------------------------------------------- speeds */

struct speed_reader {
    db_speed_fn *row;
    void *ctx;
};

static double number_at(sqlite3_stmt *row, int column)
{
    return sqlite3_column_type(row, column) == SQLITE_NULL ? NAN : sqlite3_column_double(row, column);
}

static enum err_code speed_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    const struct speed_reader *r = ctx;
    const struct speed_cell c = { .run_id = sqlite3_column_int64(row, 0),
                                  .block = sqlite3_column_int(row, 1),
                                  .phase = text_at(row, 2),
                                  .config = text_at(row, 3),
                                  .workload = text_at(row, 4),
                                  .kernels = text_at(row, 5),
                                  .isa = text_at(row, 6),
                                  .decode_tok_s = number_at(row, 7),
                                  .prefill_tok_s = number_at(row, 8),
                                  .disturbed = sqlite3_column_type(row, 9) != SQLITE_NULL };
    return r->row(r->ctx, &c, why);
}

enum err_code db_model_speeds(struct db *d, const struct speed_query *q, db_speed_fn *row, void *ctx,
                              struct err *why)
{
    struct speed_reader r = { row, ctx };
    return db_execute(
        d,
        &(struct db_call){
            .doing = "list what was timed of a model",
            .sql = "SELECT c.run_id, c.block, c.phase, c.config,"
                   " coalesce(CASE WHEN json_valid(c.worker_json) THEN"
                   "  json_extract(c.worker_json, '$.workload') END, u.workload),"
                   " CASE WHEN json_valid(k.json) THEN json_extract(k.json, '$.program.kernels') END,"
                   " CASE WHEN json_valid(k.json) THEN json_extract(k.json, '$.environment.QDYNO_ISA') END,"
                   " de.value, pr.value, di.value"
                   " FROM run u JOIN cell c ON c.run_id = u.id LEFT JOIN capsule k ON k.run_id = u.id"
                   " LEFT JOIN measurement de ON de.cell_id = c.id AND de.metric = ?"
                   " LEFT JOIN measurement pr ON pr.cell_id = c.id AND pr.metric = ?"
                   " LEFT JOIN measurement di ON di.cell_id = c.id AND di.metric = ?"
                   " WHERE u.model_sha256 = ? AND u.machine = ? AND u.state NOT IN ('running', 'failed')"
                   " AND u.verdict <> 'invalid' AND c.discarded = 0 AND c.error = ''"
                   " AND u.id NOT IN (SELECT run_id FROM run_deleted)"
                   " AND (de.value > 0 OR pr.value > 0) ORDER BY c.run_id DESC, c.id LIMIT ?",
            .row = speed_row,
            .ctx = &r },
        why, "ttttti", q->decode, q->prefill, q->disturbed, q->sha256, q->machine, (int64_t)q->limit);
}

static enum err_code newest_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    int64_t *id = ctx;
    (void)why;
    *id = sqlite3_column_int64(row, 0);
    return ERR_OK;
}

enum err_code db_model_newest_run(struct db *d, const char *kind, const char *sha256, const char *machine,
                                  struct run_row *out, bool *found, struct err *why)
{
    int64_t id = 0;
    enum err_code rc = db_execute(
        d,
        &(struct db_call){ .doing = "find the newest run of a model",
                           .sql = "SELECT id FROM run WHERE kind = ? AND"
                                  " model_sha256 = ? AND machine = ? AND"
                                  " state = 'done' AND id NOT IN (SELECT run_id FROM"
                                  " run_deleted) ORDER BY id DESC LIMIT 1",
                           .row = newest_row,
                           .ctx = &id },
        why, "ttt", kind, sha256, machine);
    *found = !rc && id;
    return *found ? db_run_get(d, id, out, why) : rc;
}

/* ---------------------------------------------------------------- requests */

struct request_reader {
    db_model_request_fn *row;
    void *ctx;
};

static enum err_code request_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    const struct request_reader *r = ctx;
    struct model_requests c = { .config = text_at(row, 0),
                                .workload = text_at(row, 1),
                                .sequences = sqlite3_column_int(row, 2) };
    /* no copy is needed: SQLite aligns blobs for any type, and the callback only reads */
    c.figures = sqlite3_column_blob(row, 3);
    c.n = sqlite3_column_bytes(row, 3) / (int)sizeof *c.figures;
    c.itl = sqlite3_column_blob(row, 4);
    c.n_itl = sqlite3_column_bytes(row, 4) / (int)sizeof *c.itl;
    return r->row(r->ctx, &c, why);
}

enum err_code db_model_requests(struct db *d, const struct model_query *q, db_model_request_fn *row,
                                void *ctx, struct err *why)
{
    struct request_reader r = { row, ctx };
    return db_execute(
        d,
        &(struct db_call){ .doing = "list a model's requests",
                           .sql = "SELECT c.config, r.workload, r.sequences, r.figures_f32, i.seconds_f32"
                                  " FROM run u JOIN cell c ON c.run_id = u.id"
                                  " JOIN request r ON r.cell_id = c.id LEFT JOIN itl i ON i.cell_id = c.id"
                                  " WHERE u.model_sha256 = ? AND c.discarded = 0 AND c.error = ''"
                                  " AND u.id NOT IN (SELECT run_id FROM run_deleted)"
                                  " ORDER BY c.id DESC LIMIT ?",
                           .row = request_row,
                           .ctx = &r },
        why, "ti", q->sha256, (int64_t)q->limit);
}
