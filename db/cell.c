/* db/cell.c - cells and everything measured in them. Each cell is one transaction, so a killed process loses
 * only the cell that was running. */
#include "db/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct column CELL_COLUMNS[] = {
    COLUMN(cell_row, id, I64),           COLUMN(cell_row, run_id, I64),
    COLUMN(cell_row, arm, INT),          COLUMN(cell_row, block, INT),
    COLUMN(cell_row, slot, INT),         COLUMN(cell_row, phase, TEXT),
    COLUMN(cell_row, discarded, BOOL),   COLUMN(cell_row, discard_reason, TEXT),
    COLUMN(cell_row, config, TEXT),      COLUMN(cell_row, work_hash, TEXT),
    COLUMN(cell_row, output_hash, TEXT), COLUMN(cell_row, started_ms, I64),
    COLUMN(cell_row, seconds, REAL),     COLUMN(cell_row, error, TEXT),
    COLUMN(cell_row, worker_json, TEXT),
};
static const struct table CELL = TABLE("cell", cell_row, CELL_COLUMNS);

static const char STORE_CELL[] = "store a cell";

static enum err_code measurements_insert(struct db *d, int64_t cell_id, const struct measurement *m, int n,
                                         struct err *why)
{
    sqlite3_stmt *s;
    enum err_code rc = db_prepare(d, &s, STORE_CELL, "INSERT INTO measurement VALUES(?,?,?,?)", why);
    for (int i = 0; i < n && !rc; i++)
        rc = db_execute_prepared(d, s, STORE_CELL, why, "ittd", cell_id, m[i].metric,
                                 m[i].unit ? m[i].unit : "", m[i].value);
    sqlite3_finalize(s);
    return rc;
}

static enum err_code samples_insert(struct db *d, int64_t cell_id, const struct sample_row *r, int n,
                                    struct err *why)
{
    sqlite3_stmt *s;
    enum err_code rc = db_prepare(d, &s, STORE_CELL, "INSERT INTO sample VALUES(?,?,?,?)", why);
    for (int i = 0; i < n && !rc; i++)
        rc = db_execute_prepared(d, s, STORE_CELL, why, "iitd", cell_id, r[i].t_ns, r[i].metric, r[i].value);
    sqlite3_finalize(s);
    return rc;
}

static enum err_code itl_insert(struct db *d, int64_t cell_id, const float *itl, int n, struct err *why)
{
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the blob is little-endian f32");
    return db_execute(d, &(struct db_call){ .doing = STORE_CELL, .sql = "INSERT INTO itl VALUES(?,?,?)" },
                      why, "iib", cell_id, (int64_t)n, (const void *)itl, (size_t)n * sizeof *itl);
}

enum err_code db_cell_insert(struct db *d, struct cell_row *c, const struct measurement *m, int n_m,
                             const struct sample_row *samples, int n_samples, const float *itl, int n_itl,
                             struct err *why)
{
    enum err_code rc = db_begin(d, STORE_CELL, why);
    if (rc) return rc;
    rc = table_insert(d, &CELL, c, STORE_CELL, why);
    if (!rc && n_m) rc = measurements_insert(d, c->id, m, n_m, why);
    if (!rc && n_samples) rc = samples_insert(d, c->id, samples, n_samples, why);
    if (!rc && itl && n_itl) rc = itl_insert(d, c->id, itl, n_itl, why);
    if (!rc && c->requests && c->requests->n) rc = requests_insert(d, c->id, c->requests, why);
    for (int i = 0; i < c->n_spans; i++) c->spans[i].cell_id = c->id;
    if (!rc && c->spans) rc = spans_insert(d, c->spans, c->n_spans, why);
    return db_end(d, rc, STORE_CELL, why);
}

struct itl_reader {
    float *itl;
    int n;
};

static enum err_code itl_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct itl_reader *r = ctx;
    const size_t bytes = (size_t)sqlite3_column_bytes(row, 0);
    if (!bytes) return ERR_OK;
    r->itl = malloc(bytes);
    if (!r->itl) return err_set(why, ERR_NOMEM, "out of memory reading latencies");
    memcpy(r->itl, sqlite3_column_blob(row, 0), bytes);
    r->n = (int)(bytes / sizeof *r->itl);
    return ERR_OK;
}

enum err_code db_itl_get(struct db *d, int64_t cell_id, float **itl, int *n, struct err *why)
{
    struct itl_reader r = { 0 };
    enum err_code rc = db_execute(d,
                                  &(struct db_call){ .doing = "read latencies",
                                                     .sql = "SELECT seconds_f32 FROM itl WHERE cell_id = ?",
                                                     .row = itl_row,
                                                     .ctx = &r },
                                  why, "i", cell_id);
    *itl = r.itl;
    *n = r.n;
    return rc;
}

enum err_code db_block_discard(struct db *d, int64_t run_id, int block, const char *phase, const char *reason,
                               struct err *why)
{
    return db_execute(d,
                      &(struct db_call){ .doing = "discard a block",
                                         .sql = "UPDATE cell SET discarded = 1, discard_reason = ?"
                                                " WHERE run_id = ? AND block = ? AND phase = ?" },
                      why, "tiit", reason, run_id, (int64_t)block, phase);
}

enum err_code db_blocks_keep(struct db *d, int64_t run_id, const char *except, const char *except2,
                             struct err *why)
{
    return db_execute(
        d,
        &(struct db_call){ .doing = "keep disturbed blocks",
                           .sql = "UPDATE cell SET discarded = 0 WHERE run_id = ? AND block >= 0"
                                  " AND error = '' AND discard_reason NOT IN (?, ?)" },
        why, "itt", run_id, except, except2);
}

enum err_code db_cell_list(struct db *d, int64_t run_id, struct cell_row **cells, int *n, struct err *why)
{
    const struct table_query q = { .table = &CELL,
                                   .doing = "list cells",
                                   .tail = "WHERE run_id = ? ORDER BY id" };
    void *list;
    const enum err_code rc = table_list(d, &q, &list, n, why, "i", run_id);
    *cells = list;
    return rc;
}

static enum err_code read_value(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    if (sqlite3_column_type(row, 0) != SQLITE_NULL) *(double *)ctx = sqlite3_column_double(row, 0);
    return ERR_OK;
}

double db_measurement_get(struct db *d, int64_t cell_id, const char *metric)
{
    double value = (double)NAN;
    db_execute(d,
               &(struct db_call){ .doing = "read a measurement",
                                  .sql = "SELECT value FROM measurement WHERE cell_id = ? AND metric = ?",
                                  .row = read_value,
                                  .ctx = &value },
               NULL, "it", cell_id, metric);
    return value;
}

struct measurement_reader {
    void (*row)(void *ctx, const char *metric, const char *unit, double value);
    void *ctx;
};

static enum err_code measurement_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    const struct measurement_reader *r = ctx;
    double value = (double)NAN;
    (void)why;
    if (sqlite3_column_type(row, 2) != SQLITE_NULL) value = sqlite3_column_double(row, 2);
    r->row(r->ctx, (const char *)sqlite3_column_text(row, 0), (const char *)sqlite3_column_text(row, 1),
           value);
    return ERR_OK;
}

enum err_code db_measurement_list(struct db *d, int64_t cell_id,
                                  void (*row)(void *ctx, const char *metric, const char *unit, double value),
                                  void *ctx, struct err *why)
{
    struct measurement_reader r = { row, ctx };
    return db_execute(
        d,
        &(struct db_call){ .doing = "list measurements",
                           .sql = "SELECT metric, unit, value FROM measurement WHERE cell_id = ?"
                                  " ORDER BY metric",
                           .row = measurement_row,
                           .ctx = &r },
        why, "i", cell_id);
}

struct sample_reader {
    void (*row)(void *ctx, int64_t t_ns, const char *metric, double value);
    void *ctx;
};

static enum err_code sample_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    const struct sample_reader *r = ctx;
    (void)why;
    if (sqlite3_column_type(row, 2) != SQLITE_NULL)
        r->row(r->ctx, sqlite3_column_int64(row, 0), (const char *)sqlite3_column_text(row, 1),
               sqlite3_column_double(row, 2));
    return ERR_OK;
}

enum err_code db_sample_list(struct db *d, int64_t cell_id,
                             void (*row)(void *ctx, int64_t t_ns, const char *metric, double value),
                             void *ctx, struct err *why)
{
    struct sample_reader r = { row, ctx };
    return db_execute(d,
                      &(struct db_call){ .doing = "list samples",
                                         .sql = "SELECT t_ns, metric, value FROM sample WHERE cell_id = ?"
                                                " ORDER BY t_ns, metric",
                                         .row = sample_row,
                                         .ctx = &r },
                      why, "i", cell_id);
}
