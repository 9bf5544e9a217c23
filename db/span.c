/* db/span.c - spans: when the parts of a run began and ended; and the runs whose traces still have to be sent
 * to a collector. */
#include "db/store.h"

#include <stdlib.h>

static const struct db_column SPAN_COLUMNS[] = {
    DB_COLUMN(span_row, id, I64),     DB_COLUMN(span_row, run_id, I64),   DB_COLUMN(span_row, cell_id, I64),
    DB_COLUMN(span_row, arm, INT),    DB_COLUMN(span_row, block, INT),    DB_COLUMN(span_row, phase, TEXT),
    DB_COLUMN(span_row, name, TEXT),  DB_COLUMN(span_row, begun_ns, I64), DB_COLUMN(span_row, ended_ns, I64),
    DB_COLUMN(span_row, error, TEXT),
};
static const struct db_table SPAN = DB_TABLE("span", span_row, SPAN_COLUMNS);

static const char STORE_SPANS[] = "store spans";

enum err_code spans_insert(struct db *d, struct span_row *rows, int n, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < n && !rc; i++) rc = db_table_insert(d, &SPAN, &rows[i], STORE_SPANS, why);
    return rc;
}

enum err_code db_span_insert(struct db *d, struct span_row *rows, int n, struct err *why)
{
    if (!n) return ERR_OK;
    enum err_code rc = db_begin(d, STORE_SPANS, why);
    return rc ? rc : db_end(d, spans_insert(d, rows, n, why), STORE_SPANS, why);
}

enum err_code db_span_list(struct db *d, int64_t run_id, struct span_row **rows, int *n, struct err *why)
{
    const struct db_query q = { .table = &SPAN,
                                .doing = "list spans",
                                .tail = "WHERE run_id = ? ORDER BY id" };
    void *list;
    const enum err_code rc = db_table_list(d, &q, &list, n, why, "i", run_id);
    *rows = list;
    return rc;
}

/* ---------------------------------------------------------------- traces to send */

struct trace_due_row {
    int64_t run_id;
    const char *url;
    int64_t since_ms;
    int attempts;
    const char *last_error;
};
static const struct db_column TRACE_DUE_COLUMNS[] = {
    DB_COLUMN(trace_due_row, run_id, I64),          DB_COLUMN(trace_due_row, url, BORROWED),
    DB_COLUMN(trace_due_row, since_ms, I64),        DB_COLUMN(trace_due_row, attempts, INT),
    DB_COLUMN(trace_due_row, last_error, BORROWED),
};
static const struct db_table TRACE_DUE = DB_TABLE_KEYED("trace_due", trace_due_row, TRACE_DUE_COLUMNS);

enum err_code db_trace_due_put(struct db *d, int64_t run_id, const char *url, const char *error,
                               struct err *why)
{
    const struct db_put p = { .table = &TRACE_DUE,
                              .doing = "store a trace to send",
                              .tail = "ON CONFLICT DO UPDATE SET attempts = attempts + 1,"
                                      " last_error = excluded.last_error" };
    const struct trace_due_row row = {
        .run_id = run_id, .url = url, .since_ms = clock_unix_ms(), .attempts = 1, .last_error = error
    };
    return db_table_put(d, &p, &row, why);
}

enum err_code db_trace_due_done(struct db *d, int64_t run_id, const char *url, struct err *why)
{
    return db_execute(d,
                      &(struct db_call){ .doing = "delete a trace to send",
                                         .sql = "DELETE FROM trace_due WHERE run_id = ? AND url = ?" },
                      why, "it", run_id, url);
}

struct id_list {
    int64_t *ids;
    int n;
};

static enum err_code id_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct id_list *l = ctx;
    int64_t *more = realloc(l->ids, (size_t)(l->n + 1) * sizeof *more);
    if (!more) return err_set(why, ERR_NOMEM, "out of memory listing traces");
    l->ids = more;
    l->ids[l->n++] = sqlite3_column_int64(row, 0);
    return ERR_OK;
}

enum err_code db_trace_due_list(struct db *d, const char *url, int64_t **run_ids, int *n, struct err *why)
{
    struct id_list l = { 0 };
    enum err_code rc = db_execute(d,
                                  &(struct db_call){ .doing = "list traces to send",
                                                     .sql = "SELECT run_id FROM trace_due WHERE url = ?"
                                                            " ORDER BY since_ms, run_id",
                                                     .row = id_append,
                                                     .ctx = &l },
                                  why, "t", url);
    if (rc) {
        free(l.ids);
        l = (struct id_list){ 0 };
    }
    *run_ids = l.ids;
    *n = l.n;
    return rc;
}

static enum err_code count_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    *(int *)ctx = sqlite3_column_int(row, 0);
    return ERR_OK;
}

enum err_code db_trace_due_count_read(struct db *d, int *n, struct err *why)
{
    *n = -1;
    return db_execute(d,
                      &(struct db_call){ .doing = "count traces to send",
                                         .sql = "SELECT count(*) FROM trace_due",
                                         .row = count_row,
                                         .ctx = n },
                      why, "");
}

int db_trace_due_count(struct db *d)
{
    int n;
    db_trace_due_count_read(d, &n, NULL);
    return n;
}
