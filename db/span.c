/* db/span.c - when what a run is made of began and ended: spans, beside what its cells say. */
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
