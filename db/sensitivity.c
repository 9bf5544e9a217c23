/* db/sensitivity.c - what each tensor of a model costs when only that one is stored in fewer bits. */
#include "db/store.h"

#include <stdlib.h>

static const struct column SENSITIVITY_COLUMNS[] = {
    COLUMN(sensitivity_row, id, I64),      COLUMN(sensitivity_row, model, TEXT),
    COLUMN(sensitivity_row, basis, TEXT),  COLUMN(sensitivity_row, tensor, TEXT),
    COLUMN(sensitivity_row, format, TEXT), COLUMN(sensitivity_row, bytes, I64),
    COLUMN(sensitivity_row, kld, REAL),    COLUMN(sensitivity_row, kld_se, REAL),
    COLUMN(sensitivity_row, nmse, REAL),   COLUMN(sensitivity_row, unix_ms, I64),
};
static const struct table SENSITIVITY = { "sensitivity", SENSITIVITY_COLUMNS, COUNT_OF(SENSITIVITY_COLUMNS) };

enum err_code db_sensitivity_put(struct db *d, struct sensitivity_row *r, struct err *why)
{
    static const char DOING[] = "store a tensor's sensitivity";
    static const char REMOVE[] =
        "DELETE FROM sensitivity WHERE model = ? AND basis = ? AND tensor = ? AND format = ?";
    if (!r->unix_ms) r->unix_ms = clock_unix_ms();
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    rc = db_do(d, &(struct db_call){ DOING, REMOVE, NULL, NULL }, why, "tttt", r->model, r->basis, r->tensor,
               r->format);
    if (!rc) rc = table_insert(d, &SENSITIVITY, r, DOING, why);
    return db_end(d, rc, DOING, why);
}

struct sensitivity_reader {
    struct sensitivity_row *rows;
    int n, cap;
};

static enum err_code sensitivity_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct sensitivity_reader *r = ctx;
    if (r->n == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 256;
        struct sensitivity_row *rows = realloc(r->rows, (size_t)cap * sizeof *rows);
        if (!rows) return err_set(why, ERR_NOMEM, "out of memory listing sensitivities");
        r->rows = rows;
        r->cap = cap;
    }
    return table_read(&SENSITIVITY, &r->rows[r->n++], row, why);
}

enum err_code db_sensitivity_list(struct db *d, const char *model, const char *basis,
                                  struct sensitivity_row **rows, int *n, struct err *why)
{
    static const char TAIL[] =
        "WHERE model = ?1 AND basis = coalesce(?2,"
        " (SELECT basis FROM sensitivity WHERE model = ?1 ORDER BY id DESC LIMIT 1)) ORDER BY id";
    struct sensitivity_reader r = { 0 };
    struct str sql = { 0 };
    table_select(&sql, &SENSITIVITY, TAIL);
    enum err_code rc = db_do(
        d, &(struct db_call){ "list sensitivities", str_text(&sql), sensitivity_append, &r }, why, "tt",
        model, basis);
    str_free(&sql);
    if (rc) {
        free(r.rows);
        r = (struct sensitivity_reader){ 0 };
    }
    *rows = r.rows;
    *n = r.n;
    return rc;
}
