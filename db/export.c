/* db/export.c - one run as SQL text: `qdyno show 7 -o sql | sqlite3 -bail other.db` creates the run in
 * another database. Missing tables are created, so that an empty file can be read with SQL, too. Not exported
 * is what refers to other runs (run_link), what outlives its run (residual), and what is due at this machine
 * (trace_due, run_deleted). */
#include "db/store.h"

#include <stdlib.h>

/* In an order that satisfies references. `shared` rows may already exist in the target from another run. */
static const struct {
    const char *table, *where;
    bool shared;
} PARTS[] = {
    { .table = "machine", .where = "id = (SELECT machine FROM run WHERE id = ?)", .shared = true },
    { .table = "model", .where = "sha256 = (SELECT model_sha256 FROM run WHERE id = ?)", .shared = true },
    { .table = "run", .where = "id = ?" },
    { .table = "capsule", .where = "run_id = ?" },
    { .table = "run_label", .where = "run_id = ?" },
    { .table = "cell", .where = "run_id = ?" },
    { .table = "measurement", .where = "cell_id IN (SELECT id FROM cell WHERE run_id = ?)" },
    { .table = "sample", .where = "cell_id IN (SELECT id FROM cell WHERE run_id = ?)" },
    { .table = "itl", .where = "cell_id IN (SELECT id FROM cell WHERE run_id = ?)" },
    { .table = "request", .where = "cell_id IN (SELECT id FROM cell WHERE run_id = ?)" },
    { .table = "event", .where = "run_id = ?" },
    { .table = "span", .where = "run_id = ?" },
};

static const char DOING[] = "export a run"; /* for messages: "cannot export a run: ..." */

static void append_value(struct str *out, sqlite3_stmt *row, int i)
{
    char number[32];
    const unsigned char *bytes;
    switch (sqlite3_column_type(row, i)) {
    case SQLITE_NULL: str_append(out, "NULL"); break;
    case SQLITE_INTEGER: str_printf(out, "%lld", (long long)sqlite3_column_int64(row, i)); break;
    case SQLITE_FLOAT:
        /* An infinity has no literal; 9e999 reads back as one. */
        sqlite3_snprintf(sizeof number, number, "%!.17g", sqlite3_column_double(row, i));
        str_append(out, number[0] == 'I'                       ? "9e999"
                        : number[0] == '-' && number[1] == 'I' ? "-9e999"
                                                               : number);
        break;
    case SQLITE_BLOB:
        bytes = sqlite3_column_blob(row, i);
        str_append(out, "X'");
        for (int k = 0; k < sqlite3_column_bytes(row, i); k++) str_printf(out, "%02x", bytes[k]);
        str_append(out, "'");
        break;
    default:
        bytes = sqlite3_column_text(row, i);
        if (bytes)
            sink_append(out, SINK_SQL, (const char *)bytes, (size_t)sqlite3_column_bytes(row, i));
        else
            out->failed = true;
    }
}

struct exporter {
    struct str text;
    size_t part;
};

static enum err_code export_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct exporter *e = ctx;
    (void)why;
    str_printf(&e->text, "INSERT %sINTO %s(", PARTS[e->part].shared ? "OR IGNORE " : "",
               PARTS[e->part].table);
    for (int i = 0; i < sqlite3_column_count(row); i++)
        str_printf(&e->text, "%s%s", i ? "," : "", sqlite3_column_name(row, i));
    str_append(&e->text, ") VALUES(");
    for (int i = 0; i < sqlite3_column_count(row); i++) {
        if (i) str_append(&e->text, ",");
        append_value(&e->text, row, i);
    }
    str_append(&e->text, ");\n");
    return ERR_OK;
}

static enum err_code export_schema(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct exporter *e = ctx;
    (void)why;
    const char *sql = (const char *)sqlite3_column_text(row, 0);
    str_printf(&e->text, "CREATE TABLE IF NOT EXISTS %s;\n", sql + sizeof "CREATE TABLE");
    return ERR_OK;
}

static enum err_code export_parts(struct db *d, int64_t id, struct exporter *e, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (e->part = 0; e->part < COUNT_OF(PARTS) && !rc; e->part++) {
        struct db_call call = { DOING, "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?",
                                export_schema, e };
        rc = db_execute(d, &call, why, "t", PARTS[e->part].table);
    }
    for (e->part = 0; e->part < COUNT_OF(PARTS) && !rc; e->part++) {
        struct str sql = { 0 };
        str_printf(&sql, "SELECT * FROM %s WHERE %s", PARTS[e->part].table, PARTS[e->part].where);
        struct db_call call = { DOING, str_text(&sql), export_row, e };
        rc = db_execute(d, &call, why, "i", id);
        str_free(&sql);
    }
    return rc;
}

enum err_code db_run_sql(struct db *d, int64_t id, char **out, struct err *why)
{
    struct exporter e = { 0 };
    struct run_row run;
    *out = NULL;
    /* BEGIN, not BEGIN IMMEDIATE: all tables are read from one snapshot, and a read-only file can be
     * exported. The last argument "": the statement has no parameters. */
    enum err_code rc = db_execute(d, &(struct db_call){ .doing = DOING, .sql = "BEGIN" }, why, "");
    if (rc) return rc;
    str_append(&e.text, "BEGIN;\n");
    if (!(rc = db_run_get(d, id, &run, why))) {
        run_row_free(&run);
        rc = export_parts(d, id, &e, why);
    }
    rc = db_end(d, rc, DOING, why);
    str_append(&e.text, "COMMIT;\n");
    if (!rc && !(*out = str_take(&e.text))) rc = err_set(why, ERR_NOMEM, "out of memory: cannot %s", DOING);
    str_free(&e.text);
    return rc;
}
