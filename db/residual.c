/* db/residual.c - prediction residuals: predicted and measured values, from which advisor/ learns corrections
 * of its cost model. */
#include "db/store.h"

#include <stdlib.h>

static const struct db_column RESIDUAL_COLUMNS[] = {
    DB_COLUMN(residual_row, id, I64),        DB_COLUMN(residual_row, machine, TEXT),
    DB_COLUMN(residual_row, basis, TEXT),    DB_COLUMN(residual_row, model, TEXT),
    DB_COLUMN(residual_row, config, TEXT),   DB_COLUMN(residual_row, workload, TEXT),
    DB_COLUMN(residual_row, metric, TEXT),   DB_COLUMN(residual_row, traits, TEXT),
    DB_COLUMN(residual_row, untaught, REAL), DB_COLUMN(residual_row, predicted, REAL),
    DB_COLUMN(residual_row, low, REAL),      DB_COLUMN(residual_row, high, REAL),
    DB_COLUMN(residual_row, measured, REAL), DB_COLUMN(residual_row, run_id, I64),
    DB_COLUMN(residual_row, unix_ms, I64),   DB_COLUMN(residual_row, memory_ratio, REAL),
    DB_COLUMN(residual_row, foretold, REAL), DB_COLUMN(residual_row, core_ratio, REAL),
};
static const struct db_table RESIDUAL = DB_TABLE("residual", residual_row, RESIDUAL_COLUMNS);

enum err_code db_residual_insert(struct db *d, struct residual_row *r, struct err *why)
{
    if (!r->unix_ms) r->unix_ms = clock_unix_ms();
    return db_table_insert(d, &RESIDUAL, r, "store a prediction residual", why);
}

enum err_code db_residual_list(struct db *d, const char *machine, const char *basis, int limit,
                               struct residual_row **rows, int *n, struct err *why)
{
    const struct db_query q = {
        .table = &RESIDUAL,
        .doing = "list prediction residuals",
        .tail = "WHERE machine = ? AND (?2 IS NULL OR basis = ?2) ORDER BY id DESC LIMIT ?"
    };
    void *list;
    const enum err_code rc = db_table_list(d, &q, &list, n, why, "tti", machine, basis, (int64_t)limit);
    *rows = list;
    return rc;
}

enum err_code db_residual_clear(struct db *d, const char *machine, struct err *why)
{
    return db_execute(d,
                      &(struct db_call){ .doing = "delete prediction residuals",
                                         .sql = "DELETE FROM residual WHERE machine = ?" },
                      why, "t", machine);
}
