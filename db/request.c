/* db/request.c - the requests of cells, from which histograms and totals are counted, and counts of cells and
 * runs. Figures are stored unbinned, so that the reader chooses the bucket bounds. */
#include "db/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct request_figures) == 5 * sizeof(float), "the blob is five f32 a request");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the blob is little-endian f32");

struct request_row {
    int64_t cell_id;
    const char *model, *workload;
    int sequences, n;
    struct db_blob figures_f32;
};
static const struct db_column REQUEST_COLUMNS[] = {
    DB_COLUMN(request_row, cell_id, I64),
    DB_COLUMN(request_row, model, BORROWED),
    DB_COLUMN(request_row, workload, BORROWED),
    DB_COLUMN(request_row, sequences, INT),
    DB_COLUMN(request_row, n, INT),
    DB_COLUMN(request_row, figures_f32, BLOB),
};
static const struct db_table REQUEST = DB_TABLE_KEYED("request", request_row, REQUEST_COLUMNS);

enum err_code requests_insert(struct db *d, int64_t cell_id, const struct request_rows *r, struct err *why)
{
    const struct request_row row = { .cell_id = cell_id,
                                     .model = r->model,
                                     .workload = r->workload,
                                     .sequences = r->sequences,
                                     .n = r->n,
                                     .figures_f32 = { .data = r->figures,
                                                      .bytes = (size_t)r->n * sizeof *r->figures } };
    return db_table_put(d, &(struct db_put){ .table = &REQUEST, .doing = "store a cell" }, &row, why);
}

/* ---------------------------------------------------------------- reading */

struct request_reader {
    db_request_fn *row;
    void *ctx;
};

static void copy_text(char *out, size_t size, sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    snprintf(out, size, "%s", text ? text : "");
}

static enum err_code request_read(void *ctx, sqlite3_stmt *row, struct err *why)
{
    const struct request_reader *r = ctx;
    struct cell_requests c = { .cell_id = sqlite3_column_int64(row, 0),
                               .requests.sequences = sqlite3_column_int(row, 3) };
    copy_text(c.requests.model, sizeof c.requests.model, row, 1);
    copy_text(c.requests.workload, sizeof c.requests.workload, row, 2);
    /* no copy is needed: SQLite aligns blobs for any type, and the callback only reads */
    c.requests.figures = (struct request_figures *)sqlite3_column_blob(row, 4);
    c.requests.n = sqlite3_column_bytes(row, 4) / (int)sizeof *c.requests.figures;
    c.itl = sqlite3_column_blob(row, 5);
    c.n_itl = sqlite3_column_bytes(row, 5) / (int)sizeof *c.itl;
    return r->row(r->ctx, &c, why);
}

enum err_code db_request_list(struct db *d, int64_t after_cell, db_request_fn *row, void *ctx,
                              struct err *why)
{
    struct request_reader r = { row, ctx };
    return db_execute(
        d,
        &(struct db_call){ .doing = "list requests",
                           .sql = "SELECT r.cell_id, r.model, r.workload, r.sequences, r.figures_f32,"
                                  " i.seconds_f32 FROM request r LEFT JOIN itl i ON i.cell_id = r.cell_id"
                                  " WHERE r.cell_id > ? ORDER BY r.cell_id",
                           .row = request_read,
                           .ctx = &r },
        why, "i", after_cell);
}

/* ---------------------------------------------------------------- counts */

struct count_reader {
    struct count_row *out;
    int max, n;
};

static enum err_code count_one(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct count_reader *r = ctx;
    (void)why;
    if (r->n == r->max) return ERR_OK;
    struct count_row *c = &r->out[r->n++];
    copy_text(c->what, sizeof c->what, row, 0);
    copy_text(c->state, sizeof c->state, row, 1);
    c->n = sqlite3_column_int64(row, 2);
    return ERR_OK;
}

static enum err_code counts(struct db *d, const char *sql, struct count_reader *r, int *n, struct err *why)
{
    const enum err_code rc = db_execute(
        d, &(struct db_call){ .doing = "count what is there", .sql = sql, .row = count_one, .ctx = r }, why,
        "");
    *n = rc ? 0 : r->n;
    return rc;
}

enum err_code db_cell_counts(struct db *d, struct count_row *out, int max, int *n, struct err *why)
{
    struct count_reader r = { out, max, 0 };
    return counts(
        d,
        /* grouped in the order of the index cell_result, so that only the index is read */
        "SELECT CASE WHEN NOT ok THEN 'failed' WHEN discarded THEN 'discarded' ELSE 'kept' END AS what,"
        " '', sum(n) FROM (SELECT discarded, (error = '') AS ok, count(*) AS n FROM cell"
        " GROUP BY discarded, (error = '')) GROUP BY what ORDER BY what",
        &r, n, why);
}

/* The row of these names, a new one if there is none; NULL: no room. */
static struct count_row *count_row_of(struct count_reader *r, const char *what, const char *state)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->out[i].what, what) && !strcmp(r->out[i].state, state)) return &r->out[i];
    if (r->n == r->max) return NULL;
    struct count_row *row = &r->out[r->n++];
    *row = (struct count_row){ .n = 0 };
    snprintf(row->what, sizeof row->what, "%s", what);
    snprintf(row->state, sizeof row->state, "%s", state);
    return row;
}

enum err_code db_run_counts(struct db *d, struct count_row *out, int max, int *n, struct err *why)
{
    struct count_reader r = { out, max, 0 };
    struct abandoned_run *run = NULL;
    int abandoned = 0;
    enum err_code rc = counts(
        d, "SELECT kind, state, count(*) FROM run GROUP BY kind, state ORDER BY kind, state", &r, n, why);
    if (!rc) rc = abandoned_list(d, &run, &abandoned, why);
    for (int i = 0; i < abandoned; i++) {
        struct count_row *running = count_row_of(&r, run[i].kind, "running"),
                         *interrupted = count_row_of(&r, run[i].kind, "interrupted");
        if (!running || !interrupted || !running->n) continue;
        running->n--;
        interrupted->n++;
    }
    free(run);
    *n = rc ? 0 : r.n;
    return rc;
}

/* ---------------------------------------------------------------- newest measurement */

struct latest {
    double value;
    int64_t unix_ms;
};

static enum err_code latest_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    *(struct latest *)ctx = (struct latest){ sqlite3_column_double(row, 0), sqlite3_column_int64(row, 1) };
    return ERR_OK;
}

enum err_code db_latest(struct db *d, const char *phase, const char *metric, double *value, int64_t *unix_ms,
                        struct err *why)
{
    struct latest l = { (double)NAN, 0 };
    enum err_code rc = db_execute(
        d,
        &(struct db_call){ .doing = "read the newest measurement",
                           .sql = "SELECT m.value, c.started_ms FROM cell c JOIN measurement m"
                                  " ON m.cell_id = c.id AND m.metric = ?1 WHERE c.phase = ?2"
                                  " AND m.value IS NOT NULL ORDER BY c.id DESC LIMIT 1",
                           .row = latest_row,
                           .ctx = &l },
        why, "tt", metric, phase);
    *value = l.value;
    *unix_ms = l.unix_ms;
    return rc;
}
