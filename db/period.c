/* db/period.c - the runs and cells of a period of time, for summaries. Runs are few and read first; the cells
 * of a run are found by the index cell_of_run, so that a long history costs a short period nothing. */
#include "db/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *column_text_or_empty(sqlite3_stmt *row, int column)
{
    const unsigned char *text = sqlite3_column_text(row, column);
    return text ? (const char *)text : "";
}

/* ---------------------------------------------------------------- runs */

struct run_reader {
    db_period_run_fn *row;
    void *ctx;
    int64_t from_ms;
    struct abandoned_run *abandoned;
    int n_abandoned;
};

static enum err_code period_run_read(void *ctx, sqlite3_stmt *s, struct err *why)
{
    const struct run_reader *r = ctx;
    struct period_run run = { .id = sqlite3_column_int64(s, 0),
                              .started_ms = sqlite3_column_int64(s, 1),
                              .ended_ms = sqlite3_column_int64(s, 2),
                              .kind = column_text_or_empty(s, 4),
                              .state = column_text_or_empty(s, 5),
                              .verdict = column_text_or_empty(s, 6),
                              .error = column_text_or_empty(s, 7) };
    for (int i = 0; i < r->n_abandoned; i++) {
        if (r->abandoned[i].id != run.id || run.ended_ms) continue;
        run.state = "interrupted";
        run.ended_ms = MAX(run.started_ms, sqlite3_column_int64(s, 3));
    }
    if (run.ended_ms && run.ended_ms < r->from_ms) return ERR_OK;
    return r->row(r->ctx, &run, why);
}

enum err_code db_period_runs(struct db *d, int64_t from_ms, int64_t to_ms, db_period_run_fn *row, void *ctx,
                             struct err *why)
{
    struct run_reader r = { .row = row, .ctx = ctx, .from_ms = from_ms };
    enum err_code rc = abandoned_list(d, &r.abandoned, &r.n_abandoned, why);
    if (!rc)
        rc = db_execute(
            d,
            &(struct db_call){
                .doing = "list the runs of a period",
                .sql = "SELECT id, started_ms, ended_ms,"
                       " CASE WHEN ended_ms = 0 THEN (SELECT CAST(max(started_ms + 1000 * ifnull(seconds, 0))"
                       "  AS INTEGER) FROM cell WHERE run_id = run.id) END, kind, state, verdict,"
                       " CASE WHEN state = 'failed' AND json_valid(outcome_json) THEN"
                       "  coalesce(json_extract(outcome_json, '$.error'),"
                       "   json_extract(outcome_json, '$.rows[0].error')) END"
                       " FROM run WHERE started_ms < ? AND (ended_ms = 0 OR ended_ms >= ?)"
                       " AND id NOT IN (SELECT run_id FROM run_deleted) ORDER BY started_ms, id",
                .row = period_run_read,
                .ctx = &r },
            why, "ii", to_ms, from_ms);
    free(r.abandoned);
    return rc;
}

/* ---------------------------------------------------------------- cells */

struct cell_reader {
    db_period_cell_fn *row;
    void *ctx;
};

static enum err_code period_cell_read(void *ctx, sqlite3_stmt *s, struct err *why)
{
    const struct cell_reader *r = ctx;
    const bool timed = sqlite3_column_type(s, 3) != SQLITE_NULL;
    struct period_cell c = { .id = sqlite3_column_int64(s, 0),
                             .run_id = sqlite3_column_int64(s, 1),
                             .started_ms = sqlite3_column_int64(s, 2),
                             .seconds = timed ? sqlite3_column_double(s, 3) : (double)NAN,
                             .discarded = sqlite3_column_int(s, 4),
                             .phase = column_text_or_empty(s, 5),
                             .discard_reason = column_text_or_empty(s, 6),
                             .error = column_text_or_empty(s, 7),
                             .workload = column_text_or_empty(s, 8),
                             .sequences = sqlite3_column_int(s, 9),
                             .running_most = sqlite3_column_int(s, 12) };
    /* no copy is needed: SQLite aligns blobs for any type, and the callback only reads */
    c.figures = sqlite3_column_blob(s, 10);
    c.n = sqlite3_column_bytes(s, 10) / (int)sizeof *c.figures;
    c.itl = sqlite3_column_blob(s, 11);
    c.n_itl = sqlite3_column_bytes(s, 11) / (int)sizeof *c.itl;
    return r->row(r->ctx, &c, why);
}

enum err_code db_period_cells(struct db *d, int64_t from_ms, int64_t to_ms, db_period_cell_fn *row, void *ctx,
                              struct err *why)
{
    struct cell_reader r = { row, ctx };
    return db_execute(
        d,
        &(struct db_call){
            .doing = "list the cells of a period",
            /* CROSS JOIN: SQLite keeps the order, runs first */
            .sql = "SELECT c.id, c.run_id, c.started_ms, c.seconds, c.discarded, c.phase, c.discard_reason,"
                   " c.error, q.workload, q.sequences, q.figures_f32, i.seconds_f32,"
                   " CASE WHEN q.workload LIKE 'load:%' AND json_valid(c.worker_json) THEN"
                   "  json_extract(c.worker_json, '$.served.running_most') END"
                   " FROM run u CROSS JOIN cell c ON c.run_id = u.id"
                   " LEFT JOIN request q ON q.cell_id = c.id LEFT JOIN itl i ON i.cell_id = c.id"
                   " WHERE u.started_ms < ?2 AND (u.ended_ms = 0 OR u.ended_ms >= ?1)"
                   " AND u.id NOT IN (SELECT run_id FROM run_deleted)"
                   " AND c.started_ms >= ?1 AND c.started_ms < ?2 ORDER BY c.id",
            .row = period_cell_read,
            .ctx = &r },
        why, "ii", from_ms, to_ms);
}
