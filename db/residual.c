/* db/residual.c - predictions and what was then measured: what a machine has taught the cost model. */
#include "db/store.h"

#include <stdlib.h>

static const struct column RESIDUAL_COLUMNS[] = {
    COLUMN(residual_row, id, I64),        COLUMN(residual_row, machine, TEXT),
    COLUMN(residual_row, basis, TEXT),    COLUMN(residual_row, model, TEXT),
    COLUMN(residual_row, config, TEXT),   COLUMN(residual_row, workload, TEXT),
    COLUMN(residual_row, metric, TEXT),   COLUMN(residual_row, traits, TEXT),
    COLUMN(residual_row, untaught, REAL), COLUMN(residual_row, predicted, REAL),
    COLUMN(residual_row, low, REAL),      COLUMN(residual_row, high, REAL),
    COLUMN(residual_row, measured, REAL), COLUMN(residual_row, run_id, I64),
    COLUMN(residual_row, unix_ms, I64),   COLUMN(residual_row, memory_ratio, REAL),
    COLUMN(residual_row, foretold, REAL), COLUMN(residual_row, core_ratio, REAL),
};
static const struct table RESIDUAL = { "residual", RESIDUAL_COLUMNS, COUNT_OF(RESIDUAL_COLUMNS) };

enum err_code db_residual_insert(struct db *d, struct residual_row *r, struct err *why)
{
    if (!r->unix_ms) r->unix_ms = clock_unix_ms();
    return table_insert(d, &RESIDUAL, r, "store what a prediction was worth", why);
}

struct residual_reader {
    struct residual_row *rows;
    int n, cap;
};

static enum err_code residual_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct residual_reader *r = ctx;
    if (r->n == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 64;
        struct residual_row *rows = realloc(r->rows, (size_t)cap * sizeof *rows);
        if (!rows) return err_set(why, ERR_NOMEM, "out of memory listing predictions");
        r->rows = rows;
        r->cap = cap;
    }
    return table_read(&RESIDUAL, &r->rows[r->n++], row, why);
}

enum err_code db_residual_list(struct db *d, const char *machine, const char *basis, int limit,
                               struct residual_row **rows, int *n, struct err *why)
{
    struct residual_reader r = { 0 };
    struct str sql = { 0 };
    table_select(&sql, &RESIDUAL,
                 "WHERE machine = ? AND (?2 IS NULL OR basis = ?2) ORDER BY id DESC LIMIT ?");
    enum err_code rc = db_do(d, &(struct db_call){ "list predictions", str_text(&sql), residual_append, &r },
                             why, "tti", machine, basis, (int64_t)limit);
    str_free(&sql);
    if (rc) {
        free(r.rows);
        r = (struct residual_reader){ 0 };
    }
    *rows = r.rows;
    *n = r.n;
    return rc;
}

enum err_code db_residual_clear(struct db *d, const char *machine, struct err *why)
{
    return db_do(
        d, &(struct db_call){ "forget predictions", "DELETE FROM residual WHERE machine = ?", NULL, NULL },
        why, "t", machine);
}
