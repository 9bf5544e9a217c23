/* db/history.c - data to compare runs over time: capsules (the provenance record of a run), values of
 * valid cells, links between runs, and baselines. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- capsules */

struct capsule_row {
    int64_t run_id;
    const char *json;
};
static const struct db_column CAPSULE_COLUMNS[] = {
    DB_COLUMN(capsule_row, run_id, I64),
    DB_COLUMN(capsule_row, json, BORROWED),
};
static const struct db_table CAPSULE = DB_TABLE_KEYED("capsule", capsule_row, CAPSULE_COLUMNS);

enum err_code db_capsule_put(struct db *d, int64_t run_id, const char *json, struct err *why)
{
    const struct db_put p = { .table = &CAPSULE,
                              .doing = "store a run's provenance record",
                              .verb = "INSERT OR REPLACE" };
    return db_table_put(d, &p, &(struct capsule_row){ .run_id = run_id, .json = json }, why);
}

static enum err_code capsule_copy(void *ctx, sqlite3_stmt *s, struct err *why)
{
    char **text = ctx;
    struct capsule_row row;
    const enum err_code rc = db_table_read(&CAPSULE, &row, s, why);
    if (rc) return rc;
    *text = strdup(row.json);
    return *text ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory reading a provenance record");
}

enum err_code db_capsule_get(struct db *d, int64_t run_id, char **json, struct err *why)
{
    const struct db_query q = { .table = &CAPSULE,
                                .doing = "read a run's provenance record",
                                .tail = "WHERE run_id = ?" };
    *json = NULL;
    return db_table_each(d, &q, capsule_copy, json, why, "i", run_id);
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

static const struct db_column LINK_COLUMNS[] = {
    DB_COLUMN(link_row, run_id, I64),
    DB_COLUMN(link_row, of_run, I64),
    DB_COLUMN(link_row, kind, TEXT),
    DB_COLUMN(link_row, verdict, TEXT),
};
static const struct db_table LINK = DB_TABLE_KEYED("run_link", link_row, LINK_COLUMNS);

enum err_code db_link_put(struct db *d, int64_t run_id, int64_t of_run, const char *kind, const char *verdict,
                          struct err *why)
{
    const struct db_put p = { .table = &LINK, .doing = "link two runs", .verb = "INSERT OR REPLACE" };
    struct link_row row = { .run_id = run_id, .of_run = of_run };
    snprintf(row.kind, sizeof row.kind, "%s", kind);
    snprintf(row.verdict, sizeof row.verdict, "%s", verdict);
    return db_table_put(d, &p, &row, why);
}

enum err_code db_link_get(struct db *d, int64_t run_id, struct link_row *out, bool *found, struct err *why)
{
    const struct db_query q = { .table = &LINK, .doing = "read a run's link", .tail = "WHERE run_id = ?" };
    return db_table_first(d, &q, out, found, why, "i", run_id);
}

/* ---------------------------------------------------------------- baselines */

static const struct db_column BASELINE_COLUMNS[] = {
    DB_COLUMN(baseline_row, id, I64),           DB_COLUMN(baseline_row, name, TEXT),
    DB_COLUMN(baseline_row, config, TEXT),      DB_COLUMN(baseline_row, model_path, TEXT),
    DB_COLUMN(baseline_row, model_sha256, KEY), DB_COLUMN(baseline_row, model_name, TEXT),
    DB_COLUMN(baseline_row, workload, TEXT),    DB_COLUMN(baseline_row, metric, TEXT),
    DB_COLUMN(baseline_row, margin, REAL),      DB_COLUMN(baseline_row, value, REAL),
    DB_COLUMN(baseline_row, machine, TEXT),     DB_COLUMN(baseline_row, run_id, I64),
    DB_COLUMN(baseline_row, set_ms, I64),
};
static const struct db_table BASELINE = DB_TABLE("baseline", baseline_row, BASELINE_COLUMNS);

enum err_code db_baseline_put(struct db *d, struct baseline_row *b, struct err *why)
{
    static const char DOING[] = "store a baseline";
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    b->set_ms = clock_unix_ms();
    rc = db_execute(d, &(struct db_call){ .doing = DOING, .sql = "DELETE FROM baseline WHERE name = ?" }, why,
                    "t", b->name);
    if (!rc) rc = db_table_insert(d, &BASELINE, b, DOING, why);
    return db_end(d, rc, DOING, why);
}

enum err_code db_baseline_list(struct db *d, struct baseline_row **rows, int *n, struct err *why)
{
    const struct db_query q = { .table = &BASELINE, .doing = "list baselines", .tail = "ORDER BY name" };
    void *list;
    const enum err_code rc = db_table_list(d, &q, &list, n, why, "");
    *rows = list;
    return rc;
}
