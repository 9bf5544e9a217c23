/* db/spool.c - pushes that wait for a network, and the gateway groups that are ours to remove one day. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

static const struct column SPOOL_COLUMNS[] = {
    COLUMN(spool_row, id, I64),          COLUMN(spool_row, target_json, OWNED),
    COLUMN(spool_row, body, OWNED),      COLUMN(spool_row, attempts, INT),
    COLUMN(spool_row, next_try_ms, I64), COLUMN(spool_row, last_error, TEXT),
};
static const struct table SPOOL = { "spool", SPOOL_COLUMNS, COUNT_OF(SPOOL_COLUMNS) };

void spool_row_free(struct spool_row *r)
{
    free(r->target_json);
    free(r->body);
    r->target_json = r->body = NULL;
}

enum err_code db_spool_put(struct db *d, const char *group_url, const char *target_json, const char *body,
                           struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "spool a push",
                                    "INSERT OR REPLACE INTO spool(group_url, target_json, body, attempts,"
                                    " next_try_ms, last_error) VALUES(?,?,?,0,0,'')",
                                    NULL, NULL },
                 why, "ttt", group_url, target_json, body);
}

struct spool_reader {
    struct spool_row *out;
    bool found;
};

static enum err_code spool_first(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct spool_reader *r = ctx;
    r->found = true;
    return table_read(&SPOOL, r->out, row, why);
}

enum err_code db_spool_next(struct db *d, int64_t now_ms, struct spool_row *out, bool *found, struct err *why)
{
    struct spool_reader r = { out, false };
    struct str sql = { 0 };
    memset(out, 0, sizeof *out);
    table_select(&sql, &SPOOL, "WHERE next_try_ms <= ? ORDER BY next_try_ms, id LIMIT 1");
    enum err_code rc = db_do(d, &(struct db_call){ "read the spool", str_text(&sql), spool_first, &r }, why,
                             "i", now_ms);
    str_free(&sql);
    if (rc) spool_row_free(out);
    *found = r.found && !rc;
    return rc;
}

enum err_code db_spool_failed(struct db *d, int64_t id, int64_t next_try_ms, const char *error,
                              struct err *why)
{
    return db_do(d,
                 &(struct db_call){ "update the spool",
                                    "UPDATE spool SET attempts = attempts + 1, next_try_ms = ?,"
                                    " last_error = ? WHERE id = ?",
                                    NULL, NULL },
                 why, "iti", next_try_ms, error, id);
}

enum err_code db_spool_done(struct db *d, int64_t id, struct err *why)
{
    return db_do(d, &(struct db_call){ "update the spool", "DELETE FROM spool WHERE id = ?", NULL, NULL },
                 why, "i", id);
}

static enum err_code read_count(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    *(int *)ctx = sqlite3_column_int(row, 0);
    return ERR_OK;
}

int db_spool_count(struct db *d)
{
    int n = -1;
    db_do(d, &(struct db_call){ "read the spool", "SELECT count(*) FROM spool", read_count, &n }, NULL, "");
    return n;
}

enum err_code db_group_put(struct db *d, const char *group_url, struct err *why)
{
    int64_t now = clock_unix_ms();
    return db_do(d,
                 &(struct db_call){ "note a gateway group",
                                    "INSERT INTO gateway_group VALUES(?,?,?)"
                                    " ON CONFLICT(group_url) DO UPDATE SET last_ms = excluded.last_ms",
                                    NULL, NULL },
                 why, "tii", group_url, now, now);
}
