/* db/history.c - what runs are compared by over time: capsules, the values of cells that count, links between
 * runs, champions. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- capsules */

enum err_code db_capsule_put(struct db *d, int64_t run_id, const char *json, struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "store a run's capsule",
                                    "INSERT OR REPLACE INTO capsule(run_id, json) VALUES(?,?)", NULL, NULL },
                 why, "it", run_id, json);
}

static enum err_code capsule_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    char **text = ctx;
    *text = strdup((const char *)sqlite3_column_text(row, 0));
    return *text ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory reading a capsule");
}

enum err_code db_capsule_get(struct db *d, int64_t run_id, char **json, struct err *why)
{
    *json = NULL;
    return db_do(d,
                 &(struct db_call){ "read a run's capsule", "SELECT json FROM capsule WHERE run_id = ?",
                                    capsule_row, json },
                 why, "i", run_id);
}

/* ---------------------------------------------------------------- values */

struct value_reader {
    db_value_fn *row;
    void *ctx;
};

static enum err_code value_row(void *ctx, sqlite3_stmt *s, struct err *why)
{
    const struct value_reader *r = ctx;
    const struct value_row v = {
        .cell_id = sqlite3_column_int64(s, 0),
        .arm = sqlite3_column_int(s, 1),
        .block = sqlite3_column_int(s, 2),
        .phase = (const char *)sqlite3_column_text(s, 3),
        .config = (const char *)sqlite3_column_text(s, 4),
        .work_hash = (const char *)sqlite3_column_text(s, 5),
        .metric = (const char *)sqlite3_column_text(s, 6),
        .value = sqlite3_column_double(s, 7),
        .workload = (const char *)sqlite3_column_text(s, 8),
    };
    return r->row(r->ctx, &v, why);
}

enum err_code db_value_list(struct db *d, int64_t run_id, db_value_fn *row, void *ctx, struct err *why)
{
    struct value_reader r = { row, ctx };
    return db_do(
        d,
        &(struct db_call){
            "list a run's values",
            "SELECT c.id, c.arm, c.block, c.phase, c.config, c.work_hash, m.metric,"
            " m.value, coalesce(CASE WHEN json_valid(c.worker_json) THEN"
            "  json_extract(c.worker_json, '$.workload') END, r.workload)"
            " FROM cell c JOIN run r ON r.id = c.run_id"
            " JOIN measurement m ON m.cell_id = c.id WHERE c.run_id = ? AND c.discarded = 0 AND c.error = ''"
            " AND m.value IS NOT NULL ORDER BY c.id, m.metric",
            value_row, &r },
        why, "i", run_id);
}

/* ---------------------------------------------------------------- links */

enum err_code db_link_put(struct db *d, int64_t run_id, int64_t of_run, const char *kind, const char *verdict,
                          struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "link two runs",
                                    "INSERT OR REPLACE INTO run_link(run_id, of_run, kind, verdict)"
                                    " VALUES(?,?,?,?)",
                                    NULL, NULL },
                 why, "iitt", run_id, of_run, kind, verdict);
}

struct link_reader {
    struct link_row *out;
    bool found;
};

static enum err_code link_read(void *ctx, sqlite3_stmt *s, struct err *why)
{
    struct link_reader *r = ctx;
    (void)why;
    r->found = true;
    r->out->of_run = sqlite3_column_int64(s, 0);
    snprintf(r->out->kind, sizeof r->out->kind, "%s", (const char *)sqlite3_column_text(s, 1));
    snprintf(r->out->verdict, sizeof r->out->verdict, "%s", (const char *)sqlite3_column_text(s, 2));
    return ERR_OK;
}

enum err_code db_link_get(struct db *d, int64_t run_id, struct link_row *out, bool *found, struct err *why)
{
    memset(out, 0, sizeof *out);
    struct link_reader r = { out, false };
    enum err_code rc = db_do(d,
                             &(struct db_call){ "read a run's link",
                                                "SELECT of_run, kind, verdict FROM run_link WHERE run_id = ?",
                                                link_read, &r },
                             why, "i", run_id);
    *found = r.found && !rc;
    return rc;
}

/* ---------------------------------------------------------------- champions */

static const struct column BASELINE_COLUMNS[] = {
    COLUMN(baseline_row, id, I64),           COLUMN(baseline_row, name, TEXT),
    COLUMN(baseline_row, config, TEXT),      COLUMN(baseline_row, model_path, TEXT),
    COLUMN(baseline_row, model_sha256, KEY), COLUMN(baseline_row, model_name, TEXT),
    COLUMN(baseline_row, workload, TEXT),    COLUMN(baseline_row, metric, TEXT),
    COLUMN(baseline_row, margin, REAL),      COLUMN(baseline_row, value, REAL),
    COLUMN(baseline_row, machine, TEXT),     COLUMN(baseline_row, run_id, I64),
    COLUMN(baseline_row, set_ms, I64),
};
static const struct table BASELINE = { "baseline", BASELINE_COLUMNS, COUNT_OF(BASELINE_COLUMNS) };

enum err_code db_baseline_put(struct db *d, struct baseline_row *b, struct err *why)
{
    static const char DOING[] = "store a baseline";
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    b->set_ms = clock_unix_ms();
    rc = db_do(d, &(struct db_call){ DOING, "DELETE FROM baseline WHERE name = ?", NULL, NULL }, why, "t",
               b->name);
    if (!rc) rc = table_insert(d, &BASELINE, b, DOING, why);
    return db_end(d, rc, DOING, why);
}

struct baseline_list {
    struct baseline_row *rows;
    int n, cap;
};

static enum err_code baseline_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct baseline_list *l = ctx;
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 8;
        struct baseline_row *rows = realloc(l->rows, (size_t)cap * sizeof *rows);
        if (!rows) return err_set(why, ERR_NOMEM, "out of memory listing baselines");
        l->rows = rows;
        l->cap = cap;
    }
    return table_read(&BASELINE, &l->rows[l->n++], row, why);
}

enum err_code db_baseline_list(struct db *d, struct baseline_row **rows, int *n, struct err *why)
{
    struct baseline_list l = { 0 };
    struct str sql = { 0 };
    table_select(&sql, &BASELINE, "ORDER BY name");
    enum err_code rc = db_do(d, &(struct db_call){ "list baselines", str_text(&sql), baseline_append, &l },
                             why, "");
    str_free(&sql);
    if (rc) {
        free(l.rows);
        l = (struct baseline_list){ 0 };
    }
    *rows = l.rows;
    *n = l.n;
    return rc;
}
