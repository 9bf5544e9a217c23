/* db/history.c - data to compare runs over time: capsules (the reproducibility record of a run), values of
 * valid cells, links between runs, and baselines. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- capsules */

enum err_code db_capsule_put(struct db *d, int64_t run_id, const char *json, struct err *why)
{
    return db_execute(d,
                      &(struct db_call){ .doing = "store a run's capsule",
                                         .sql = "INSERT OR REPLACE INTO capsule(run_id, json) VALUES(?,?)" },
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
    return db_execute(d,
                      &(struct db_call){ .doing = "read a run's capsule",
                                         .sql = "SELECT json FROM capsule WHERE run_id = ?",
                                         .row = capsule_row,
                                         .ctx = json },
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
    return db_execute(
        d,
        &(struct db_call){
            .doing = "list a run's values",
            .sql =
                "SELECT c.id, c.arm, c.block, c.phase, c.config, c.work_hash, m.metric,"
                " m.value, coalesce(CASE WHEN json_valid(c.worker_json) THEN"
                "  json_extract(c.worker_json, '$.workload') END, r.workload)"
                " FROM cell c JOIN run r ON r.id = c.run_id"
                " JOIN measurement m ON m.cell_id = c.id WHERE c.run_id = ? AND c.discarded = 0 AND c.error = ''"
                " AND m.value IS NOT NULL ORDER BY c.id, m.metric",
            .row = value_row,
            .ctx = &r },
        why, "i", run_id);
}

/* ---------------------------------------------------------------- links */

enum err_code db_link_put(struct db *d, int64_t run_id, int64_t of_run, const char *kind, const char *verdict,
                          struct err *why)
{
    return db_execute(
        d,
        &(struct db_call){ .doing = "link two runs",
                           .sql = "INSERT OR REPLACE INTO run_link(run_id, of_run, kind, verdict)"
                                  " VALUES(?,?,?,?)" },
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
    enum err_code rc = db_execute(
        d,
        &(struct db_call){ .doing = "read a run's link",
                           .sql = "SELECT of_run, kind, verdict FROM run_link WHERE run_id = ?",
                           .row = link_read,
                           .ctx = &r },
        why, "i", run_id);
    *found = r.found && !rc;
    return rc;
}

/* ---------------------------------------------------------------- baselines */

static const struct column BASELINE_COLUMNS[] = {
    COLUMN(baseline_row, id, I64),           COLUMN(baseline_row, name, TEXT),
    COLUMN(baseline_row, config, TEXT),      COLUMN(baseline_row, model_path, TEXT),
    COLUMN(baseline_row, model_sha256, KEY), COLUMN(baseline_row, model_name, TEXT),
    COLUMN(baseline_row, workload, TEXT),    COLUMN(baseline_row, metric, TEXT),
    COLUMN(baseline_row, margin, REAL),      COLUMN(baseline_row, value, REAL),
    COLUMN(baseline_row, machine, TEXT),     COLUMN(baseline_row, run_id, I64),
    COLUMN(baseline_row, set_ms, I64),
};
static const struct table BASELINE = TABLE("baseline", baseline_row, BASELINE_COLUMNS);

enum err_code db_baseline_put(struct db *d, struct baseline_row *b, struct err *why)
{
    static const char DOING[] = "store a baseline";
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    b->set_ms = clock_unix_ms();
    rc = db_execute(d, &(struct db_call){ .doing = DOING, .sql = "DELETE FROM baseline WHERE name = ?" }, why,
                    "t", b->name);
    if (!rc) rc = table_insert(d, &BASELINE, b, DOING, why);
    return db_end(d, rc, DOING, why);
}

enum err_code db_baseline_list(struct db *d, struct baseline_row **rows, int *n, struct err *why)
{
    const struct table_query q = { .table = &BASELINE, .doing = "list baselines", .tail = "ORDER BY name" };
    void *list;
    const enum err_code rc = table_list(d, &q, &list, n, why, "");
    *rows = list;
    return rc;
}
