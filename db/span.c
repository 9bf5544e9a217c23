/* db/span.c - when what a run is made of began and ended: spans, beside what its cells say; and the runs that
 * a collector of spans has yet to be told. */
#include "db/store.h"

#include <stdlib.h>

static const struct column SPAN_COLUMNS[] = {
    COLUMN(span_row, id, I64),     COLUMN(span_row, run_id, I64),   COLUMN(span_row, cell_id, I64),
    COLUMN(span_row, arm, INT),    COLUMN(span_row, block, INT),    COLUMN(span_row, phase, TEXT),
    COLUMN(span_row, name, TEXT),  COLUMN(span_row, begun_ns, I64), COLUMN(span_row, ended_ns, I64),
    COLUMN(span_row, error, TEXT),
};
static const struct table SPAN = { "span", SPAN_COLUMNS, COUNT_OF(SPAN_COLUMNS) };

enum err_code db_span_insert(struct db *d, struct span_row *rows, int n, struct err *why)
{
    static const char DOING[] = "store spans";
    if (!n) return ERR_OK;
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    for (int i = 0; i < n && !rc; i++) rc = table_insert(d, &SPAN, &rows[i], DOING, why);
    return db_end(d, rc, DOING, why);
}

struct span_reader {
    struct span_row *rows;
    int n, cap;
};

static enum err_code span_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct span_reader *r = ctx;
    if (r->n == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 64;
        struct span_row *rows = realloc(r->rows, (size_t)cap * sizeof *rows);
        if (!rows) return err_set(why, ERR_NOMEM, "out of memory listing spans");
        r->rows = rows;
        r->cap = cap;
    }
    return table_read(&SPAN, &r->rows[r->n++], row, why);
}

enum err_code db_span_list(struct db *d, int64_t run_id, struct span_row **rows, int *n, struct err *why)
{
    struct span_reader r = { 0 };
    struct str sql = { 0 };
    table_select(&sql, &SPAN, "WHERE run_id = ? ORDER BY id");
    enum err_code rc = db_do(d, &(struct db_call){ "list spans", str_text(&sql), span_append, &r }, why, "i",
                             run_id);
    str_free(&sql);
    if (rc) {
        free(r.rows);
        r = (struct span_reader){ 0 };
    }
    *rows = r.rows;
    *n = r.n;
    return rc;
}

/* ---------------------------------------------------------------- what waits */

enum err_code db_trace_due_put(struct db *d, int64_t run_id, const char *url, const char *error,
                               struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "note a trace that waits",
                                    "INSERT INTO trace_due VALUES(?,?,?,1,?) ON CONFLICT DO UPDATE"
                                    " SET attempts = attempts + 1, last_error = excluded.last_error",
                                    NULL, NULL },
                 why, "itit", run_id, url, clock_unix_ms(), error);
}

enum err_code db_trace_due_done(struct db *d, int64_t run_id, const char *url, struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "forget a trace that waits",
                                    "DELETE FROM trace_due WHERE run_id = ? AND url = ?", NULL, NULL },
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
    enum err_code rc = db_do(d,
                             &(struct db_call){ "list traces that wait",
                                                "SELECT run_id FROM trace_due WHERE url = ?"
                                                " ORDER BY since_ms, run_id",
                                                id_append, &l },
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

int db_trace_due_count(struct db *d)
{
    int n = -1;
    db_do(d, &(struct db_call){ "count traces that wait", "SELECT count(*) FROM trace_due", count_row, &n },
          NULL, "");
    return n;
}
