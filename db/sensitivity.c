/* db/sensitivity.c - the KL divergence that results when a single tensor of a model is stored in fewer bits.
 */
#include "db/store.h"

#include <stdlib.h>

static const struct db_column SENSITIVITY_COLUMNS[] = {
    DB_COLUMN(sensitivity_row, id, I64),      DB_COLUMN(sensitivity_row, model, TEXT),
    DB_COLUMN(sensitivity_row, basis, TEXT),  DB_COLUMN(sensitivity_row, tensor, TEXT),
    DB_COLUMN(sensitivity_row, format, TEXT), DB_COLUMN(sensitivity_row, bytes, I64),
    DB_COLUMN(sensitivity_row, kld, REAL),    DB_COLUMN(sensitivity_row, kld_se, REAL),
    DB_COLUMN(sensitivity_row, nmse, REAL),   DB_COLUMN(sensitivity_row, unix_ms, I64),
};
static const struct db_table SENSITIVITY = DB_TABLE("sensitivity", sensitivity_row, SENSITIVITY_COLUMNS);

enum err_code db_sensitivity_put(struct db *d, struct sensitivity_row *r, struct err *why)
{
    static const char DOING[] = "store a tensor's sensitivity";
    static const char REMOVE[] =
        "DELETE FROM sensitivity WHERE model = ? AND basis = ? AND tensor = ? AND format = ?";
    if (!r->unix_ms) r->unix_ms = clock_unix_ms();
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    rc = db_execute(d, &(struct db_call){ .doing = DOING, .sql = REMOVE }, why, "tttt", r->model, r->basis,
                    r->tensor, r->format);
    if (!rc) rc = db_table_insert(d, &SENSITIVITY, r, DOING, why);
    return db_end(d, rc, DOING, why);
}

enum err_code db_sensitivity_list(struct db *d, const char *model, const char *basis,
                                  struct sensitivity_row **rows, int *n, struct err *why)
{
    const struct db_query q = {
        .table = &SENSITIVITY,
        .doing = "list sensitivities",
        .tail = "WHERE model = ?1 AND basis = coalesce(?2, (SELECT basis FROM sensitivity WHERE model = ?1"
                " ORDER BY id DESC LIMIT 1)) ORDER BY id"
    };
    void *list;
    const enum err_code rc = db_table_list(d, &q, &list, n, why, "tt", model, basis);
    *rows = list;
    return rc;
}
