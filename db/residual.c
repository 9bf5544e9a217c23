/* db/residual.c - prediction residuals: predicted and measured values, from which advisor/ learns corrections
 * of its cost model. */
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
static const struct table RESIDUAL = TABLE("residual", residual_row, RESIDUAL_COLUMNS);

enum err_code db_residual_insert(struct db *d, struct residual_row *r, struct err *why)
{
    if (!r->unix_ms) r->unix_ms = clock_unix_ms();
    return table_insert(d, &RESIDUAL, r, "store a prediction residual", why);
}

enum err_code db_residual_list(struct db *d, const char *machine, const char *basis, int limit,
                               struct residual_row **rows, int *n, struct err *why)
{
    const struct table_query q = {
        .table = &RESIDUAL,
        .doing = "list prediction residuals",
        .tail = "WHERE machine = ? AND (?2 IS NULL OR basis = ?2) ORDER BY id DESC LIMIT ?"
    };
    void *list;
    const enum err_code rc = table_list(d, &q, &list, n, why, "tti", machine, basis, (int64_t)limit);
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
