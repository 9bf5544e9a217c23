/* db/cell.c - cells and everything measured in them. Each cell is one transaction, so a killed process loses
 * only the cell that was running. */
#include "db/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct db_column CELL_COLUMNS[] = {
    DB_COLUMN(cell_row, id, I64),
    DB_COLUMN(cell_row, run_id, I64),
    DB_COLUMN(cell_row, arm, INT),
    DB_COLUMN(cell_row, block, INT),
    DB_COLUMN(cell_row, slot, INT),
    DB_COLUMN(cell_row, phase, TEXT),
    DB_COLUMN(cell_row, discarded, BOOL),
    DB_COLUMN(cell_row, discard_reason, TEXT),
    DB_COLUMN(cell_row, config, TEXT),
    DB_COLUMN(cell_row, work_hash, TEXT),
    DB_COLUMN(cell_row, output_hash, TEXT),
    DB_COLUMN(cell_row, started_ms, I64),
    DB_COLUMN(cell_row, seconds, REAL),
    DB_COLUMN(cell_row, error, TEXT),
    DB_COLUMN(cell_row, worker_json, OWNED),
};
static const struct db_table CELL = DB_TABLE("cell", cell_row, CELL_COLUMNS);

static const char STORE_CELL[] = "store a cell";

struct measurement_row {
    int64_t cell_id;
    struct measurement m;
};
static const struct db_column MEASUREMENT_COLUMNS[] = {
    DB_COLUMN(measurement_row, cell_id, I64),
    DB_COLUMN_AS("metric", measurement_row, m.metric, BORROWED),
    DB_COLUMN_AS("unit", measurement_row, m.unit, BORROWED),
    DB_COLUMN_AS("value", measurement_row, m.value, REAL),
};
static const struct db_table MEASUREMENT = DB_TABLE_KEYED("measurement", measurement_row,
                                                          MEASUREMENT_COLUMNS);

struct cell_sample {
    int64_t cell_id;
    struct sample_row s;
};
static const struct db_column SAMPLE_COLUMNS[] = {
    DB_COLUMN(cell_sample, cell_id, I64),
    DB_COLUMN_AS("t_ns", cell_sample, s.t_ns, I64),
    DB_COLUMN_AS("metric", cell_sample, s.metric, BORROWED),
    DB_COLUMN_AS("value", cell_sample, s.value, REAL),
};
static const struct db_table SAMPLE = DB_TABLE_KEYED("sample", cell_sample, SAMPLE_COLUMNS);

struct itl_row {
    int64_t cell_id;
    int n;
    struct db_blob seconds_f32;
};
static const struct db_column ITL_COLUMNS[] = {
    DB_COLUMN(itl_row, cell_id, I64),
    DB_COLUMN(itl_row, n, INT),
    DB_COLUMN(itl_row, seconds_f32, BLOB),
};
static const struct db_table ITL = DB_TABLE_KEYED("itl", itl_row, ITL_COLUMNS);

static enum err_code measurements_insert(struct db *d, int64_t cell_id, const struct measurement *m, int n,
                                         struct err *why)
{
    const struct db_put p = { .table = &MEASUREMENT, .doing = STORE_CELL };
    sqlite3_stmt *s;
    enum err_code rc = db_put_prepare(d, &s, &p, why);
    for (int i = 0; i < n && !rc; i++) {
        struct measurement_row row = { .cell_id = cell_id, .m = m[i] };
        if (!row.m.unit) row.m.unit = "";
        rc = db_put_row(d, s, &p, &row, why);
    }
    sqlite3_finalize(s);
    return rc;
}

static enum err_code samples_insert(struct db *d, int64_t cell_id, const struct sample_row *r, int n,
                                    struct err *why)
{
    const struct db_put p = { .table = &SAMPLE, .doing = STORE_CELL };
    sqlite3_stmt *s;
    enum err_code rc = db_put_prepare(d, &s, &p, why);
    for (int i = 0; i < n && !rc; i++)
        rc = db_put_row(d, s, &p, &(struct cell_sample){ .cell_id = cell_id, .s = r[i] }, why);
    sqlite3_finalize(s);
    return rc;
}

static enum err_code itl_insert(struct db *d, int64_t cell_id, const float *itl, int n, struct err *why)
{
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the blob is little-endian f32");
    const struct itl_row row = { .cell_id = cell_id,
                                 .n = n,
                                 .seconds_f32 = { .data = itl, .bytes = (size_t)n * sizeof *itl } };
    return db_table_put(d, &(struct db_put){ .table = &ITL, .doing = STORE_CELL }, &row, why);
}

enum err_code db_cell_insert(struct db *d, struct cell_row *c, const struct measurement *m, int n_m,
                             const struct sample_row *samples, int n_samples, const float *itl, int n_itl,
                             struct err *why)
{
    enum err_code rc = db_begin(d, STORE_CELL, why);
    if (rc) return rc;
    if (!c->worker_json) c->worker_json = "";
    rc = db_table_insert(d, &CELL, c, STORE_CELL, why);
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

static enum err_code itl_copy(void *ctx, sqlite3_stmt *s, struct err *why)
{
    struct itl_reader *r = ctx;
    struct itl_row row;
    const enum err_code rc = db_table_read(&ITL, &row, s, why);
    if (rc || !row.seconds_f32.bytes) return rc;
    r->itl = malloc(row.seconds_f32.bytes);
    if (!r->itl) return err_set(why, ERR_NOMEM, "out of memory reading latencies");
    memcpy(r->itl, row.seconds_f32.data, row.seconds_f32.bytes);
    r->n = (int)(row.seconds_f32.bytes / sizeof *r->itl);
    return ERR_OK;
}

enum err_code db_itl_get(struct db *d, int64_t cell_id, float **itl, int *n, struct err *why)
{
    struct itl_reader r = { 0 };
    const struct db_query q = { .table = &ITL, .doing = "read latencies", .tail = "WHERE cell_id = ?" };
    const enum err_code rc = db_table_each(d, &q, itl_copy, &r, why, "i", cell_id);
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

enum err_code db_blocks_keep(struct db *d, int64_t run_id, const char *const except[3], struct err *why)
{
    return db_execute(
        d,
        &(struct db_call){ .doing = "keep disturbed blocks",
                           .sql = "UPDATE cell SET discarded = 0 WHERE run_id = ? AND block >= 0"
                                  " AND error = '' AND discard_reason NOT IN (?, ?, ?)" },
        why, "ittt", run_id, except[0], except[1], except[2]);
}

/* Moves the texts of a list behind its rows, so that one call of free() frees all of it. A text is NULL only
 * in a damaged file. */
static enum err_code texts_move(struct cell_row **cells, int n, struct err *why)
{
    struct cell_row *from = *cells;
    const size_t rows = (size_t)n * sizeof *from;
    size_t bytes = rows;
    for (int i = 0; i < n; i++) bytes += (from[i].worker_json ? strlen(from[i].worker_json) : 0) + 1;
    struct cell_row *all = malloc(bytes);
    if (all) memcpy(all, from, rows);
    for (size_t i = 0, at = rows; i < (size_t)n; i++) {
        char *text = (char *)from[i].worker_json; /* DB_COLUMN_OWNED */
        const size_t size = (text ? strlen(text) : 0) + 1;
        if (all) all[i].worker_json = memcpy((char *)all + at, text ? text : "", size);
        at += size;
        free(text);
    }
    free(from);
    *cells = all;
    return all ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory reading cells");
}

enum err_code db_cell_list(struct db *d, int64_t run_id, struct cell_row **cells, int *n, struct err *why)
{
    const struct db_query q = { .table = &CELL,
                                .doing = "list cells",
                                .tail = "WHERE run_id = ? ORDER BY id" };
    void *list;
    enum err_code rc = db_table_list(d, &q, &list, n, why, "i", run_id);
    *cells = list;
    if (!rc && *n) rc = texts_move(cells, *n, why);
    if (rc) *n = 0;
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

static enum err_code measurement_read(void *ctx, sqlite3_stmt *s, struct err *why)
{
    const struct measurement_reader *r = ctx;
    struct measurement_row row;
    const enum err_code rc = db_table_read(&MEASUREMENT, &row, s, why);
    if (!rc) r->row(r->ctx, row.m.metric, row.m.unit, row.m.value);
    return rc;
}

enum err_code db_measurement_list(struct db *d, int64_t cell_id,
                                  void (*row)(void *ctx, const char *metric, const char *unit, double value),
                                  void *ctx, struct err *why)
{
    const struct db_query q = { .table = &MEASUREMENT,
                                .doing = "list measurements",
                                .tail = "WHERE cell_id = ? ORDER BY metric" };
    struct measurement_reader r = { row, ctx };
    return db_table_each(d, &q, measurement_read, &r, why, "i", cell_id);
}

struct sample_reader {
    void (*row)(void *ctx, int64_t t_ns, const char *metric, double value);
    void *ctx;
};

static enum err_code sample_read(void *ctx, sqlite3_stmt *s, struct err *why)
{
    const struct sample_reader *r = ctx;
    struct cell_sample row;
    const enum err_code rc = db_table_read(&SAMPLE, &row, s, why);
    if (!rc && !isnan(row.s.value)) r->row(r->ctx, row.s.t_ns, row.s.metric, row.s.value);
    return rc;
}

enum err_code db_sample_list(struct db *d, int64_t cell_id,
                             void (*row)(void *ctx, int64_t t_ns, const char *metric, double value),
                             void *ctx, struct err *why)
{
    const struct db_query q = { .table = &SAMPLE,
                                .doing = "list samples",
                                .tail = "WHERE cell_id = ? ORDER BY t_ns, metric" };
    struct sample_reader r = { row, ctx };
    return db_table_each(d, &q, sample_read, &r, why, "i", cell_id);
}
